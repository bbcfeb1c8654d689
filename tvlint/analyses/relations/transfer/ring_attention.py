"""Attention over some of the keys, merged: ring context parallelism.

With `x_s` the scores of one query, the result over a set S of keys is `o_S = sum e^x_s v_s / sum e^x_s`, and its log-sum-exp
`l_S = log sum e^x_s`. For disjoint S and T, `merge(o_S, l_S, o_T, l_T)` is `(o_ST, l_ST)` of their union: the sums add up. A
result over S is thus stated as the result over all keys with the indices that it has seen; it is that when it has seen all.

The gradient of the merged result is a function of S, too. With `w_S = e^(l_S - l)`, merging in any order gives `o_S` the
gradient `w_S g` and `l_S` the gradient `w_S (o_S - o) g`, and by the chain rule attention over S makes of these its share
of the gradient of attention over all keys: a sum over the keys for the queries, and the piece of S for keys and values.

Keys that no query of a result may see under a causal mask add nothing to these sums: they count neither as seen nor as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.pending_ranges import Ranges, overlapping, united
from tvlint.analyses.relations.transfer.relation import Fold, Value

ATTENTION = "scaled-dot-product-attention"
_PART = "attention part gradient"


def merges_parts(values: Sequence[Value]) -> bool:
    """Return whether the operands of a merge are parts of attention, rather than values of their own."""
    return any(value.fold is not None for value in values) or values[0].term == values[2].term


def merge(world: World, values: Sequence[Value]) -> tuple[Value, Value]:
    """Return the result and its log-sum-exp over the keys that the two pairs of operands have seen."""
    one, this_value, other, second = values
    terms = world.terms
    if one.term != other.term or this_value.term != second.term or not _belong(world, one, this_value):
        raise Mismatch("merges-different-values", "merges what are not parts of one attention", refutes=False)
    if any(value.leaves or value.coefficient != 1 for value in values):
        raise Mismatch("missing-allreduce", "merges partial sums", refutes=False)
    if one.box != other.box or this_value.box != second.box or one.box[:-1] != this_value.box:
        raise Mismatch("mismatched-shards", "merges different slices of a value", refutes=True)
    folds = [value.fold for value in values if value.fold is not None]
    if any((fold.kind, fold.number, fold.size) != ("merge", folds[0].number, folds[0].size) for fold in folds):
        raise Mismatch("merges-different-values", f"merges {fold_text(folds[0])} with something else", refutes=False)
    size = folds[0].size if folds else terms.shape[terms.operands[one.term][1]][-2]
    seen = [_seen(value, size) for value in values]
    if seen[0] != seen[1] or seen[2] != seen[3]:
        raise Mismatch("merges-different-values", "merges a result with the log-sum-exp over other keys", refutes=True)
    if overlapping(seen[0], seen[2]):
        raise Mismatch("merged-twice", f"merges attention over {_text(seen[0])} with that over {_text(seen[2])}", refutes=True)
    fold = Fold("merge", folds[0].number if folds else 0, united(seen[0], seen[2]), size)
    return world.values.folded(one.term, one.box, fold), world.values.folded(this_value.term, this_value.box, fold)


def _belong(world: World, result: Value, logarithm: Value) -> bool:
    """Return whether the log-sum-exp is that of the scores of the result."""
    terms = world.terms
    head, other = terms.keys[result.term], terms.keys[logarithm.term]
    if head[0] != ATTENTION or other[0] != ATTENTION or (head[1], other[1]) != (0, 1) or head[2] != other[2]:
        return False
    of_result = terms.operands[result.term]
    return (*of_result[:2], *of_result[3:]) == terms.operands[logarithm.term] and len(of_result) >= 3


def _seen(value: Value, size: int) -> Ranges:
    return value.fold.covered if value.fold is not None else ((0, size),)


def _text(ranges: Ranges) -> str:
    return "indices " + ", ".join(f"{low}:{high}" for low, high in ranges)


def merge_gradient(
    world: World, inputs: Sequence[Value], outputs: Sequence[Value], position: int, gradients: Mapping[int, Value]
) -> Value:
    """Return the gradient of one operand of a merge of parts."""
    result, given = outputs[0], gradients.get(0)
    if given is None or result.box[-1] != (0, world.terms.shape[result.term][-1]):
        raise Mismatch("part-gradient", "has no gradient of a whole row of its result", refutes=False)
    if given.leaves:
        raise Mismatch("missing-allreduce", "uses a partial sum as if it were complete", refutes=False)
    size = next((value.fold.size for value in (*inputs, given) if value.fold is not None), 0)
    if given.fold is not None:
        root = _root(world, result, _seen(result, size), gradients)
    elif result.fold is not None or 1 in gradients:
        raise Mismatch("part-gradient", "has a gradient of the log-sum-exp over all keys, or none over some", refutes=False)
    else:
        root = given.term
    which, operand = position % 2, inputs[position]
    shape, slot = world.terms.shape[operand.term], world.terms.slot[operand.term]
    term = world.terms.term((_PART, which), (root, result.term), shape, slot)
    if not world.terms.foreign(root) and not world.terms.foreign(result.term):
        world.terms.auxiliary.add(term)
    number = next((value.fold.number for value in inputs if value.fold is not None), 0)
    fold = Fold("gradient", number, _seen(operand, size), size)
    return world.values.folded(term, operand.box, fold, given.coefficient)


def _root(world: World, result: Value, covered: Ranges, gradients: Mapping[int, Value]) -> int:
    """Return the gradient of the result over all keys, which the gradients of a part's result and log-sum-exp come from."""
    terms = world.terms
    found = [gradients.get(i) for i in (0, 1)]
    roots = set()
    for which, value in enumerate(found):
        if value is None or value.fold is None or terms.keys[value.term] != (_PART, which):
            raise Mismatch("part-gradient", "lacks the gradient of the result or of the log-sum-exp of its keys", refutes=False)
        root, whole = terms.operands[value.term]
        if whole != result.term or value.fold.covered != covered or value.leaves:
            raise Mismatch("part-gradient", f"has {fold_text(value.fold)} for {_text(covered)}", refutes=False)
        roots.add((root, value.coefficient))
    if len(roots) != 1:
        raise Mismatch("part-gradient", "has gradients of two different results", refutes=False)
    return next(iter(roots))[0]


def gradient_over_all_keys(world: World, result: Value, gradients: Mapping[int, Value]) -> Value:
    """Return the gradient of the result over all keys, from those of a part's result and log-sum-exp."""
    given = gradients.get(0)
    size = given.fold.size if given is not None and given.fold is not None else 0
    root = _root(world, result, _seen(result, size), gradients)
    coefficient = given.coefficient if given is not None else 0
    return world.values.multiple(root, result.box, coefficient)
