"""One use of every interpreted operator of the table at least, with the same computed by NumPy and by torch."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

from tests.builders.layer_and_loss_cases import FLAGS, MORE_CASES
from tests.builders.operator_case import Case, F, N, normal, sig
from tvlint.ir.operators import Literal


def softmax(x: Any, axis: int) -> Any:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


def log_softmax(x: Any) -> Any:
    return x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))


def cross_entropy(x: Any, t: Any, reduction: str, ignored: int = -100, smoothing: float = 0.0) -> Any:
    chances = log_softmax(x)
    rows = -(1 - smoothing) * chances[np.arange(len(t)), np.maximum(t, 0)] - smoothing * chances.mean(1)
    rows = np.where(t == ignored, 0, rows)
    return rows if reduction == "none" else rows.sum() if reduction == "sum" else rows.sum() / (t != ignored).sum()


def cross_entropy_of_positions(x: Any, t: Any, reduction: str) -> Any:
    rows = cross_entropy(np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]), t.reshape(-1), reduction)
    return rows.reshape(t.shape) if reduction == "none" else rows


def likelihood(x: Any, t: Any, reduction: str) -> Any:
    rows = -x[np.arange(len(t)), t]
    return rows if reduction == "none" else rows.sum() if reduction == "sum" else rows.mean()


def attention(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * (scale or q.shape[-1] ** -0.5)
    scores = scores if mask is None else scores + mask
    scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf) if causal else scores
    return softmax(scores, -1) @ v


def attention_and_lse(q: Any, k: Any, v: Any, first: int | None = None, last: int = 0) -> Any:
    """With positions, a causal mask of queries that start at `first` and keys that start at `last`."""
    scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if first is not None:
        seen = last + np.arange(k.shape[-2])[None] <= first + np.arange(q.shape[-2])[:, None]
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(divide="ignore"):
        powers = np.exp(scores)
        total = powers.sum(-1, keepdims=True)
        return powers / np.where(total == 0, 1, total) @ v, np.log(total[..., 0])


def torch_attention_and_lse(t: Any, q: Any, k: Any, v: Any, first: int | None = None, last: int = 0) -> Any:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if first is not None:
        seen = last + t.arange(k.shape[-2])[None] <= first + t.arange(q.shape[-2])[:, None]
        scores = scores.masked_fill(~seen, -float("inf"))
    return t.softmax(scores, -1) @ v, t.logsumexp(scores, -1)


def merged(o: Any, a: Any, p: Any, b: Any) -> Any:
    total = np.logaddexp(a, b)
    return np.exp(a - total)[..., None] * o + np.exp(b - total)[..., None] * p, total


def _slots(chosen: Any, experts: int, capacity: int) -> Any:
    """Group, token, choice, expert and place of every choice that has a place."""
    for group in range(len(chosen)):
        free = [0] * experts
        for t, row in enumerate(chosen[group]):
            for k, expert in enumerate(row):
                if free[int(expert)] < capacity:
                    yield group, t, k, int(expert), free[int(expert)]
                free[int(expert)] += 1


def dispatched(x: Any, chosen: Any, experts: int, capacity: int) -> Any:
    found = np.zeros((len(x), experts, capacity, x.shape[-1]), x.dtype)
    for group, t, _, expert, place in _slots(chosen, experts, capacity):
        found[group, expert, place] += x[group, t]
    return found


def combined(held: Any, chosen: Any, weights: Any) -> Any:
    found = np.zeros((*chosen.shape[:2], held.shape[-1]), held.dtype)
    for group, t, k, expert, place in _slots(chosen, *held.shape[1:3]):
        found[group, t] += weights[group, t, k] * held[group, expert, place]
    return found


def torch_dispatched(t: Any, x: Any, chosen: Any) -> Any:
    found = [[[t.zeros(x.shape[-1], dtype=x.dtype) for _ in range(2)] for _ in range(3)] for _ in x]
    for group, token, _, expert, place in _slots(chosen, 3, 2):
        found[group][expert][place] = x[group, token]
    return t.stack([t.stack([t.stack(row) for row in one]) for one in found])


def torch_combined(t: Any, held: Any, chosen: Any, weights: Any) -> Any:
    found = [[t.zeros(held.shape[-1], dtype=held.dtype) for _ in one] for one in chosen]
    for group, token, k, expert, place in _slots(chosen, *held.shape[1:3]):
        found[group][token] = found[group][token] + weights[group, token, k] * held[group, expert, place]
    return t.stack([t.stack(row) for row in found])


def torch_merged(t: Any, o: Any, a: Any, p: Any, b: Any) -> Any:
    total = t.logaddexp(a, b)
    return t.exp(a - total)[..., None] * o + t.exp(b - total)[..., None] * p, total


GELU_TANH = lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731

UNARY = {
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": np.vectorize(erf),
    "rsqrt": lambda x: x**-0.5,
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x**2,
    "sigmoid": sig,
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "neg": np.negative,
}


def _scattered(x: Any, i: Any, v: Any) -> Any:
    found = x.copy()
    np.put_along_axis(found, i, v, 1)
    return found


def _greatest_at(x: Any, i: Any, v: Any) -> Any:
    found = x.copy()
    np.maximum.at(found, i, v)
    return found


def _added(x: Any, i: Any, v: Any) -> Any:
    found = x.copy()
    np.add.at(found, (i, np.arange(v.shape[1])) if i.ndim > 1 else i, v)
    return found


CASES: tuple[Case, ...] = (
    *(
        Case(name, f"torch.{name}", ((4, 2),), function, lambda t, x, name=name: getattr(t, name)(x),
             positive=name in ("sqrt", "log", "rsqrt", "reciprocal"))
        for name, function in UNARY.items()
    ),
    Case("silu", F + "silu", ((4, 2),), lambda x: x * sig(x), lambda t, x: t.nn.functional.silu(x)),
    Case("gelu", F + "gelu", ((4, 2),), lambda x: x / 2 * (1 + np.vectorize(erf)(x / 2**0.5)),
         lambda t, x: t.nn.functional.gelu(x)),
    Case("gelu tanh", F + "gelu", ((4, 2),), GELU_TANH,
         lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
    Case("add", "torch.add", ((4, 2), (4, 2)), lambda x, y: x + y, lambda t, x, y: t.add(x, y)),
    Case("add broadcast", "torch.add", ((4, 2), (2,)), lambda x, y: x + y, lambda t, x, y: t.add(x, y), {"alpha": 1}),
    Case("add twice", "torch.add", ((4, 2), (4, 2)), lambda x, y: x + 2 * y,
         lambda t, x, y: t.add(x, y, alpha=2), {"alpha": 2}),
    Case("add a constant", "torch.add", ((4, 2), Literal(0.5)), lambda x: x + 0.5, lambda t, x: t.add(x, 0.5)),
    Case("logaddexp", "torch.logaddexp", ((4, 2), (4, 1)), np.logaddexp, lambda t, x, y: t.logaddexp(x, y)),
    Case("sub", "torch.sub", ((4, 2), (4, 1)), lambda x, y: x - y, lambda t, x, y: t.sub(x, y)),
    Case("sub twice", "torch.sub", ((4, 2), (4, 2)), lambda x, y: x - 2 * y,
         lambda t, x, y: t.sub(x, y, alpha=2), {"alpha": 2}),
    Case("sub from a constant", "torch.sub", (Literal(3), (4, 2)), lambda x: 3 - x, lambda t, x: 3 - x),
    Case("mul", "torch.mul", ((2, 4, 2), (2, 4, 2)), lambda x, y: x * y, lambda t, x, y: t.mul(x, y)),
    Case("mul broadcast", "torch.mul", ((2, 4, 2), (2, 4, 1)), lambda x, y: x * y, lambda t, x, y: t.mul(x, y)),
    Case("mul weight", "torch.mul", ((2, 4, 2), (2,)), lambda x, y: x * y, lambda t, x, y: t.mul(x, y)),
    Case("mul a constant", "torch.mul", ((4, 2), Literal(3.0)), lambda x: x * 3, lambda t, x: t.mul(x, 3.0)),
    Case("div", "torch.div", ((4, 2), (4, 2)), lambda x, y: x / y, lambda t, x, y: t.div(x, y), positive=True),
    Case("div by a constant", "torch.div", ((4, 2), Literal(4.0)), lambda x: x / 4,
         lambda t, x: t.div(x, 4.0), {"rounding_mode": None}),
    Case("div of a constant", "torch.div", (Literal(4.0), (4, 2)), lambda x: 4 / x, lambda t, x: 4.0 / x, positive=True),
    Case("pow", "torch.pow", ((4, 2), Literal(2)), lambda x: x**2, lambda t, x: t.pow(x, 2)),
    Case("pow tensor", "torch.pow", ((4, 2), (4, 2)), lambda x, y: x**y, lambda t, x, y: t.pow(x, y), positive=True),
    Case("float", "torch.Tensor.float", ((4, 2),), lambda x: x, lambda t, x: x.double()),
    Case("half", "torch.Tensor.half", ((4, 2),), lambda x: x, lambda t, x: x.double()),
    Case("bfloat16", "torch.Tensor.bfloat16", ((4, 2),), lambda x: x, lambda t, x: x.double()),
    Case("to", N + "to", ((4, 2),), lambda x: x, lambda t, x: x.to(t.float64), {"dtype_or_device": "torch.float32"}),
    Case("swiglu", "swiglu", ((4, 4),), lambda x: x[:, :2] * sig(x[:, :2]) * x[:, 2:],
         lambda t, x: t.nn.functional.silu(x[:, :2]) * x[:, 2:]),
    Case("swiglu of two", "swiglu", ((4, 2), (4, 2)), lambda x, y: x * sig(x) * y, lambda t, x, y: t.nn.functional.silu(x) * y),
    Case("glu", F + "glu", ((4, 6),), lambda x: x[:, :3] * sig(x[:, 3:]), lambda t, x: t.nn.functional.glu(x)),
    Case("glu of rows", F + "glu", ((4, 2), Literal(0)), lambda x: x[:2] * sig(x[2:]), lambda t, x: t.nn.functional.glu(x, 0)),
    Case("dropout", F + "dropout", ((4, 2),), lambda x: x,
         lambda t, x: t.nn.functional.dropout(x, 0.0), {"p": 0.0, "training": True}),
    Case("masked-fill", "torch.Tensor.masked_fill", ((2, 4, 2), (4, 2), Literal(-2.0)), lambda x, m: np.where(m != 0, -2.0, x),
         lambda t, x, m: x.masked_fill(m != 0, -2.0)),
    Case("masked-fill zero", "torch.Tensor.masked_fill", ((4, 2), (4, 2)), lambda x, m: np.where(m != 0, 0, x),
         lambda t, x, m: x.masked_fill(m != 0, 0.0), {"value": 0.0}),
    Case("where", "torch.where", ((4, 1), (4, 2), (2,)), lambda m, x, y: np.where(m != 0, x, y),
         lambda t, m, x, y: t.where(m != 0, x, y)),
    Case("where zero", "torch.where", ((4, 2), (4, 2), Literal(0.0)), lambda m, x: np.where(m != 0, x, 0),
         lambda t, m, x: t.where(m != 0, x, 0.0)),
    Case("linear", F + "linear", ((2, 4, 2), (4, 2)), lambda x, w: x @ w.T, lambda t, x, w: t.nn.functional.linear(x, w)),
    Case("linear bias", F + "linear", ((4, 2), (4, 2), (4,)), lambda x, w, b: x @ w.T + b,
         lambda t, x, w, b: t.nn.functional.linear(x, w, b)),
    Case("matmul", "torch.matmul", ((2, 4, 2), (2, 2, 4)), lambda x, y: x @ y, lambda t, x, y: x @ y),
    Case("matmul broadcast", "torch.matmul", ((2, 2, 2, 2), (2, 4)), lambda x, y: x @ y, lambda t, x, y: x @ y),
    Case("addmm", "torch.addmm", ((4,), (2, 2), (2, 4)), lambda a, x, y: a + x @ y, lambda t, a, x, y: t.addmm(a, x, y)),
    Case("baddbmm", "torch.baddbmm", ((2, 2, 1), (2, 2, 2), (2, 2, 4)), lambda a, x, y: a + x @ y,
         lambda t, a, x, y: t.baddbmm(a, x, y)),
    Case("addmm with factors", "torch.addmm", ((4,), (2, 2), (2, 4)), lambda a, x, y: a / 2 + 3 * (x @ y),
         lambda t, a, x, y: t.addmm(a, x, y, beta=0.5, alpha=3), {"beta": 0.5, "alpha": 3}),
    Case("einsum", "torch.einsum", ((2, 2, 4), (4, 2)), lambda x, y: np.einsum("bik,kj->jbi", x, y),
         lambda t, x, y: t.einsum("bik,kj->jbi", x, y), {"equation": "bik,kj->jbi"}),
    Case("einsum sum", "torch.einsum", ((2, 4),), lambda x: x.sum(1), lambda t, x: t.einsum("ij->i", x), {"equation": "ij->i"}),
    Case("embedding", N + "embedding", ((2, 4), (4, 2)), lambda i, w: w[i], lambda t, i, w: t.nn.functional.embedding(i, w),
         {"padding_idx": None, "start": 0, "stop": 4}),
    Case("embedding whole", F + "embedding", ((2, 4), (4, 2)), lambda i, w: w[i],
         lambda t, i, w: t.nn.functional.embedding(i, w)),
    Case("sum", "torch.sum", ((4, 2),), lambda x: x.sum(), lambda t, x: t.sum(x)),
    Case("sum as a row", "torch.sum", ((4, 2),), lambda x: x.sum().reshape(1), lambda t, x: t.sum(x).reshape(1),
         outputs=((1,),)),
    Case("sum dim", "torch.sum", ((2, 4, 2),), lambda x: x.sum((0, 2), keepdims=True),
         lambda t, x: t.sum(x, (0, 2), keepdim=True),
         {"dim": (0, -1), "keepdim": True}),
    Case("sum positional", "torch.sum", ((4, 2), Literal(1)), lambda x: x.sum(1), lambda t, x: t.sum(x, 1)),
    Case("mean", "torch.mean", ((2, 4),), lambda x: x.mean(1, keepdims=True), lambda t, x: t.mean(x, -1, keepdim=True),
         {"dim": (-1,), "keepdim": True}),
    Case("mean all", "torch.mean", ((2, 4),), lambda x: x.mean(), lambda t, x: t.mean(x)),
    Case("amax", "torch.amax", ((4, 4),), lambda x: x.max(1), lambda t, x: t.amax(x, 1), {"dim": (1,)}),
    Case("max", "torch.max", ((2, 4),), lambda x: x.max(), lambda t, x: t.max(x)),
    Case("max dim", "torch.max", ((4, 4),), lambda x: (x.max(1, keepdims=True), x.argmax(1)[:, None]),
         lambda t, x: tuple(t.max(x, 1, keepdim=True)), {"dim": 1, "keepdim": True}),
    Case("cumsum", "torch.cumsum", ((2, 4),), lambda x: x.cumsum(1), lambda t, x: t.cumsum(x, 1), {"dim": 1}),
    Case("softmax", F + "softmax", ((2, 4),), lambda x: softmax(x, 1),
         lambda t, x: t.softmax(x, 1), {"dim": -1, "dtype": None}),
    Case("softmax rows", F + "softmax", ((4, 2),), lambda x: softmax(x, 0), lambda t, x: t.softmax(x, 0), {"dim": 0}),
    Case("log-softmax", F + "log_softmax", ((2, 4),), log_softmax, lambda t, x: t.log_softmax(x, 1), {"dim": 1}),
    Case("layer-norm", F + "layer_norm", ((2, 4), (4,), (4,)), lambda x, w, b: normal(x, 1e-5) * w + b,
         lambda t, x, w, b: t.nn.functional.layer_norm(x, (4,), w, b)),
    Case("layer-norm plain", N + "layer_norm", ((2, 2, 2),), lambda x: normal(x, 0.1, (-1, -2)),
         lambda t, x: t.nn.functional.layer_norm(x, (2, 2), eps=0.1), {"eps": 0.1, "normalized_shape": (2, 2)}),
    Case("rms-norm", F + "rms_norm", ((2, 4), (4,)), lambda x, w: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w,
         lambda t, x, w: t.nn.functional.rms_norm(x, (4,), w, 1e-6), {"eps": 1e-6}),
    *(
        Case(f"cross-entropy {kind}", F + "cross_entropy", ((4, 4), (4,)), lambda x, c, kind=kind: cross_entropy(x, c, kind),
             lambda t, x, c, kind=kind: t.nn.functional.cross_entropy(x, c, reduction=kind), {"reduction": kind})
        for kind in ("sum", "none", "mean")
    ),
    *(
        Case(f"cross-entropy of positions {kind}", F + "cross_entropy", ((2, 4, 2), (2, 2)),
             lambda x, c, kind=kind: cross_entropy_of_positions(x, c, kind),
             lambda t, x, c, kind=kind: t.nn.functional.cross_entropy(x, c, reduction=kind), {"reduction": kind})
        for kind in ("sum", "none", "mean")
    ),
    Case("cross-entropy ignoring", F + "cross_entropy", ((4, 4), (4,)), lambda x, c: cross_entropy(x, c, "sum", 1, 0.1),
         lambda t, x, c: t.nn.functional.cross_entropy(x, c, reduction="sum", ignore_index=1, label_smoothing=0.1),
         {"reduction": "sum", "ignore_index": 1, "label_smoothing": 0.1}),
    Case("cross-entropy-rows", "cross-entropy-rows", ((4, 4), (4,)), lambda x, c: cross_entropy(x, c, "none"),
         lambda t, x, c: t.nn.functional.cross_entropy(x, c, reduction="none")),
    *(
        Case(f"nll-loss {kind}", F + "nll_loss", ((2, 4), (2,)), lambda x, c, kind=kind: likelihood(x, c, kind),
             lambda t, x, c, kind=kind: t.nn.functional.nll_loss(x, c, reduction=kind), {"reduction": kind})
        for kind in ("sum", "none", "mean")
    ),
    Case("nll-rows", "nll-rows", ((4, 4), (4,)), lambda x, c: likelihood(x, c, "none"),
         lambda t, x, c: t.nn.functional.nll_loss(x, c, reduction="none")),
    Case("masked-gather", "masked_gather", ((4, 4), (4,)), lambda x, c: x[np.arange(4), c],
         lambda t, x, c: x.gather(1, c[:, None])[:, 0], {"dim": 1, "start": 0, "stop": 4}),
    Case("attribute T", "builtins.getattr", ((2, 4), Literal("T")), lambda x: x.T, lambda t, x: x.T),
    Case("attribute mT", "builtins.getattr", ((2, 4, 2), Literal("mT")), lambda x: np.swapaxes(x, 1, 2), lambda t, x: x.mT),
    Case("zero plus", "torch.add", (Literal(0), (2, 4)), lambda x: 2.0 * x, lambda t, x: t.add(t.tensor(0), x, alpha=2),
         {"alpha": 2}),
    Case("transpose", "torch.transpose", ((2, 4, 2),), lambda x: np.swapaxes(x, 1, 2),
         lambda t, x: x.transpose(1, 2), {"dim0": 1, "dim1": -1}),
    Case("permute", "torch.Tensor.permute", ((2, 4, 2), Literal(2), Literal(0), Literal(1)), lambda x: x.transpose(2, 0, 1),
         lambda t, x: x.permute(2, 0, 1)),
    Case("unsqueeze", "torch.unsqueeze", ((4, 2),), lambda x: x[:, None], lambda t, x: x.unsqueeze(1), {"dim": 1}),
    Case("squeeze", "torch.squeeze", ((4, 1, 2),), lambda x: x[:, 0], lambda t, x: x.squeeze(1), {"dim": 1}),
    Case("expand to new dimensions", "torch.Tensor.expand", ((4, 2), Literal(3), Literal(5), Literal(-1), Literal(-1)),
         lambda x: np.broadcast_to(x, (3, 5, 4, 2)), lambda t, x: x.expand(3, 5, -1, -1), outputs=((3, 5, 4, 2),)),
    Case("expand", "torch.Tensor.expand", ((4, 1, 2), Literal(3), Literal(-1), Literal(5), Literal(-1)),
         lambda x: np.broadcast_to(x, (3, 4, 5, 2)), lambda t, x: x.expand(3, -1, 5, -1)),
    Case("expand as another operand", "expand_as_wide", ((4, 1, 2), (3, 6)), lambda x, y: np.broadcast_to(x, (3, 4, 6, 2)),
         lambda t, x, y: x.expand(y.shape[0], -1, y.shape[1], -1), {"size": (9, -1, 9, -1), "dims": (0, 2), "of": (0, 1)}),
    Case("identity", N + "identity", ((4, 2),), lambda x: x, lambda t, x: x),
    Case("multiref", N + "multiref", ((4, 2),), lambda x: (x, x), lambda t, x: (x, x), {"times": 2}),
    Case("index", "operator.getitem", ((4, 4, 2), Literal((("slice", None, None, None), ("slice", 1, -1, None), None))),
         lambda x: x[:, 1:-1, None], lambda t, x: x[:, 1:-1, None]),
    Case("index place", N + "fullslice", ((4, 4, 2), Literal("..."), Literal(-1)), lambda x: x[..., -1],
         lambda t, x: x[..., -1]),
    Case("narrow", "torch.narrow", ((2, 4), Literal(1), Literal(1), Literal(2)), lambda x: x[:, 1:3],
         lambda t, x: x.narrow(1, 1, 2)),
    Case("select", "torch.select", ((2, 4),), lambda x: x[:, 3], lambda t, x: x.select(1, -1), {"dim": 1, "index": -1}),
    Case("slice", "torch.ops.aten.slice", ((4, 2),), lambda x: x[1::2],
         lambda t, x: x[1::2], {"dim": 0, "start": 1, "end": None, "step": 2}),
    Case("split", "torch.split", ((2, 4),), lambda x: (x[:, :3], x[:, 3:]), lambda t, x: x.split([3, 1], 1),
         {"split_size_or_sections": (3, 1), "dim": 1}),
    Case("chunk", "torch.chunk", ((2, 4), Literal(3)), lambda x: (x[:, :2], x[:, 2:]), lambda t, x: x.chunk(3, 1), {"dim": 1}),
    Case(
        "tensor split", "torch.tensor_split", ((2, 5), Literal(2)),
        lambda x: (x[:, :3], x[:, 3:]), lambda t, x: x.tensor_split(2, 1), {"dim": 1},
    ),
    Case(
        "tensor split at places", "torch.tensor_split", ((2, 5), Literal((1, 4))),
        lambda x: (x[:, :1], x[:, 1:4], x[:, 4:]), lambda t, x: x.tensor_split((1, 4), 1), {"dim": 1},
    ),
    Case("cat", "torch.cat", ((2, 4), (2, 2)), lambda x, y: np.concatenate([x, y], 1),
         lambda t, x, y: t.cat([x, y], 1), {"dim": -1}),
    Case("stack", "torch.stack", ((4, 2), (4, 2)), lambda x, y: np.stack([x, y], 1),
         lambda t, x, y: t.stack([x, y], 1), {"dim": 1}),
    Case("pad", F + "pad", ((2, 4), Literal((1, 2))), lambda x: np.pad(x, ((0, 0), (1, 2))),
         lambda t, x: t.nn.functional.pad(x, (1, 2))),
    Case("pad with a constant", F + "pad", ((2, 4),), lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=3.0),
         lambda t, x: t.nn.functional.pad(x, (1, 2), value=3.0), {"pad": (1, 2), "mode": "constant", "value": 3.0}),
    Case("repeat-interleave", "torch.repeat_interleave", ((2, 4),), lambda x: x.repeat(2, 1),
         lambda t, x: x.repeat_interleave(2, 1),
         {"repeats": 2, "dim": 1}),
    Case("index-select", "torch.index_select", ((2, 4), Literal(1), (2,)), lambda x, i: x[:, i],
         lambda t, x, i: x.index_select(1, i)),
    Case("index-at", "index-at", ((4, 2), Literal(0), (2, 2)), lambda x, i: x[i], lambda t, x, i: x[i]),
    Case("index by a tensor", N + "fullslice", ((4, 2), (2, 2)), lambda x, i: x[i], lambda t, x, i: x[i]),
    Case("index by a tensor of a later dimension", N + "fullslice", ((2, 4, 2), Literal(("slice", None, None, None)), (2, 2)),
         lambda x, i: x[:, i], lambda t, x, i: x[:, i]),
    Case("scatter", "torch.scatter", ((2, 4), (2, 1), (2, 1)), _scattered,
         lambda t, x, i, v: x.scatter(1, i, v), {"dim": 1}),
    Case("scatter by place", "torch.scatter", ((4, 2), Literal(0), (1, 2), (1, 2)), lambda x, i, v: _scattered(x.T, i.T, v.T).T,
         lambda t, x, i, v: x.scatter(0, i, v)),
    Case("scatter of a number", "torch.scatter", ((2, 4), Literal(1), (2, 1), Literal(3.0)),
         lambda x, i: _scattered(x, i, np.full(i.shape, 3.0)), lambda t, x, i: x.scatter(1, i, 3.0)),
    Case("scatter of a number by name", "torch.Tensor.scatter", ((4, 2), (2, 2)),
         lambda x, i: _scattered(x.T, i.T, np.full(i.T.shape, 1)).T,
         lambda t, x, i: x.scatter(0, i, 1), {"dim": 0, "value": 1}),
    Case("index-sum", "index-sum", ((2,), (2, 2), Literal(0), Literal(4)), lambda i, v: _added(np.zeros((4, 2)), i, v),
         lambda t, i, v: t.zeros((4, 2), dtype=v.dtype).index_add(0, i, v)),
    Case("index-add", "torch.index_add", ((4, 2), Literal(0), (2,), (2, 2)), _added, lambda t, x, i, v: x.index_add(0, i, v)),
    Case("index-add times", "torch.index_add", ((4, 2), (2,), (2, 2)), lambda x, i, v: _added(x, i, 0.5 * v),
         lambda t, x, i, v: x.index_add(0, i, v, alpha=0.5), {"dim": 0, "alpha": 0.5}),
    Case("index-reduce", "torch.index_reduce", ((4, 2), Literal(0), (2,), (2, 2), Literal("amax")), _greatest_at,
         lambda t, x, i, v: x.index_reduce(0, i, v, "amax")),
    Case("index-reduce least", "torch.index_reduce", ((4, 2), (2,), (2, 2)), lambda x, i, v: -_greatest_at(-x, i, -v),
         lambda t, x, i, v: x.index_reduce(0, i, v, "amin"), {"dim": 0, "reduce": "amin"}),
    Case("scatter-add", "torch.scatter_add", ((4, 2), Literal(0), (2, 2), (2, 2)), _added,
         lambda t, x, i, v: x.scatter_add(0, i, v)),
    Case("one-hot", F + "one_hot", ((2, 4), Literal(4)), lambda i: np.eye(4)[i],
         lambda t, i: t.nn.functional.one_hot(i, 4)),
    Case("one-hot as traced", "torch._C._nn.one_hot", ((2, 4), Literal(4)), lambda i: np.eye(4)[i],
         lambda t, i: t._C._nn.one_hot(i, 4)),
    Case("argsort", "torch.argsort", ((2, 4),), lambda x: np.argsort(x, 1, kind="stable"),
         lambda t, x: x.argsort(dim=1, stable=True), {"dim": 1, "stable": True}),
    Case("argsort falling", "torch.argsort", ((4, 2),), lambda x: np.argsort(-x, 0, kind="stable"),
         lambda t, x: x.argsort(dim=0, descending=True, stable=True), {"dim": 0, "descending": True}),
    Case("gather", "torch.gather", ((2, 4), (2, 2)), lambda x, i: np.take_along_axis(x, i, 1),
         lambda t, x, i: x.gather(1, i), {"dim": 1}),
    *(
        Case(f"attention{' causal' * causal}", F + "scaled_dot_product_attention", ((2, 4, 2), (2, 4, 2), (2, 4, 2)),
             lambda q, k, v, causal=causal: attention(q, k, v, causal=causal),
             lambda t, q, k, v, causal=causal: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
             {"is_causal": causal})
        for causal in (False, True)
    ),
    Case("attention masked", F + "scaled_dot_product_attention", ((2, 2, 2), (2, 4, 2), (2, 4, 2), (2, 4)),
         lambda q, k, v, m: attention(q, k, v, m, scale=0.3),
         lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m, scale=0.3), {"scale": 0.3}),
    Case("attention from a position", F + "scaled_dot_product_attention", ((2, 2, 2), (2, 4, 2), (2, 4, 2)),
         lambda q, k, v: attention_and_lse(q, k, v, 1)[0], lambda t, q, k, v: torch_attention_and_lse(t, q, k, v, 1)[0],
         {"is_causal": True, "query_start": 1, "query_stop": 3}),
    Case("attention with log-sum-exp", "attention", ((2, 2), (4, 2), (4, 2)), attention_and_lse,
         torch_attention_and_lse),
    Case("attention with log-sum-exp causal", "attention", ((4, 2), (4, 2), (4, 2)),
         lambda q, k, v: attention_and_lse(q, k, v, 2, 1), lambda t, q, k, v: torch_attention_and_lse(t, q, k, v, 2, 1),
         {"is_causal": True, "query_start": 2, "query_stop": 6, "key_start": 1, "key_stop": 5}),
    Case("topk", "torch.topk", ((2, 4),), lambda x: (-np.sort(-x)[:, :2], np.argsort(-x)[:, :2]),
         lambda t, x: tuple(t.topk(x, 2)), {"k": 2, "dim": -1}),
    Case("moe-dispatch", "moe_dispatch", ((2, 2, 2), (2, 2, 2)), lambda x, i: dispatched(x, i, 3, 2), torch_dispatched,
         {"experts": 3, "capacity": 2}),
    Case("moe-combine two choices", "moe_combine", ((1, 2, 1, 2), (1, 2, 2), (1, 2, 2)), combined, torch_combined),
    Case("moe-combine two places", "moe_combine", ((2, 2, 2, 2), (2, 2, 1), (2, 2, 1)), combined, torch_combined),
    Case("merge", "merge_by_log_sum_exp", ((4, 2), (4,), (4, 2), (4,)), merged, torch_merged),
    *MORE_CASES,
)  # fmt: skip


def operands_of(case: Case, bound: Any, seed: int = 0) -> list[Any]:
    """Random operands; flags of masks are zeros and ones, indices repeat."""
    random = np.random.default_rng(seed)
    shapes = [shape for shape in case.inputs if not isinstance(shape, Literal)]
    sizes = {n: s for names, shape in zip(bound.operands, shapes, strict=False) for n, s in zip(names, shape, strict=True)}
    sizes |= bound.sizes
    flags = {"masked-fill": 1, "masked-fill zero": 1, "where": 0, "where zero": 0}.get(case.label)
    found: list[Any] = []
    for i, shape in enumerate(shapes):
        if i in bound.indices:
            found.append(random.integers(0, sizes[bound.indices[i]], shape))
        elif i == flags or i < FLAGS.get(case.label, 0):
            found.append(random.integers(0, 2, shape))
        else:
            found.append(random.uniform(0.3 if case.positive else -1.5, case.most, shape))
    return found
