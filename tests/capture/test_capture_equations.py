"""Every equation that lifts an operator of `aten`, held to numbers: the lifted calls compute what the statement says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf
from typing import Any

import numpy as np
import pytest

from tvlint.ir.operators import Compute, Literal
from tvlint.ops.families.experts import ANY_ORDER
from tvlint.ops.spec import Call as TableCall
from tvlint.ops.spelling import OF_FLAGS
from tvlint.ops.table import spec_of
from tvlint.readers.capture.lifting.equations.shapes import PAD
from tvlint.readers.capture.lifting.equations.table import ALL, EQUATIONS
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, lift
from tvlint.readers.capture.lifting.program import Apply, Argument, Exchange, GivenValue, Program, Ref, RootValue, Type
from tvlint.readers.capture.rewriting.regather import with_dimensions
from tvlint.readers.capture.tapes.tape import Mark
from tvlint.replay.operators import forward, gradients

Array = Any
MARK = Mark(micro_batch=0)
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.uniform(0.2, 1.5, (3, 4)), RANDOM.uniform(0.2, 1.5, (3, 4))
A, B, C = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(4, 5)), RANDOM.normal(size=(5,))
BATCH_A, BATCH_B = RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(2, 4, 5))
MASK, OTHER = RANDOM.integers(0, 2, (3, 4)), RANDOM.integers(0, 2, (3, 4))
TABLE, IDS = RANDOM.normal(size=(6, 4)), RANDOM.integers(0, 6, (2, 3))
GELU = np.vectorize(lambda x: 0.5 * x * (1 + erf(x / 2**0.5)))


PLACES = np.array([[0, 2], [3, 1], [1, 0]])


def put_at(x: Array, places: Array, values: Array) -> Array:
    result = x.copy()
    np.put_along_axis(result, places, values, 1)
    return result


def added_at(x: Array, places: Array, values: Array) -> Array:
    return put_at(x, places, np.take_along_axis(x, places, 1) + values)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def norm(x: Array, w: Array, b: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


HEADS = RANDOM.normal(size=(3, 2, 2, 3, 4))


def attention(q: Array, k: Array, v: Array) -> Array:
    return softmax(np.where(np.tril(np.ones((3, 3))), 0.5 * q @ k.swapaxes(-1, -2), -np.inf)) @ v


A4 = np.arange(16.0).reshape(4, 4)
PLANES = np.arange(16.0).reshape(2, 4, 1, 2) ** 2 / 50


def chances(x: Array, t: Array) -> Array:
    return -np.take_along_axis(x, t[:, None], 1)[:, 0]


IMAGE, KERNEL, CHANCES = RANDOM.normal(size=(2, 4, 6, 6)), RANDOM.normal(size=(6, 2, 3, 3)), RANDOM.uniform(0.1, 0.9, (3, 4))
CONVOLVED: dict[str, Any] = {
    "input": IMAGE, "weight": KERNEL, "bias": RANDOM.normal(size=6), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2),
    "transposed": False, "output_padding": (0, 0), "groups": 2,
}  # fmt: skip
POOLED: dict[str, Any] = {"self": IMAGE, "kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
WINDOWS: dict[str, Any] = {**POOLED, "dilation": (1, 1), "ceil_mode": False}
VOLUME = IMAGE.reshape(1, 2, 4, 6, 6)
IN_SPACE: dict[str, Any] = {"self": VOLUME, "kernel_size": (2, 2, 2), "stride": (2, 2, 2), "padding": (0, 0, 0)}
NORMED: dict[str, Any] = {"weight": Y[0], "bias": Y[1], "N": 2, "C": 4, "HxW": 36, "group": 2, "eps": 1e-5}


def convolved(x: Array, w: Array, b: Array) -> Array:
    """Return the cross-correlation with the options of CONVOLVED, place by place."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    result = np.zeros((2, 6, 3, 2))
    for o, i, j in np.ndindex(6, 3, 2):
        seen = x[:, (o // 3) * 2 : (o // 3) * 2 + 2, 2 * i : 2 * i + 3, j : j + 5 : 2]
        result[:, o, i, j] = (seen * w[o]).sum((1, 2, 3)) + b[o]
    return result


def pooled(x: Array, reduce: Callable[..., Array]) -> Array:
    """Return blocks of two places a dimension, behind the channels, reduced."""
    sizes = [part for size in x.shape[2:] for part in (size // 2, 2)]
    return reduce(x.reshape(*x.shape[:2], *sizes), axis=tuple(range(3, 2 * x.ndim - 2, 2)))


def grouped(x: Array) -> Array:
    rows = x.reshape(2, 2, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    return rows.reshape(x.shape) * Y[0][:, None, None] + Y[1][:, None, None]


def smooth(x: Array, bound: float) -> Array:
    far = np.abs(x - Y)
    return np.where(far < bound, far**2 / 2, bound * (far - bound / 2))


ENTROPY = -(CHANCES * np.log(Y / 2) + (1 - CHANCES) * np.log(1 - Y / 2))
ACTIVATIONS: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "leaky_relu": ({"negative_slope": 0.2}, lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": ({"alpha": 0.5, "scale": 1, "input_scale": 1}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "softplus": ({"beta": 2, "threshold": 20}, lambda x: np.log1p(np.exp(2 * x)) / 2),
    "hardtanh": ({"min_val": -0.5, "max_val": 0.7}, lambda x: np.clip(x, -0.5, 0.7)),
    "hardswish": ({}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardsigmoid": ({}, lambda x: np.clip(x + 3, 0, 6) / 6),
    "mish": ({}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "log_sigmoid_forward": ({}, lambda x: -np.log1p(np.exp(-x))),
    "glu": ({"dim": 1}, lambda x: x[:, :2] * sigmoid(x[:, 2:])),
}  # fmt: skip
LOSSES: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "smooth_l1_loss": ({"self": X, "target": Y, "reduction": 1, "beta": 0.3}, lambda x: smooth(x, 0.3).mean() / 0.3),
    "huber_loss": ({"self": X, "target": Y, "reduction": 2, "delta": 0.3}, lambda x: smooth(x, 0.3).sum()),
    "binary_cross_entropy": (
        {"self": Y / 2, "target": CHANCES, "weight": None, "reduction": 0},
        lambda x: -(CHANCES * np.log(x) + (1 - CHANCES) * np.log(1 - x)),
    ),
}  # fmt: skip
IMAGES: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "max_pool2d_with_indices": (WINDOWS, lambda x: pooled(x, np.max)),
    "avg_pool2d": ({**POOLED, "ceil_mode": False, "count_include_pad": True}, lambda x: pooled(x, np.mean)),
    "_adaptive_avg_pool2d": ({"self": IMAGE, "output_size": (3, 3)}, lambda x: pooled(x, np.mean)),
    "max_pool3d_with_indices": (
        {**IN_SPACE, "dilation": (1, 1, 1), "ceil_mode": False}, lambda x: pooled(x, np.max)
    ),
    "avg_pool3d": ({**IN_SPACE, "ceil_mode": False, "count_include_pad": True}, lambda x: pooled(x, np.mean)),
    "_adaptive_avg_pool3d": ({"self": VOLUME, "output_size": (2, 3, 3)}, lambda x: pooled(x, np.mean)),
}  # fmt: skip
FUNCTIONS = {
    **{name: ({"self": A, **options}, value) for name, (options, value) in ACTIVATIONS.items()}, **LOSSES, **IMAGES,
}  # fmt: skip

CASES: dict[str, tuple[dict[str, Any], Array]] = {
    **{name: (given, value(given["self"])) for name, (given, value) in FUNCTIONS.items()},
    "convolution": (CONVOLVED, convolved(IMAGE, KERNEL, CONVOLVED["bias"])),
    "native_group_norm": ({"input": IMAGE, **NORMED}, grouped(IMAGE)),
    "binary_cross_entropy_with_logits": (
        {"self": np.log(Y / (2 - Y)), "target": CHANCES, "weight": None, "pos_weight": None, "reduction": 1}, ENTROPY.mean()
    ),
    "linalg_vector_norm": ({"self": A, "ord": 2, "dim": (1,), "keepdim": True}, np.sqrt((A**2).sum(1, keepdims=True))),
    "logsumexp": ({"self": A, "dim": (0,), "keepdim": False}, np.log(np.exp(A).sum(0))),
    "logaddexp": ({"self": X, "other": Y}, np.log(np.exp(X) + np.exp(Y))),
    "xlogy": ({"self": X, "other": np.exp(Y)}, X * Y),
    "amin": ({"self": X, "dim": (1,)}, X.min(1)),
    "roll": ({"self": X, "shifts": (1,), "dims": (1,)}, np.roll(X, 1, 1)),
    "flip": ({"self": X, "dims": (0,)}, X[::-1]),
    "addcmul": ({"self": A, "tensor1": X, "tensor2": Y, "value": 0.5}, A + 0.5 * X * Y),
    **{
        name: ({"self": X}, value(X))
        for name, value in {
            "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5, "sin": np.sin, "cos": np.cos,
            "tanh": np.tanh, "erf": np.vectorize(erf), "sigmoid": sigmoid, "reciprocal": lambda x: 1 / x, "neg": np.negative,
            "abs": np.abs, "silu": lambda x: x * sigmoid(x), "gelu": GELU, "log1p": np.log1p, "expm1": np.expm1,
            "log2": np.log2, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
        }.items()
    },
    "relu": ({"self": A}, np.maximum(A, 0)),
    **{name: ({"self": MASK}, 1 - MASK) for name in ("logical_not", "bitwise_not", "__invert__", "invert")},
    **{
        name: ({"self": X, "other": Y}, value(X, Y))
        for name, value in {
            "floor_divide": np.floor_divide, "remainder": np.remainder,
            "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
            "maximum": np.maximum, "minimum": np.minimum, "mul": np.multiply, "div": np.divide, "rsub": lambda a, b: b - a,
        }.items()
    },
    **{name: ({"self": MASK, "other": OTHER}, MASK & OTHER) for name in ("logical_and", "bitwise_and", "__and__", "and_")},
    **{name: ({"self": MASK, "other": OTHER}, MASK | OTHER) for name in ("logical_or", "bitwise_or", "__or__", "or_")},
    **{name: ({"self": MASK, "other": OTHER}, MASK ^ OTHER) for name in ("logical_xor", "bitwise_xor", "__xor__", "xor")},
    "add": ({"self": X, "other": Y, "alpha": 0.5}, X + 0.5 * Y),
    "sub": ({"self": X, "other": Y, "alpha": 0.5}, X - 0.5 * Y),
    "pow": ({"self": X, "exponent": 3}, X**3),
    "masked_fill": ({"self": X, "mask": MASK, "value": -7.0}, np.where(MASK, -7.0, X)),
    "where": ({"condition": MASK, "self": X, "other": Y}, np.where(MASK, X, Y)),
    **{name: ({"self": X, "dtype": "float64"}, X) for name in ("_to_copy", "to")},
    "mm": ({"self": A, "mat2": B}, A @ B),
    "bmm": ({"self": BATCH_A, "mat2": BATCH_B}, BATCH_A @ BATCH_B),
    "addmm": ({"self": C, "mat1": A, "mat2": B, "beta": 0.5, "alpha": 2.0}, 0.5 * C + 2 * (A @ B)),
    "baddbmm": ({"self": np.full((2, 3, 5), np.nan), "batch1": BATCH_A, "batch2": BATCH_B, "beta": 0, "alpha": 3.0},
                3 * (BATCH_A @ BATCH_B)),
    "sum": ({"self": X, "dim": (0,), "keepdim": True}, X.sum(0, keepdims=True)),
    "mean": ({"self": X}, X.mean()),
    "amax": ({"self": X, "dim": (1,)}, X.max(1)),
    "any": ({"self": MASK, "dim": 1, "keepdim": True}, MASK.any(1, keepdims=True)),
    "max": ({"self": X}, X.max()),
    "_softmax": ({"self": X, "dim": -1, "half_to_float": False}, softmax(X)),
    "_safe_softmax": ({"self": X, "dim": 1}, softmax(X)),
    "_log_softmax": ({"self": X, "dim": 1, "half_to_float": False}, np.log(softmax(X))),
    "permute": ({"self": X, "dims": (1, 0)}, X.T),
    "view": ({"self": X, "size": (2, 6)}, X.reshape(2, 6)),
    "narrow": ({"self": X, "dim": 1, "start": 1, "length": 2}, X[:, 1:3]),
    "expand": ({"self": X[:1], "size": (3, 4)}, np.broadcast_to(X[:1], (3, 4))),
    "cat": ({"tensors": (X, Y), "dim": -1}, np.concatenate([X, Y], -1)),
    "constant_pad_nd": ({"self": X, "pad": (2, 0, 0, 1), "value": 2.5}, np.pad(X, ((0, 1), (2, 0)), constant_values=2.5)),
    "stack": ({"tensors": (X, Y), "dim": 1}, np.stack([X, Y], 1)),
    **{name: ({"size": (2, 3)}, np.ones((2, 3))) for name in ("ones", "new_ones")},
    **{name: ({"size": (2, 3)}, np.zeros((2, 3))) for name in ("zeros", "new_zeros")},
    "ones_like": ({"self": X}, np.ones((3, 4))),
    "zeros_like": ({"self": X}, np.zeros((3, 4))),
    **{name: ({"size": (2, 3), "fill_value": 2.5}, np.full((2, 3), 2.5)) for name in ("full", "full_like", "new_full")},
    "fill": ({"self": X, "value": 2.5}, np.full((3, 4), 2.5)),
    "scalar_tensor": ({"s": 2.5}, np.full((), 2.5)),
    "arange": ({"start": 2, "end": 7}, np.arange(2, 7)),
    "triu": ({"self": X, "diagonal": 1}, np.triu(X, 1)),
    "tril": ({"self": X}, np.tril(X)),
    "slice_backward": ({"grad_output": X, "input_sizes": (3, 9), "dim": 1, "start": 2, "end": 6, "step": 1},
                       np.pad(X, ((0, 0), (2, 3)))),
    "select_backward": ({"grad_output": C, "input_sizes": (3, 5), "dim": 0, "index": -2}, np.stack([0 * C, C, 0 * C])),
    "native_layer_norm": ({"input": X, "normalized_shape": (4,), "weight": Y[0], "bias": Y[1], "eps": 1e-5},
                          norm(X, Y[0], Y[1])),
    "mse_loss": ({"self": X, "target": Y, "reduction": 2}, ((X - Y) ** 2).sum()),
    "nll_loss_forward": ({"self": A, "target": np.array([0, 3, 1]), "weight": None, "reduction": 1, "ignore_index": -100},
                         chances(A, np.array([0, 3, 1])).mean()),
    "nll_loss2d_forward": (
        {"self": PLANES, "target": np.array([[[0, 3]], [[1, 2]]]), "weight": None, "reduction": 1, "ignore_index": -100},
        -np.array([PLANES[0, 0, 0, 0], PLANES[0, 3, 0, 1], PLANES[1, 1, 0, 0], PLANES[1, 2, 0, 1]]).mean(),
    ),
    "_scaled_dot_product_flash_attention_for_cpu": (
        {"query": HEADS[0], "key": HEADS[1], "value": HEADS[2], "dropout_p": 0.0, "is_causal": True, "scale": 0.5},
        attention(*HEADS),
    ),
    "gather": ({"self": X, "dim": 1, "index": PLACES}, np.take_along_axis(X, PLACES, 1)),
    "scatter_add": ({"self": X, "dim": -1, "index": PLACES, "src": Y[:, :2]}, added_at(X, PLACES, Y[:, :2])),
    "scatter": ({"self": X, "dim": 1, "index": PLACES, "src": Y[:, :2]}, put_at(X, PLACES, Y[:, :2])),
    "topk": ({"self": X, "k": 2}, -np.sort(-X, 1)[:, :2]),
    "sort": ({"self": Y, "stable": True, "dim": 0, "descending": True}, -np.sort(-Y, 0)),
    "argmax": ({"self": X, "dim": 1, "keepdim": True}, X.argmax(1)[:, None]),
    "cumsum": ({"self": X, "dim": -1}, X.cumsum(1)),
    "clamp": ({"self": X, "min": 0.5, "max": None}, np.maximum(X, 0.5)),
    "index_put": ({"self": X, "indices": (MASK,), "values": -7.0}, np.where(MASK, -7.0, X)),
    "embedding": ({"weight": TABLE, "indices": IDS}, TABLE[IDS]),
}  # fmt: skip
"""Uses of operators with what they give, by the statement and not by the operator table."""

FORWARD: dict[str, tuple[str, dict[str, Any], Callable[..., Array], tuple[str, ...], dict[str, str]]] = {
    "gelu_backward": ("gelu", {"self": X}, lambda self: GELU(self), ("self",), {"self": "self"}),
    "silu_backward": ("silu", {"self": X}, lambda self: self * sigmoid(self), ("self",), {"self": "self"}),
    "sigmoid_backward": ("sigmoid", {"self": X}, sigmoid, ("self",), {"output": "result"}),
    "tanh_backward": ("tanh", {"self": X}, np.tanh, ("self",), {"output": "result"}),
    "threshold_backward": ("relu", {"self": A}, lambda self: np.maximum(self, 0), ("self",), {"self": "result"}),
    "_softmax_backward_data": ("_softmax", {"self": X, "dim": 1}, softmax, ("self",), {"output": "result"}),
    "_log_softmax_backward_data": (
        "_log_softmax", {"self": X, "dim": 1}, lambda self: np.log(softmax(self)), ("self",), {"output": "result"}
    ),
    "mse_loss_backward": (
        "mse_loss", {"self": X, "target": Y, "reduction": 1}, lambda self: np.asarray(((self - Y) ** 2).mean()), ("self",),
        {"self": "self", "target": "target", "reduction": "reduction"},
    ),
    **{
        f"{name.removesuffix('_forward')}_backward": (
            name, given, value, ("self",), {"self_or_result" if own == "self" and name == "elu" else own: own for own in given}
        )
        for name, (given, value) in FUNCTIONS.items()
    },
    "convolution_backward": (
        "convolution", CONVOLVED, lambda input: convolved(input, KERNEL, CONVOLVED["bias"]), ("input",),
        {own: own for own in CONVOLVED if own != "bias"},
    ),
    "native_group_norm_backward": (
        "native_group_norm", {"input": IMAGE, **NORMED}, grouped, ("input",),
        {own: own for own in ("input", "weight", "N", "C", "HxW", "group")},
    ),
    "embedding_dense_backward": (
        "embedding", {"weight": TABLE, "indices": IDS}, lambda weight: weight[IDS], ("weight",), {"indices": "indices"}
    ),
}  # fmt: skip
"""Gradient kernels: the forward operator, its arguments, what it computes, of which argument it is the gradient, and where the
kernel's arguments come from."""

EXTRA = {
    "threshold_backward": {"threshold": 0},
    "embedding_dense_backward": {"num_weights": 6, "padding_idx": -1},
    "_softmax_backward_data": {"dim": -1},
    "_log_softmax_backward_data": {"dim": 1},
}
WITH_PAIRS = {
    "native_layer_norm_backward", "nll_loss_backward", "nll_loss2d_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}  # fmt: skip
"""Kernels that need what their forward kernel gives beside its result: the recorded programs hold them."""

BY_THEMSELVES = {"upsample_nearest2d", "upsample_nearest2d_backward", "index"}
"""Operators of which only some uses are lifted: tests of their own hold these."""


def dtype_of(name: str, value: Array) -> str:
    if name in ("mask", "condition") or value is MASK or value is OTHER:
        return "bool"
    return "int64" if value.dtype.kind == "i" else "float64"


class Bench:
    """A program of a few operators on given numbers."""

    def __init__(self) -> None:
        self.program = Program(0)
        self.values: dict[str, Array] = {}

    def give(self, name: str, value: Any) -> Argument:
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(self.give(name, each) for each in value)
        if not isinstance(value, np.ndarray):
            known: Argument = value
            return known
        made = self.program.fresh(Type(value.shape, dtype_of(name, value)))
        self.program.given[made] = GivenValue(None, None)
        self.values[made] = value.astype(float)
        return Ref(made)

    def apply(self, op: str, arguments: dict[str, Any], result: Array, mark: Mark | None = None) -> str:
        given = {name: own if isinstance(own, Ref) else self.give(name, own) for name, own in arguments.items()}
        dtype = "bool" if op in OF_FLAGS else "float64"
        made = self.program.fresh(Type(np.shape(result), dtype))
        moves = ("permute", "view", "narrow", "expand", "cat")
        name = op if op in moves else f"aten.{op}.default"
        self.program.nodes.append(Apply(name, given, (made,), mark or Mark(micro_batch=0)))
        return made

    def run(self, wanted: str) -> Array:
        """Lift, and compute a value from the lifted nodes."""
        self.program.roots.append(RootValue(wanted, "x", Mark()))
        lifted = lift(self.program, EQUATIONS)
        assert not lifted.unlifted, [call.op for call in lifted.unlifted]
        shape = self.program.shape
        for node in lifted.nodes:
            if isinstance(node, Call):
                inputs = tuple(each if isinstance(each, Literal) else each.name for each in node.inputs)
                operands = [self.values[each.name] for each in node.inputs if isinstance(each, Ref)]
                compute = Compute(node.op, inputs, node.outputs, node.attributes)
                self.values.update(
                    zip(node.outputs, forward(compute, operands, [shape(own) for own in node.outputs]), strict=True)
                )
            elif isinstance(node, GradientOf):
                call = node.forward
                inputs = tuple(each if isinstance(each, Literal) else each.name for each in call.inputs)
                operands = [self.values[each.name] for each in call.inputs if isinstance(each, Ref)]
                compute = Compute(call.op, inputs, call.outputs, call.attributes)
                incoming = {at: self.values[name] for at, name in enumerate(node.inputs) if name}
                places = [at for at, name in enumerate(node.outputs) if name]
                found = gradients(compute, operands, [shape(own) for own in call.outputs], incoming, places)
                self.values.update({node.outputs[at]: found[at] for at in places})
        return self.values[lifted.roots[-1].value]


@pytest.mark.parametrize("op", CASES)
def test_what_is_lifted_computes_what_the_statement_says(op: str) -> None:
    arguments, expected = CASES[op]
    bench = Bench()
    made = bench.apply(op, arguments, expected)
    np.testing.assert_allclose(bench.run(made), np.asarray(expected, dtype=float), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("start", "dim"), [(0, 1), (1, 1), (2, -1), (1, 0)])
def test_the_gradient_of_every_nth_row_has_zeros_around_each(start: int, dim: int) -> None:
    expected = np.zeros((9, 4) if dim == 0 else (3, 12))
    (expected[start::3] if dim == 0 else expected[:, start::3])[...] = X
    given = {"grad_output": X, "input_sizes": expected.shape, "dim": dim, "start": start, "end": 1 << 40, "step": 3}
    bench = Bench()
    np.testing.assert_allclose(bench.run(bench.apply("slice_backward", given, expected)), expected)


def test_the_gradient_of_every_nth_row_stays_open_where_the_rows_do_not_divide() -> None:
    bench = Bench()
    made = bench.apply(
        "slice_backward", {"grad_output": X, "input_sizes": (3, 7), "dim": 1, "start": 0, "end": 7, "step": 2}, X
    )
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert [call.op for call in lift(bench.program, EQUATIONS).unlifted] == ["aten.slice_backward.default"]


@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_loss_for_each_place_of_a_plane_is_that_of_its_row(is_gradient: bool) -> None:
    bench, targets, incoming = Bench(), np.array([[[0, 3]], [[1, 2]]]), RANDOM.normal(size=(2, 1, 2))
    given: dict[str, Argument] = {"self": bench.give("x", PLANES), "target": bench.give("t", targets), "weight": None}
    given |= {"reduction": 0, "ignore_index": -100}
    made = tuple(bench.program.fresh(Type(shape, "float64")) for shape in ((2, 1, 2), ()))
    bench.program.nodes.append(Apply("aten.nll_loss2d_forward.default", given, made, MARK))
    kernel = {"grad_output": incoming, **given, "total_weight": Ref(made[1])}
    expected = -np.take_along_axis(PLANES, targets[:, None], 1)[:, 0]
    if is_gradient:
        expected = np.zeros(PLANES.shape)
        np.put_along_axis(expected, targets[:, None], -incoming[:, None], 1)
        made = (bench.apply("nll_loss2d_backward", kernel, PLANES, Mark("backward", 0)),)
    np.testing.assert_allclose(bench.run(made[0]), expected)


@pytest.mark.parametrize(("dim", "is_gradient"), [(1, True), (0, False)])
def test_what_is_added_where_elements_were_gathered_is_their_gradient(dim: int, is_gradient: bool) -> None:
    """Along another dimension it is no gradient of them."""
    bench, incoming = Bench(), RANDOM.normal(size=PLACES.shape)
    index = bench.give("index", PLACES)
    bench.apply("gather", {"self": X, "dim": 1, "index": index}, np.take_along_axis(X, PLACES, 1))
    zeros = Ref(bench.apply("new_zeros", {"size": X.shape}, X))
    given = {"self": zeros, "dim": dim, "index": index, "src": incoming}
    made = bench.apply("scatter_add", given, X, Mark("backward", 0))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    gradients_of = [node for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, GradientOf)]
    assert bool(gradients_of) == is_gradient
    if is_gradient:
        np.testing.assert_allclose(bench.run(made), added_at(0 * X, PLACES, incoming))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    ("parts", "lifted"),
    [
        ("0x", "pad"), ("x0", "pad"), ("00x0", "pad"), ("10", "pad"), ("100", "pad"),
        ("0x1", "cat"), ("x0x", "cat"), ("101", "cat"),
    ],
)  # fmt: skip
def test_a_tensor_that_is_joined_to_one_number_is_padded_with_it(parts: str, lifted: str, dim: int) -> None:
    bench = Bench()
    numbers = {name: Ref(bench.apply(op, {"size": (3, 4)}, X)) for name, op in (("0", "new_zeros"), ("1", "new_ones"))}
    given = tuple(bench.give("x", X) if part == "x" else numbers[part] for part in parts)
    expected = np.concatenate([X if part == "x" else np.full((3, 4), float(part)) for part in parts], dim)
    joined = bench.apply("cat", {"tensors": given, "dim": dim}, expected)
    np.testing.assert_allclose(bench.run(joined), expected)
    ops = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert (PAD in ops, "torch.cat" in ops) == (lifted == "pad", lifted == "cat"), ops


def test_what_is_joined_or_padded_alike_once_more_is_the_same_value() -> None:
    bench = Bench()
    x, y, zeros = bench.give("x", X), bench.give("y", Y), Ref(bench.apply("new_zeros", {"size": (3, 4)}, X))
    for listed in ((x, y), (y, x), (x, zeros), (zeros, x)):
        twice = [bench.apply("cat", {"tensors": listed, "dim": 1}, np.zeros((3, 8))) for _ in range(2)]
        bench.program.roots += [RootValue(made, "x", Mark()) for made in twice]
    values = [root.value for root in lift(bench.program, EQUATIONS).roots]
    assert values[::2] == values[1::2]
    assert len(set(values)) == 4


def by_differences(value: Callable[..., Array], operand: Array, incoming: Array) -> Array:
    """Return the gradient of a function by differences of its results next to the operand."""
    step, expected = 1e-6, np.zeros(operand.shape)
    for place in np.ndindex(*operand.shape):
        moved = operand.copy()
        moved[place] += step
        back = operand.copy()
        back[place] -= step
        expected[place] = ((np.asarray(value(moved)) - np.asarray(value(back))) / (2 * step) * incoming).sum()
    return expected


@pytest.mark.parametrize("kernel", FORWARD)
def test_a_gradient_kernel_is_the_gradient_of_its_forward_operator(kernel: str) -> None:
    op, arguments, value, (argument,), sources = FORWARD[kernel]
    operand = arguments[argument]
    result = np.asarray(value(operand))
    bench = Bench()
    given = {name: bench.give(name, own) for name, own in arguments.items()}
    made = bench.apply(op, given, result)
    known: dict[str, Any] = {**given, "result": Ref(made)}
    incoming = RANDOM.normal(size=result.shape)
    own = {"grad_output": incoming, **{name: known[source] for name, source in sources.items()}, **EXTRA.get(kernel, {})}
    gradient = bench.run(bench.apply(kernel, own, operand, Mark("backward", 0)))
    np.testing.assert_allclose(gradient, by_differences(value, operand, incoming), rtol=1e-5, atol=1e-7)


OF_ONE_OPERAND = ("gelu", "silu", "threshold", "leaky_relu", "elu", "softplus", "hardtanh", "hardswish", "hardsigmoid", "mish")


@pytest.mark.parametrize("name", OF_ONE_OPERAND)
def test_a_gradient_kernel_says_its_function_where_that_is_not_called(name: str) -> None:
    """A segment is computed again as far as gradients need it: not the last function, whose kernel needs the operand alone."""
    kernel = f"{name}_backward"
    _, arguments, value, _, sources = FORWARD[kernel]
    bench, incoming = Bench(), RANDOM.normal(size=arguments["self"].shape)
    given = {known: bench.give(known, own) for known, own in arguments.items()}
    taken = {known: given["self" if source == "result" else source] for known, source in sources.items()}
    own = {"grad_output": incoming, **taken, **EXTRA.get(kernel, {})}
    gradient = bench.run(bench.apply(kernel, own, arguments["self"], Mark("backward", 0)))
    np.testing.assert_allclose(gradient, by_differences(value, arguments["self"], incoming), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("kernel", "left"),
    [("elu_backward", ("scale", "input_scale")),
     ("avg_pool2d_backward", ("padding", "ceil_mode", "count_include_pad", "stride")), ("softplus_backward", ("threshold",)),
     ("max_pool2d_with_indices_backward", ("dilation", "padding", "stride"))],
)  # fmt: skip
def test_a_gradient_kernel_is_given_what_its_function_takes_where_it_is_left_out(kernel: str, left: tuple[str, ...]) -> None:
    op, arguments, value, (argument,), sources = FORWARD[kernel]
    bench = Bench()
    given = {own: bench.give(own, known) for own, known in arguments.items()}
    result = np.asarray(value(arguments[argument]))
    bench.apply(op, {own: known for own, known in given.items() if own not in left}, result)
    own = {"grad_output": result, **{taken: given[source] for taken, source in sources.items()}}
    made = bench.apply(kernel, own, arguments[argument], Mark("backward", 0))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert lift(bench.program, EQUATIONS).unlifted == []


@pytest.mark.parametrize(
    ("kernel", "name", "other"),
    [("leaky_relu_backward", "self_is_result", True),
     ("convolution_backward", "stride", (1, 1)), ("native_group_norm_backward", "group", 4),
     ("convolution_backward", "weight", KERNEL), ("native_group_norm_backward", "weight", NORMED["weight"]),
     ("max_pool2d_with_indices_backward", "indices", A)],
)  # fmt: skip
def test_a_gradient_kernel_with_another_argument_than_its_function_stays_open(kernel: str, name: str, other: Any) -> None:
    op, arguments, value, (argument,), sources = FORWARD[kernel]
    bench = Bench()
    given = {own: bench.give(own, known) for own, known in arguments.items()}
    result = np.asarray(value(arguments[argument]))
    bench.apply(op, given, result)
    own = {"grad_output": result, **{taken: given[source] for taken, source in sources.items()}, name: other}
    made = bench.apply(kernel, own, arguments[argument], Mark("backward", 0))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert [call.op for call in lift(bench.program, EQUATIONS).unlifted] == [f"aten.{kernel}.default"]


@pytest.mark.parametrize(("steps", "is_open"), [((), False), ((1, 1), True)])
@pytest.mark.parametrize("kernel", ["avg_pool2d_backward", "max_pool2d_with_indices_backward"])
def test_a_window_without_steps_moves_by_its_size(kernel: str, steps: tuple[int, ...], is_open: bool) -> None:
    op, arguments, value, (argument,), sources = FORWARD[kernel]
    bench = Bench()
    given = {own: bench.give(own, known) for own, known in arguments.items() if own != "stride"}
    result = np.asarray(value(arguments[argument]))
    bench.apply(op, given, result)
    own = {"grad_output": result, **{taken: given[taken] for taken in sources if taken != "stride"}, "stride": steps}
    made = bench.apply(kernel, own, arguments[argument], Mark("backward", 0))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert bool(lift(bench.program, EQUATIONS).unlifted) == is_open


@pytest.mark.parametrize(("reduction", "is_open"), [(1, False), (2, True)], ids=["mean", "sum"])
def test_a_gradient_kernel_that_leaves_an_argument_out_takes_the_usual_one(reduction: int, is_open: bool) -> None:
    bench = Bench()
    given = {"self": bench.give("self", Y / 2), "target": bench.give("target", CHANCES)}
    loss = bench.apply("binary_cross_entropy", {**given, "reduction": reduction}, np.asarray(1.0))
    made = bench.apply("binary_cross_entropy_backward", {"grad_output": Ref(loss), **given}, Y, Mark("backward", 0))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert bool(lift(bench.program, EQUATIONS).unlifted) == is_open


@pytest.mark.parametrize(
    ("norm", "arguments"),
    [("native_layer_norm", {"input": X, "normalized_shape": (4,), "weight": None, "bias": None, "eps": 1e-5}),
     ("native_group_norm", {"input": IMAGE, **NORMED})],
)  # fmt: skip
@pytest.mark.parametrize("names", [("mean", "rstd"), ("rstd", "mean")], ids=["in order", "exchanged"])
def test_the_gradient_of_a_norm_is_given_each_statistic_in_its_place(
    norm: str, arguments: dict[str, Any], names: tuple[str, str]
) -> None:
    bench = Bench()
    given = {own: bench.give(own, known) for own, known in arguments.items()}
    shape = arguments["input"].shape
    made = tuple(bench.program.fresh(Type(size, "float64")) for size in (shape, (3, 1), (3, 1)))
    bench.program.nodes.append(Apply(f"aten.{norm}.default", given, made, MARK))
    statistics = dict(zip(names, map(Ref, made[1:]), strict=True))
    known = {own: value for own, value in given.items() if own not in ("bias", "eps")}
    kernel = {"grad_out": given["input"], **known, **statistics, "output_mask": (True, False, False)}
    gradient = bench.apply(f"{norm}_backward", kernel, arguments["input"], Mark("backward", 0))
    bench.program.roots.append(RootValue(gradient, "x", Mark()))
    assert bool(lift(bench.program, EQUATIONS).unlifted) == (names[0] == "rstd")


@pytest.mark.parametrize("place", [0, 1], ids=["the loss", "the weight"])
def test_the_gradient_of_a_likelihood_is_given_the_weight_of_its_targets(place: int) -> None:
    bench = Bench()
    given = {
        "self": bench.give("self", A), "target": bench.give("target", np.array([0, 2, 1])), "weight": None, "reduction": 1,
        "ignore_index": -100,
    }  # fmt: skip
    made = tuple(bench.program.fresh(Type((), "float64")) for _ in range(2))
    bench.program.nodes.append(Apply("aten.nll_loss_forward.default", given, made, MARK))
    kernel = {"grad_output": Ref(made[0]), **given, "total_weight": Ref(made[place])}
    gradient = bench.apply("nll_loss_backward", kernel, A, Mark("backward", 0))
    bench.program.roots.append(RootValue(gradient, "x", Mark()))
    assert bool(lift(bench.program, EQUATIONS).unlifted) == (place == 0)


def test_the_gradient_of_the_shift_of_a_norm_without_a_weight_is_not_left_out() -> None:
    bench = Bench()
    x, bias = bench.give("x", X), bench.give("bias", Y[0])
    made = tuple(bench.program.fresh(Type(size, "float64")) for size in (X.shape, (3, 1), (3, 1), X.shape, (4,)))
    given = {"input": x, "normalized_shape": (4,), "weight": None, "bias": bias}
    statistics = {"mean": Ref(made[1]), "rstd": Ref(made[2]), "output_mask": (True, False, True)}
    bench.program.nodes += [
        Apply("aten.native_layer_norm.default", {**given, "eps": 1e-5}, made[:3], MARK),
        Apply("aten.native_layer_norm_backward.default", {"grad_out": x, **given, **statistics}, made[3:], Mark("backward", 0)),
    ]
    bench.program.roots.append(RootValue(made[4], "x", Mark()))
    unlifted = lift(bench.program, EQUATIONS).unlifted
    assert "aten.native_layer_norm_backward.default" in [call.op for call in unlifted]


@pytest.mark.parametrize("again", ["same", "made again", "made otherwise", "another", "none"])
def test_the_gradient_of_a_norm_has_the_weight_of_the_norm(again: str) -> None:
    bench = Bench()
    mark, back = Mark(micro_batch=0), Mark("backward", 0)
    x, weight, other = bench.give("x", X), bench.give("weight", Y[0]), bench.give("weight", Y[0])
    size = (4,)
    first = Ref(bench.apply("neg", {"self": weight}, Y[0]))
    made = tuple(bench.program.fresh(Type(shape, "float64")) for shape in (X.shape, (3, 1), (3, 1)))
    given = {"input": x, "normalized_shape": size, "weight": first, "bias": None, "eps": 1e-5}
    bench.program.nodes.append(Apply("aten.native_layer_norm.default", given, made, mark))
    weights = {
        "same": first, "made again": Ref(bench.apply("neg", {"self": weight}, Y[0], back)),
        "made otherwise": Ref(bench.apply("exp", {"self": weight}, Y[0], back)),
        "another": Ref(bench.apply("neg", {"self": other}, Y[0], back)), "none": None,
    }  # fmt: skip
    statistics = {"mean": Ref(made[1]), "rstd": Ref(made[2]), "bias": None, "output_mask": (True, False, False)}
    kernel = {"grad_out": x, "input": x, "normalized_shape": size, **statistics, "weight": weights[again]}
    gradient = bench.apply("native_layer_norm_backward", kernel, X, back)
    bench.program.roots.append(RootValue(gradient, "x", Mark()))
    is_open = "aten.native_layer_norm_backward.default" in [call.op for call in lift(bench.program, EQUATIONS).unlifted]
    assert is_open == (again in ("made otherwise", "another", "none"))


@pytest.mark.parametrize("of", [0, 1, None])
def test_the_gradient_of_one_of_two_norms_of_a_value_says_of_which_it_is(of: int | None) -> None:
    bench, back = Bench(), Mark("backward", 0)
    given = {"input": bench.give("x", X), "normalized_shape": (4,), "weight": None, "bias": None}
    made = [tuple(bench.program.fresh(Type(shape, "float64")) for shape in (X.shape, (3, 1), (3, 1))) for _ in range(2)]
    for outputs, eps in zip(made, (1e-5, 1e-2), strict=True):
        bench.program.nodes.append(Apply("aten.native_layer_norm.default", {**given, "eps": eps}, outputs, MARK))
    statistics = {} if of is None else {"mean": Ref(made[of][1]), "rstd": Ref(made[of][2])}
    kernel = {"grad_out": given["input"], **given, **statistics, "output_mask": (True, False, False)}
    gradient = bench.apply("native_layer_norm_backward", kernel, X, back)
    bench.program.roots.append(RootValue(gradient, "x", Mark()))
    lifted = lift(bench.program, EQUATIONS)
    found = [node.forward.attributes["eps"] for node in lifted.nodes if isinstance(node, GradientOf)]
    assert found == ([] if of is None else [(1e-5, 1e-2)[of]])
    assert bool(lifted.unlifted) == (of is None)


@pytest.mark.parametrize(
    ("scale", "other", "is_open"), [(2.0, 2.0, False), (None, None, False), (1.9, 1.9, True), (2.0, None, True)]
)
def test_an_image_is_enlarged_by_its_nearest_places(scale: float | None, other: float | None, is_open: bool) -> None:
    bench, wide = Bench(), IMAGE.repeat(2, 2).repeat(2, 3)
    given = {"output_size": (12, 12), "scales_h": scale, "scales_w": scale}
    made = bench.apply("upsample_nearest2d", {"self": IMAGE, **given}, wide)
    bench.program.operations[5] = made
    incoming = RANDOM.normal(size=wide.shape)
    kernel = {"grad_output": incoming, **given, "input_size": IMAGE.shape, "scales_w": other}
    gradient = bench.apply("upsample_nearest2d_backward", kernel, IMAGE, Mark("backward", 0, of=5))
    if is_open:
        bench.program.roots.append(RootValue(gradient, "x", Mark()))
        assert lift(bench.program, EQUATIONS).unlifted
        return
    expected = incoming.reshape(2, 4, 6, 2, 6, 2).sum((3, 5))
    np.testing.assert_allclose(bench.run(gradient), expected, rtol=1e-9)
    np.testing.assert_allclose(bench.values[made], wide, rtol=1e-9)


@pytest.mark.parametrize("image", [1.0, IMAGE[0], IMAGE[0, 0], IMAGE[:, :, :0]], ids=lambda image: str(np.shape(image)))
def test_what_is_no_image_is_not_enlarged(image: Any) -> None:
    bench, given = Bench(), {"output_size": (12, 12), "scales_h": 2.0, "scales_w": 2.0}
    made = bench.apply("upsample_nearest2d", {"self": image, **given}, IMAGE.repeat(2, 2).repeat(2, 3))
    bench.program.roots.append(RootValue(made, "x", Mark()))
    assert lift(bench.program, EQUATIONS).unlifted


def test_every_equation_is_about_an_operator_that_is_tested() -> None:
    assert {own.op for own in ALL} == CASES.keys() | FORWARD.keys() | WITH_PAIRS | BY_THEMSELVES
    assert len({(own.op, own.statement) for own in ALL}) == len(ALL)


def test_the_gradient_of_attention_reads_all_arguments_that_torch_records() -> None:
    bench = Bench()
    kernel = "aten._scaled_dot_product_flash_attention_for_cpu"
    given = dict(zip(("query", "key", "value"), (bench.give("heads", own) for own in HEADS), strict=True))
    out, sums = (bench.program.fresh(Type(shape, "float64")) for shape in (HEADS[0].shape, HEADS[0].shape[:-1]))
    options: dict[str, Argument] = {"dropout_p": 0.0, "is_causal": True, "attn_mask": None, "scale": None}
    bench.program.nodes.append(Apply(f"{kernel}.default", {**given, **options}, (out, sums), Mark()))
    made = tuple(bench.program.fresh(Type(HEADS[0].shape, "float64")) for _ in range(3))
    known = {"grad_out": bench.give("heads", HEADS[0]), "out": Ref(out), "logsumexp": Ref(sums)}
    bench.program.nodes.append(Apply(f"{kernel}_backward.default", {**known, **given, **options}, made, Mark("backward")))
    lifted = lift(bench.program, EQUATIONS)
    assert (lifted.unlifted, lifted.unread) == ([], [])
    assert [type(node) for node in lifted.nodes] == [Call, GradientOf]


@pytest.mark.parametrize("bounds", [{"min": 1}, {"max": 7}, {"min": 5}, {"max": 3}, {"min": 5, "max": 6}])
def test_a_number_that_is_kept_within_bounds_is_a_number(bounds: dict[str, Any]) -> None:
    bench = Bench()
    four = bench.apply("full", {"size": (3, 4), "fill_value": 4}, X)
    made = bench.apply("clamp", {"self": Ref(four), **bounds}, X)
    calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert calls == ["torch.full", "torch.full"]
    bounded = np.clip(4, bounds.get("min"), bounds.get("max"))
    np.testing.assert_array_equal(bench.run(bench.apply("add", {"self": Ref(made), "other": X}, X)), X + bounded)


@pytest.mark.parametrize(
    ("op", "result"), [("add", 6 + 0.5 * 4), ("sub", 6 - 0.5 * 4), ("mul", 24), ("div", 1.5), ("reciprocal", 1 / 6)]
)
def test_what_is_calculated_of_numbers_throughout_is_one(op: str, result: float) -> None:
    bench = Bench()
    six, four = (bench.apply("full", {"size": (3, 4), "fill_value": own}, X) for own in (6, 4))
    options = {"alpha": 0.5} if op in ("add", "sub") else {}
    arguments = {"self": Ref(six)} if op == "reciprocal" else {"self": Ref(six), "other": Ref(four), **options}
    made = bench.apply(op, arguments, X)
    added = bench.apply("add", {"self": Ref(made), "other": X}, X)
    np.testing.assert_allclose(bench.run(added), X + result)
    calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert calls == ["torch.full", "torch.full", "torch.full", "torch.add"]


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("at", [0, 1])
def test_a_product_with_zeros_throughout_is_zeros_and_adds_nothing(number: int, at: int) -> None:
    known = np.full(((3, 4), (4, 5))[at], float(number))
    left, right = (known, B) if at == 0 else (A, known)
    for op, names, bias in (("mm", ("self", "mat2"), 0 * C), ("addmm", ("mat1", "mat2"), C)):
        bench = Bench()
        full = bench.apply("full", {"size": known.shape, "fill_value": number}, known)
        operands = [Ref(full) if side is known else side for side in (left, right)]
        given = {**dict(zip(names, operands, strict=True)), **({"self": C} if op == "addmm" else {})}
        made = bench.apply(op, given, left @ right + bias)
        calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
        assert ("torch.mm" in calls) == bool(number)
        np.testing.assert_allclose(bench.run(made), left @ right + bias)


def test_a_product_with_data_that_are_zeros_in_the_recorded_step_is_a_product() -> None:
    bench = Bench()
    data = bench.apply("full", {"size": (3, 4), "fill_value": 0}, X)
    bench.program.constants.append((0, bench.program.nodes[0].mark))
    bench.apply("mm", {"self": Ref(data), "mat2": B}, X @ B)
    calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert calls == ["torch.zeros", "torch.mm"]


def test_what_is_divided_by_zero_or_rounded_is_calculated_as_it_is() -> None:
    bench = Bench()
    six, none = (bench.apply("full", {"size": (3, 4), "fill_value": own}, X) for own in (6, 0))
    bench.apply("div", {"self": Ref(six), "other": Ref(none)}, X)
    bench.apply("div", {"self": Ref(six), "other": Ref(six), "rounding_mode": "floor"}, X)
    calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert calls == ["torch.full", "torch.zeros", "torch.div", "torch.div"]


@pytest.mark.parametrize(("reduce", "factor"), [("sum", 2), ("avg", 1), ("product", None)])
def test_what_ranks_add_up_of_one_number_is_a_number(reduce: str, factor: int | None) -> None:
    bench = Bench()
    count = bench.apply("full", {"size": (), "fill_value": 4}, np.array(0.0))
    summed = bench.program.fresh(bench.program.types[count])
    mark = Mark(micro_batch=0)
    bench.program.nodes.append(Exchange("all-reduce", (count,), (summed,), (0, 1), mark, reduce))
    bench.apply("div", {"self": X, "other": Ref(summed)}, X)
    last = lift(bench.program, EQUATIONS).nodes[-1]
    assert isinstance(last, Call)
    assert last.inputs[1] == (Ref(summed) if factor is None else Literal(4 * factor))


def targets(bench: Bench, *, marked: bool) -> Ref:
    """Return targets that the program is given, a part of what is recorded, with or without one that is marked."""
    known = np.array([[0, 3, -100 if marked else 1], [2, 1, 0]])
    name = bench.program.fresh(Type((2, 3), "int64"))
    bench.program.given[name] = GivenValue(None, known)
    bench.values[name] = known.astype(float)
    part = bench.program.fresh(Type((1, 3), "int64"))
    bench.program.nodes.append(Apply("narrow", {"self": Ref(name), "dim": 0, "start": 0, "length": 1}, (part,), MARK))
    return Ref(part)


@pytest.mark.parametrize(("op", "flag"), [("eq", "torch.zeros"), ("ne", "torch.ones")])
@pytest.mark.parametrize(("marked", "mark"), [(False, -100), (True, -100), (False, 2)])
def test_a_mark_that_no_target_is_gives_one_flag(op: str, flag: str, marked: bool, mark: int) -> None:
    bench = Bench()
    made = bench.program.fresh(Type((1, 3), "bool"))
    compared: dict[str, Argument] = {"self": targets(bench, marked=marked), "other": mark}
    bench.program.nodes.append(Apply(f"aten.{op}.Scalar", compared, (made,), MARK))
    lifted = lift(bench.program, EQUATIONS)
    is_flag = not marked and mark < 0
    assert [node.op for node in lifted.nodes if isinstance(node, Call)] == ["torch.narrow", flag if is_flag else f"torch.{op}"]
    assert lifted.absent == ([(mark, MARK)] if is_flag else [])


def test_a_mark_that_another_rank_is_given_gives_no_one_flag() -> None:
    bench = Bench()
    made = bench.program.fresh(Type((1, 3), "bool"))
    compared: dict[str, Argument] = {"self": targets(bench, marked=False), "other": -100}
    bench.program.nodes.append(Apply("aten.eq.Scalar", compared, (made,), MARK))
    bench.program.negative = frozenset({-100.0})
    assert [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)] == ["torch.narrow", "torch.eq"]


@pytest.mark.parametrize(("of_loss", "seeds"), [(True, 1), (False, 0)])
def test_a_pass_that_begins_with_ones_like_its_loss_begins_with_one(of_loss: bool, seeds: int) -> None:
    bench = Bench()
    loss, other = (bench.apply("sum", {"self": each}, each.sum()) for each in (X, Y))
    ones = bench.apply("ones_like", {"self": Ref(loss if of_loss else other)}, np.array(1.0))
    bench.program.roots.append(RootValue(loss, ones, MARK))
    lifted = lift(bench.program, EQUATIONS)
    assert (len(lifted.seeds), lifted.roots[0].start) == (seeds, "" if of_loss else ones)


@pytest.mark.parametrize(("op", "result"), [("mul", 6.0), ("div", 1.5)])
def test_a_number_of_one_element_in_another_shape_is_a_number(op: str, result: float) -> None:
    bench = Bench()
    number = bench.apply("full", {"size": (1,), "fill_value": 2.0}, np.array([2.0]))
    made = bench.apply(op, {"self": bench.give("total", np.array(3.0)), "other": Ref(number)}, np.array([0.0]))
    np.testing.assert_array_equal(bench.run(made), [result])
    last = lift(bench.program, EQUATIONS).nodes[-1]
    assert isinstance(last, Call)
    assert last.inputs[1] == Literal(2.0)


def test_zeros_of_another_type_that_are_added_to_cast() -> None:
    bench = Bench()
    half = bench.program.fresh(Type((3, 4), "bfloat16"))
    bench.program.given[half] = GivenValue(None, X)
    zeros = bench.apply("zeros", {"size": (3, 4)}, X)
    bench.apply("add", {"self": Ref(zeros), "other": Ref(half)}, X)
    last = lift(bench.program, EQUATIONS).nodes[-1]
    assert isinstance(last, Call)
    assert (last.op, last.inputs) == ("torch.Tensor.to", (Ref(half),))


def test_an_addend_of_another_type_is_cast_to_that_of_the_sum() -> None:
    """So gradients in half precision are added up in single precision, each of which is then an addend of the gradient."""
    bench = Bench()
    half = bench.program.fresh(Type((3, 4), "bfloat16"))
    bench.program.given[half] = GivenValue(None, X)
    bench.apply("add", {"self": X, "other": Ref(half)}, X)
    cast, added = (node for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call))
    assert (cast.op, cast.inputs, cast.attributes) == ("torch.Tensor.to", (Ref(half),), {"dtype": "float64"})
    assert (added.op, added.inputs[1]) == ("torch.add", Ref(cast.outputs[0]))


@pytest.mark.parametrize("holds", [False, True])
def test_what_one_flag_chooses_is_all_of_it(holds: bool) -> None:
    bench = Bench()
    other = bench.program.fresh(Type((3, 4), "bool"))
    bench.program.nodes.append(Apply("aten.full.default", {"size": (3, 4), "fill_value": int(not holds)}, (other,), MARK))
    flag = bench.program.fresh(Type((3, 4), "bool"))
    bench.program.nodes.append(Apply("aten.bitwise_not.default", {"self": Ref(other)}, (flag,), MARK))
    filled = bench.apply("masked_fill", {"self": X, "mask": Ref(flag), "value": -7.0}, X)
    chosen = bench.apply("where", {"condition": Ref(flag), "self": Ref(filled), "other": np.array(2.0)}, X)
    wide = bench.apply("where", {"condition": Ref(flag), "self": np.array(2.0), "other": Ref(filled)}, X)
    made = bench.apply("sub", {"self": Ref(chosen), "other": Ref(wide)}, X)
    expected = np.full((3, 4), -7.0) - 2 if holds else 2 - X
    np.testing.assert_allclose(bench.run(made), expected)


@pytest.mark.parametrize(("start", "length", "is_a_part"), [(0, 3, True), (3, 3, True), (1, 3, False), (0, 4, False)])
def test_a_range_of_a_join_that_is_one_of_its_parts_is_that_part(start: int, length: int, is_a_part: bool) -> None:
    bench = Bench()
    both = np.concatenate([X, Y])
    joined = bench.apply("cat", {"tensors": (X, Y), "dim": 0}, both)
    part = bench.apply("narrow", {"self": Ref(joined), "dim": 0, "start": start, "length": length}, both[:length])
    made = bench.apply("neg", {"self": Ref(part)}, both[:length])
    np.testing.assert_array_equal(bench.run(made), -both[start : start + length])
    calls = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert ("torch.narrow" in calls) is not is_a_part


def test_what_is_cast_to_a_flag_is_whether_it_is_other_than_zero() -> None:
    bench = Bench()
    made = bench.program.fresh(Type((3, 4), "bool"))
    whole = bench.give("x", np.where(MASK, 2.0, 0.0))
    bench.program.nodes.append(Apply("aten._to_copy.default", {"self": whole, "dtype": "bool"}, (made,), Mark(micro_batch=0)))
    np.testing.assert_array_equal(bench.run(made), MASK)


def test_the_greatest_in_any_order_are_another_operator_than_the_greatest_in_order() -> None:
    bench = Bench()
    bench.apply("topk", {"self": X, "k": 2, "sorted": False}, -np.sort(-X, 1)[:, :2])
    (call,) = lift(bench.program, EQUATIONS).nodes
    assert isinstance(call, Call)
    assert call.attributes["sorted"] is False
    spec = spec_of(call.op)
    assert spec is not None
    bound = [spec.bind(TableCall(call.op, ((3, 4),), {"k": 2, "dim": 1, "sorted": falls})) for falls in (True, False)]
    assert bound[0].attributes != bound[1].attributes
    assert [each.assumption for each in bound] == ["", ANY_ORDER]


def test_an_operator_of_other_arguments_is_left_as_it_is() -> None:
    bench = Bench()
    bench.apply("topk", {"self": X, "k": 2, "largest": False}, X[:, :2])
    bench.apply("div", {"self": X, "rounding_mode": 3}, X)
    lifted = lift(bench.program, EQUATIONS)
    assert [call.op for call in lifted.unlifted] == ["aten.topk.default", "aten.div.default"]


@pytest.mark.parametrize(("mask", "value", "is_gradient"), [(MASK, 0, True), (OTHER, 0, False), (MASK, 1, False)])
def test_what_is_masked_as_a_value_was_is_the_gradient_of_that(mask: Array, value: float, is_gradient: bool) -> None:
    bench = Bench()
    flags = {id(own): bench.give("mask", own) for own in (MASK, OTHER)}
    made = bench.apply("masked_fill", {"self": X, "mask": flags[id(MASK)], "value": -7.0}, X)
    bench.program.operations[5] = made
    given = {"self": Y, "mask": flags[id(mask)], "value": value}
    gradient = bench.apply("masked_fill", given, Y, Mark("backward", 0, of=5))
    last = lift(bench.program, EQUATIONS).nodes[-1]
    assert isinstance(last, GradientOf if is_gradient else Call)
    np.testing.assert_array_equal(bench.run(gradient), np.where(mask, value, Y))


@pytest.mark.parametrize(
    ("kept", "factor", "is_gradient"), [("mask", "mask", True), ("mask", "other mask", False), ("numbers", "numbers", False)]
)
def test_what_is_kept_by_the_flags_of_a_product_is_the_gradient_of_that(kept: str, factor: str, is_gradient: bool) -> None:
    bench = Bench()
    factors = {"mask": (bench.give("mask", MASK), MASK), "other mask": (bench.give("mask", OTHER), OTHER)}
    factors["numbers"] = bench.give("numbers", A), A
    bench.program.operations[5] = bench.apply("mul", {"self": X, "other": factors[kept][0]}, X * factors[kept][1])
    gradient = bench.apply("mul", {"self": Y, "other": factors[factor][0]}, Y, Mark("backward", 0, of=5))
    last = lift(bench.program, EQUATIONS).nodes[-1]
    assert isinstance(last, GradientOf if is_gradient else Call)
    np.testing.assert_allclose(bench.run(gradient), Y * factors[factor][1])


@pytest.mark.parametrize(("flags", "filled", "is_gradient"), [("mask", 0, True), ("other", 0, False), ("mask", 1, False)])
def test_what_is_kept_where_a_choice_kept_it_is_the_gradient_of_that(flags: str, filled: float, is_gradient: bool) -> None:
    bench = Bench()
    known = {"mask": (bench.give("mask", MASK), MASK), "other": (bench.give("mask", OTHER), OTHER)}
    chosen = {"condition": known["mask"][0], "self": X, "other": 3.0}
    bench.program.operations[5] = bench.apply("where", chosen, np.where(MASK, X, 3.0))
    kept = {"condition": known[flags][0], "self": Y, "other": filled}
    gradient = bench.apply("where", kept, Y, Mark("backward", 0, of=5))
    assert isinstance(lift(bench.program, EQUATIONS).nodes[-1], GradientOf if is_gradient else Call)
    np.testing.assert_allclose(bench.run(gradient), np.where(known[flags][1], Y, filled))


@pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
@pytest.mark.parametrize("names", [("pos_weight",), ("weight",), ("weight", "pos_weight")], ids=" and ".join)
def test_chances_that_count_more_are_written_out(names: tuple[str, ...], reduction: int) -> None:
    counts = {"weight": np.array([0.5, 1.5, 2.0, 1.0]), "pos_weight": np.array([[3.0], [1.0], [0.25]])}
    scores, counted = np.log(Y / (2 - Y)), {name: counts[name] for name in names}
    given = {"self": scores, "target": CHANCES, **dict.fromkeys(counts), **counted, "reduction": reduction}
    sure, positive = -np.log1p(np.exp(-scores)), counted.get("pos_weight", 1.0)
    each = (1 - CHANCES) * scores - (1 + (positive - 1) * CHANCES) * sure
    wanted = (each, (each * counted.get("weight", 1.0)).mean(), (each * counted.get("weight", 1.0)).sum())[reduction]
    wanted = wanted * counted.get("weight", 1.0) if reduction == 0 else wanted
    bench = Bench()
    np.testing.assert_allclose(bench.run(bench.apply("binary_cross_entropy_with_logits", given, np.asarray(wanted))), wanted)


@pytest.mark.parametrize("other", [False, True], ids=["that weight", "another weight"])
def test_the_gradient_of_a_likelihood_is_given_the_weights_of_its_classes(other: bool) -> None:
    bench = Bench()
    classes = A.shape[1]
    weights = [bench.give("weight", np.arange(1.0, classes + 1) * scale) for scale in (1, 2)]
    given = {
        "self": bench.give("self", A), "target": bench.give("target", np.array([0, 2, 1])), "weight": weights[0],
        "reduction": 1, "ignore_index": -100,
    }  # fmt: skip
    made = tuple(bench.program.fresh(Type((), "float64")) for _ in range(2))
    bench.program.nodes.append(Apply("aten.nll_loss_forward.default", given, made, MARK))
    kernel = {"grad_output": Ref(made[0]), **given, "weight": weights[other], "total_weight": Ref(made[1])}
    gradient = bench.apply("nll_loss_backward", kernel, A, Mark("backward", 0))
    bench.program.roots.append(RootValue(gradient, "x", Mark()))
    assert bool(lift(bench.program, EQUATIONS).unlifted) == other


@pytest.mark.parametrize("places", [np.array([2, 0, 2, 1]), np.array([[2, 0], [2, 1]])], ids=["in a row", "in two dimensions"])
def test_rows_at_places_are_taken_and_added_to(places: Array) -> None:
    bench = Bench()
    rows = bench.apply("index", {"self": X, "indices": (places,)}, X[places])
    np.testing.assert_allclose(bench.run(rows), X[places])
    bench, wanted, more = Bench(), X.copy(), A4.reshape(*places.shape, -1)
    np.add.at(wanted, places, more)
    added = bench.apply("index_put", {"self": X, "indices": (places,), "values": more, "accumulate": True}, X)
    np.testing.assert_allclose(bench.run(added), wanted)


@pytest.mark.parametrize(
    ("shape", "indices"),
    [((3, 4), (None, [3, 0])), ((3, 4), ([[2, 0], [1, 1]],)), ((2, 3, 4), (None, [2, 0, 2], [3, 1, 3])),
     ((3, 4, 2), ([2, 0], [3, 1])), ((2, 3, 4, 2), (None, [2, 0], [3, 1], None))],
)  # fmt: skip
@pytest.mark.parametrize("way", ["taken", "added", "gradient", "gradient of others"])
def test_rows_are_taken_along_any_dimensions(shape: tuple[int, ...], indices: tuple[Any, ...], way: str) -> None:
    bench, values = Bench(), np.arange(float(np.prod(shape))).reshape(shape)
    places = tuple(None if each is None else np.array(each) for each in indices)
    refs = tuple(None if each is None else bench.give("places", each) for each in places)
    at = tuple(slice(None) if each is None else each for each in places)
    taken = bench.apply("index", {"self": values, "indices": refs}, values[at])
    if way == "taken":
        np.testing.assert_allclose(bench.run(taken), values[at])
        return
    base = np.zeros(shape) if "gradient" in way else values
    added, wanted = np.cos(values[at]), base.copy()
    np.add.at(wanted, at, added)
    if way == "gradient of others":
        refs = tuple(None if each is None else bench.give("places", each) for each in places)
    bench.program.operations[5] = taken
    old = Ref(bench.apply("zeros", {"size": shape}, base)) if "gradient" in way else base
    given = {"self": old, "indices": refs, "values": added, "accumulate": True}
    put = bench.apply("index_put", given, base, Mark("backward", 0, of=5))
    np.testing.assert_allclose(bench.run(put), wanted)
    lifted = lift(bench.program, EQUATIONS).nodes
    is_along_first = len(indices) == 1
    assert any(isinstance(node, GradientOf) for node in lifted) == (way == "gradient" and not is_along_first)


@pytest.mark.parametrize("op", ["logical_and", "logical_or", "bitwise_and", "__or__"])
@pytest.mark.parametrize(
    ("shape", "flag"), [((3, 4), True), ((3, 4), False), ((2, 3, 4), True), ((2, 1, 1), False), ((), True)]
)
def test_one_flag_throughout_leaves_others_or_is_combined_with_them(op: str, shape: tuple[int, ...], flag: bool) -> None:
    bench, both = Bench(), np.logical_and if "and" in op else np.logical_or
    maker = "ones" if flag else "zeros"
    flags = Ref(bench.apply(maker, {"size": shape}, np.full(shape, flag)))
    bench.program.types[flags.name] = Type(shape, "bool")
    wanted = both(np.full(shape, flag), MASK)
    result = bench.apply(op, {"self": flags, "other": MASK}, wanted)
    bench.program.types[result] = Type(wanted.shape, "bool")
    assert np.array_equal(bench.run(result), wanted)
    ops = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert any(op.startswith("torch.logical") for op in ops) == (flag != ("and" in op))


def counted(bench: Bench, number: int, *shape: int) -> Ref:
    name = bench.apply("arange", {"end": number}, np.arange(number))
    return Ref(bench.apply("view", {"self": Ref(name), "size": shape}, np.zeros(shape)))


@pytest.mark.parametrize("shapes", [((3, 1, 1), (1, 1, 4)), ((3, 1), (4,)), ((3, 1, 1), (4, 1))])
def test_indices_that_count_each_dimension_in_order_give_a_view(shapes: tuple[tuple[int, ...], ...]) -> None:
    bench = Bench()
    indices = counted(bench, 3, *shapes[0]), counted(bench, 4, *shapes[1])
    expected = X[tuple(np.arange(size).reshape(shape) for size, shape in zip((3, 4), shapes, strict=True))]
    np.testing.assert_allclose(bench.run(bench.apply("index", {"self": X, "indices": indices}, expected)), expected)


@pytest.mark.parametrize(("counts", "shapes"), [((3, 4), ((1, 3), (4, 1))), ((2, 4), ((2, 1), (1, 4))), ((3, 3), ((3,), (3,)))])
def test_other_places_than_all_in_order_are_no_view(counts: tuple[int, int], shapes: tuple[tuple[int, ...], ...]) -> None:
    bench = Bench()
    indices = tuple(counted(bench, number, *shape) for number, shape in zip(counts, shapes, strict=True))
    expected = X[tuple(np.arange(number).reshape(shape) for number, shape in zip(counts, shapes, strict=True))]
    bench.apply("index", {"self": X, "indices": indices}, expected)
    nodes = lift(bench.program, EQUATIONS).nodes
    assert [node.op for node in nodes if isinstance(node, Call)][-1] in ("aten.index.default", "torch.gather")


@pytest.mark.parametrize("is_same", [True, False])
def test_one_vector_of_each_row_is_taken_and_has_its_gradient(is_same: bool) -> None:
    bench, values = Bench(), np.arange(24.0).reshape(3, 4, 2)
    places, others = (bench.give("places", np.array(each)) for each in ([3, 0, 2], [1, 1, 2]))
    rows = counted(bench, 3, 3)
    taken = bench.apply("index", {"self": values, "indices": (rows, places)}, values[:, 0])
    bench.program.operations[5] = taken
    zeros = Ref(bench.apply("zeros", {"size": (3, 4, 2)}, values))
    given = {"self": zeros, "indices": (rows, places if is_same else others), "values": A4[:3, :2], "accumulate": True}
    added = bench.apply("index_put", given, values, Mark("backward", 0, of=5))
    if not is_same:
        assert [call.op for call in lift(bench.program, EQUATIONS).unlifted] == ["aten.index_put.default"]
        return
    wanted = np.zeros((3, 4, 2))
    wanted[np.arange(3), [3, 0, 2]] = A4[:3, :2]
    np.testing.assert_allclose(bench.run(added), wanted)
    np.testing.assert_allclose(bench.values[taken], values[np.arange(3), [3, 0, 2]])


@pytest.mark.parametrize("arguments", [{"values": A4}, {"values": A4[:1], "accumulate": True}])
def test_rows_that_are_put_or_repeated_are_left_as_they_are(arguments: dict[str, Any]) -> None:
    bench = Bench()
    bench.apply("index_put", {"self": X, "indices": (np.array([2, 0, 2, 1]),), **arguments}, X)
    assert [call.op for call in lift(bench.program, EQUATIONS).unlifted] == ["aten.index_put.default"]


def test_heads_that_share_keys_are_attended_to_by_groups() -> None:
    bench, (query, key, value) = Bench(), HEADS
    key, value = key[:, :1], value[:, :1]
    arguments = {"query": query, "key": key, "value": value, "dropout_p": 0.0, "is_causal": True, "scale": 0.5}
    made = bench.apply("_scaled_dot_product_flash_attention_for_cpu", arguments, query)
    lifted = lift(bench.program, EQUATIONS)
    (call,) = (node for node in lifted.nodes if isinstance(node, Call))
    assert call.outputs == (made,)
    assert call.attributes["enable_gqa"] is True


def test_parts_of_a_gather_that_are_cut_again_are_those_of_one_along_the_cut() -> None:
    program = Program(0)
    part, whole = (program.fresh(Type(shape, "float32")) for shape in ((3, 4), (6, 4)))
    halves = [program.fresh(Type((3, 4), "float32")) for _ in range(2)]
    quarters = [program.fresh(Type((3, 2), "float32")) for _ in range(4)]
    joined = program.fresh(Type((3, 8), "float32"))

    def cut(source: str, dim: int, start: int, length: int, result: str) -> Call:
        return Call("torch.narrow", (Ref(source), Literal(dim), Literal(start), Literal(length)), {}, (result,), MARK)

    nodes: list[LiftedNode] = [Exchange("all-gather", (part,), (whole,), (0, 1), MARK, dim=0)]
    nodes += [cut(whole, 0, 3 * rank, 3, half) for rank, half in enumerate(halves)]
    nodes += [cut(halves[place // 2], 1, place % 2 * 2, 2, quarter) for place, quarter in enumerate(quarters)]
    order = tuple(Ref(quarters[place]) for place in (0, 2, 3, 1))
    nodes.append(Call("torch.cat", order, {"dim": 1}, (joined,), MARK))
    gather, *cuts = with_dimensions(Lifted(program, nodes=nodes)).nodes
    assert isinstance(gather, Exchange)
    assert gather.dim == 1
    assert program.shape(gather.outputs[0]) == (3, 8)
    wanted = [cut(gather.outputs[0], 1, 4 * rank, 4, half) for rank, half in enumerate(halves)]
    assert cuts == [*wanted, *nodes[3:]]


@pytest.mark.parametrize(("dims", "along"), [((1, 1), 1), ((0, 0), 0), ((1, 2), 0)])
def test_parts_that_are_joined_of_pieces_are_scattered_along_these(dims: tuple[int, int], along: int) -> None:
    program, nodes = Program(0), list[LiftedNode]()
    pieces = [program.fresh(Type((3, 2, 2), "float32")) for _ in range(4)]
    shapes = [tuple(size * 2 if at == dim else size for at, size in enumerate((3, 2, 2))) for dim in dims]
    parts = [program.fresh(Type(shape, "float32")) for shape in shapes]
    for at, (part, dim) in enumerate(zip(parts, dims, strict=True)):
        nodes.append(Call("torch.cat", tuple(map(Ref, pieces[2 * at : 2 * at + 2])), {"dim": dim}, (part,), MARK))
    both = program.fresh(Type((2 * shapes[0][0], *shapes[0][1:]), "float32"))
    nodes.append(Call("torch.cat", tuple(map(Ref, parts)), {"dim": 0}, (both,), MARK))
    own = program.fresh(Type(shapes[0], "float32"))
    nodes.append(Exchange("reduce-scatter", (both,), (own,), (0, 1), MARK, reduce="sum", dim=0))
    *_, joined, scatter = with_dimensions(Lifted(program, nodes=nodes)).nodes
    assert isinstance(scatter, Exchange)
    assert scatter.dim == along
    assert isinstance(joined, Call)
    if along:
        assert (joined.attributes, joined.inputs) == ({"dim": along}, tuple(map(Ref, pieces)))
        assert program.shape(joined.outputs[0]) == (3, 8, 2)


@pytest.mark.parametrize("viewed", [(2, 3, 1, 4), (2, 1, 3, 4), (1, 2, 3, 4), (2, 3, 4, 1), (2, 3, 2, 2), (6, 4)], ids=str)
def test_parts_that_are_sent_are_those_of_a_dimension_that_counts_them(viewed: tuple[int, ...]) -> None:
    """Each of two ranks is sent one of two parts of the last dimension, in another shape: one head of two."""
    program, numbers = Program(0), np.arange(48.0).reshape(2, 3, 8)
    value = program.fresh(Type((2, 3, 8), "float32"))
    parts = [program.fresh(Type((2, 3, 4), "float32")) for _ in range(2)]
    turned = [program.fresh(Type(viewed, "float32")) for _ in range(2)]
    both = (2 * viewed[0], *viewed[1:])
    sent, received = (program.fresh(Type(both, "float32")) for _ in range(2))
    halves = [program.fresh(Type(viewed, "float32")) for _ in range(2)]
    joined = program.fresh(Type((*viewed[:-1], 2 * viewed[-1]), "float32"))

    def cut(source: str, dim: int, start: int, length: int, result: str) -> Call:
        return Call("torch.narrow", (Ref(source), Literal(dim), Literal(start), Literal(length)), {}, (result,), MARK)

    nodes: list[LiftedNode] = [cut(value, 2, 4 * place, 4, part) for place, part in enumerate(parts)]
    shape = Literal(viewed)
    nodes += [
        Call("torch.Tensor.view", (Ref(part), shape), {}, (turn,), MARK) for part, turn in zip(parts, turned, strict=True)
    ]
    nodes.append(Call("torch.cat", tuple(map(Ref, turned)), {"dim": 0}, (sent,), MARK))
    nodes.append(Exchange("all-to-all", (sent,), (received,), (0, 1), MARK, dim=0))
    nodes += [cut(received, 0, viewed[0] * place, viewed[0], half) for place, half in enumerate(halves)]
    nodes.append(Call("torch.cat", tuple(map(Ref, halves)), {"dim": len(viewed) - 1}, (joined,), MARK))
    changed = with_dimensions(Lifted(program, nodes=nodes)).nodes
    (exchange,) = (node for node in changed if isinstance(node, Exchange))
    assert (exchange.outputs, exchange.joined) == ((joined,), len(viewed) - 1)
    values = {value: numbers}
    for node in changed[: changed.index(exchange)]:
        assert isinstance(node, Call)
        names = [each.name for each in node.inputs if isinstance(each, Ref)]
        inputs = tuple(each if isinstance(each, Literal) else each.name for each in node.inputs)
        if not {*names} <= values.keys():
            continue
        shapes = [program.shape(name) for name in node.outputs]
        operator = Compute(node.op, inputs, node.outputs, node.attributes)
        values.update(zip(node.outputs, forward(operator, [values[name] for name in names], shapes), strict=True))
    assert exchange.dim is not None
    for place, part in enumerate(np.split(values[exchange.inputs[0]], 2, exchange.dim)):
        np.testing.assert_array_equal(part, numbers[:, :, 4 * place : 4 * place + 4].reshape(viewed))


@pytest.mark.parametrize(("numbers", "is_count"), [([1.0, 0.0, 1.0], True), ([1.0, 0.5, 1.0], False), (None, False)])
def test_the_cast_of_a_sum_of_whole_numbers_rounds_nothing(numbers: list[float] | None, is_count: bool) -> None:
    bench = Bench()
    types = Type((3,), "float32"), Type((), "float32"), Type((), "int32")
    mask, total, count = map(bench.program.fresh, types)
    bench.program.given[mask] = GivenValue(None, None if numbers is None else np.array(numbers))
    bench.program.nodes.append(Apply("aten.sum.default", {"self": Ref(mask)}, (total,), MARK))
    bench.program.nodes.append(Apply("aten._to_copy.default", {"self": Ref(total), "dtype": "int32"}, (count,), MARK))
    lifted = lift(bench.program, EQUATIONS)
    (made,) = (node for node in lifted.nodes if isinstance(node, Call) and node.outputs == (count,))
    assert made.op == ("torch.sum" if is_count else "torch.Tensor.to")
    assert lifted.counted == ([MARK] if is_count else [])


KNOWN = np.array([[0, -100, 1], [2, 3, -100]])
"""Targets of which four count."""


def losses_that_are_counted_again(bench: Bench, known: Array, counted: Array, order: Sequence[str]) -> tuple[str, str]:
    """Return a mean over the targets that count, with factors, and the gradient of the scores.

    The factors are 2, `n` (the number of other targets that count, or of the same) and `1/m` (a number of the data).
    """
    shapes = ((2, 3), "int64"), ((2, 3), "int64"), ((6, 5), "float64")
    target, other, scores = (bench.program.fresh(Type(*shape)) for shape in shapes)
    other = target if counted is known else other
    rows = RANDOM.normal(size=(6, 5))
    for name, numbers in ((target, known), (other, counted), (scores, rows)):
        bench.program.given[name] = GivenValue(None, numbers)
        bench.values[name] = numbers.astype(float)
    flat = bench.program.fresh(Type((6,), "int64"))
    bench.program.nodes.append(Apply("view", {"self": Ref(target), "shape": (6,)}, (flat,), MARK))
    kernel = {"self": Ref(scores), "target": Ref(flat), "weight": None, "reduction": 1, "ignore_index": -100}
    loss, weight = bench.program.fresh(Type((), "float64")), bench.program.fresh(Type((), "float64"))
    bench.program.nodes.append(Apply("aten.nll_loss_forward.default", kernel, (loss, weight), MARK))
    flags = bench.apply("ne", {"self": Ref(other), "other": -100}, counted != -100)
    count, total = bench.apply("sum", {"self": Ref(flags)}, np.array(4.0)), bench.give("total", np.array(6.0))
    start = bench.give("start", np.array(1.0))
    assert isinstance(start, Ref)
    gradient = start.name
    for factor in order:
        given: Any = {"2": 2.0, "n": Ref(count), "1/m": total}[factor]
        loss = bench.apply("div" if factor == "1/m" else "mul", {"self": Ref(loss), "other": given}, np.array(0.0))
    for factor in reversed(order):
        given = {"2": 2.0, "n": Ref(count), "1/m": total}[factor]
        gradient = bench.apply("div" if factor == "1/m" else "mul", {"self": Ref(gradient), "other": given}, np.array(0.0))
    backward = {"grad_output": Ref(gradient), **kernel, "total_weight": Ref(weight)}
    return loss, bench.apply("nll_loss_backward", backward, rows, Mark("backward", 0))


@pytest.mark.parametrize("order", [("n",), ("n", "2", "1/m"), ("2", "n"), ("1/m", "2", "n"), ("2", "1/m")])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_mean_over_targets_that_count_times_their_number_is_a_sum(order: tuple[str, ...], is_other: bool) -> None:
    counted = np.where(KNOWN == 1, -100, KNOWN) if is_other else KNOWN
    factor = np.prod([{"2": 2.0, "n": (counted != -100).sum(), "1/m": 1 / 6}[each] for each in order])
    for at in (0, 1):
        bench = Bench()
        made = losses_that_are_counted_again(bench, KNOWN, counted, order)
        found = bench.run(made[at])
        flat, scores = KNOWN.reshape(-1), next(value for value in bench.values.values() if value.shape == (6, 5))
        counts = (flat != -100).astype(float) / 4 * factor
        rows = np.eye(5)[np.maximum(flat, 0)] * -counts[:, None]
        np.testing.assert_allclose(found, (rows * scores).sum() if at == 0 else rows, rtol=1e-9, atol=1e-12)
        lifted = lift(bench.program, EQUATIONS)
        loss = next(node for node in lifted.nodes if isinstance(node, Call) and node.op.endswith("nll_loss"))
        assert loss.attributes["reduction"] == "sum"
        assert bool(lifted.cancelled) == ("n" in order and not is_other)
        if (at, order, is_other) == (0, ("n",), False):
            assert lifted.roots[-1].value == loss.outputs[0]


@pytest.mark.parametrize(("dtype", "is_count"), [("int64", True), ("float32", True), ("bool", False), ("bfloat16", False)])
def test_the_number_of_targets_that_count_is_none_where_a_cast_may_change_it(dtype: str, is_count: bool) -> None:
    bench = Bench()
    loss, _ = losses_that_are_counted_again(bench, KNOWN, KNOWN, ())
    (count,) = (node.outputs[0] for node in bench.program.nodes if isinstance(node, Apply) and "sum" in node.op)
    cast = bench.program.fresh(Type((), dtype))
    bench.program.nodes.append(Apply("aten._to_copy.default", {"self": Ref(count), "dtype": dtype}, (cast,), MARK))
    bench.apply("mul", {"self": Ref(loss), "other": Ref(cast)}, np.array(0.0))
    assert bool(lift(bench.program, EQUATIONS).cancelled) == is_count


@pytest.mark.parametrize(
    ("op", "of", "at"), [("minimum", "gt", 0), ("minimum", "lt", 1), ("maximum", "lt", 0), ("maximum", "gt", 1)]
)
@pytest.mark.parametrize("share", [2, 3])
def test_the_gradient_of_the_smaller_of_two_values_is_half_of_it_where_they_are_equal(
    op: str, of: str, at: int, share: int
) -> None:
    """Autograd computes it of operators of its own, of which no proof would take out a factor of the loss."""
    bench = Bench()
    x, y, incoming = bench.give("x", X), bench.give("y", Y), bench.give("g", A)
    made = bench.apply(op, {"self": x, "other": y}, X)
    bench.program.operations[0] = made
    mark = Mark("backward", 0, of=0)
    halved = bench.apply("div", {"self": incoming, "other": share}, A, mark)
    alike, beyond = (bench.apply(name, {"self": x, "other": y}, X, mark) for name in ("eq", of))
    shared = bench.apply("where", {"condition": Ref(alike), "self": Ref(halved), "other": incoming}, A, mark)
    gradient = bench.apply("masked_fill", {"self": Ref(shared), "mask": Ref(beyond), "value": 0}, A, mark)
    lifted = lift(bench.program, EQUATIONS)
    found = [node.outputs for node in lifted.nodes if isinstance(node, GradientOf)]
    assert found == ([("", gradient) if at else (gradient, "")] if share == 2 else [])
    if share == 2:
        np.testing.assert_allclose(bench.run(gradient), A * {"gt": X < Y, "lt": X > Y}[of], rtol=1e-9)
