"""Operators that move elements and compute nothing."""

from __future__ import annotations

from tvlint.ir.plan import Literal
from tvlint.ops.spec import Bound, Call, Family, OpSpec, UnsupportedError, stars


def _transpose(call: Call) -> Bound:
    call.reject_unknown("dim0", "dim1")
    names = list(stars(len(call.shape(0))))
    given = [call.attributes.get("dim0"), call.attributes.get("dim1")]
    given += [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
    dims = [dim for dim in given if isinstance(dim, int) and not isinstance(dim, bool)]
    if len(dims) != 2 or not all(-len(names) <= dim < len(names) for dim in dims):
        raise UnsupportedError(f"`transpose` with dims {given}")
    operand = tuple(names)
    first, second = dims[0] % len(names), dims[1] % len(names)
    names[first], names[second] = names[second], names[first]
    return Bound((operand,), (tuple(names),), linear=(frozenset({0}),))


def _permute(call: Call) -> Bound:
    call.reject_unknown("dims")
    names = stars(len(call.shape(0)))
    dims = call.attributes.get("dims")
    if not isinstance(dims, tuple) or not all(isinstance(dim, int) and -len(names) <= dim < len(names) for dim in dims):
        raise UnsupportedError(f"`permute` with dims {dims}")
    order = [dim % len(names) for dim in dims if isinstance(dim, int)]
    if sorted(order) != list(range(len(names))):
        raise UnsupportedError(f"`permute` with dims {dims}")
    return Bound((names,), (tuple(names[dim] for dim in order),), linear=(frozenset({0}),))


def _same(call: Call) -> Bound:
    call.reject_unknown("times", "memory_format")
    names = stars(len(call.shape(0)))
    return Bound((names,), tuple(names for _ in range(max(1, len(call.outputs)))), linear=(frozenset({0}),))


def _reshape(call: Call) -> Bound:
    call.reject_unknown("size", "shape")
    return Bound((stars(len(call.shape(0))),), (), linear=(frozenset({0}),))


SPECS = (
    OpSpec("transpose", ("torch.transpose", "torch.Tensor.transpose"), _transpose),
    OpSpec("permute", ("torch.permute", "torch.Tensor.permute"), _permute),
    OpSpec(
        "identity",
        ("nnscaler.runtime.function.identity", "torch.Tensor.contiguous", "torch.clone", "torch.Tensor.clone"),
        _same,
        Family.IDENTITY,
    ),
    OpSpec("multiref", ("nnscaler.runtime.function.multiref",), _same, Family.IDENTITY),
    OpSpec("view", ("torch.Tensor.view", "torch.Tensor.reshape", "torch.reshape"), _reshape, Family.RESHAPE),
)
