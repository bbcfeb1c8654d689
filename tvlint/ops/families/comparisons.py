"""Comparisons, which make masks of zeros and ones, what combines masks, and the greater and the less of two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tvlint.ops.families.elementwise import broadcast, pair, placed, two_tensors
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError, having, stars
from tvlint.plurals import counted

_Compare = Callable[[Field, Array, Array], Array]


def _mask(symmetric: bool) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown()
        if len(call.inputs) != 2:
            raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
        operands, output, literals = broadcast(call)
        for value in literals[1::2]:
            if not isinstance(value, int | float):
                raise UnsupportedError(f"`{call.op}` with {value}")
        return Bound(
            operands,
            (output,),
            attributes=literals,
            commutative=symmetric and not literals,
            zero_gradient=frozenset(range(len(operands))),
        )

    return bind


def _compared(compare: _Compare) -> Callable[[Bound, Sequence[Array], Field], tuple[Array, ...]]:
    def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        names, (left, right) = pair(bound, operands, field, bound.attributes)
        return placed(bound, names, compare(field, left, right))

    return evaluate


def _flag(field: Field, holds: Array, yes: int = 1) -> Array:
    return field.where(holds, field.number(yes), field.number(1 - yes))


def _both(field: Field, left: Any, right: Any) -> Array:
    return field.where(field.equal(left, 0), field.number(0), _flag(field, field.equal(right, 0), 0))


def _either(field: Field, left: Any, right: Any) -> Array:
    return field.where(field.equal(left, 0), _flag(field, field.equal(right, 0), 0), field.number(1))


def _not(call: Call) -> Bound:
    call.reject_unknown()
    call.expect(1)
    names = stars(len(call.shape(0)))
    return Bound((names,), (names,), zero_gradient=frozenset({0}))


def _negated(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (_flag(field, field.equal(operands[0], 0)),)


def _names(*names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names for module in ("torch", "torch.Tensor", "operator", "_operator"))


_HOLDS = {"eq": {0}, "ne": {-1, 1}, "lt": {-1}, "gt": {1}, "le": {-1, 0}, "ge": {0, 1}}


def _compare(holds: Collection[int]) -> _Compare:
    """Return the comparison that holds where the first less the second has one of the signs."""
    strict, greater = 0 not in holds, 1 in holds
    if (-1 in holds) is greater:
        return lambda field, a, b: _flag(field, field.equal(a, b), int(not strict))
    if strict is greater:
        return lambda field, a, b: _flag(field, field.less(b, a), int(strict))
    return lambda field, a, b: _flag(field, field.less(a, b), int(strict))


def _comparison(name: str, holds: Collection[int]) -> OpSpec:
    bind = _mask((-1 in holds) is (1 in holds))
    return OpSpec(name, _names(name), bind, evaluate=_compared(_compare(holds)), holds=frozenset(holds))


_LESS: _Compare = lambda field, a, b: field.where(field.less(a, b), a, b)  # noqa: E731
_MORE: _Compare = lambda field, a, b: field.where(field.less(a, b), b, a)  # noqa: E731

SPECS = (
    *having(
        (Trait.COMPARISON,),
        *(_comparison(name, holds) for name, holds in _HOLDS.items()),
        *having(
            (Trait.LOGICAL_AND,),
            OpSpec("logical-and", ("torch.logical_and", "torch.Tensor.logical_and"), _mask(True), evaluate=_compared(_both)),
        ),
        *having(
            (Trait.LOGICAL_OR,),
            OpSpec("logical-or", ("torch.logical_or", "torch.Tensor.logical_or"), _mask(True), evaluate=_compared(_either)),
        ),
        *having(
            (Trait.LOGICAL_NOT,),
            OpSpec("logical-not", ("torch.logical_not", "torch.Tensor.logical_not"), _not, evaluate=_negated),
        ),
    ),
    OpSpec("maximum", _names("maximum", "fmax"), two_tensors, evaluate=_compared(_MORE), traits=frozenset({Trait.RISING})),
    OpSpec("minimum", _names("minimum", "fmin"), two_tensors, evaluate=_compared(_LESS)),
)
