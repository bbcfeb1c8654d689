"""Attention over some of the keys, merged into attention over more of them, and its gradients.

For one query, let `Z_S` be the sum over the keys `S` of the exponentials `e_j` of its scores, `l_S = log Z_S`, and `o_S` the
mean of the values of `S` with these exponentials as weights.

Forwards: for `S` and `T` without a common key, `Z_ST = Z_S + Z_T` and `Z_ST o_ST = Z_S o_S + Z_T o_T`, and that is the merge.
Keys that a mask hides from every query have no exponential, so that they need not be seen.

Backwards: let `g` be the gradient of `o` over all keys, and none that of `l`. Any order of merges makes `o` the mean of `o_S`
with weights `w_S = Z_S / Z`, so by the chain rule `o_S` has the gradient `w_S g`, and `l_S` has `w_S (o_S - o) g`. Through the
softmax over `S` the score of key `j` then has `e_j / Z_S` times `w_S v_j g - w_S o_S g + w_S (o_S - o) g`, which is
`e_j / Z (v_j - o) g`, and its value has `e_j / Z g`: what attention over all keys gives key `j`. Queries sum that over the
keys, here over those of `S`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.certificate.form import Coefficient, Fold, Part, Relation
from tvlint.certificate.operators import World, made
from tvlint.certificate.sums import fold_of, folded
from tvlint.certificate.tables import SHARE, Rejected
from tvlint.certificate.uses import Kept, gradient_use

ATTENTION = "scaled-dot-product-attention"


def merged(world: World, values: Sequence[Relation]) -> tuple[Relation, Relation]:
    """The result and log-sum-exp over the keys of both, of a result and log-sum-exp over some keys and over others."""
    terms = world.tables.terms
    result, logarithm = values[0], values[1]
    first = next((fold for value in values if (fold := fold_of(value)) is not None), None)
    if first is None or first.kind != "merge" or (values[2].term, values[3].term) != (result.term, logarithm.term):
        raise Rejected("what is merged is not attention over parts of the same keys")
    one, other = terms[result.term], terms[logarithm.term]
    alike = (one.head[0], one.head[2]) == (other.head[0], other.head[2]) and len(one.operands) > 2
    of_same = one.operands[:2] + one.operands[3:] == other.operands
    if one.head[0] != ATTENTION or not alike or (one.head[1], other.head[1]) != (0, 1) or not of_same:
        raise Rejected("what is merged is not attention with its own log-sum-exp")
    boxes = [value.box if i % 2 else value.box[:-1] for i, value in enumerate(values)]
    if any(box != boxes[0] for box in boxes) or values[2].box != result.box or one.slot != other.slot:
        raise Rejected("what is merged is attention of different queries")
    seen = [_seen(value, first) for value in values]
    if seen[0] != seen[1] or seen[2] != seen[3]:
        raise Rejected("attention over some keys is merged with a log-sum-exp over others")
    if any(a[0] < b[1] and b[0] < a[1] for a in seen[0] for b in seen[2]):
        raise Rejected("attention is merged with attention over one of its own keys")
    both = (seen[0], seen[2])
    return folded(world.tables, result.term, result.box, first, both), folded(
        world.tables, logarithm.term, logarithm.box, first, both
    )


def _seen(value: Relation, like: Fold) -> tuple[tuple[int, int], ...]:
    """The keys that a result has seen; all that count where it is complete."""
    own = fold_of(value)
    if own is None:
        if value.parts or value.coefficient != 1:
            raise Rejected("a partial sum or a multiple is merged")
        return ((0, like.size),)
    (part,) = value.parts
    if own._replace(seen=like.seen) != like or part.coefficient != 1:
        raise Rejected("what is merged is not attention over parts of the same keys")
    return own.seen


def merge_gradient(world: World, kept: Kept, position: int, given: Mapping[int, Relation]) -> Relation:
    """The gradient of operand `position` of a merge of attention over parts."""
    tables, values, result = world.tables, kept.inputs, kept.outputs[0]
    like = next(fold for value in values if (fold := fold_of(value)) is not None)
    if result.box[-1] != (0, tables.terms[result.term].shape[-1]):
        raise Rejected("a merge has the gradient of some features only")
    root, coefficient = _root(world, result, like, given)
    which, operand = position % 2, values[position]
    own = tables.terms[operand.term]
    term = tables.term((SHARE, which), (root, result.term), own.shape, own.slot)
    fold = like._replace(kind="gradient", seen=_seen(operand, like))
    return tables.relation(term, operand.box, 1, frozenset({Part(frozenset(), coefficient, frozenset(), fold)}))


def _root(world: World, result: Relation, like: Fold, given: Mapping[int, Relation]) -> tuple[int, Coefficient]:
    """The gradient, as a term and a factor, of the result over all keys, of which `given` are the shares of `result`."""
    terms, gradient = world.tables.terms, given.get(0)
    if gradient is None:
        raise Rejected("attention over some keys has no gradient of its result")
    if fold_of(gradient) is None:
        if fold_of(result) is not None or gradient.parts or set(given) != {0}:
            raise Rejected("attention over some keys has a gradient that is not its share of that over all")
        if terms[gradient.term][2:] != terms[result.term][2:]:
            raise Rejected("attention has a gradient of another shape")
        return gradient.term, gradient.coefficient
    roots = {_share(world, result, like, which, given.get(which)) for which in (0, 1)}
    if len(roots) != 1 or set(given) != {0, 1}:
        raise Rejected("attention over some keys has gradients of different results")
    return roots.pop()


def _share(world: World, result: Relation, like: Fold, which: int, value: Relation | None) -> tuple[int, Coefficient]:
    """What `value` is the share of, as the gradient of the result (0) or log-sum-exp (1) over the keys of `result`."""
    own = fold_of(value) if value is not None else None
    if value is None or own is None or own != like._replace(kind="gradient", seen=_seen(result, like)):
        raise Rejected("attention over some keys has a gradient over others, or lacks that of its log-sum-exp")
    term, (part,) = world.tables.terms[value.term], value.parts
    if term.head != (SHARE, which) or term.operands[1] != result.term:
        raise Rejected("attention over some keys has the gradient of another value")
    return term.operands[0], part.coefficient


def part_gradient(world: World, kept: Kept, position: int, given: Mapping[int, Relation]) -> Relation:
    """What attention over some keys adds to the gradient of operand `position` of attention over all."""
    like = next((fold for value in given.values() if (fold := fold_of(value)) is not None), None)
    if like is None or like.kind != "gradient" or kept.op != ATTENTION or len(kept.outputs) != 2:
        raise Rejected(f"`{kept.op}` has the gradient of a part")
    root, coefficient = _root(world, kept.outputs[0], like._replace(kind="merge"), given)
    shared = frozenset(name for name, kind in kept.bound.splits.items() if kind == "merge")
    whole = world.tables.relation(root, kept.outputs[0].box, coefficient)
    use = gradient_use(kept, position, {0: whole}, shared)
    if use is None:
        raise Rejected(f"`{kept.op}` has no gradient of operand {position}")
    return made(world, use)
