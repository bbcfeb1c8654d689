"""Relations of local tensors to logical terms.

A `Value` says: this tensor is `coefficient` times the box `box` of the term `term`; or, where sums are not yet complete, it is
the sum over `leaves` of coefficient times that part of a linear contribution to `term` whose pending ranges the leaf states.

A pending range names the contraction it comes from, so that partial sums of different products never complete each other; a
leaf's token names the whole path of linear operators from there to `term`, so that contributions reached in different ways
are never confused. Contributions with equal pending ranges and equal coefficients add up to one contribution.

What is put together in another way than by adding, a maximum or attention over some of the keys, has a `Fold` instead.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from fractions import Fraction
from typing import Any, NamedTuple

from tvlint.analyses.relations.terms import arithmetic
from tvlint.analyses.relations.terms.constant_factors import bare, rational, times
from tvlint.analyses.relations.terms.loss_identities import multiplied, scaled_term, summed
from tvlint.analyses.relations.terms.normal_form import normal_sum
from tvlint.analyses.relations.terms.numbers import root_of
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, PIECES, Terms
from tvlint.analyses.relations.transfer.index_maps import Pieces, in_pieces, in_place, joined, pieces_of
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient, Pending, Ranges, tiled
from tvlint.ir.plan import Box


class Leaf(NamedTuple):
    """One contribution to a value that is not complete."""

    token: int
    coefficient: Coefficient
    pending: frozenset[Pending]


class Fold(NamedTuple):
    """The part of a dimension that a maximum or merge went over so far: the indices `covered` of `0:size`.

    `kind` says how parts are put together: `max` by taking the greatest, `min` the least, `merge` by weights of their
    log-sum-exps. `gradient` marks the gradient of a part that is merged. `number` is the folded dimension of the operator that
    `term` goes back to.
    """

    kind: str
    number: int
    covered: Ranges
    size: int

    def complete(self) -> bool:
        """Return whether nothing is left to put in."""
        return self.covered == ((0, self.size),)


NEGATED = {"max": "min", "min": "max"}
"""How the negatives of parts are put together: the greatest of `x` is the negative of the least of `-x`."""


class AmbiguousSumError(Exception):
    """Contributions are added that are parts of one value in different ways, so that it is open what they add up to."""


class Value:
    """One relation; interned by `Values`, so that identity is equality.

    `extent` is a number for the box and for the shape and the slot of the term: values of one extent are the same slice of
    values that are alike in everything but what they are. `clean` says that the tensor is exactly its box of the term.
    """

    __slots__ = ("box", "clean", "coefficient", "extent", "fold", "leaves", "term")

    def __init__(
        self, term: int, box: Box, coefficient: Coefficient, leaves: tuple[Leaf, ...], fold: Fold | None, extent: int
    ) -> None:
        self.term = term
        self.box = box
        self.coefficient = coefficient
        self.leaves = leaves
        self.fold = fold
        self.extent = extent
        self.clean = not leaves and coefficient == 1 and fold is None


class Joined(NamedTuple):
    """How a partial value came about that an operator gives which is linear in all of its operands together.

    `anew` gives what the operator makes of other operands in the same places. `function` is the operator with its constants,
    and how the dimensions of operands and result correspond. `adds` says that it is the plain sum, the only one that commutes,
    which gives an operand as it is where the others are zero. A difference does not.
    """

    anew: Callable[[Sequence[Value]], Value]
    operands: tuple[Value, ...]
    function: Hashable
    adds: bool


class _Running(NamedTuple):
    """What the leaves of a sum that is added to are contributions of, and in which ranges and how often."""

    bases: set[int]
    groups: set[frozenset[tuple[Coefficient, frozenset[Pending]]]]


def _groups(leaves: Iterable[Leaf]) -> set[frozenset[tuple[Coefficient, frozenset[Pending]]]]:
    parts: dict[int, set[tuple[Coefficient, frozenset[Pending]]]] = {}
    for leaf in leaves:
        parts.setdefault(leaf.token, set()).add((leaf.coefficient, leaf.pending))
    return set(map(frozenset, parts.values()))


def _order(leaf: Leaf) -> tuple[int, Coefficient, list[Pending]]:
    return leaf.token, leaf.coefficient, sorted(leaf.pending)


class Values:
    """The table of relations over one table of terms."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._table: dict[tuple[Any, ...], Value] = {}
        self.joined: dict[Value, Joined] = {}
        self._addends: dict[tuple[int, Value], tuple[Value, ...]] = {}
        self._joint: dict[int, frozenset[int]] = {}
        self._extents: dict[tuple[Any, ...], int] = {}
        self._running: dict[Value, _Running] = {}
        self._extended: dict[tuple[int, Value, Value], Value] = {}

    def copied(self) -> Values | None:
        """Return tables of the same relations, over a copy of the terms; None where a relation makes others in these tables."""
        if self.joined:
            return None
        made = copy(self)
        vars(made).update((name, copy(held)) for name, held in vars(self).items() if isinstance(held, dict))
        made.terms, made._running = self.terms.copied(), {}
        return made

    def clean(self, term: int, box: Box) -> Value:
        """Exactly the box of the term."""
        return self._intern(term, box, 1, ())

    def folded(self, term: int, box: Box, fold: Fold, coefficient: Coefficient = 1) -> Value:
        """Return what the fold says of the term; the term itself where a maximum or merge has seen everything."""
        return self._intern(term, box, coefficient, (), None if fold.kind != "gradient" and fold.complete() else fold)

    def multiple(self, term: int, box: Box, coefficient: Coefficient) -> Value:
        """That many times the box of the term."""
        return self._intern(term, box, coefficient, ())

    def _intern(
        self, term: int, box: Box, coefficient: Coefficient, leaves: tuple[Leaf, ...], fold: Fold | None = None
    ) -> Value:
        if self.terms.keys[term][0] == PIECES:
            return self._in_pieces(term, box, coefficient, leaves, fold)
        if self.terms.normal and coefficient not in (0, 1) and not leaves and fold is None:
            term, coefficient = times(self.terms, term, rational(coefficient)), 1
        if coefficient not in (0, 1) and not leaves and self.terms.is_own(term):
            scaled = scaled_term(self.terms, term, coefficient)
            if scaled is not None:
                term, coefficient = scaled, 1
        key = (term, box, coefficient, leaves, fold)
        found = self._table.get(key)
        if found is None:
            extent = self._extents.setdefault((box, self.terms.shape[term], self.terms.slot[term]), len(self._extents))
            found = self._table[key] = Value(term, box, coefficient, leaves, fold, extent)
        return found

    def _in_pieces(self, term: int, box: Box, coefficient: Coefficient, leaves: tuple[Leaf, ...], fold: Fold | None) -> Value:
        """Return the same relation to the pieces that the box has, once the whole term has taken what multiplies it."""
        pieces = pieces_of(self.terms, term, box)
        inner = self._intern(self.terms.whole(term), in_place(box, pieces), coefficient, leaves, fold)
        if all(len(piece) == 1 for piece in pieces):
            return self._intern(inner.term, tuple(bounds for (bounds,) in pieces), inner.coefficient, leaves, fold)
        term, box = in_pieces(self.terms, inner.term, pieces)
        key = (term, box, inner.coefficient, leaves, fold)
        found = self._table.get(key)
        if found is None:
            held = (box, self.terms.keys[term], self.terms.shape[inner.term], self.terms.slot[term])
            extent = self._extents.setdefault(held, len(self._extents))
            found = self._table[key] = Value(term, box, inner.coefficient, leaves, fold, extent)
        return found

    def pieces_of(self, value: Value) -> tuple[Pieces, ...]:
        """Return the pieces of each dimension of its whole term that the tensor holds."""
        return pieces_of(self.terms, value.term, value.box)

    def out_of_pieces(self, value: Value) -> Value:
        """Return the relation as it is where dimensions with several pieces are numbered from zero on.

        What an operator does to each index alike it does so in any numbering.
        """
        term, pieces = self.terms.whole(value.term), self.pieces_of(value)
        if term == value.term:
            return value
        return self._intern(term, in_place(value.box, pieces), value.coefficient, value.leaves, value.fold)

    def with_pieces(self, value: Value, pieces: Sequence[Pieces]) -> Value:
        """Return the same relation to these pieces of the whole term."""
        term, box = in_pieces(self.terms, self.terms.whole(value.term), pieces)
        return self._intern(term, box, value.coefficient, value.leaves, value.fold)

    def of_whole_terms(self, values: Sequence[Value], make: Callable[[Sequence[Value]], Value | None]) -> Value | None:
        """Return what is made element by element of values that hold the same pieces; None where they do not."""
        pieces = self.pieces_of(values[0])
        if any(self.pieces_of(value) != pieces for value in values):
            return None
        made = make([self.out_of_pieces(value) for value in values])
        return None if made is None else self.with_pieces(made, pieces)

    def of_leaves(self, term: int, box: Box, leaves: Iterable[Leaf]) -> Value:
        """Return the sum of the leaves in normal form, complete if all of them are, alike.

        Equal contributions add up; the ranges of one contribution that tile a larger range are joined; contributions with the
        same coefficients and ranges throughout are stated as one, so that what is stated as one never overlaps with what is
        stated otherwise, also after operators took each further. A contribution that cancels out stays, with coefficient 0.
        """
        totals: dict[tuple[int, frozenset[Pending]], Coefficient] = {}
        for leaf in leaves:
            pending = frozenset(entry for entry in leaf.pending if not entry.complete())
            for token in self._joint.get(leaf.token, (leaf.token,)):
                totals[token, pending] = totals.get((token, pending), 0) + leaf.coefficient
        parts: dict[int, list[tuple[Coefficient, frozenset[Pending]]]] = {}
        for (token, pending), coefficient in totals.items():
            parts.setdefault(token, []).append((coefficient, pending))
        merged: dict[frozenset[tuple[Coefficient, frozenset[Pending]]], set[int]] = {}
        for token, entries in parts.items():
            entries = [entry for entry in entries if entry[0] != 0] or entries[:1]
            merged.setdefault(frozenset(tiled(entries) or entries), set()).add(token)
        if len(merged) == 1:
            ((coefficient, pending), *more) = next(iter(merged))
            if not more and not pending:
                return self._intern(term, box, coefficient, ())
        normal = [
            Leaf(self.joint(tokens), coefficient, pending) for alike, tokens in merged.items() for coefficient, pending in alike
        ]
        normal.sort(key=_order)
        return self._intern(term, box, 1, tuple(normal))

    def joint(self, tokens: Iterable[int]) -> int:
        """One token for several contributions."""
        flat = frozenset(base for token in tokens for base in self._joint.get(token, (token,)))
        if len(flat) == 1:
            return next(iter(flat))
        token = self.terms.token(flat)
        self._joint[token] = flat
        return token

    def leaves_of(self, value: Value) -> tuple[Leaf, ...]:
        """Return the contributions of a value, also of a complete one.

        Raises AmbiguousSumError for a value that is put together in another way than by adding.
        """
        if value.fold is not None:
            raise AmbiguousSumError
        if value.leaves:
            return value.leaves
        term = self.terms.whole(value.term)
        terms = self.terms.operands[term] if self.terms.keys[term][0] == GRADIENT_SUM else (term,)
        whole = self.joint(self.terms.token(("whole", term)) for term in terms)
        return (Leaf(whole, value.coefficient, frozenset()),)

    def through(self, value: Value, term: int, slot: Any, box: Box, factor: Coefficient, pending: frozenset[Pending]) -> Value:
        """Return the value after an operator with result `term` that is linear in operand `slot`, which was `value`."""
        token = self.terms.token
        if value.fold is not None:
            if pending or factor != 1:
                raise AmbiguousSumError
            return self._intern(term, box, value.coefficient, (), value.fold)
        if not value.leaves:
            if not pending:
                return self._intern(term, box, value.coefficient * factor, ())
            return self.of_leaves(term, box, (Leaf(token(("from", term)), value.coefficient * factor, pending),))
        moved = (
            Leaf(token((leaf.token, term, slot)), leaf.coefficient * factor, leaf.pending | pending) for leaf in value.leaves
        )
        return self.of_leaves(term, box, moved)

    def with_box(self, value: Value, box: Box) -> Value:
        """Return the same relation on another box."""
        return self._intern(value.term, box, value.coefficient, value.leaves, value.fold)

    def retermed(self, value: Value, term: int) -> Value:
        """Return the same relation to another term, whose shape is that of the whole one."""
        if self.terms.keys[value.term][0] == PIECES:
            plain = self.out_of_pieces(value)
            return self.with_pieces(self.retermed(plain, term), self.pieces_of(value))
        return self._intern(term, value.box, value.coefficient, value.leaves, value.fold)

    def scaled(self, value: Value, factor: Coefficient) -> Value:
        """Return the value times a number."""
        if factor == 1:
            return value
        if value.fold is not None:
            raise AmbiguousSumError
        if not value.leaves:
            return self._intern(value.term, value.box, value.coefficient * factor, ())
        return self.of_leaves(
            value.term, value.box, (Leaf(leaf.token, leaf.coefficient * factor, leaf.pending) for leaf in value.leaves)
        )

    def without_constants(self, value: Value, wanted: int = -1) -> Value:
        """Return a partial sum that only this plan multiplies with constants, as parts of what is multiplied.

        Where the reference accumulates, each plan has its own, and the value is taken apart down to the `wanted` term.
        """
        while value.leaves and value.term != wanted and (self.terms.accumulates or self.terms.foreign(value.term)):
            below = multiplied(self.terms, value.term)
            if below is None:
                break
            factor, term = below
            value = self._with_factor(value, term, factor)
        return value

    def as_multiple(self, value: Value, term: int) -> Value:
        """Return a partial sum without such constants; as parts of the term, where that is a multiple of the same."""
        value = self.without_constants(value, term)
        (inner, (sign, square)), (base, (other_sign, other_square)) = bare(self.terms, value.term), bare(self.terms, term)
        ratio = root_of(square / other_square) if inner == base and other_square else None
        if value.term == term or not value.leaves or ratio is None:
            return value
        return self._with_factor(value, term, sign * other_sign * ratio)

    def _with_factor(self, value: Value, term: int, factor: Coefficient) -> Value:
        leaves = (leaf._replace(coefficient=leaf.coefficient * factor) for leaf in value.leaves)
        return self.of_leaves(term, value.box, leaves)

    def bare(self, value: Value) -> Value:
        """Return the value as a multiple of what is multiplied with constants, in whichever plan."""
        while (below := multiplied(self.terms, value.term)) is not None and value.fold is None:
            factor, term = below
            value = self.scaled(self.retermed(value, term), factor)
        return value

    def gradient_sum(self, of: int, values: Sequence[Value]) -> Value | None:
        """Return the sum of gradients of the same forward value; None when they are not the same box."""
        if len(values) == 1:
            return values[0]
        of = self.terms.whole(of)
        if any(self.terms.keys[value.term][0] == PIECES for value in values):
            return self.of_whole_terms(values, lambda term: self.gradient_sum(of, term))
        if self.terms.normal:
            return self._normal_sum(of, [addend for value in values for addend in self._addends.get((of, value), (value,))])
        total = self._gradient_sum(of, self.of_one_coefficient(values))
        if total is None or total.leaves:
            return total
        return self.retermed(total, summed(self.terms, total.term))

    def of_one_coefficient(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return the values with one coefficient, where constants are taken out of terms.

        By what the others differ from that of the first term is a part of their terms. It is the same in both plans, as a
        multiple of a sum is one of all its addends.
        """
        terms = {value.term for value in values}
        if not self.terms.accumulates or any(value.leaves or value.fold for value in values) or len(terms) < len(values):
            return values
        coefficient = min(values, key=lambda value: value.term).coefficient
        if not coefficient or all(value.coefficient == coefficient for value in values):
            return values
        shares = [(value, Fraction(value.coefficient) / Fraction(coefficient)) for value in values]
        return [
            self._intern(times(self.terms, value.term, rational(share)), value.box, coefficient, ()) for value, share in shares
        ]

    def _normal_sum(self, of: int, addends: Sequence[Value]) -> Value | None:
        """Return the sum of gradients in normal form; a part of one is added to as what it is the sum of: an addend may come
        again.
        """
        addends = self._of_all_ranges(addends)
        total = self._gradient_sum(of, self._as_multiples(addends))
        if total is None:
            return None
        tell = arithmetic.sum_of_gradients if self.terms.arithmetic else normal_sum
        total = self.retermed(total, tell(self.terms, total.term))
        if total.leaves:
            self._addends[of, total] = tuple(addends)
        return total

    def _of_all_ranges(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return the values, with the term in the place of those that are all ranges of a dimension of it, each among zeros."""
        groups: dict[tuple[int, int, Box], list[Value]] = {}
        for value in values:
            if value.term in self.terms.ranges and value.clean:
                groups.setdefault((*self.terms.ranges[value.term][:2], value.box), []).append(value)
        for (whole, _, box), members in groups.items():
            ranges = [self.terms.ranges[member.term] for member in members]
            if joined(sorted(held for _, _, held, _ in ranges)) == (ranges[0][3],):
                values = [self.clean(whole, box), *(value for value in values if value not in members)]
        return values

    def _as_multiples(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return the values, of which a part of a sum that occurs several times is a part of so many times that sum."""
        counts = Counter(values)
        if all(count == 1 or not value.leaves for value, count in counts.items()):
            return values
        found: list[Value] = []
        for value, count in counts.items():
            term = times(self.terms, value.term, rational(count))
            one = self.through(value, term, count, value.box, 1, frozenset()) if count > 1 and value.leaves else value
            found.extend([one] * (1 if value.leaves else count))
        return found

    def _gradient_sum(self, of: int, values: Sequence[Value]) -> Value | None:
        if len(values) == 1:
            return values[0]
        box = values[0].box
        if any(value.box != box for value in values):
            return None
        if any(value.fold is not None for value in values):
            raise AmbiguousSumError
        term = self.terms.gradient_sum(of, [value.term for value in values])
        if all(value.clean for value in values) and len(set(self.terms.operands[term])) == len(self.terms.operands[term]):
            return self.clean(term, box)
        if len(set(self.terms.operands[term])) != len(self.terms.operands[term]):
            return self._repeated_sum(of, values)
        added = self._with_addend(of, term, values) if len(values) == 2 and values[0].leaves else None
        if added is not None:
            return added
        seen: set[int] = set()
        for value in values:
            bases = self._bases(self._summand(value, of))
            if seen & bases:
                raise AmbiguousSumError
            seen |= bases
        total = self.of_leaves(term, box, (leaf for value in values for leaf in self._summand(value, of)))
        if total.leaves and len(values) == 2:
            self._running.pop(values[0], None)
            self._running[total] = _Running(self._bases(total.leaves), _groups(total.leaves))
        return total

    def _bases(self, leaves: Iterable[Leaf]) -> set[int]:
        return {base for leaf in leaves for base in self._joint.get(leaf.token, (leaf.token,))}

    def _with_addend(self, of: int, term: int, values: Sequence[Value]) -> Value | None:
        """Return a sum to which one more contribution is added, of which the sum has none in the same ranges: its leaves are
        those of both. None where that is not so, or where the sum is none that has just been added to.
        """
        total, value = values
        known = self._extended.get((term, total, value))
        running = self._running.get(total) if known is None else None
        if known is not None or running is None:
            return known
        more = self._summand(value, of)
        bases, groups = self._bases(more), _groups(more)
        if not running.bases.isdisjoint(bases) or not running.groups.isdisjoint(groups):
            return None
        leaves = list(total.leaves)
        for leaf in more:
            insort(leaves, leaf, key=_order)
        del self._running[total]
        running.bases.update(bases)
        running.groups.update(groups)
        made = self._extended[term, total, value] = self._intern(term, total.box, 1, tuple(leaves))
        self._running[made] = running
        return made

    def _repeated_sum(self, of: int, values: Sequence[Value]) -> Value | None:
        """Return a sum with a summand that occurs more than once: the multiplicities are in the coefficients of the leaves."""
        if any(value.leaves for value in values):
            raise AmbiguousSumError
        distinct = sorted({base for value in values for base in self._summand_terms(value.term, of)})
        head = (GRADIENT_SUM, of)
        first = values[0]
        term = (
            distinct[0]
            if len(distinct) == 1
            else self.terms.term(head, tuple(distinct), self.terms.shape[first.term], self.terms.slot[first.term])
        )
        return self.of_leaves(term, first.box, (leaf for value in values for leaf in self._summand(value, of)))

    def _summand_terms(self, term: int, of: int) -> tuple[int, ...]:
        head = self.terms.keys[term]
        return self.terms.operands[term] if head[0] == GRADIENT_SUM and head[1] == of else (term,)

    def _summand(self, value: Value, of: int) -> tuple[Leaf, ...]:
        head = self.terms.keys[value.term]
        if value.leaves or head[0] != GRADIENT_SUM or head[1] == of:
            return self.leaves_of(value)
        return (Leaf(self.terms.token(("whole", value.term)), value.coefficient, frozenset()),)

    def sum_over(self, of: int, values: Sequence[Value]) -> Value | None:
        """Return the element-wise sum of the members' values, `of` being the forward value if they are gradients.

        None when the boxes differ.
        """
        if any(self.terms.keys[value.term][0] == PIECES for value in values):
            return self.of_whole_terms(values, lambda value: self.sum_over(of, value))
        groups: dict[int, list[Value]] = {}
        for value in values:
            if value.box != values[0].box:
                return None
            groups.setdefault(value.term, []).append(value)
        return self.gradient_sum(of, [self._sum_of_one(term, members) for term, members in groups.items()])

    def sum_of_operands(self, values: Sequence[Value], share: Fraction = Fraction(1)) -> Joined | None:
        """Return a share of the sum of values that one operator makes which is linear in all of its operands together.

        It is what the operator makes of that share of the sums of these; an operand of a plain sum is what it makes of that and
        of zeros. None of any other value.
        """
        joined = next((self.joined[value] for value in values if value in self.joined), None)
        if joined is None:
            return None
        made, operands, function, adds = joined
        terms = [operand.term for operand in operands]
        columns: list[list[Value]] = [[] for _ in terms]
        for value in values:
            if adds and value.term in terms and self.terms.shape[value.term] == self.terms.shape[values[0].term]:
                columns[terms.index(value.term)].append(value)
                continue
            found = self.joined.get(value)
            if found is None or found.function != function or [operand.term for operand in found.operands] != terms:
                return None
            for column, operand in zip(columns, found.operands, strict=True):
                column.append(operand)
        totals = [self.sum_over(-1, column) for column in columns]
        known = [self.scaled(total, share) for total in totals if total is not None]
        return Joined(made, tuple(known), function, adds) if len(known) == len(totals) else None

    def multiples_in(self, value: Value) -> str:
        """Return how often the addends of a sum count that count differently, in words."""
        return (
            self.shares_in(value)
            or f"its addends count {' and '.join(sorted({str(leaf.coefficient) for leaf in value.leaves}))} times"
        )

    def shares_in(self, value: Value) -> str:
        """Return of which weight ranks have added shares that are not that weight together, in words; empty where of none."""
        for operand in map(self.bare, self.joined[value].operands if value in self.joined else ()):
            head = self.terms.keys[operand.term]
            if head[0] == "weight" and operand.coefficient != 1:
                return f"the shares of `{head[1]}` in it add up to {operand.coefficient} times `{head[1]}`"
        return ""

    def _sum_of_one(self, term: int, members: Sequence[Value]) -> Value:
        """Return the sum of relations to one term, all of which must be stated in the same contributions, or be complete."""
        members = [member for member in members if member.leaves or member.coefficient != 0] or members[:1]
        ways: dict[frozenset[int], list[Leaf]] = {}
        for member in members:
            leaves = self.leaves_of(member)
            way = frozenset(base for leaf in leaves for base in self._joint.get(leaf.token, (leaf.token,)))
            ways.setdefault(way, []).extend(leaves)
        box = members[0].box
        sums = [self.of_leaves(term, box, leaves) for leaves in ways.values()]
        if len(sums) == 1:
            return sums[0]
        if any(each_sum.leaves for each_sum in sums):
            raise AmbiguousSumError
        total: Coefficient = 0
        for value in sums:
            total = total + value.coefficient
        return self._intern(term, box, total, ())
