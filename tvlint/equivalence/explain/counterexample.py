"""Numbers on which two operators differ: what turns a different expression into a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.derivatives import gradient
from tvlint.ops.field import Array, Floats
from tvlint.ops.spec import ONE, Bound, Names, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of

_GRADIENT = " gradient"
_SEEDS = 3
_LARGEST_WHOLE = 64
_MOST_ELEMENTS = 1 << 16
_MOST_TERMS = 64

_EITHER_SIGN = (Trait.SUM, Trait.NEGATION, Trait.SCALING, Trait.PRODUCT, Trait.VIEW, Trait.NORMALISATION)
"""Operators whose results are of either sign where an operand is."""


def difference(terms: Terms, expected: int, actual: int) -> str:
    """Return an element on which two terms with the same operands differ, in words; empty when none is found.

    Both operators are run on the same small random operands: of any sign where the operand can be of any sign, in (0, 1)
    elsewhere. Empty as well for operators that have no meaning in the table.
    """
    import numpy as np

    heads = (terms.keys[expected], terms.keys[actual])
    operands = terms.operands[actual]
    if operands != terms.operands[expected] or any(len(head) != 5 for head in heads):
        return ""
    shapes = _small_shapes(terms, heads, operands)
    if sum(map(prod, shapes)) > _MOST_ELEMENTS:
        return ""
    for seed in range(_SEEDS):
        random = np.random.default_rng(seed)
        drawn: dict[int, Array] = {}
        for term, shape in zip(operands, shapes, strict=True):
            drawn.setdefault(term, _draw(terms, term, shape, random))
        values = [drawn[term] for term in operands]
        if any(value.shape != shape for value, shape in zip(values, shapes, strict=True)):
            return ""
        try:
            with np.errstate(all="ignore"):
                left, right = (np.asarray(evaluate(head, values)) for head in heads)
        except (UnsupportedError, ValueError, IndexError, TypeError, ArithmeticError, StopIteration):
            return ""
        if left.shape != right.shape:
            return ""
        wrong = np.isfinite(left) & np.isfinite(right) & ~np.isclose(left, right, rtol=1e-7, atol=1e-10)
        for place in np.argwhere(wrong)[:1]:
            at = tuple(int(n) for n in place)
            return f"{_where(values, left, at)} it gives {right[at]:.6g} and the reference {left[at]:.6g}"
    return ""


def _where(values: Sequence[Array], result: Array, at: tuple[int, ...]) -> str:
    if len(values) == 1 and values[0].shape == result.shape:
        return f"at {values[0][at]:.6g}, element {at} of random numbers of shape {result.shape},"
    shapes = ", ".join(str(value.shape) for value in values)
    return f"at element {at}, for random operands of shape {shapes},"


def evaluate(head: tuple[Any, ...], values: Sequence[Array]) -> Array:
    """Return what a term with this head makes of the values of its operands.

    Raises UnsupportedError where the operator, or what its gradient needs, is not known from the head alone.
    """
    op, which, attributes, pattern, extra = head
    if op.endswith(_GRADIENT):
        return _gradient(head, values)
    operands, result, (summed, averaged, whole) = _named(pattern, len(values))
    spec = spec_of(op)
    if spec is None or spec.evaluate is None:
        raise UnsupportedError(f"`{op}` has no meaning in the table")
    known = {name for names in operands for name in names}
    free = [name for name in result if name != ONE and name not in known]
    sizes = dict(zip(free, extra, strict=True))
    bound = Bound(operands, (result,) * (which + 1), summed, averaged, whole, attributes=attributes, sizes=sizes)
    found: Array = spec.evaluate(bound, values, Floats())[which]
    return found


def _named(pattern: tuple[tuple[int, ...], ...], count: int) -> tuple[tuple[Names, ...], Names, list[frozenset[str]]]:
    """Names of the operands and the result, and the sets of summed, averaged and whole names."""
    tensors = [tuple(ONE if n < 0 else f"d{n}" for n in numbers) for numbers in pattern]
    return tuple(tensors[:count]), tensors[count], [frozenset(names) for names in tensors[count + 1 :]]


def _gradient(head: tuple[Any, ...], values: Sequence[Array]) -> Array:
    import numpy as np

    op, which, attributes, pattern, _ = head
    op = op[: -len(_GRADIENT)]
    operands, result, (_, averaged, whole) = _named(pattern, len(values))
    position, outputs = which or (0, (0,))
    spec = spec_of(op)
    if spec is None or spec.evaluate is None or outputs != (0,):
        raise UnsupportedError(f"the gradient of `{op}` is not known from its term")
    needs, given = list(operands[1:]), list(values[1:])
    if not needs and has_trait(op, Trait.SUM) and not attributes[1:]:
        needs, given = [operands[0]], [np.zeros_like(values[0])]
    if len(needs) <= position or needs[position] != result or has_trait(op, Trait.PRODUCT):
        if len(needs) > 1 or (needs and not has_trait(op, Trait.PRODUCT, Trait.SUM)) or position > len(needs):
            raise UnsupportedError(f"the gradient of `{op}` is not known from its term")
        sizes = {n: s for names, x in zip(operands, values, strict=True) for n, s in zip(names, x.shape, strict=True)}
        if any(name not in sizes and name != ONE for name in result):
            raise UnsupportedError(f"the gradient of `{op}` has dimensions of its own")
        needs.insert(position, result)
        given.insert(position, np.full([1 if name == ONE else sizes[name] for name in result], 0.5))
    bound = Bound(tuple(needs), (operands[0],), frozenset(), averaged, whole, attributes=attributes)
    return gradient(spec.evaluate, bound, given, position, {0: values[0]})


def _small_shapes(terms: Terms, heads: Sequence[tuple[Any, ...]], operands: Sequence[int]) -> list[tuple[int, ...]]:
    """Return a small shape for every operand, in which dimensions that either operator ties together have one size.

    Dimensions of size 1 stay, and so do whole ones of moderate size, in which an operator may count positions.
    """
    places = [(i, d) for i, term in enumerate(operands) for d in range(len(terms.shape[term]))]
    tied: dict[Any, Any] = {place: place for place in places}

    def root(place: Any) -> Any:
        while tied[place] != place:
            place = tied[place]
        return place

    counted = set()
    first: dict[int, int] = {}
    for i, term in enumerate(operands):
        for d in range(len(terms.shape[term])):
            tied[root((i, d))] = root((first.setdefault(term, i), d))
    results: list[Names] = []
    for number, head in enumerate(heads):
        names_of, result, sets = _named(head[3], len(operands))
        by_name: dict[str, Any] = {}
        for i, names in enumerate(names_of):
            for d, name in enumerate(names):
                if name != ONE:
                    tied[root((i, d))] = root(by_name.setdefault(name, (i, d)))
                    if name in sets[2]:
                        counted.add((i, d))
        results.append(tuple(by_name.get(name, "") if name != ONE else "" for name in result))
        if number:
            for one, other in zip(*results, strict=False):
                if one and other:
                    tied[root(one)] = root(other)
    groups = sorted({root(place) for place in places})
    whole = {root(place) for place in counted}
    sizes: dict[Any, int] = {}
    for number, group in enumerate(groups):
        real = [terms.shape[operands[i]][d] for i, d in places if root((i, d)) == group]
        keep = max(real) if group in whole and max(real) <= _LARGEST_WHOLE else min(max(real), 2 + number % 3)
        sizes[group] = keep
    return [
        tuple(1 if size == 1 else sizes[root((i, d))] for d, size in enumerate(terms.shape[term]))
        for i, term in enumerate(operands)
    ]


def _draw(terms: Terms, term: int, shape: tuple[int, ...], random: Any) -> Array:
    head: tuple[Any, ...] = terms.keys[term]
    if head[0] in ("input", "buffer") and str(head[2]).rsplit(".", 1)[-1].startswith(("int", "uint", "bool", "long")):
        return random.integers(0, 2, shape)  # type: ignore[no-any-return]
    low, high = (-1.5, 1.5) if _any_sign(terms, term) else (0.05, 0.95)
    return random.uniform(low, high, shape)  # type: ignore[no-any-return]


def _any_sign(terms: Terms, term: int) -> bool:
    """Return whether the value can be positive and negative: it comes from inputs and weights by operators that leave it so."""
    waiting, seen = [term], {term}
    while waiting and len(seen) < _MOST_TERMS:
        number = waiting.pop()
        head, operands = terms.keys[number], terms.operands[number]
        if str(head[0]).endswith(_GRADIENT) or head[0] in ("gradient-sum", "input", "weight"):
            return True
        if has_trait(str(head[0]), *_EITHER_SIGN):
            waiting.extend(operand for operand in operands if operand not in seen)
            seen.update(operands)
    return False
