"""Representatives of the operators that model authors register: functions that the annotations must be true of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.builders.operator_cases import Case
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Evaluate


def _rotary(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Pairs (i, i + half) turned by the angle of their position."""
    angles = operands[2]
    cos, sin = (field.function(name, angles)[None, :, None, :] for name in ("cos", "sin"))
    half = operands[0].shape[-1] // 2
    turned = []
    for x in operands[:2]:
        a, b = x[..., :half], x[..., half:]
        turned.append(np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1))
    return tuple(turned)


def _create_mask(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    length = operands[0].shape[1]
    return (np.where(np.tri(length) > 0, field.number(0), field.number(-5))[None, None],)


def _apply_mask(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (operands[0] + operands[1],)


def _sigmoid(x: Array, field: Field) -> Array:
    return field.divide(field.number(1), field.number(1) + field.function("exp", -x))


def _gate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """The greatest score of each row and the expert that has it."""
    x, weight = operands
    scores = _sigmoid((x[:, None, :] * weight[None]).sum(-1), field)
    best, place = scores[:, 0], np.zeros(len(x), dtype=int)
    for expert in range(1, weight.shape[0]):
        less = field.less(best, scores[:, expert])
        best, place = field.where(less, scores[:, expert], best), field.where(less, np.full(len(x), expert), place)
    return best[:, None], place[:, None]


def _experts(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """For every chosen expert that is held: its score times w2 (silu(w1 x) * w3 x)."""
    x, scores, chosen, first, third, second = operands
    start, _ = bound.ranges["e"]
    total: Any = field.number(0)
    for expert in range(first.shape[0]):
        share = field.where(field.equal(chosen, start + expert), scores, field.number(0)).sum(axis=1)
        up, other = ((x[:, None, :] * weight[expert][None]).sum(-1) for weight in (first, third))
        inner = up * _sigmoid(up, field) * other
        total = total + share[:, None] * (inner[:, None, :] * second[expert][None]).sum(-1)
    return (total,)


def _none(*_: Any) -> Any:
    raise AssertionError("representatives are not compared")


REPRESENTATIVES: tuple[tuple[Case, Evaluate], ...] = (
    (Case("apply_rotary_emb", "model.apply_rotary_emb", ((2, 4, 2, 4), (2, 4, 2, 4), (4, 2)), _none, _none), _rotary),
    (
        Case("create_mask", "model.create_mask", ((2, 4), (2, 4, 2)), _none, _none, outputs=((1, 1, 4, 4),)),
        _create_mask,
    ),
    (Case("apply_mask", "model.apply_mask", ((2, 2, 4, 4), (1, 1, 4, 4)), _none, _none), _apply_mask),
    (
        Case("gate_fw", "model.gate_fw", ((4, 2), (3, 2)), _none, _none, {"topk": 1}),
        _gate,
    ),
    (
        Case(
            "nnscaler_moe_gmm",
            "model.nnscaler_moe_gmm",
            ((2, 2), (2, 2), (2, 2), (4, 2, 2), (4, 2, 2), (4, 2, 2)),
            _none,
            _none,
            {"local_expert_start": 0, "local_expert_end": 4, "n_routed_experts": 4},
        ),
        _experts,
    ),
)
