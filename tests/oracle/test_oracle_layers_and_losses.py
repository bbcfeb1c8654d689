"""The oracle's operators of layers and losses compute what torch computes, with its gradients, and refuse what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from oracle.functions import FailureError, forward
from oracle.gradients import backward
from oracle.layers_and_losses import OF_NO_GRADIENT

NUMBERS = np.random.default_rng(11)


def _real(*shape: int) -> Any:
    return NUMBERS.uniform(0.4, 1.6, shape) * NUMBERS.choice([-1.0, 1.0], shape)


def _chances(*shape: int) -> Any:
    return NUMBERS.uniform(0.1, 0.9, shape)


@dataclass(frozen=True, slots=True)
class Case:
    """One call, in the operands that torch takes after the oracle's; `fails` says that both refuse it."""

    name: str
    values: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    fails: bool = False


TARGET = np.array([0.0, 3.0, 1.0])
IGNORED = np.array([0.0, 2.0, -100.0])
MASK = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])

CASES = [
    Case("layer_norm", [_real(2, 4), (4,), _real(4), _real(4)]),
    Case("layer_norm", [_real(2, 3, 4)], {"normalized_shape": (3, 4), "eps": 0.1}),
    Case("layer_norm", [_real(2, 4)], {"normalized_shape": (3,)}, fails=True),
    Case("rms_norm", [_real(2, 4), (4,), _real(4)]),
    Case("rms_norm", [_real(2, 3, 4)], {"normalized_shape": (3, 4), "eps": 0.5}),
    Case("group_norm", [_real(2, 4, 3), 2, _real(4), _real(4)]),
    Case("group_norm", [_real(2, 4)], {"num_groups": 4, "eps": 0.3}),
    Case("group_norm", [_real(2, 4)], {"num_groups": 3}, fails=True),
    Case("batch_norm", [_real(3, 4), _real(4), _chances(4), _real(4), _real(4)], {"eps": 0.2}),
    Case("batch_norm", [_real(3, 4, 2), _real(4), _chances(4), _real(4), _real(4), True, 0.0]),
    Case("conv1d", [_real(2, 4, 7), _real(6, 2, 3), _real(6)], {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    Case("conv1d", [_real(2, 4, 7), _real(6, 4, 3), None, 2]),
    Case("conv1d", [_real(2, 4, 7), _real(6, 2, 3)], fails=True),
    Case("conv2d", [_real(2, 2, 4, 5), _real(3, 2, 2, 3)], {"padding": (1, 0), "stride": (1, 2)}),
    Case("where", [MASK, _real(2, 3), _real(2, 3)]),
    Case("where", [MASK, _real(2, 1), 2.5]),
    Case("masked_fill", [_real(2, 3), MASK, -3.0]),
    Case("masked_fill", [_real(2, 3), MASK], {"value": 0.5}),
    *[Case("cross_entropy", [_real(3, 4), TARGET], {"reduction": how}) for how in ("mean", "sum", "none")],
    Case("cross_entropy", [_real(3, 4), IGNORED]),
    Case("cross_entropy", [_real(3, 4), TARGET], {"ignore_index": 3, "label_smoothing": 0.2}),
    Case("cross_entropy", [_real(3, 4), IGNORED], {"reduction": "sum", "label_smoothing": 0.3}),
    *[Case("nll_loss", [_real(3, 4), IGNORED], {"reduction": how}) for how in ("mean", "sum", "none")],
    Case("nll_loss", [_real(3, 4), TARGET], {"ignore_index": 1}),
    *[Case("mse_loss", [_real(2, 3), _real(2, 3)], {"reduction": how}) for how in ("mean", "sum", "none")],
    Case("l1_loss", [_real(2, 3), _real(2, 3)]),
    Case("smooth_l1_loss", [_real(2, 3), _real(2, 3)], {"beta": 0.5, "reduction": "sum"}),
    *[Case("kl_div", [_real(2, 3), _chances(2, 3)], {"reduction": how}) for how in ("batchmean", "sum")],
    Case("expand", [_real(2, 1)], {"size": (3, -1, 4)}),
    Case("expand", [_real(2, 3)], {"size": (2, 4)}, fails=True),
    Case("narrow", [_real(4, 3), 0, -3, 2]),
    Case("narrow", [_real(4, 3), 0, 2, 3], fails=True),
    Case("split", [_real(5, 3), 2, 0]),
    Case("split", [_real(5, 3), (1, 2)], {"dim": -1}),
    Case("split", [_real(5, 3), (1, 3)], fails=True),
    Case("chunk", [_real(5, 3), 4]),
    Case("cat", [_real(2, 3), _real(2, 1)], {"dim": -1}),
    Case("stack", [_real(2, 3), _real(2, 3)], {"dim": 1}),
    Case("repeat_interleave", [_real(2, 3), 2], {"dim": 1}),
    Case("logsumexp", [_real(2, 3), 1]),
    Case("logsumexp", [_real(2, 3), 0], {"keepdim": True}),
    Case("var", [_real(2, 3)], {"dim": 1}),
    Case("cumsum", [_real(2, 3), 1]),
    Case("flip", [_real(2, 3), (0, -1)]),
    Case("flip", [_real(2, 3), (0, 0)], fails=True),
    Case("tril", [_real(3, 4), 1]),
    Case("triu", [_real(3, 4)]),
    Case("index_select", [_real(3, 4), 1, np.array([3.0, 0.0, 3.0])]),
    Case("clamp", [_real(3, 4), -0.7, 0.9]),
    Case("clamp", [_real(3, 4)], {"max": 0.5}),
    Case("maximum", [_real(3, 4), _real(3, 4)]),
    Case("minimum", [_real(3, 4), _real(3, 4)]),
]

IDS = [f"{i} {case.name}" for i, case in enumerate(CASES)]


@pytest.mark.parametrize("case", [case for case in CASES if case.fails], ids=lambda case: case.name)
def test_what_torch_refuses_fails(case: Case) -> None:
    with pytest.raises(FailureError):
        forward(case.name, case.values, case.attributes)


@pytest.mark.parametrize("case", [case for case in CASES if not case.fails], ids=lambda case: case.name)
def test_gradients_are_finite_differences(case: Case) -> None:
    outputs = forward(case.name, case.values, case.attributes)
    incoming = [NUMBERS.uniform(-1, 1, output.shape) for output in outputs]
    found = backward(case.name, case.values, outputs, incoming, case.attributes)

    def total(values: list[Any]) -> float:
        return sum(float((g * y).sum()) for g, y in zip(incoming, forward(case.name, values, case.attributes), strict=True))

    for position, value in enumerate(case.values):
        gradient = found[position]
        if not isinstance(value, np.ndarray) or position in OF_NO_GRADIENT.get(case.name, ()):
            assert gradient is None
            continue
        assert gradient is not None
        for place in np.ndindex(*value.shape):
            step = np.zeros_like(value)
            step[place] = 1e-6
            up, down = ([v + s * step if i == position else v for i, v in enumerate(case.values)] for s in (1, -1))
            assert (total(up) - total(down)) / 2e-6 == pytest.approx(gradient[place], rel=1e-4, abs=1e-6)
