"""Operators that keep some elements and put something else in the places of others: dropout, masks, `where`."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.operators import Value
from tvlint.ops.families.elementwise import broadcast, pair, placed, reject_flags
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import aligned, every_name
from tvlint.ops.spec import DRAWS, Bound, Call, Drawn, MisfitError, OpSpec, Trait, UnsupportedError, having, stars
from tvlint.ops.spelling import in_functional
from tvlint.plurals import counted


def _bind_dropout(call: Call) -> Bound:
    call = call.with_arguments("p", "training", "inplace")
    call.reject_unknown("p", "training", "inplace")
    if call.attributes.get("inplace"):
        raise UnsupportedError(f"`{call.op}` overwrites its operand")
    call.expect(1)
    names = stars(len(call.shape(0)))
    one = (frozenset({0}),)
    share = call.attributes.get("p", 0.5)
    if isinstance(share, int | float) and not 0 <= share <= 1:
        raise MisfitError(f"`{call.op}` that drops a share of {share}", "it has to be between 0 and 1")
    if share == 0 or not call.flag("training", True):
        return Bound((names,), (names,), linear=one)
    return Bound((names,), (names,), attributes=(share_of(call, share),), assumption=DRAWS, draws=Drawn(names, (0,), one))


def share_of(call: Call, share: Value) -> float:
    """Return the share that is dropped; raises UnsupportedError for what is none, or drops everything."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise UnsupportedError(f"`{call.op}` drops a share of {share}")
    return float(share)


def kept(values: Array, drawn: Array, share: float, field: Field) -> Array:
    """Return the values of which a number not below `share` was drawn, scaled up for those that are dropped."""
    scaled = field.divide(values, field.number(1) - field.number(share))
    return field.where(field.less(drawn, field.number(share)), field.number(0), scaled)


def _dropout(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    if not bound.attributes:
        return (operands[0],)
    (share,) = bound.attributes
    if not isinstance(share, float):
        raise UnsupportedError(f"a share of {share}")
    return (kept(operands[0], operands[1], share, field),)


def _bind_masked_fill(call: Call) -> Bound:
    call = call.with_arguments("value")
    call.reject_unknown("value")
    call.expect(2)
    operands, output, _ = broadcast(call)
    value = call.attributes.get("value")
    if not isinstance(value, int | float):
        raise UnsupportedError(f"`{call.op}` with the value {value}")
    linear = () if value else (frozenset({0}),)
    return Bound(operands, (output,), linear=linear, attributes=(value,), zero_gradient=frozenset({1}))


def _masked_fill(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    names = every_name(bound)
    x, mask = aligned(bound, operands, names)
    (value,) = bound.attributes
    if not isinstance(value, int | float):
        raise UnsupportedError(f"the value {value}")
    kept = field.equal(mask, 0)
    return placed(bound, names, field.where(kept, x, field.number(value)))


def _bind_where(call: Call) -> Bound:
    call.reject_unknown()
    if len(call.inputs) != 3:
        raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
    call.shape(0)
    reject_flags(call)
    operands, output, literals = broadcast(call)
    values = literals[1::2]
    tensors = frozenset(range(1, len(operands)))
    linear = () if not tensors or any(value != 0 for value in values) else (tensors,)
    return Bound(operands, (output,), linear=linear, attributes=literals, zero_gradient=frozenset({0}))


def _where(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    names, (mask, left, right) = pair(bound, operands, field, bound.attributes)
    return placed(bound, names, field.where(field.equal(mask, 0), right, left))


SPECS = (
    OpSpec(
        "dropout",
        (*in_functional("dropout"), "nnscaler.runtime.function.dropout"),
        _bind_dropout,
        evaluate=_dropout,
        may_draw=True,
        traits=frozenset({Trait.PRODUCT, Trait.REAL}),
    ),
    *having(
        (Trait.MASKING,),
        OpSpec("masked-fill", in_functional("masked_fill"), _bind_masked_fill, evaluate=_masked_fill),
        OpSpec("where", ("torch.where",), _bind_where, evaluate=_where),
    ),
)
