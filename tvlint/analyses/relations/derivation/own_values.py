"""Parts of sums and of maxima as values of their own.

What a rank reduces of its part of a dimension is a part of the reduction of all, and as well all of the reduction of a slice.
Where an operator or a gather does not take the part, it takes that: block by block, a softmax is computed from the greatest
scores and the sums of powers of each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from tvlint.analyses.relations.derivation.forward_rules import evaluated, of_slices
from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.analyses.relations.terms.sums import may_be_infinite
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Operand
from tvlint.ops.spec import UnsupportedError


def with_values_of_their_own(machine: Machine, rank: RankState, names: Sequence[Operand]) -> bool:
    """Put values of their own in the places of operands that are parts, and return whether there is one.

    That is for sums of products only, which add such values up. The greatest of some scores of which all are masked is no
    number, while that of all of them is: it stays a part.
    """
    terms = machine.world.terms
    if machine.alone or not terms.arithmetic or terms.sealed < 0:
        return False
    found = [_own(machine, rank, name) for name in dict.fromkeys(names) if isinstance(name, str)]
    return any(found)


def _is_part(value: Value | None) -> TypeGuard[Value]:
    return value is not None and (value.fold is not None or value.leaves != ())


def _own(machine: Machine, rank: RankState, name: str) -> bool:
    """Compute a part anew as a value of its own, from such values; return whether it is one, and was none before."""
    found: dict[str, bool] = {}
    parts: dict[str, list[str] | None] = {}
    waiting = [name]
    while waiting:
        each = waiting[-1]
        if each not in parts:
            parts[each] = _parts_behind(machine, rank, each)
        below = parts[each]
        if below is None or any(not found.get(part, part not in parts) for part in below):
            found[waiting.pop()] = False
        elif not found.keys() >= {*below}:
            waiting.append(next(part for part in below if part not in found))
        else:
            found[waiting.pop()] = _computed(machine, rank, each)
    return found[name]


def _parts_behind(machine: Machine, rank: RankState, name: str) -> list[str] | None:
    """Return the parts of which a part is made; None where it is none, or cannot be computed anew of what the rank has."""
    held = rank.local.get(name)
    operator, saved = rank.saved.get((name,), (None, None))
    if not _is_part(held) or operator is None or saved is None or saved.outputs != (held,):
        return None
    if held.fold is not None and may_be_infinite(machine.world.terms, held.term, of_any=True):
        return None
    form = machine.cases.form(operator, machine.plan.tensors)
    names = operator.tensor_operands
    if form.spec is None or form.spec.may_draw or len(names) != len(saved.inputs):
        return None
    pairs = [(each, value) for each, value in zip(names, saved.inputs, strict=True) if _is_part(value)]
    return [each for each, _ in pairs] if all(rank.local.get(each) is value for each, value in pairs) else None


def _computed(machine: Machine, rank: RankState, name: str) -> bool:
    """Put a value of its own in the place of a part that is made of such values; return whether there is one."""
    operator, saved = rank.saved[name,]
    form = machine.cases.form(operator, machine.plan.tensors)
    pairs = [*zip(operator.tensor_operands, saved.inputs, strict=True)]
    values = tuple(rank.local[each] if _is_part(value) else value for each, value in pairs)
    known = tuple(value for value in values if value is not None)
    if form.spec is None or len(known) < len(values):
        return False
    ways = [evaluated(machine, form, form.spec, known)] if any(_is_part(value) for _, value in pairs) else []
    try:
        made = next(way for way in (*ways, *of_slices(machine, form, form.spec, known)) if not _is_part(way.outputs[0]))
    except (Mismatch, UnsupportedError, StopIteration):
        return False
    rank.saved[name,] = operator, made
    rank.local[name] = made.outputs[0]
    return True
