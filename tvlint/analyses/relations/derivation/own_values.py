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
    held = rank.local.get(name)
    operator, saved = rank.saved.get((name,), (None, None))
    if not _is_part(held) or operator is None or saved is None or saved.outputs != (held,):
        return False
    if held.fold is not None and may_be_infinite(machine.world.terms, held.term, of_any=True):
        return False
    form = machine.cases.form(operator, machine.plan.tensors)
    names = [operand for operand in operator.inputs if isinstance(operand, str)]
    if form.spec is None or form.spec.may_draw or len(names) != len(saved.inputs):
        return False
    pairs = [*zip(names, saved.inputs, strict=True)]
    for each, value in pairs:
        if _is_part(value) and not (rank.local.get(each) is value and _own(machine, rank, each)):
            return False
    values = tuple(rank.local[each] if _is_part(value) else value for each, value in pairs)
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values):
        return False
    ways = [evaluated(machine, form, form.spec, known)] if any(_is_part(value) for _, value in pairs) else []
    try:
        made = next(way for way in (*ways, *of_slices(machine, form, form.spec, known)) if not _is_part(way.outputs[0]))
    except (Mismatch, UnsupportedError, StopIteration):
        return False
    rank.saved[name,] = operator, made
    rank.local[name] = made.outputs[0]
    return True
