"""Operators that are arithmetic, and their gradients, as sums of products.

Each operator is read as the arithmetic that defines it, on a tape; its vector-Jacobian product is that of the tape, by the
chain rule. `rms_norm`, `layer_norm`, `var`, `gelu`, `silu` and `softmax` are thus what they are when they are written out:

- `rms_norm(x) = x (mean(x^2) + eps)^(-1/2) w`;
- `layer_norm(x) = c (mean(c^2) + eps)^(-1/2) w + b` with `c = x - mean(x)`, and `var(x) = mean(c^2)`;
- `silu(x) = x sigmoid(x)`, `gelu(x) = x (1 + erf(x / sqrt(2))) / 2`, and with `tanh` its approximation;
- `softmax(x) = exp(x) / sum(exp(x))`, `log_softmax(x) = x - log(sum(exp(x)))`, `logsumexp(x) = log(sum(exp(x)))`;
- what is looked up at an index is the sum over all places of what stands there times the flag that the index is the place,
  and `cross_entropy(x, t) = log(sum(exp(x))) - x[t]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, pi, prod, sqrt
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.attention_normal_form import ATTENTION, SEES, is_of_numbers, normal
from tvlint.analyses.relations.terms.flags import are_flags, flag, is_of_flags, logarithm, of_band, ones_and_zeros
from tvlint.analyses.relations.terms.layouts import in_any_layout
from tvlint.analyses.relations.terms.loss_identities import CLASSES, is_restricted
from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.terms.product_normal_form import NONE, Constant, bare, constant_of, rational, times
from tvlint.analyses.relations.terms.sums_of_products import (
    CIRCLE,
    ONE,
    SUM_OF_PRODUCTS,
    Algebra,
    Expression,
    TooLargeError,
    parts_of,
)
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.spec import OpSpec, Trait
from tvlint.ops.table import has_trait, spec_of

Head: TypeAlias = tuple[Any, ...]
Indices: TypeAlias = frozenset[int]


@dataclass(frozen=True, slots=True)
class _Variable:
    """A value on the tape: what it is, and the indices that it has."""

    number: int
    value: Expression
    indices: Indices


_Back: TypeAlias = Callable[[Expression], Expression]


@dataclass(slots=True)
class _Tape:
    """Arithmetic as it is done, and how gradients go back through it."""

    algebra: Algebra
    count: int = 0
    steps: list[tuple[_Variable, tuple[tuple[_Variable, _Back], ...]]] = field(default_factory=list)

    def given(self, value: Expression, indices: Indices) -> _Variable:
        self.count += 1
        return _Variable(self.count, value, indices)

    def _made(self, value: Expression, indices: Indices, *sources: tuple[_Variable, _Back]) -> _Variable:
        made = self.given(value, indices)
        self.steps.append((made, sources))
        return made

    def times(self, one: _Variable, other: _Variable) -> _Variable:
        multiplied = self.algebra.multiplied
        value = multiplied(one.value, other.value)
        sources = ((one, lambda g: multiplied(g, other.value)), (other, lambda g: multiplied(g, one.value)))
        return self._made(value, one.indices | other.indices, *sources)

    def plus(self, one: _Variable, other: _Variable, factor: Constant = NONE) -> _Variable:
        scaled = self.algebra.scaled
        value = self.algebra.added(one.value, scaled(other.value, factor))
        return self._made(value, one.indices | other.indices, (one, lambda g: g), (other, lambda g: scaled(g, factor)))

    def scaled(self, one: _Variable, factor: Constant) -> _Variable:
        scaled = self.algebra.scaled
        return self._made(scaled(one.value, factor), one.indices, (one, lambda g: scaled(g, factor)))

    def number(self, constant: Constant) -> _Variable:
        return self.given(self.algebra.number(constant), frozenset())

    def power(self, one: _Variable, exponent: Fraction) -> _Variable:
        algebra = self.algebra

        def back(gradient: Expression) -> Expression:
            slope = algebra.scaled(algebra.power(one.value, exponent - 1), rational(exponent))
            return algebra.multiplied(gradient, slope)

        return self._made(algebra.power(one.value, exponent), one.indices, (one, back))

    def total(self, one: _Variable, over: Indices) -> _Variable:
        return self._made(self.algebra.total(one.value, over), one.indices - over, (one, lambda g: g))

    def mean(self, one: _Variable, over: Indices) -> _Variable:
        count = 1
        for index in over:
            size, cut = self.algebra.sizes[index]
            if cut:
                raise TooLargeError
            count *= size
        return self.scaled(self.total(one, over), rational(Fraction(1, count)))

    def function(self, name: str, one: _Variable) -> _Variable:
        algebra = self.algebra
        value = algebra.function(name, one.value)
        return self._made(value, one.indices, (one, lambda g: algebra.multiplied(g, _slope(algebra, name, one.value, value))))

    def gradient(self, last: _Variable, gradient: Expression, of: _Variable) -> Expression:
        """Return the gradient of `of`, from that of `last`."""
        algebra = self.algebra
        known: dict[int, Expression] = {last.number: gradient}
        for made, sources in reversed(self.steps):
            expression = known.get(made.number)
            for source, back in sources if expression is not None else ():
                assert expression is not None
                found = algebra.total(back(expression), made.indices - source.indices)
                known[source.number] = algebra.added(known.get(source.number, ()), found)
        return known.get(of.number, ())


def _slope(algebra: Algebra, name: str, at: Expression, value: Expression) -> Expression:
    """Return the derivative of a function, of which `value` is the value."""
    one, minus = algebra.number(NONE), (-1, ONE)
    if name == "exp":
        return value
    if name == "log":
        return algebra.power(at, Fraction(-1))
    if name == "tanh":
        return algebra.added(one, algebra.scaled(algebra.power(value, Fraction(2)), minus))
    if name == "sigmoid":
        return algebra.multiplied(value, algebra.added(one, algebra.scaled(value, minus)))
    if name == "erf":
        circle = algebra.terms.term((CIRCLE,), (), (), -1)
        below = algebra.scaled(algebra.power(at, Fraction(2)), minus)
        bell = algebra.function("exp", below)
        root = algebra.power(((NONE, ((circle, (), ONE),)),), Fraction(-1, 2))
        return algebra.scaled(algebra.multiplied(root, bell), (1, Fraction(4)))
    raise TooLargeError


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator on the tape: its name, its constants, its operands, and the indices of its result and of what it reduces."""

    tape: _Tape
    name: str
    attributes: tuple[Any, ...]
    operands: tuple[_Variable, ...]
    result: Indices
    whole: Indices


def _constant(value: Any) -> Constant:
    constant = constant_of(value)
    if constant is None:
        raise TooLargeError
    return constant


def _exponent(value: Any) -> Fraction:
    exponent = number_of(value)
    if exponent is None or exponent.denominator > 2:
        raise TooLargeError
    return exponent


def _times(call: _Call) -> _Variable:
    if len(call.operands) == 1:
        return call.tape.scaled(call.operands[0], _constant(call.attributes[1]))
    return call.tape.times(*call.operands)


def _quotient(call: _Call) -> _Variable:
    tape = call.tape
    if len(call.operands) == 2:
        return tape.times(call.operands[0], tape.power(call.operands[1], Fraction(-1)))
    place, value = call.attributes
    constant = _constant(value)
    if place == 0:
        return tape.scaled(tape.power(call.operands[0], Fraction(-1)), constant)
    if not constant[1]:
        raise TooLargeError
    return tape.scaled(call.operands[0], (constant[0], 1 / constant[1]))


def _sign(name: str, alpha: Any) -> Constant:
    """Return what the second of two addends is multiplied with."""
    factor = number_of(alpha)
    if factor is None:
        raise TooLargeError
    return rational(-factor if name == "sub" else factor)


def _sum(call: _Call) -> _Variable:
    tape, sign = call.tape, _sign(call.name, call.attributes[0])
    if len(call.operands) == 2:
        return tape.plus(call.operands[0], call.operands[1], sign)
    _, place, value = call.attributes
    number = tape.number(_constant(value))
    return tape.plus(call.operands[0], number, sign) if place == 1 else tape.plus(number, call.operands[0], sign)


def _power(call: _Call) -> _Variable:
    if call.attributes[0] != 1:
        raise TooLargeError
    return call.tape.power(call.operands[0], _exponent(call.attributes[1]))


def _of_exponent(exponent: Fraction) -> _Rule:
    return lambda call: call.tape.power(call.operands[0], exponent)


def _of_function(name: str) -> _Rule:
    return lambda call: call.tape.function(name, call.operands[0])


def _total(call: _Call) -> _Variable:
    if call.attributes != (None,):
        raise TooLargeError
    return call.tape.total(call.operands[0], call.operands[0].indices - call.result)


def _moved(call: _Call) -> _Variable:
    return call.operands[0]


def _negative(call: _Call) -> _Variable:
    return call.tape.scaled(call.operands[0], rational(-1))


def _contraction(call: _Call) -> _Variable:
    found = call.tape.times(*call.operands)
    return call.tape.total(found, found.indices - call.result)


def _silu(call: _Call) -> _Variable:
    return call.tape.times(call.operands[0], call.tape.function("sigmoid", call.operands[0]))


def _gelu(call: _Call) -> _Variable:
    (variable,), tape, way = call.operands, call.tape, call.attributes[0]
    if way in (None, "none"):
        inner = tape.function("erf", tape.scaled(variable, (1, Fraction(1, 2))))
    elif way == "tanh":
        cubed = tape.scaled(tape.power(variable, Fraction(3)), _constant(0.044715))
        inner = tape.function("tanh", tape.scaled(tape.plus(variable, cubed), _constant(sqrt(2 / pi))))
    else:
        raise TooLargeError
    return tape.times(tape.scaled(variable, (1, Fraction(1, 4))), tape.plus(tape.number(NONE), inner))


def _inverse_root(tape: _Tape, square: _Variable, eps: Any) -> _Variable:
    constant = constant_of(eps)
    if constant is None:
        raise TooLargeError
    return tape.power(tape.plus(square, tape.number(constant)), Fraction(-1, 2))


def _root_norm(call: _Call) -> _Variable:
    tape, (variable, *weight) = call.tape, call.operands
    square = tape.mean(tape.power(variable, Fraction(2)), call.whole)
    found = tape.times(variable, _inverse_root(tape, square, call.attributes[0]))
    return tape.times(found, weight[0]) if weight else found


def _centred(tape: _Tape, variable: _Variable, over: Indices) -> _Variable:
    return tape.plus(variable, tape.mean(variable, over), rational(-1))


def _layer_norm(call: _Call) -> _Variable:
    tape, (variable, *rest) = call.tape, call.operands
    centred = _centred(tape, variable, call.whole)
    square = tape.mean(tape.power(centred, Fraction(2)), call.whole)
    found = tape.times(centred, _inverse_root(tape, square, call.attributes[0]))
    found = tape.times(found, rest[0]) if rest else found
    return tape.plus(found, rest[1]) if len(rest) > 1 else found


def _variance(call: _Call) -> _Variable:
    tape, (variable,) = call.tape, call.operands
    count = 1
    for index in call.whole:
        count *= tape.algebra.sizes[index][0]
    correction = number_of(call.attributes[0])
    if correction is None or correction >= count:
        raise TooLargeError
    found = tape.mean(tape.power(_centred(tape, variable, call.whole), Fraction(2)), call.whole)
    return tape.scaled(found, rational(Fraction(count) / (count - correction)))


def _softmax(call: _Call) -> _Variable:
    tape, (variable,) = call.tape, call.operands
    if call.attributes != (None,):
        raise TooLargeError
    if call.name == "log-softmax":
        return tape.plus(variable, _log_sum(tape, variable, call.whole), rational(-1))
    powers = tape.function("exp", variable)
    return tape.times(powers, tape.power(tape.total(powers, call.whole), Fraction(-1)))


def _log_sum(tape: _Tape, variable: _Variable, over: Indices) -> _Variable:
    return tape.function("log", tape.total(tape.function("exp", variable), over))


def _log_sum_exp(call: _Call) -> _Variable:
    return _log_sum(call.tape, call.operands[0], call.whole)


def _squared_error(call: _Call) -> _Variable:
    tape = call.tape
    one, other = call.operands
    square = tape.power(tape.plus(one, other, rational(-1)), Fraction(2))
    return tape.total(square, square.indices - call.result)


def _divergence(call: _Call) -> _Variable:
    """Refuse a target that may be zero: `kl_div` is zero there, and what is written out has no value."""
    tape, (scores, target) = call.tape, call.operands
    if not all(tape.algebra.is_positive(term) for _, factors in target.value for term, _, _ in factors):
        raise TooLargeError
    apart = tape.times(target, tape.plus(tape.function("log", target), scores, rational(-1)))
    return tape.total(apart, apart.indices - call.result)


def _scores_of_chances(call: _Call) -> _Variable:
    tape, (scores, target) = call.tape, call.operands
    powers = tape.plus(tape.number(NONE), tape.function("exp", scores))
    found = tape.plus(tape.function("log", powers), tape.times(scores, target), rational(-1))
    return tape.total(found, found.indices - call.result)


def _norm(call: _Call) -> _Variable:
    if call.attributes != (2,):
        raise TooLargeError
    tape, (variable,) = call.tape, call.operands
    return tape.power(tape.total(tape.power(variable, Fraction(2)), call.whole), Fraction(1, 2))


def _deviation(call: _Call) -> _Variable:
    return call.tape.power(_variance(call), Fraction(1, 2))


def _gated(call: _Call) -> _Variable:
    return call.tape.times(call.tape.times(call.operands[0], call.tape.function("sigmoid", call.operands[0])), call.operands[1])


def _beside_one(sign: int, inner: Callable[[_Tape, _Variable], _Variable], outer: str = "") -> _Rule:
    """One, plus or minus something, and a function of that."""

    def rule(call: _Call) -> _Variable:
        tape = call.tape
        total = tape.plus(tape.number(NONE), inner(tape, call.operands[0]), rational(sign))
        return tape.function(outer, total) if outer else total

    return rule


def _power_less_one(call: _Call) -> _Variable:
    tape = call.tape
    return tape.plus(tape.function("exp", call.operands[0]), tape.number(NONE), rational(-1))


def _log_sigmoid(call: _Call) -> _Variable:
    return call.tape.function("log", call.tape.function("sigmoid", call.operands[0]))


def _hyperbolic(sign: int) -> _Rule:
    def rule(call: _Call) -> _Variable:
        tape, (variable,) = call.tape, call.operands
        both = tape.plus(
            tape.function("exp", variable), tape.function("exp", tape.scaled(variable, rational(-1))), rational(sign)
        )
        return tape.scaled(both, rational(Fraction(1, 2)))

    return rule


def _likelihood(call: _Call) -> _Variable:
    return call.tape.scaled(_contraction(call), rational(-1))


def _loss(call: _Call) -> _Variable:
    tape, (scores, _) = call.tape, call.operands
    tape.algebra.terms.assumptions.add(CLASSES)
    classes, share = scores.indices - call.result, number_of(call.attributes[0]) if call.attributes else Fraction(0)
    if share is None:
        raise TooLargeError
    counted = tape.scaled(_contraction(call), rational(1 - share))
    if share:
        counted = tape.plus(counted, tape.scaled(tape.mean(scores, classes), rational(share)))
    return tape.plus(_log_sum(tape, scores, classes), counted, rational(-1))


def _of_halves(tape: _Tape, spec: OpSpec, values: Sequence[Expression], operand: Indices, made: Indices) -> Expression | None:
    """Return an operator on the halves of a dimension; its gradient, where there is one to begin with."""
    if spec.halves is None:
        return None
    algebra, (gated, function) = tape.algebra, spec.halves
    (whole,), (half,) = operand - made, made - operand
    size = algebra.sizes[half][0]
    parts = [tape.given(algebra.sliced(values[-1], whole, start, start + size, half), made) for start in (0, size)]
    gate = _RULES[function][0](_Call(tape, spec.name, (), (parts[gated],), made, frozenset()))
    product = tape.times(gate, parts[1 - gated])
    if len(values) == 1:
        return product.value
    first, second = (tape.gradient(product, values[0], part) for part in parts)
    return algebra.added(*(algebra.padded(each, half, at, 2 * size, whole) for each, at in ((first, 0), (second, size))))


_Rule: TypeAlias = Callable[[_Call], _Variable]

_ONE = ((1, 0),)

_RULES: dict[str, tuple[_Rule, tuple[tuple[int, int], ...]]] = {
    "mul": (_times, ((1, 2), (2, 0))),
    "div": (_quotient, ((1, 2), (2, 0))),
    "add": (_sum, ((1, 3), (2, 1))),
    "sub": (_sum, ((1, 3), (2, 1))),
    "pow": (_power, ((1, 2),)),
    "sqrt": (_of_exponent(Fraction(1, 2)), _ONE),
    "rsqrt": (_of_exponent(Fraction(-1, 2)), _ONE),
    "reciprocal": (_of_exponent(Fraction(-1)), _ONE),
    "neg": (_negative, _ONE),
    "exp": (_of_function("exp"), _ONE),
    "log": (_of_function("log"), _ONE),
    "tanh": (_of_function("tanh"), _ONE),
    "erf": (_of_function("erf"), _ONE),
    "sigmoid": (_of_function("sigmoid"), _ONE),
    "silu": (_silu, _ONE),
    "gelu": (_gelu, ((1, 1),)),
    "sum": (_total, ((1, 1),)),
    "rms-norm": (_root_norm, ((1, 1), (2, 1))),
    "layer-norm": (_layer_norm, ((1, 1), (2, 1), (3, 1))),
    "var": (_variance, ((1, 1),)),
    "softmax": (_softmax, ((1, 1),)),
    "log-softmax": (_softmax, ((1, 1),)),
    "logsumexp": (_log_sum_exp, _ONE),
    "norm": (_norm, ((1, 1),)),
    "vector-norm": (_norm, ((1, 1),)),
    "std": (_deviation, ((1, 1),)),
    "swiglu": (_gated, ((2, 0),)),
    "log1p": (_beside_one(1, lambda tape, value: value, "log"), _ONE),
    "erfc": (_beside_one(-1, lambda tape, value: tape.function("erf", value)), _ONE),
    "expm1": (_power_less_one, _ONE),
    "logsigmoid": (_log_sigmoid, _ONE),
    "sinh": (_hyperbolic(-1), _ONE),
    "cosh": (_hyperbolic(1), _ONE),
    "kl-div": (_divergence, ((2, 0),)),
    "binary-cross-entropy-with-logits": (_scores_of_chances, ((2, 0),)),
    "mse-loss": (_squared_error, ((2, 0),)),
    "gather": (_contraction, ((2, 0),)),
    "masked-gather": (_contraction, ((2, 0),)),
    "nll-rows": (_likelihood, ((2, 0),)),
    "cross-entropy-rows": (_loss, ((2, 0), (2, 1))),
}
"""By operator: the arithmetic that it is, and how many operands and attributes the calls have that it is the arithmetic of."""


def is_arithmetic(op: str) -> bool:
    """Return whether calls of the operator are arithmetic; what it averages is then a sum, divided by the number of addends."""
    return op in _RULES


def _rule(op: str, operands: int, attributes: int) -> _Rule | None:
    """Return the arithmetic of a call of the operator with so many operands and attributes; None where it is not known."""
    if op in _RULES:
        rule, forms = _RULES[op]
        return rule if (operands, attributes) in forms else None
    if (operands, attributes) == (2, 0) and has_trait(op, Trait.CONTRACTION) and has_trait(op, Trait.PRODUCT):
        return _contraction
    moves = (operands, attributes) == (1, 0) and has_trait(op, Trait.TRANSPOSE, Trait.VIEW, Trait.BROADCAST)
    return _moved if moves else None


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
    moved = _moved_ranges(terms, head, operands, places, result, whole) if has_trait(name, Trait.RANGES, Trait.JOIN) else None
    if moved is not None or averaged or (not gradient and which != 0):
        return moved
    algebra = Algebra(terms)
    algebra.split(zip(operands, places, strict=True))
    looked_up = _looked_up(name, gradient, places, result)
    values = [ones_and_zeros(algebra, term, place) for term, place in zip(operands, places, strict=True)]
    for dim, index in enumerate(result):
        if index >= 0 and index not in algebra.sizes and index not in algebra.parts:
            algebra.sizes[index] = (shape[dim], dim == slot)
    if looked_up:
        fails_elsewhere = not has_trait(name, Trait.MASKED_LOOKUP)
        values[-1] = algebra.place_of(operands[-1], places[-1], looked_up[0], looked_up=fails_elsewhere)
        places[-1] = (*places[-1], *looked_up)
    parts = [[pattern for index in row for pattern in algebra.expanded(index)] for row in (*places, whole)]
    *inside, over = [frozenset(index for index in part if index in algebra.sizes and index >= 0) for part in parts]
    kept = [-1 if index >= 0 and algebra.sizes.get(index) == (1, False) else index for index in result]
    left = frozenset(pattern for index in kept for pattern in algebra.expanded(index)) - {-1}
    tape = _Tape(algebra)
    special = _special(terms, head, operands, algebra, values, inside)
    if special is not None:
        made: Expression | None = special
    elif not gradient and _to_numbers(name, attributes) and _are_flags(terms, operands[0], values[0]):
        made = values[0]
    elif whole and (spec := spec_of(name)) is not None and spec.halves is not None:
        made = _of_halves(tape, spec, values, inside[-1], left if not gradient else inside[0])
    elif gradient:
        made = _gradient(tape, head, values, inside, left, over)
    else:
        rule = _rule(name, len(operands), len(attributes))
        if rule is None:
            return None
        given = tuple(tape.given(value, pattern) for value, pattern in zip(values, inside, strict=True))
        made = rule(_Call(tape, name, attributes, given, left, over)).value
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


def _looked_up(name: str, gradient: bool, places: Sequence[Sequence[int]], result: Sequence[int]) -> tuple[int, ...]:
    """Return the index along which the last operand says what is looked up; none for other operators."""
    if not has_trait(name, Trait.PICK):
        return ()
    found = set(result if gradient else places[0]) - {-1, *places[-1]}
    if len(found) != 1:
        raise TooLargeError
    return tuple(found)


def _moved_ranges(
    terms: Terms,
    head: Head,
    operands: Sequence[int],
    places: Sequence[Sequence[int]],
    result: Sequence[int],
    whole: Sequence[int],
) -> int | None:
    """Return slices, parts and joined tensors, and their gradients: some indices of dimensions, or values among zeros.

    A dimension that views put together is cut as one.
    """
    op, which, attributes, _, extra = head
    gradient, algebra = str(op).endswith(" gradient"), Algebra(terms)
    free = [[index for index in each_sequence if index not in whole] for each_sequence in (*places, result)]
    algebra.split(
        (term, [index if index in moved_index else -1 for index in at])
        for term, at, moved_index in zip(operands, places, free, strict=False)
    )
    new = [index for index in result if index in whole and not any(index in place for place in places)]
    if len(new) != len(extra):
        return None
    sizes = dict(zip(new, extra, strict=True))
    values = [_opaque(algebra, term, place, whole) for term, place in zip(operands, places, strict=True)]
    cut = [[index for index in place if index in whole] for place in places]
    if str(op).removesuffix(" gradient") == "stack":
        made = _unstacked(algebra, values, cut, which) if gradient else _stacked(algebra, values, new, extra)
        return _laid_out(algebra, made, result) if made else None
    if (
        all(isinstance(attribute, int) and not isinstance(attribute, bool) for attribute in attributes)
        and attributes
        and len(new) == 1
    ):
        starts = [sum(attributes[:place]) for place in range(len(attributes))]
        if any(len(moved_index) != 1 for moved_index in cut):
            return None
        joins = has_trait(str(op).removesuffix(" gradient"), Trait.JOIN)
        if joins is gradient:
            place = which[0] if gradient else which
            if (
                len(operands) != 1
                or not isinstance(place, int)
                or place >= len(attributes)
                or sizes[new[0]] != attributes[place]
            ):
                return None
            made = algebra.sliced(values[0], cut[0][0], starts[place], starts[place] + attributes[place], new[0])
        else:
            given = which[1] if gradient else tuple(range(len(attributes)))
            if len(given) != len(operands) or sizes[new[0]] != sum(attributes):
                return None
            made = algebra.added(
                *(
                    algebra.padded(value, moved_index, starts[place], sum(attributes), new[0])
                    for value, (moved_index,), place in zip(values, cut, given, strict=True)
                )
            )
    else:
        (value, *more), (sequence,) = values, places[:1]
        if more or len(sequence) != len(result) or len(attributes) != len(sequence):
            return None
        made = value
        for entry, before, after in zip(attributes, sequence, result, strict=True):
            if entry is None and before == after:
                continue
            if (
                not isinstance(entry, tuple)
                or len(entry) != 3
                or entry[2] != 1
                or not all(isinstance(end, int) for end in entry)
            ):
                return None
            start, stop, _ = entry
            if gradient:
                made = algebra.padded(made, before, start, sizes[after], after)
            else:
                made = algebra.sliced(made, before, start, stop, after)
    if not made:
        return None
    term, constant = algebra.laid_out(made, result)
    return times(terms, term, constant)


def _stacked(
    algebra: Algebra, values: Sequence[Expression], new: Sequence[int], extra: Sequence[int]
) -> Expression | None:
    """Return values along a new dimension: each among zeros, at its place of it."""
    if len(new) != 1 or tuple(extra) != (len(values),):
        return None
    part = _fresh(algebra, new)
    algebra.sizes[part] = (1, False)
    return algebra.added(*(algebra.padded(value, part, place, len(values), new[0]) for place, value in enumerate(values)))


def _unstacked(
    algebra: Algebra, values: Sequence[Expression], cut: Sequence[Sequence[int]], which: Sequence[int]
) -> Expression | None:
    """Return the gradient of a value that stands at a place of a new dimension: the given one there, without the dimension."""
    if len(values) != 1 or len(cut[0]) != 1 or not isinstance(which[0], int):
        return None
    part = _fresh(algebra, cut[0])
    made = algebra.sliced(values[0], cut[0][0], which[0], which[0] + 1, part)
    return tuple(
        (constant, tuple((term, tuple(-1 if i == part else i for i in at), power) for term, at, power in factors))
        for constant, factors in made
    )


def _fresh(algebra: Algebra, known: Sequence[int]) -> int:
    return max(*algebra.sizes, *known, -1) + 1


def some_of(terms: Terms, term: int, dim: int, start: int, stop: int) -> int | None:
    """Return some indices of a dimension of a term as a sum of products; None where no form of it is known."""
    places, algebra = list(range(len(terms.shape[term]))), Algebra(terms)
    try:
        (given,) = _with_dimensions(algebra, [(term, places, dim)])
        made = algebra.sliced(given, dim, start, stop, len(places))
        return _laid_out(algebra, made, [*places[:dim], len(places), *places[dim + 1 :]]) if made else None
    except TooLargeError:
        return None


def is_equal_by_ranges(terms: Terms, one: int, other: int) -> bool:
    """Return whether two terms are equal on each of the ranges at which the first has values side by side, where these make up
    a dimension.
    """
    algebra, places = Algebra(terms), range(len(terms.shape[one]))
    try:
        algebra.split([(one, places)])
        found = algebra.ranges(algebra.of_term(one, places))
    except TooLargeError:
        return False
    if found is None:
        return False
    dim, ranges = found
    if dim >= len(terms.shape[one]) or sum(size for _, size in ranges) != terms.shape[one][dim]:
        return False
    for start, size in ranges:
        part, right = (some_of(terms, term, dim, start, start + size) for term in (one, other))
        if part is None or part != right:
            return False
    return True


def among_zeros(terms: Terms, term: int, dim: int, start: int, size: int) -> int | None:
    """Return a term among zeros, from `start` on in a dimension of that size; None where no form of it is known."""
    return side_by_side(terms, [(term, start)], dim, size)


def side_by_side(terms: Terms, parts: Sequence[tuple[int, int]], dim: int, size: int) -> int | None:
    """Return terms side by side in a dimension of that size, each from an index on; None where no form of that is known."""
    places, algebra = list(range(len(terms.shape[parts[0][0]]))), Algebra(terms)
    last = len(places) + len(parts)
    try:
        cut = [(term, [*places[:dim], part, *places[dim + 1 :]], part) for part, (term, _) in enumerate(parts, len(places))]
        given = zip(_with_dimensions(algebra, cut), cut, parts, strict=True)
        made = [algebra.padded(value, part, start, size, last) for value, (_, _, part), (_, start) in given]
        return _laid_out(algebra, algebra.added(*made), [*places[:dim], last, *places[dim + 1 :]])
    except TooLargeError:
        return None


def _with_dimensions(algebra: Algebra, given: Sequence[tuple[int, Sequence[int], int]]) -> list[Expression]:
    """Return terms, each with the indices of its dimensions, as expressions in which one index of each is not split."""
    algebra.split((term, [-1 if index == whole else index for index in places]) for term, places, whole in given)
    return [_opaque(algebra, term, places, [whole]) for term, places, whole in given]


def _laid_out(algebra: Algebra, made: Expression, places: Sequence[int]) -> int:
    term, constant = algebra.laid_out(made, places)
    return times(algebra.terms, term, constant)


def _opaque(algebra: Algebra, term: int, places: Sequence[int], whole: Sequence[int]) -> Expression:
    """Return a term as an expression; as one factor where it joins dimensions into one that is cut.

    An index that no factor has, since the term is the same all along it, is as long as the dimension.
    """
    inner, constant = bare(algebra.terms, term)
    for dim, index in enumerate(places):
        if index >= 0:
            algebra.sizes.setdefault(index, (algebra.terms.shape[inner][dim], dim == algebra.terms.slot[inner]))
    if all(len(sizes) == 1 for sizes, index in zip(parts_of(algebra.terms, inner), places, strict=True) if index in whole):
        return algebra.of_term(term, places)
    for dim, index in enumerate(places):
        if len(algebra.expanded(index)) > 1:
            raise TooLargeError
        algebra.sizes[index] = (algebra.terms.shape[inner][dim], dim == algebra.terms.slot[inner])
    return ((constant, ((inner, tuple(places), ONE),)),)


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


def _to_numbers(name: str, attributes: tuple[Any, ...]) -> bool:
    return has_trait(name, Trait.CONVERSION) and attributes != ("bool",)


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
    if len(attributes) != 2 or not 0 <= position < 3 or len(operands) not in (first + count, first + count + 1):
        return None
    causal, scale = attributes
    tape = _Tape(algebra)
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
    constant = _constant(scale) if scale is not None else (1, Fraction(1, prod(algebra.sizes[pattern][0] for pattern in both)))
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
        if is_of_flags(terms, mask):
            keeps = flag(algebra, mask, names, negated=False)
        elif is_of_numbers(terms, mask):
            scores = tape.plus(scores, tape.given(values[-1], inside[-1]))
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
    tape: _Tape, head: Head, values: Sequence[Expression], inside: Sequence[Indices], result: Indices, whole: Indices
) -> Expression | None:
    """Return the gradient of one operand, from that of the result and those operands that it depends on."""
    op, which, attributes, *_ = head
    name = str(op).removesuffix(" gradient")
    algebra, (given, *known) = tape.algebra, values
    position = which[0] if which else 0
    if which and which[1] != (0,):
        return None
    if not known:
        return _through(tape, name, position, attributes, given, inside[0], result)
    count = len(attributes)
    if len(known) == 1 and (_rule(name, 2, count) is _contraction or (name == "mul" and not count)):
        found = algebra.multiplied(given, known[0])
        return algebra.total(found, (inside[0] | inside[1]) - result)
    if name == "div" and not count and position == 0:
        found = algebra.multiplied(given, algebra.power(known[0], Fraction(-1)))
        return algebra.total(found, (inside[0] | inside[1]) - result)
    missing = algebra.terms.term(("missing",), (), (), -1)
    operands = [tape.given(value, pattern) for value, pattern in zip(known, inside[1:], strict=True)]
    of = position
    if name in ("rms-norm", "layer-norm") and position > 0:
        unknown = tape.given(((NONE, ((missing, (), ONE),)),), result)
        operands = [operands[0], *([operands[0]] * (position - 1)), unknown][: position + 1]
        if position == 2:
            return algebra.total(given, inside[0] - result)
    rule = _rule(name, len(operands), count)
    if rule is None and _rule(name, len(operands) + 1, count) is not None:
        operands.insert(position, tape.given(((NONE, ((missing, (), ONE),)),), result))
        rule = _rule(name, len(operands), count)
    if rule is None or rule is _contraction or of >= len(operands):
        return None
    made = rule(_Call(tape, name, attributes, tuple(operands), inside[0], whole))
    found = tape.gradient(made, given, operands[of])
    return found if all(term != missing for _, factors in found for term, _, _ in factors) else None


def _through(
    tape: _Tape, name: str, position: int, attributes: tuple[Any, ...], given: Expression, inside: Indices, result: Indices
) -> Expression | None:
    """Return the gradient of an operator that is linear in its operand, and needs nothing but the gradient of its result."""
    algebra = tape.algebra
    summed = algebra.total(given, inside - result)
    if name in ("add", "sub") and len(attributes) == 1:
        return algebra.scaled(summed, _sign(name, attributes[0])) if position == 1 else summed
    if name in ("mul", "div") and len(attributes) == 2 and (name == "mul" or attributes[0] == 1):
        constant = constant_of(attributes[1])
        if constant is None or not constant[1]:
            return None
        return algebra.scaled(summed, constant if name == "mul" else (constant[0], 1 / constant[1]))
    if name == "neg":
        return algebra.scaled(summed, rational(-1))
    if name == "sum" and attributes == (None,):
        return summed
    return summed if _rule(name, 1, len(attributes)) is _moved else None


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
