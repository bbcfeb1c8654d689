"""Positions that a rank counts from another place than that of the shard they meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Compute
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_ELEMENTWISE = (Trait.SUM, Trait.SCALING, Trait.COMPARISON, Trait.MASKING)

_DEEPEST = 64
"""Positions are looked for in so many values that a value is computed from."""


def misplaced_positions(projection: Projection) -> Iterator[Defect]:
    """Yield what combines a shard element by element with what the rank computes from positions of other indices.

    Its sizes are those of the shard, so that the whole values do not fit each other: the relations say nothing of its result.
    """
    for site in projection.sites():
        operator = site.operator
        if not isinstance(operator, Compute) or not has_trait(operator.op, *_ELEMENTWISE):
            continue
        for rank in site.ranks():
            text = _misplaced(projection, operator, rank)
            if text:
                repair, unless = "count from the first index of the shard", "each shard starts anew"
                found = Defect("mismatched-shards", True, text, rank, repair=repair, unless=unless)
                yield at(operator, site.segment.name, found)


def _misplaced(projection: Projection, operator: Compute, rank: int) -> str:
    """Return which indices the operands have on a rank, where they are others of one dimension; empty where they are not.

    Heads may be packed in the last of several dimensions, and each counts its features from zero.
    """
    held, terms, values = projection.held.get(rank, {}), projection.alone.world.terms, projection.alone.world.values
    names = [name for name in operator.inputs if isinstance(name, str)]
    known = [value for name in names if (value := held.get(name)) is not None and value.clean]
    for shard, other in permutations(known) if len(known) == len(names) == 2 else ():
        for back in range(1 if len(shard.box) == 1 else 2, min(len(shard.box), len(other.box)) + 1):
            pieces, low_high = values.pieces_of(shard)[-back], other.box[-back]
            size, counted = terms.shape[terms.whole(shard.term)][-back], terms.shape[other.term][-back]
            if low_high != (0, counted) or counted == size or pieces == ((0, size),) or counted == 1:
                continue
            start = _first_position(terms, other, len(other.box) - back)
            if start is not None and pieces != ((start, start + counted),):
                indices = ", ".join(f"{low}:{high}" for low, high in pieces)
                text = f"{name_of(operator)} on {{ranks}} combines indices {indices} of {size} of one operand"
                return f"{text} with values computed from positions {start}:{start + counted}"
    return ""


def _first_position(terms: Terms, value: Value, dim: int) -> int | None:
    """Return from which number on the positions count that a value is computed of along a dimension.

    None where it is of none, and where something is added on the way, which may be where the shard begins, or a rest is taken.
    """
    waiting, seen = [(value.term, dim)], set[tuple[int, int]]()
    while waiting and len(seen) < _DEEPEST:
        term, along = waiting.pop()
        if (term, along) in seen:
            continue
        seen.add((term, along))
        head, operands, op = terms.keys[term], terms.operands[term], str(terms.keys[term][0])
        if has_trait(op, Trait.POSITIONS):
            start, step = head[2][:2]
            return start if isinstance(start, int) and step == 1 else None
        if has_trait(op, Trait.SUM) or (has_trait(op, Trait.RESTRICTED) and has_trait(op, Trait.NONLINEAR)):
            return None
        if len(head) == 5 and len(head[3]) > len(operands):
            named = head[3][len(operands)][along] if along < len(head[3][len(operands)]) else None
            places = zip(operands, head[3], strict=False)
            waiting += [(operand, names.index(named)) for operand, names in places if named is not None and named in names]
        elif has_trait(op, Trait.VIEW) and len(operands) == 1:
            before, after = ([at for at, size in enumerate(terms.shape[each]) if size != 1] for each in (operands[0], term))
            same = [terms.shape[operands[0]][at] for at in before] == [terms.shape[term][at] for at in after]
            waiting += [(operands[0], before[after.index(along)])] if same and along in after else []
    return None
