"""Positions that a rank counts, and rows that it takes of a table, from another place than that of the shard they meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.index_maps import Pieces, joined
from tvlint.ir.operators import Compute
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_ELEMENTWISE = (Trait.SUM, Trait.SCALING, Trait.COMPARISON, Trait.MASKING)

_DEEPEST = 64
"""Positions are looked for in so many values that a value is computed from."""


def misplaced_positions(projection: Projection) -> Iterator[Defect]:
    """Yield what combines a shard element by element with what the rank computes from positions or rows of other indices.

    Its sizes are those of the shard, so that the whole values do not fit each other: the relations say nothing of its result.
    """
    for site in projection.sites:
        operator = site.operator
        if not isinstance(operator, Compute) or not has_trait(operator.op, *_ELEMENTWISE):
            continue
        for rank in site.ranks():
            text, is_sure = _misplaced(projection, operator, rank)
            if text:
                repair, unless = "count from the first index of the shard", "" if is_sure else "each shard starts anew"
                found = Defect("mismatched-shards", True, text, rank, repair=repair, unless=unless)
                yield at(operator, site.segment.name, found)


def _misplaced(projection: Projection, operator: Compute, rank: int) -> tuple[str, bool]:
    """Return which indices the operands have on a rank, where they are others of one dimension; empty where they are not.

    It is sure that no shard starts anew where what has other indices is made of the value itself that the rank has a shard of.
    Heads may be packed in the last of several dimensions, and each counts its features from zero.
    """
    held, terms, values = projection.held.get(rank, {}), projection.alone.world.terms, projection.alone.world.values
    names = operator.tensor_operands
    known = [value for name in names if (value := held.get(name)) is not None and value.clean]
    for shard, other in permutations(known) if len(known) == len(names) == 2 else ():
        for back in range(1, min(len(shard.box), len(other.box)) + 1):
            pieces, low_high = values.pieces_of(shard)[-back], other.box[-back]
            size, counted = terms.shape[terms.whole(shard.term)][-back], terms.shape[other.term][-back]
            if low_high != (0, counted) or counted == size or pieces == ((0, size),) or counted == 1:
                continue
            taken, of = _indices(terms, other.term, len(other.box) - back, size)
            is_packed = back == 1 < len(shard.box) and of == "positions"
            if taken and not is_packed and pieces != taken:
                text = f"{name_of(operator)} on {{ranks}} combines indices {_listed(pieces)} of {size} of one operand"
                text += f" with values computed from {of} {_listed(taken)}"
                return text, of == "indices" and _is_made_of(terms, other.term, terms.whole(shard.term))
    return "", False


def _is_made_of(terms: Terms, term: int, source: int) -> bool:
    """Return whether a value is computed of another one."""
    seen, waiting = {term}, [term]
    while waiting and source not in seen:
        below = set(terms.operands[waiting.pop()]) - seen
        seen |= below
        waiting.extend(below)
    return source in seen


def _listed(pieces: Pieces) -> str:
    return ", ".join(f"{low}:{high}" for low, high in pieces)


def _indices(terms: Terms, term: int, dim: int, size: int, joined_here: bool = False) -> tuple[Pieces, str]:
    """Return the positions that a value is computed from along a dimension, or the indices of a value of at least `size`, one
    behind the other, and which of the two.

    Nothing where it is of none, where something is added on the way, which may be where the shard begins, or a rest is taken.
    """
    waiting, seen = [(term, dim)], set[tuple[int, int]]()
    while waiting and len(seen) < _DEEPEST:
        each, along = waiting.pop()
        if (each, along) in seen:
            continue
        seen.add((each, along))
        head, operands, op, counted = terms.keys[each], terms.operands[each], str(terms.keys[each][0]), terms.shape[each][along]
        if has_trait(op, Trait.POSITIONS):
            start, step = head[2][:2]
            return (((start, start + counted),) if isinstance(start, int) and step == 1 else ()), "positions"
        if has_trait(op, Trait.RANGES) and along < len(head[2]) and isinstance(head[2][along], tuple):
            start, _, step = head[2][along]
            is_part = step == 1 and terms.shape[operands[0]][along] >= size
            return (((start, start + counted),) if is_part else ()), "indices"
        if has_trait(op, Trait.SUM) or (has_trait(op, Trait.RESTRICTED) and has_trait(op, Trait.NONLINEAR)):
            return (), ""
        if has_trait(op, Trait.JOIN) and sum(terms.shape[operand][along] for operand in operands) == counted:
            parts = [((), "")] if joined_here else [_indices(terms, operand, along, size, True) for operand in operands]
            together = all(pieces for pieces, _ in parts) and len({of for _, of in parts}) == 1
            return (joined(piece for pieces, _ in parts for piece in pieces) if together else ()), parts[0][1]
        if len(head) == 5 and len(head[3]) > len(operands):
            named = head[3][len(operands)][along] if along < len(head[3][len(operands)]) else None
            places = zip(operands, head[3], strict=False)
            waiting += [(operand, names.index(named)) for operand, names in places if named is not None and named in names]
        elif has_trait(op, Trait.VIEW) and len(operands) == 1:
            before, after = ([at for at, size in enumerate(terms.shape[each]) if size != 1] for each in (operands[0], each))
            same = [terms.shape[operands[0]][at] for at in before] == [terms.shape[each][at] for at in after]
            waiting += [(operands[0], before[after.index(along)])] if same and along in after else []
    return (), ""
