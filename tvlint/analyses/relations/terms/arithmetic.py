"""Operators that are arithmetic, and their gradients, as sums of products.

An operator is what its formula in the operator table makes of terms on a tape; its vector-Jacobian product is that of the tape,
by the chain rule. `rms_norm`, `layer_norm`, `var`, `gelu`, `silu` and `softmax` are thus what they are when written out:

- `rms_norm(x) = x (mean(x^2) + eps)^(-1/2) w`;
- `layer_norm(x) = c (mean(c^2) + eps)^(-1/2) w + b` with `c = x - mean(x)`, and `var(x) = mean(c^2)`;
- `silu(x) = x sigmoid(x)`, `gelu(x) = x (1 + erf(x / sqrt(2))) / 2`, and with `tanh` its approximation;
- `softmax(x) = exp(x) / sum(exp(x))`, `log_softmax(x) = x - log(sum(exp(x)))`, `logsumexp(x) = log(sum(exp(x)))`;
- what is looked up at an index is the sum over all places of what stands there times the flag that the index is the place,
  and `cross_entropy(x, t) = log(sum(exp(x))) - x[t]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, prod
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, constant_of, times
from tvlint.analyses.relations.terms.expressions import ONE, SUM_OF_PRODUCTS, Expression, TooLargeError
from tvlint.analyses.relations.terms.flags import (
    are_flags,
    counts_flags,
    flag,
    is_of_flags,
    is_of_numbers,
    is_real,
    logarithm,
    of_band,
    ones_and_zeros,
)
from tvlint.analyses.relations.terms.formulas import Arithmetic, TapeRows, symbols
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.layouts import in_any_layout
from tvlint.analyses.relations.terms.loss_identities import CLASSES, is_restricted
from tvlint.analyses.relations.terms.normal_form import normal
from tvlint.analyses.relations.terms.ranges import moved_ranges
from tvlint.analyses.relations.terms.tape import Indices, Tape, Variable
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.dtypes import DIGITS
from tvlint.ops.kinds import Kind, kind_of
from tvlint.ops.spec import OpSpec, Trait, UnsupportedError
from tvlint.ops.table import LOOKUP, has_trait, spec_of

Head: TypeAlias = tuple[Any, ...]

SEES = "every query of attention that is written out with a mask sees a key"

NOT_ZERO = "no norm and no standard deviation that a gradient goes through is zero"

ATTENTION = "scaled-dot-product-attention"


def is_arithmetic(op: str) -> bool:
    """Return whether the operator is a formula; what it averages is then a sum, divided by the number of addends."""
    spec = spec_of(op)
    return spec is not None and spec.formula is not None


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator on the tape: its name, its constants, its operands, and the indices of its result and of its rows.

    `kept` are those of the result with the indices of dimensions of one element.
    """

    tape: Tape
    name: str
    attributes: tuple[Any, ...]
    operands: tuple[Variable, ...]
    result: Indices
    kept: Indices
    rows: Indices

    def written_out(self) -> Variable | None:
        """Return the result on the tape; None where the operator is no arithmetic, or takes other operands than these."""
        if _is_contraction(self.name, len(self.operands), self.attributes):
            product = self.tape.times(*self.operands)
            return self.tape.total(product, product.indices - self.result)
        if _only_moves(self.name, len(self.operands), self.attributes):
            return self.operands[0]
        spec = spec_of(self.name)
        if spec is None or spec.formula is None or _names_a_type(self.name, self.attributes):
            return None
        if has_trait(self.name, Trait.CLASS_LOSS):
            self.tape.algebra.terms.assumptions.add(CLASSES)
        rows, operands = TapeRows(self.tape, self.rows, self.result), symbols(self.operands, self.tape)
        try:
            found = spec.formula(Arithmetic(self.tape), rows, operands, self.attributes).on_tape()
        except UnsupportedError:
            return None
        summed = found.indices - self.kept
        made: Variable = self.tape.total(found, summed) if summed else found
        return made


def _is_contraction(op: str, operands: int, attributes: tuple[Any, ...]) -> bool:
    """Return whether a call is the sum of the products of two operands, of which one may say what is looked up."""
    if op == LOOKUP:
        return (operands, attributes) == (2, (None,))
    if (operands, attributes) != (2, ()) or is_arithmetic(op):
        return False
    return has_trait(op, Trait.PICK) or (has_trait(op, Trait.CONTRACTION) and has_trait(op, Trait.PRODUCT))


def _only_moves(op: str, operands: int, attributes: tuple[Any, ...]) -> bool:
    """Return whether the result of a call has the elements of its operand, in other places."""
    return (operands, attributes) == (1, ()) and has_trait(op, Trait.TRANSPOSE, Trait.VIEW, Trait.BROADCAST)


def _names_a_type(op: str, attributes: tuple[Any, ...]) -> bool:
    """Return whether a call says in which type of numbers it computes; a softmax in none that are whole."""
    if has_trait(op, Trait.SOFTMAX):
        return any(attribute is not None and not is_real(attribute) for attribute in attributes)
    return has_trait(op, Trait.REDUCTION) and any(attribute is not None for attribute in attributes)


def _of_halves(
    tape: Tape, spec: OpSpec, values: Sequence[Expression], operand: Indices, made: Indices, over: Indices
) -> Expression | None:
    """Return an operator on the halves of a dimension; its gradient, where there is one to begin with."""
    if spec.halves is None or (len(operand & over), len(over - operand)) != (1, 1):
        return None
    algebra, (gated, function) = tape.algebra, spec.halves
    (whole,), (half,) = operand & over, over - operand
    size = algebra.sizes[half][0]
    parts = [tape.given(algebra.sliced(values[-1], whole, start, start + size, half), made) for start in (0, size)]
    gate = _Call(tape, function, (), (parts[gated],), made, made, frozenset()).written_out()
    if gate is None:
        return None
    product = tape.times(gate, parts[1 - gated])
    if len(values) == 1:
        return product.value
    first, second = (tape.gradient(product, values[0], part) for part in parts)
    return algebra.added(*(algebra.padded(each, half, at, 2 * size, whole) for each, at in ((first, 0), (second, size))))


def sum_of_products(terms: Terms, head: Head, operands: Sequence[int], shape: tuple[int, ...], slot: int) -> int:
    """Return operator `head` on `operands` as a sum of products; in the other normal form where it is no arithmetic."""
    try:
        found = _arithmetic(terms, head, operands, shape, slot) if len(head) == 5 else None
    except TooLargeError:
        found = None
    if found is None and len(head) == 5:
        found = _in_any_layout(terms, head, operands)
    if found is not None and (terms.shape[found], terms.slot[found]) == (shape, slot):
        return found
    return _in_normal_form(terms, head, tuple(operands), shape, slot)


def _in_normal_form(terms: Terms, head: Head, operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> int:
    """Return an operator in the other normal form, which asks that it has a value where it may have none."""
    made = normal(terms, head, operands, shape, slot)
    if is_restricted(terms, made):
        terms.require("a number", made)
    return made


def _in_any_layout(terms: Terms, head: Head, operands: Sequence[int]) -> int | None:
    """Return an operator that is no arithmetic, on operands in one layout; None where it takes them already."""
    try:
        found = in_any_layout(terms, head, operands)
    except TooLargeError:
        return None
    if found is None:
        return None
    signature, plain, size, cut, back = found
    return back(_in_normal_form(terms, signature, plain, size, cut))


def _arithmetic(terms: Terms, head: Head, operands: Sequence[int], shape: tuple[int, ...], slot: int) -> int | None:
    op, which, attributes, pattern, _ = head
    gradient = str(op).endswith(" gradient")
    name = str(op).removesuffix(" gradient")
    *places, result = pattern[: len(operands) + 1]
    _, averaged, whole = pattern[-3:]
    moves = has_trait(name, Trait.RANGES, Trait.JOIN, Trait.PADDING)
    moved = moved_ranges(terms, head, operands, places, result, whole) if moves else None
    if moved is not None or averaged or (not gradient and which != 0):
        return moved
    algebra = Algebra(terms)
    algebra.split(zip(operands, places, strict=True))
    at, looked_up = _looked_up(name, gradient, places, result)
    values = [ones_and_zeros(algebra, term, place) for term, place in zip(operands, places, strict=True)]
    for dim, index in enumerate(result):
        if index >= 0 and index not in algebra.sizes and index not in algebra.parts:
            algebra.sizes[index] = (shape[dim], dim == slot)
    if looked_up:
        fails_elsewhere = terms.sealed >= 0 if name == LOOKUP else not has_trait(name, Trait.MASKED_LOOKUP)
        values[at] = algebra.place_of(operands[at], places[at], looked_up[0], looked_up=fails_elsewhere)
        places[at] = (*places[at], *looked_up)
    parts = [[pattern for index in row for pattern in algebra.expanded(index)] for row in (*places, whole)]
    *inside, over = [frozenset(index for index in part if index in algebra.sizes and index >= 0) for part in parts]
    kept = [-1 if index >= 0 and algebra.sizes.get(index) == (1, False) else index for index in result]
    left = frozenset(pattern for index in kept for pattern in algebra.expanded(index)) - {-1}
    tape = Tape(algebra)
    special = _special(terms, head, operands, algebra, values, inside)
    if special is not None:
        made: Expression | None = special
    elif not gradient and has_trait(name, Trait.CONVERSION) and _keeps_all(terms, attributes, operands[0], values[0]):
        made = values[0]
    elif whole and (spec := spec_of(name)) is not None and spec.halves is not None:
        made = _of_halves(tape, spec, values, inside[-1], left if not gradient else inside[0], over)
    elif gradient:
        made = _gradient(tape, head, values, inside, left, over)
    else:
        given = tuple(tape.given(value, pattern) for value, pattern in zip(values, inside, strict=True))
        written = _Call(tape, name, attributes, given, left, _expanded(algebra, result), over).written_out()
        made = None if written is None else written.value
    if made is None:
        return None
    if gradient and not made:
        return terms.term((SUM_OF_PRODUCTS, ()), (), shape, slot)
    term, constant = algebra.laid_out(_side_by_side(algebra, made), kept)
    return times(terms, term, constant)


def _side_by_side(algebra: Algebra, made: Expression) -> Expression:
    """Return values side by side with one addend for each range; the expression as it is where that has no form."""
    try:
        return algebra.side_by_side(made)
    except TooLargeError:
        return made


def _looked_up(
    name: str, gradient: bool, places: Sequence[Sequence[int]], result: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """Return which operand says what is looked up, and the index along which it is; no index for other operators."""
    at, rows = len(places) - 1, name == LOOKUP
    if not rows and not has_trait(name, Trait.PICK):
        return at, ()
    table = result if gradient else places[int(rows)]
    at = 0 if rows and not gradient else at
    found = set(table[:1] if rows else table) - {-1, *places[at]}
    if len(found) != 1:
        raise TooLargeError
    return at, tuple(found)


def _special(
    terms: Terms, head: Head, operands: Sequence[int], algebra: Algebra, values: Sequence[Expression], inside: Sequence[Indices]
) -> Expression | None:
    """Return what takes a mask, as an expression: filling with zero or minus infinity, and attention; None for others."""
    op, which, attributes, pattern, _ = head
    name, gradient = str(op).removesuffix(" gradient"), str(op).endswith(" gradient")
    if name == ATTENTION:
        return _attention(head, operands, algebra, values, inside)
    if name == "one-hot" and not gradient:
        return algebra.place_of(operands[0], pattern[0], pattern[1][-1], looked_up=True)
    if not has_trait(name, Trait.MASKING):
        return None
    filled = _filled(name, attributes)
    if filled is None or (gradient and which != (filled[0], (0,))):
        return None
    position, mask, negated, value = filled
    mask = len(operands) - 1 if gradient and mask > position else 1 if gradient else mask
    keeps = flag(algebra, operands[mask], pattern[mask], negated)
    if gradient:
        return algebra.total(algebra.multiplied(values[0], keeps), inside[0] - _expanded(algebra, pattern[len(operands)]))
    if not value:
        return algebra.multiplied(values[position], keeps)
    return algebra.added(values[position], logarithm(terms, keeps))


def _keeps_all(terms: Terms, attributes: tuple[Any, ...], term: int, value: Expression) -> bool:
    """Return whether a cast keeps what it is given: flags in each type of numbers, how many of them are set in a wide one."""
    is_wide = any(kind_of(dtype) is Kind.WHOLE or DIGITS.get(dtype, 0) >= DIGITS["float32"] for dtype in attributes)
    return attributes != ("bool",) and (_are_flags(terms, term, value) or (is_wide and counts_flags(terms, term)))


def _are_flags(terms: Terms, term: int, value: Expression) -> bool:
    """Return whether a term is one or zero everywhere, which numbers of every type are exactly: flags, or a product of them."""
    if is_of_flags(terms, term):
        return True
    ((constant, factors),) = value if len(value) == 1 else ((NONE, ()),)
    return constant == NONE and bool(factors) and are_flags(terms, factors)


def _expanded(algebra: Algebra, pattern: Sequence[int]) -> Indices:
    """Return the indices that stand for those of a pattern."""
    return frozenset(each for index in pattern for each in algebra.expanded(index))


def _filled(name: str, attributes: tuple[Any, ...]) -> tuple[int, int, bool, float] | None:
    """Return which operand is filled, which is the mask, whether it keeps what is not flagged, and the number that fills."""
    values = attributes[-1:]
    if len(values) != 1 or values[0] not in (0, -inf) or isinstance(values[0], bool):
        return None
    if len(attributes) == 1:
        return 0, 1, True, values[0]
    return (1, 0, attributes[0] == 1, values[0]) if len(attributes) == 2 and attributes[0] in (1, 2) else None


def _attention(
    head: Head, operands: Sequence[int], algebra: Algebra, values: Sequence[Expression], inside: Sequence[Indices]
) -> Expression | None:
    """Return attention as powers of scores against their sum, or a gradient of it."""
    op, which, attributes, pattern, _ = head
    terms, gradient = algebra.terms, str(op).endswith(" gradient")
    position = which[0] if gradient and which and which[1] == (0,) else 2 if not gradient and which == 0 else -1
    first, count = int(gradient), 2 if gradient and position == 2 else 3
    given = range(first + count + (position == 3), first + count + 2)
    if len(attributes) != 2 or not 0 <= position <= 3 or len(operands) not in given:
        return None
    causal, scale = attributes
    tape = Tape(algebra)
    known = [tape.given(value, pattern) for value, pattern in zip(values[first:], inside[first:], strict=True)][:count]
    if count == 2:
        missing = algebra.terms.term(("missing",), (), (), -1)
        known.append(tape.given(((NONE, ((missing, (), ONE),)),), inside[0] | inside[2]))
    query, key, value = known
    result = _expanded(algebra, pattern[len(operands)])
    both = (query.indices & key.indices) - (inside[0] if gradient else result)
    if count == 2:
        both, over = (query.indices & key.indices) - inside[0], key.indices - query.indices
    else:
        over = (key.indices & value.indices) - query.indices
    width = prod(algebra.sizes[index][0] for index in both)
    constant = (1, Fraction(1, width)) if scale is None else constant_of(scale)
    if constant is None:
        return None
    scores = tape.scaled(tape.total(tape.times(query, key), both), constant)
    keeps: Expression | None = None
    rows = query.indices - key.indices
    if causal:
        if len(rows) != 1 or len(over) != 1:
            return None
        keeps = of_band(algebra, (*rows, *over), 1, negated=True)
    if len(operands) == first + count + 1:
        mask, names = operands[-1], pattern[len(operands) - 1]
        terms.assumptions.add(SEES)
        if is_of_flags(terms, mask) and position < 3:
            keeps = flag(algebra, mask, names, negated=False)
        elif is_of_numbers(terms, mask):
            known.append(tape.given(values[-1], inside[-1]))
            scores = tape.plus(scores, known[-1])
        else:
            return None
    powers = tape.function("exp", scores)
    if keeps is not None:
        powers = tape.times(powers, tape.given(keeps, rows | over))
    chances = tape.times(powers, tape.power(tape.total(powers, over), Fraction(-1)))
    if not gradient:
        return tape.total(tape.times(chances, value), over).value
    if position == 2:
        rest = (inside[0] | chances.indices) - result
        return algebra.total(algebra.multiplied(values[0], chances.value), rest)
    return tape.gradient(tape.total(tape.times(chances, value), over), values[0], known[position])


def _gradient(
    tape: Tape, head: Head, values: Sequence[Expression], inside: Sequence[Indices], result: Indices, rows: Indices
) -> Expression | None:
    """Return the gradient of one operand, from that of the result and those operands that it depends on."""
    op, which, attributes, *_ = head
    name = str(op).removesuffix(" gradient")
    algebra, (given, *known) = tape.algebra, values
    position = which[0] if which else 0
    if which and which[1] != (0,):
        return None
    if len(known) == 1 and _is_contraction(name, 2, attributes):
        found = algebra.multiplied(given, known[0])
        return algebra.total(found, (inside[0] | inside[1]) - result)
    unknown = [algebra.terms.term(("missing", number), (), (), -1) for number in range(2)]
    missing = [tape.given(((NONE, ((term, (), ONE),)),), result) for term in unknown]
    operands = [tape.given(value, pattern) for value, pattern in zip(known, inside[1:], strict=True)]
    if known and has_trait(name, Trait.NORMALISATION) and position > 0:
        if position == 2:
            return algebra.total(given, inside[0] - result)
        operands = [operands[0], missing[0]]
    made = _with_missing(_Call(tape, name, attributes, tuple(operands), inside[0], inside[0], rows), missing, position)
    if made is None:
        return None
    last, operand = made
    asked = algebra.terms.asked
    found = tape.gradient(last, given, operand)
    if algebra.terms.asked > asked and not has_trait(name, Trait.RESTRICTED):
        algebra.terms.assumptions.add(NOT_ZERO)
    if not known:
        if given and not found:
            return None
        found = algebra.total(found, inside[0] - result)
    return found if all(term not in unknown for _, factors in found for term, _, _ in factors) else None


def _with_missing(call: _Call, missing: Sequence[Variable], position: int) -> tuple[Variable, Variable] | None:
    """Return the result of a call and its operand at `position`; those that the call does not have are `missing` ones."""
    operands = [*call.operands]
    for unknown in (None, *missing):
        if unknown is not None:
            operands.insert(position, unknown)
        made = replace(call, operands=tuple(operands)).written_out() if position < len(operands) else None
        if made is not None:
            return made, operands[position]
    return None


def sum_of_gradients(terms: Terms, term: int) -> int:
    """Return a sum of gradients as a sum of products."""
    if terms.keys[term][0] != GRADIENT_SUM:
        return term
    algebra, shape = Algebra(terms), terms.shape[term]
    places = [-1 if size == 1 and dim != terms.slot[term] else dim for dim, size in enumerate(shape)]
    try:
        algebra.split((operand, places) for operand in terms.operands[term])
        made = algebra.added(*(algebra.of_term(operand, places) for operand in terms.operands[term]))
        found, constant = algebra.laid_out(_side_by_side(algebra, made), places)
    except TooLargeError:
        return term
    return times(terms, found, constant) if (terms.shape[found], terms.slot[found]) == (shape, terms.slot[term]) else term
