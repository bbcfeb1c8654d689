"""Calls that the operator table does not have: nothing that they can reach is known after them.

A call that gives something may have changed its operands, and so does a step of an optimizer. Another one that gives nothing is
made for its effect, which may be on anything that its rank holds: all weights, values, gradients and random streams.
"""

from __future__ import annotations

import re

from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.relations.derivation.overwriting import forget_what_was_read
from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.ir.operators import NOT_UNDERSTOOD, Compute
from tvlint.ir.plan import Role
from tvlint.ops.annotations.declared import AnnotationError, parse
from tvlint.ops.table import spec_of

_RANDOM = re.compile(r"(?i)drop|noise|rand|sampl|bernoulli|gumbel|jitter|stochastic")
"""Names of functions that draw random numbers."""
_FRAMEWORKS = ("torch", "nnscaler", "_operator", "builtins")
"""Modules whose functions a project does not declare."""


def why_unknown(operator: Compute) -> str:
    """Return why nobody knows what a call does, with the declaration of it for a function of the project's own code."""
    if NOT_UNDERSTOOD in operator.attributes:
        return str(operator.attributes[NOT_UNDERSTOOD])
    if operator.in_place:
        return f"`{operator.op}` overwrites its operand"
    if spec_of(operator.op) is not None:
        return f"`{operator.op}` gives nothing, and its effect is not known"
    lacks = f"`{operator.op}` is not in the operator table"
    if not operator.outputs:
        lacks += ", and its effect is not known"
    module, _, name = operator.op.rpartition(".")
    if not module or module.split(".")[0] in _FRAMEWORKS:
        return lacks
    meaning = f"`annotation = {_claimed(operator)!r}`" if operator.outputs else "`same-as = 'print'` if it has none"
    drawn = " `random = true`, since its name says that it draws random numbers" if _RANDOM.search(name) else ""
    return f"{lacks}; if it is your own, declare it: `[[operator]]` `name = {name!r}` {meaning}{drawn}"


def _claimed(operator: Compute) -> str:
    """Return the annotation that the exporter gives an operator, where the project file accepts it."""
    try:
        parse(operator.annotation)
    except AnnotationError:
        return "..."
    return operator.annotation


def forget_what_it_reaches(machine: Machine, rank: RankState, operator: Compute) -> None:
    """Make unknown all that a call of unknown effect may have changed on the rank."""
    names = {name for name in operator.inputs if isinstance(name, str)}
    if not names or not (operator.outputs or is_step(operator)):
        _forget_all(machine, rank)
        return
    reached = {id(value) for name in names if (value := rank.local.get(name)) is not None}
    for held in (rank.local, rank.environment):
        held.update((name, None) for name, value in held.items() if name in names or id(value) in reached)
    rank.local.update(dict.fromkeys(names))
    rank.changed.update(names)
    rank.renewed.update((name, None) for name in rank.renewed if name in names)
    rank.gradients.update((machine.weight_of[name], None) for name in names if name in machine.weight_of)
    machine.derived.changed.update((rank.number, name) for name in names)
    forget_what_was_read(rank, names)


def _forget_all(machine: Machine, rank: RankState) -> None:
    rank.unknown = True
    for held in (rank.local, rank.environment):
        held.update(dict.fromkeys(held))
    rank.renewed.update(dict.fromkeys(rank.renewed))
    weights = [name for name, tensor in machine.plan.tensors.items() if tensor.role is Role.WEIGHT]
    rank.gradients.update(dict.fromkeys(weights))
    machine.derived.changed.update((rank.number, name) for name in weights)
