"""Steps on flat buckets of weights, gradients and states: each piece is made of what stands at the same place in the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import prod
from typing import NamedTuple

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.multiples import start_in_flat
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.analyses.relations.transfer.index_maps import is_all_of
from tvlint.ir.plan import Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_MOST = 10_000
"""Of values that are made in more steps nothing is said."""


class _Source(NamedTuple):
    """At `place` of a flat value: the gradient of a weight, or what a weight or state has there from `low` on."""

    place: int
    name: str
    is_gradient: bool
    low: int


def misplaced_in_buckets(projection: Projection) -> Iterator[Defect]:
    """Yield what overwrites a weight with what is made of other gradients only, or of other weights and not of itself, and a
    piece of a state with other pieces.
    """
    alone, plan, terms = projection.alone, projection.plan, projection.alone.world.terms
    of_weight = _weights(projection)
    weights = {name for names in of_weight.values() for name in names}
    seen = dict[tuple[str, int], str]()
    for rank, renewed in alone.derived.renewed.items():
        for name, value in renewed.items():
            made = alone.operators.makers_on(rank).get(name)
            if value is None or not value.clean or made is None or terms.whole(value.term) != value.term:
                continue
            if not all(is_all_of((bounds,), size) for bounds, size in zip(value.box, terms.shape[value.term], strict=True)):
                continue
            full = plan.tensors[name].logical or name
            if (name, value.term) not in seen:
                sources = _Sources(terms, of_weight).of(value.term)
                is_weight = plan.tensors[name].role is Role.WEIGHT and full in weights
                text = _of_other_gradients(sources, full) or _of_another_weight(sources, full, weights)
                seen[name, value.term] = text if is_weight else _of_other_pieces(sources, full)
            if text := seen[name, value.term]:
                rule = "gradient-of-another-tensor" if plan.tensors[name].role is Role.WEIGHT else "state-of-another-shard"
                text = f"`{name}` is overwritten on {{ranks}} with what is made of {text}"
                repair = "give each weight what its own gradient stepped: buckets, gradients and states are joined in one order"
                yield at(made[1], made[0], Defect(rule, True, text, rank, repair=repair))


def _weights(projection: Projection) -> dict[int, set[str]]:
    """Return the weights that each gradient is that of, by term."""
    terms, tensors = projection.alone.world.terms, projection.plan.tensors
    weights = {name: tensor.logical or name for name, tensor in tensors.items() if tensor.role is Role.WEIGHT}
    found = dict[int, set[str]]()
    for pulled in projection.alone.derived.pulled:
        head = terms.keys[pulled.value] if isinstance(pulled.value, int) else ()
        name = str(head[1]) if head[:1] == ("weight",) else weights.get(pulled.of, "")
        if pulled.is_given and isinstance(pulled.gradient, int) and name:
            found.setdefault(pulled.gradient, set()).add(name)
    return found


def _of_other_gradients(sources: set[_Source], weight: str) -> str:
    """Return which gradients a weight is made of, in words, if its own is not among them."""
    gradients = {source.name for source in sources if source.is_gradient}
    return f"the gradient of `{min(gradients)}`" if gradients and weight not in gradients else ""


def _of_another_weight(sources: set[_Source], weight: str, weights: set[str]) -> str:
    """Return which other weights a weight is made of beside its own gradient, in words, if it is not made of itself."""
    taken = {source.name for source in sources if not source.is_gradient}
    found = taken & weights if any(source.is_gradient for source in sources) and weight not in taken else set()
    return f"its own gradient and the weight `{min(found)}`" if found else ""


def _of_other_pieces(sources: set[_Source], state: str) -> str:
    """Return of which of its own elements a piece of a state is made, in words, if not of those in its place."""
    held: dict[int, set[int]] = {}
    for source in sources:
        if source.name == state and not source.is_gradient:
            held.setdefault(source.place, set()).add(source.low)
    return next((f"its elements from {min(lows)} on, from {place} on" for place, lows in held.items() if place not in lows), "")


class _Sources:
    """What flat values are made of, element by element."""

    def __init__(self, terms: Terms, of_weight: dict[int, set[str]]) -> None:
        self._terms = terms
        self._of_weight = of_weight
        self._found = set[_Source]()

    def of(self, term: int) -> set[_Source]:
        """Return what each piece of the term is made of; nothing where that is not known of all of it."""
        waiting, steps = [(0, term, 0, prod(self._terms.shape[term]))], 0
        while waiting:
            steps += 1
            below = self._below(*waiting.pop())
            if below is None or steps > _MOST:
                return set()
            waiting += below
        return self._found

    def _below(self, place: int, term: int, low: int, high: int) -> list[tuple[int, int, int, int]] | None:
        """Return of which ranges of other terms a range is made, each with its place; None where that is not known."""
        terms, head, operands = self._terms, self._terms.keys[term], self._terms.operands[term]
        name, start = str(head[0]), start_in_flat(terms, term)
        if term in self._of_weight or not operands:
            names = self._of_weight.get(term) or {str(head[1])}
            self._found.update(_Source(place, each, term in self._of_weight, low) for each in names)
            return []
        if start is not None:
            return [(place, operands[0], low + start, high + start)]
        if has_trait(name, Trait.JOIN) and all(len(terms.shape[each]) == 1 for each in (term, *operands)):
            ends = accumulate(terms.shape[operand][0] for operand in operands)
            starts = [(end - terms.shape[each][0], end, each) for end, each in zip(ends, operands, strict=True)]
            cut = [(max(low, begin), min(high, end), begin, each) for begin, end, each in starts]
            return [(place + first - low, each, first - at, last - at) for first, last, at, each in cut if first < last]
        is_view = has_trait(name, Trait.VIEW) and not has_trait(name, Trait.TRANSPOSE)
        if is_view or name == GRADIENT_SUM or self._is_elementwise(term):
            return [(place, operand, low, high) for operand in operands if prod(terms.shape[operand]) > 1]
        return None

    def _is_elementwise(self, term: int) -> bool:
        """Return whether an element is made of those in its place, and of single numbers."""
        terms, head, operands = self._terms, self._terms.keys[term], self._terms.operands[term]
        pattern = head[3] if len(head) == 5 and len(head[3]) > len(operands) else ()
        wide = [(dims, terms.shape[each]) for dims, each in zip(pattern, operands, strict=False) if prod(terms.shape[each]) > 1]
        alone = bool(wide) and not any(pattern[-3:])
        return alone and all(each == (pattern[len(operands)], terms.shape[term]) for each in wide)
