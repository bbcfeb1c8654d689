"""Operators that model authors register and that tvlint knows by name: annotated, not interpreted.

They are keyed by the function's own name, since the module is the author's. What the annotation says is an assumption, and
every verdict that uses one lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tvlint.ops.spec import Bound, Call, OpSpec, UnsupportedError, named
from tvlint.plurals import counted


def _annotated(
    annotation: str,
    *attributes: str,
    linear: tuple[frozenset[int], ...] = (),
    zero_gradient: frozenset[int] = frozenset(),
    shape_only: frozenset[int] = frozenset(),
    row_wise: dict[int, frozenset[int]] | None = None,
    ranges: dict[str, tuple[str, str]] | None = None,
    indices: dict[int, str] | None = None,
) -> Callable[[Call], Bound]:
    operands, outputs, reduced, whole = named(annotation)

    def bind(call: Call) -> Bound:
        bounds = ranges or {}
        call.reject_unknown(*attributes, *(key for pair in bounds.values() for key in pair))
        if len(call.inputs) != len(operands):
            raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
        for position, names in enumerate(operands):
            if len(call.shape(position)) != len(names):
                raise UnsupportedError(f"operand {position} of `{call.op}` has shape {call.shape(position)}")
        stated = {}
        for name, (low, high) in bounds.items():
            start, stop = call.attributes.get(low), call.attributes.get(high)
            if not isinstance(start, int) or not isinstance(stop, int):
                raise UnsupportedError(f"`{call.op}` without `{low}` and `{high}`")
            stated[name] = (start, stop)
        return Bound(
            operands,
            outputs,
            reduced,
            whole=whole,
            linear=linear,
            attributes=tuple(call.attributes.get(name) for name in attributes),
            zero_gradient=zero_gradient,
            shape_only=shape_only,
            ranges=stated,
            row_wise=row_wise or {},
            indices=indices or {},
        )

    return bind


_EXPERTS = {"e": ("local_expert_start", "local_expert_end")}


def _spec(
    name: str,
    text: str,
    bind: Callable[[Call], Bound],
    range_attributes: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> OpSpec:
    assumption = f"`{name}` is the function its annotation describes: {text}"
    return OpSpec(name, (name,), bind, assumption=assumption, range_attributes=range_attributes)


SPECS = (
    _spec(
        "apply_rotary_emb",
        "each output is linear in one of q and k, position by position, with its rows along the last dimension whole",
        _annotated(
            "a b h d^, a b h d^, b f^ -> a b h d^, a b h d^",
            linear=(frozenset({0, 1}),),
            zero_gradient=frozenset({2}),
            row_wise={0: frozenset({0, 2}), 1: frozenset({1, 2})},
        ),
    ),
    _spec(
        "create_mask",
        "it depends on the sequence length only",
        _annotated(
            "b s^, b s^ h -> 1 1 s^ t^",
            shape_only=frozenset({0, 1}),
            zero_gradient=frozenset({0, 1}),
        ),
    ),
    _spec(
        "apply_mask",
        "element by element, with the derivative of an addition in its first operand",
        _annotated("a b c d, 1 1 c d -> a b c d", zero_gradient=frozenset({1})),
    ),
    _spec(
        "gate_fw",
        "row by row, each row of scores and indices depends on one row of tokens and the whole gate weight",
        _annotated(
            "a h^, e^ h^ -> a k^, a k^",
            "bias",
            "n_groups",
            "route_scale",
            "score_func",
            "topk",
            "topk_groups",
        ),
    ),
    _spec(
        "nnscaler_moe_gmm",
        "row by row, a sum over experts and over the hidden dimension of each expert, linear in the scores",
        _annotated(
            "a h^, a k^, a k^, e+ d+ h^, e+ d+ h^, e+ h^ d+ -> a h^",
            "n_routed_experts",
            zero_gradient=frozenset({2}),
            ranges=_EXPERTS,
            indices={2: "e"},
        ),
        range_attributes=_EXPERTS,
    ),
)
