"""One use of every operator of layers and losses at least, with the same computed by NumPy and by torch."""

from __future__ import annotations

from math import erfc
from typing import Any

import numpy as np

from tests.builders.operator_case import Case, F, N, normal, sig
from tvlint.ir.operators import Literal


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(beta * x)) / beta)


def convolved(x: Any, w: Any, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
    """Two dimensions, one output at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    high, wide = ((x.shape[i] - w.shape[i]) // stride + 1 for i in (2, 3))
    found = np.zeros((len(x), len(w), high, wide))
    inner, outer = w.shape[1], len(w) // groups
    for n, o, i, j in np.ndindex(*found.shape):
        first = o // outer * inner
        seen = x[n, first : first + inner, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]]
        found[n, o, i, j] = (seen * w[o]).sum()
    return found


def spread(x: Any, w: Any, stride: int = 1, padding: int = 0, more: int = 0, dilation: int = 1, groups: int = 1) -> Any:
    """The transpose of a convolution over two dimensions, one input at a time."""
    high, wide = ((x.shape[i] - 1) * stride + dilation * (w.shape[i] - 1) + more + 1 for i in (2, 3))
    outer = w.shape[1]
    found = np.zeros((len(x), outer * groups, high, wide))
    for n, c, i, j, u, v in np.ndindex(*x.shape, *w.shape[2:]):
        first = c // (len(w) // groups) * outer
        found[n, first : first + outer, i * stride + u * dilation, j * stride + v * dilation] += x[n, c, i, j] * w[c, :, u, v]
    return found[:, :, padding : high - padding, padding : wide - padding]


NO_PADDING = ((0, 0), (0, 0))
BETWEEN = np.array([[4, 0], [3, 1], [1, 3], [0, 4]]) / 4
"""How two positions weigh on four, each in the middle of its own."""


def by_batch(x: Any) -> Any:
    axes = (0, *range(2, x.ndim))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def grouped(x: Any, groups: int) -> Any:
    return normal(x.reshape(len(x), groups, -1), 1e-5).reshape(x.shape)


def smooth(x: Any, y: Any, beta: float = 1.0) -> Any:
    size = np.abs(x - y)
    return np.where(size < beta, size**2 / 2 / beta, size - beta / 2)


def binary(x: Any, y: Any) -> Any:
    return -(y * np.log(x) + (1 - y) * np.log(1 - x))


def norm(x: Any, axis: Any = None) -> Any:
    return np.sqrt((x**2).sum(axis))


def _unary(name: str, function: Any, *, positive: bool = False, most: float = 1.5, module: str = F, **constants: Any) -> Case:
    def by_torch(t: Any, x: Any) -> Any:
        return getattr(t.nn.functional if module == F else t, name)(x, **constants)

    label = " ".join([name.replace("_", "-"), *constants])
    return Case(label, module + name, ((4, 2),), function, by_torch, constants, positive=positive, most=most)


def _loss(name: str, each: Any, *, positive: bool = False, most: float = 1.5, wide: int = 2, **constants: Any) -> list[Case]:
    def case(reduction: str) -> Case:
        reduce = {"none": lambda a: a, "mean": np.mean, "sum": np.sum, "batchmean": lambda a: a.sum() / len(a)}[reduction]
        return Case(
            " ".join([name.replace("_", "-"), reduction, *constants]),
            F + name,
            ((2, wide), (2, wide)),
            lambda x, y: reduce(each(x, y)),
            lambda t, x, y: getattr(t.nn.functional, name)(x, y, reduction=reduction, **constants),
            {"reduction": reduction, **constants},
            positive=positive,
            most=most,
        )

    return [case(reduction) for reduction in ("none", "mean", "sum", *(("batchmean",) if name == "kl_div" else ()))]


def adam(module: Any, w: Any, g: Any, m: Any, v: Any) -> Any:
    g = g + 0.2 * w
    m, v = 0.5 * m + 0.5 * g, 0.25 * v + 0.75 * g * g
    return w - 0.1 * m / (module.sqrt(v) + 0.01), m, v


def adamw(module: Any, w: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.5 * m + 0.5 * g, 0.25 * v + 0.75 * g * g
    return w - 0.1 * 0.2 * w - 0.1 * (m / (1 - 0.5**2)) / (module.sqrt(v / (1 - 0.25**2)) + 0.01), m, v


MORE_CASES: tuple[Case, ...] = (
    _unary("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x)),
    _unary("leaky_relu", lambda x: np.where(x > 0, x, 0.2 * x), negative_slope=0.2),
    _unary("elu", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    _unary("elu", lambda x: np.where(x > 0, x, 2 * np.exp(x) - 2), alpha=2.0),
    _unary("celu", lambda x: np.where(x > 0, x, 2 * np.exp(x / 2) - 2), alpha=2.0),
    _unary("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * (np.exp(x) - 1))),
    _unary("softplus", softplus),
    _unary("softplus", lambda x: softplus(x, 2.0, 1.0), beta=2.0, threshold=1.0),
    _unary("logsigmoid", lambda x: np.log(sig(x))),
    _unary("mish", lambda x: x * np.tanh(softplus(x))),
    _unary("clamp", lambda x: np.clip(x, -0.5, 0.5), module="torch.", min=-0.5, max=0.5),
    _unary("clamp", lambda x: np.maximum(x, -0.5), module="torch.", min=-0.5),
    _unary("clamp_min", lambda x: np.maximum(x, -0.25), module="torch.", min=-0.25),
    _unary("clamp_max", lambda x: np.minimum(x, 0.25), module="torch.", max=0.25),
    _unary("hardtanh", lambda x: np.clip(x, -1, 1)),
    _unary("relu6", lambda x: np.clip(x, 0, 6)),
    _unary("hardsigmoid", lambda x: np.clip(x + 3, 0, 6) / 6),
    _unary("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    _unary("softsign", lambda x: x / (1 + np.abs(x))),
    _unary("sign", np.sign, module="torch."),
    _unary("log1p", np.log1p, positive=True, module="torch."),
    _unary("expm1", np.expm1, module="torch."),
    _unary("exp2", np.exp2, module="torch."),
    _unary("sinh", np.sinh, module="torch."),
    _unary("cosh", np.cosh, module="torch."),
    _unary("tan", np.tan, module="torch."),
    _unary("erfc", np.vectorize(erfc), module="torch."),
    _unary("logit", lambda x: np.log(x / (1 - x)), positive=True, most=0.9, module="torch."),
    _unary("floor", np.floor, module="torch."),
    _unary("ceil", np.ceil, module="torch."),
    _unary("trunc", np.trunc, module="torch."),
    _unary("round", np.rint, module="torch."),
    _unary("frac", lambda x: x - np.trunc(x), module="torch."),
    _unary("atan", np.arctan, module="torch."),
    _unary("asinh", np.arcsinh, module="torch."),
    _unary("asin", np.arcsin, positive=True, most=0.9, module="torch."),
    _unary("acos", np.arccos, positive=True, most=0.9, module="torch."),
    _unary("atanh", np.arctanh, positive=True, most=0.9, module="torch."),
    _unary("hardshrink", lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    _unary("hardshrink", lambda x: np.where(np.abs(x) > 0.25, x, 0), lambd=0.25),
    _unary("softshrink", lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)),
    _unary("threshold", lambda x: np.where(x > 0.25, x, -2.0), threshold=0.25, value=-2.0),
    Case("floor-divide", "torch.floor_divide", ((4, 2), (2,)), lambda x, y: np.floor(x / y),
         lambda t, x, y: t.floor_divide(x.detach(), y.detach()), positive=True),
    Case("remainder", "torch.remainder", ((4, 2), Literal(0.75)), lambda x: np.mod(x, 0.75), lambda t, x: t.remainder(x, 0.75)),
    Case("remainder of two", "torch.remainder", ((4, 2), (4, 2)), np.mod, lambda t, x, y: t.remainder(x, y), positive=True),
    Case("fmod", "torch.fmod", ((4, 2), Literal(0.75)), lambda x: np.fmod(x, 0.75), lambda t, x: t.fmod(x, 0.75)),
    Case("xlogy", "torch.xlogy", ((4, 2), (4, 1)), lambda x, y: x * np.log(y), lambda t, x, y: t.xlogy(x, y), positive=True),
    Case("xlogy of a constant", "torch.xlogy", (Literal(0.75), (4, 2)), lambda y: 0.75 * np.log(y),
         lambda t, y: t.xlogy(0.75, y), positive=True),
    Case("fmod of two", "torch.fmod", ((4, 2), (4, 2)), np.fmod, lambda t, x, y: t.fmod(x, y), positive=True),
    *(
        Case(f"div by {rounding}", "torch.div", ((4, 2), (4, 2)), lambda x, y, run=run: run(x / y),
             lambda t, x, y, rounding=rounding: t.div(x, y, rounding_mode=rounding), {"rounding_mode": rounding}, positive=True)
        for rounding, run in (("floor", np.floor), ("trunc", np.trunc))
    ),
    Case("lerp", "torch.lerp", ((4, 2), (4, 2), Literal(0.25)), lambda x, y: x + 0.25 * (y - x),
         lambda t, x, y: t.lerp(x, y, 0.25)),
    Case("lerp by a tensor", "torch.lerp", ((4, 2), (4, 2), (4, 1)), lambda x, y, w: x + w * (y - x),
         lambda t, x, y, w: t.lerp(x, y, w)),
    Case("softmin", F + "softmin", ((4, 2),), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True),
         lambda t, x: t.nn.functional.softmin(x, 1), {"dim": 1}),
    Case("cosine-similarity", F + "cosine_similarity", ((2, 4), (2, 4)), lambda x, y: (x * y).sum(1) / norm(x, 1) / norm(y, 1),
         lambda t, x, y: t.nn.functional.cosine_similarity(x, y, 1), {"dim": 1}),
    Case("prod", "torch.prod", ((2, 4), Literal(1)), lambda x: x.prod(1), lambda t, x: t.prod(x, 1)),
    Case("prod of all", "torch.prod", ((2, 2),), lambda x: x.prod(), lambda t, x: t.prod(x)),
    Case("sort", "torch.sort", ((2, 4),), lambda x: (np.sort(x, 1), np.argsort(x, 1)),
         lambda t, x: tuple(t.sort(x, 1)), {"dim": 1}),
    Case("sort falling", "torch.sort", ((3, 2),), lambda x: (-np.sort(-x, 0), np.argsort(-x, 0)),
         lambda t, x: tuple(t.sort(x, 0, descending=True)), {"dim": 0, "descending": True}),
    _unary("log2", np.log2, positive=True, module="torch."),
    _unary("log10", np.log10, positive=True, module="torch."),
    _unary("tanhshrink", lambda x: x - np.tanh(x)),
    *(
        Case(name, f"_operator.{name}", ((4, 2), (4, 2)), getattr(np, long), lambda t, x, y, name=name: getattr(t, name)(x, y))
        for name, long in (("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("gt", "greater"), ("le", "less_equal"),
                           ("ge", "greater_equal"))
    ),
    Case("eq zero", "_operator.eq", ((4, 2), Literal(0)), lambda x: x == 0, lambda t, x: x == 0),
    Case("gt from a constant", "_operator.gt", (Literal(0.5), (4, 2)), lambda x: x < 0.5, lambda t, x: x < 0.5),
    Case("logical-and", "torch.logical_and", ((4, 2), (4, 2)), np.logical_and, lambda t, x, y: t.logical_and(x, y)),
    Case("logical-or", "torch.logical_or", ((4, 2), (4, 2)), np.logical_or, lambda t, x, y: t.logical_or(x, y)),
    Case("logical-not", "torch.logical_not", ((4, 2),), np.logical_not, lambda t, x: t.logical_not(x)),
    Case("amin", "torch.amin", ((4, 4),), lambda x: x.min(1), lambda t, x: t.amin(x, 1), {"dim": (1,)}),
    Case("min", "torch.min", ((2, 4),), lambda x: x.min(), lambda t, x: t.min(x)),
    Case("addcmul", "torch.addcmul", ((4, 2), (4, 1), (2,)), lambda a, x, y: a + x * y, lambda t, a, x, y: t.addcmul(a, x, y)),
    Case("addcmul value", "torch.addcmul", ((4, 2), (4, 2), (4, 2)), lambda a, x, y: a - 0.5 * x * y,
         lambda t, a, x, y: t.addcmul(a, x, y, value=-0.5), {"value": -0.5}),
    Case("addcdiv", "torch.addcdiv", ((4, 2), (4, 2), (4, 2)), lambda a, x, y: a + 2 * x / y,
         lambda t, a, x, y: t.addcdiv(a, x, y, value=2), {"value": 2}, positive=True),
    _unary("absolute", np.abs, module="torch."),
    _unary("negative", np.negative, module="torch."),
    Case("expit", "torch.special.expit", ((4, 2),), sig, lambda t, x: t.special.expit(x)),
    Case("softmax of special", "torch.special.softmax", ((4, 2), Literal(1)),
         lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), lambda t, x: t.special.softmax(x, 1)),
    Case("argmin", "torch.argmin", ((4, 4),), lambda x: x.argmin(1), lambda t, x: t.argmin(x, 1), {"dim": 1}),
    Case("normalize", F + "normalize", ((4, 2),), lambda x: x / np.sqrt((x**2).sum(1, keepdims=True)),
         lambda t, x: t.nn.functional.normalize(x)),
    Case("normalize of columns", F + "normalize", ((4, 2),), lambda x: x / np.maximum(np.sqrt((x**2).sum(0)), 1.0),
         lambda t, x: t.nn.functional.normalize(x, dim=0, eps=1.0), {"p": 2.0, "dim": 0, "eps": 1.0}),
    Case("mv", "torch.mv", ((4, 2), (2,)), lambda x, y: x @ y, lambda t, x, y: t.mv(x, y)),
    Case("dot", "torch.dot", ((4,), (4,)), lambda x, y: x @ y, lambda t, x, y: t.dot(x, y)),
    Case("swapaxes", "torch.swapaxes", ((2, 4, 2), Literal(0), Literal(1)), lambda x: x.swapaxes(0, 1),
         lambda t, x: t.swapaxes(x, 0, 1)),
    Case("movedim", "torch.movedim", ((2, 4, 2), Literal(0), Literal(-1)), lambda x: np.moveaxis(x, 0, -1),
         lambda t, x: t.movedim(x, 0, -1)),
    Case("movedim of two", "torch.Tensor.movedim", ((2, 4, 2),), lambda x: np.moveaxis(x, (0, 1), (2, 0)),
         lambda t, x: x.movedim((0, 1), (2, 0)), {"source": (0, 1), "destination": (2, 0)}),
    Case("broadcast-to", "torch.broadcast_to", ((4, 1), Literal((2, -1, 2))), lambda x: np.broadcast_to(x, (2, 4, 2)),
         lambda t, x: t.broadcast_to(x, (2, -1, 2))),
    Case("maximum", "torch.maximum", ((4, 2), (4, 2)), np.maximum, lambda t, x, y: t.maximum(x, y)),
    Case("minimum", "torch.minimum", ((4, 2), (4, 2)), np.minimum, lambda t, x, y: t.minimum(x, y)),
    *_loss("mse_loss", lambda x, y: (x - y) ** 2),
    *_loss("l1_loss", lambda x, y: np.abs(x - y)),
    *_loss("smooth_l1_loss", smooth, wide=1),
    *_loss("smooth_l1_loss", lambda x, y: smooth(x, y, 0.25), wide=1, beta=0.25),
    *_loss("huber_loss", lambda x, y: 0.5 * smooth(x, y, 0.5), wide=1, delta=0.5),
    *_loss("binary_cross_entropy_with_logits", lambda x, y: binary(sig(x), y)),
    *_loss("binary_cross_entropy", binary, positive=True, most=0.9),
    *_loss("kl_div", lambda x, y: y * (np.log(y) - x), positive=True),
    Case("var", "torch.var", ((2, 4),), lambda x: x.var(1, ddof=1), lambda t, x: t.var(x, 1), {"dim": 1}),
    Case("var all", "torch.var", ((2, 4),), lambda x: x.var(), lambda t, x: t.var(x, unbiased=False), {"unbiased": False}),
    Case("variance and mean", "torch.var_mean", ((2, 4),), lambda x: (x.var(1, ddof=1), x.mean(1)),
         lambda t, x: t.var_mean(x, 1), {"dim": 1}),
    Case("std", "torch.std", ((2, 4),), lambda x: x.std(1, keepdims=True), lambda t, x: t.std(x, 1, correction=0, keepdim=True),
         {"dim": -1, "correction": 0, "keepdim": True}),
    Case("norm", "torch.norm", ((2, 4),), norm, lambda t, x: t.norm(x)),
    Case("norm of one", "torch.norm", ((2, 4),), lambda x: np.abs(x).sum(1), lambda t, x: t.norm(x, 1, 1), {"p": 1, "dim": 1}),
    Case("vector-norm", "torch.linalg.vector_norm", ((2, 4),), lambda x: norm(x, 1),
         lambda t, x: t.linalg.vector_norm(x, 2, 1), {"ord": 2, "dim": 1}),
    Case("logsumexp", "torch.logsumexp", ((2, 4),), lambda x: np.log(np.exp(x).sum(1)),
         lambda t, x: t.logsumexp(x, 1), {"dim": 1}),
    Case("argmax", "torch.argmax", ((4, 4),), lambda x: x.argmax(1), lambda t, x: t.argmax(x, 1), {"dim": 1}),
    Case("conv2d", "torch.conv2d", ((2, 2, 2, 2), (2, 2, 2, 2)), lambda x, w: convolved(x, w, 1, 1),
         lambda t, x, w: t.conv2d(x, w, None, 1, 1), {"stride": 1, "padding": (1, 1), "bias": None}),
    Case("conv2d bias", F + "conv2d", ((2, 2, 4, 2), (2, 2, 2, 2), (2,)),
         lambda x, w, b: convolved(x, w, 2) + b[:, None, None], lambda t, x, w, b: t.conv2d(x, w, b, 2), {"stride": 2}),
    Case("conv2d groups", "torch.conv2d", ((2, 4, 2, 2), (4, 2, 2, 2)), lambda x, w: convolved(x, w, groups=2),
         lambda t, x, w: t.conv2d(x, w, groups=2), {"groups": 2}),
    Case("conv2d channels", "torch.conv2d", ((2, 4, 2, 2), (4, 1, 2, 2), (4,)),
         lambda x, w, b: convolved(x, w, groups=4) + b[:, None, None],
         lambda t, x, w, b: t.conv2d(x, w, b, groups=4), {"groups": 4}),
    Case("conv-transpose2d", "torch.conv_transpose2d", ((2, 2, 2, 2), (2, 4, 2, 2)), lambda x, w: spread(x, w, 2, 1, 1),
         lambda t, x, w: t.conv_transpose2d(x, w, None, 2, 1, 1), {"stride": 2, "padding": (1, 1), "output_padding": 1}),
    Case("conv-transpose2d bias", F + "conv_transpose2d", ((2, 2, 2, 2), (2, 4, 2, 2), (4,)),
         lambda x, w, b: spread(x, w, dilation=2) + b[:, None, None],
         lambda t, x, w, b: t.conv_transpose2d(x, w, b, dilation=2), {"dilation": 2}),
    Case("conv-transpose2d groups", F + "conv_transpose2d", ((2, 4, 2, 2), (4, 2, 2, 2)), lambda x, w: spread(x, w, groups=2),
         lambda t, x, w: t.conv_transpose2d(x, w, groups=2), {"groups": 2}),
    Case("conv-transpose1d", "torch.conv_transpose1d", ((2, 2, 2), (2, 2, 2)),
         lambda x, w: np.einsum("ncl,cok->nolk", x, w).reshape(2, 2, 4),
         lambda t, x, w: t.conv_transpose1d(x, w, stride=2), {"stride": 2}),
    Case("conv-transpose3d", "torch.conv_transpose3d", ((2, 2, 1, 1, 1), (2, 2, 2, 2, 2)),
         lambda x, w: np.einsum("nc,coijk->noijk", x[:, :, 0, 0, 0], w), lambda t, x, w: t.conv_transpose3d(x, w)),
    Case("interpolate", F + "interpolate", ((2, 2, 2, 4),), lambda x: x.repeat(2, 2).repeat(2, 3),
         lambda t, x: t.nn.functional.interpolate(x, scale_factor=2.0), {"scale_factor": 2.0, "mode": "nearest"}),
    Case("interpolate smaller", F + "interpolate", ((2, 2, 4),), lambda x: x[..., ::2],
         lambda t, x: t.nn.functional.interpolate(x, size=2), {"size": 2}),
    Case("interpolate linear", F + "interpolate", ((2, 2, 2, 2),),
         lambda x: np.einsum("ij,kl,ncjl->ncik", BETWEEN, BETWEEN, x),
         lambda t, x: t.nn.functional.interpolate(x, size=(4, 4), mode="bilinear"),
         {"size": (4, 4), "mode": "bilinear", "align_corners": False}),
    Case("conv1d", "torch.conv1d", ((2, 2, 4), (2, 2, 2)),
         lambda x, w: sum(np.einsum("ncl,oc->nol", x[:, :, k : k + 3], w[:, :, k]) for k in (0, 1)),
         lambda t, x, w: t.conv1d(x, w)),
    *(
        Case(f"conv1d same over {width}", "torch.conv1d", ((2, 2, 4), (2, 2, width)),
             lambda x, w, width=width: sum(
                 np.einsum("ncl,oc->nol", np.pad(x, (*NO_PADDING, ((width - 1) // 2, width // 2)))[:, :, k : k + 4], w[:, :, k])
                 for k in range(width)
             ),
             lambda t, x, w: t.conv1d(x, w, padding="same"), {"padding": "same"})
        for width in (2, 3)
    ),
    Case("conv3d", "torch.conv3d", ((2, 2, 2, 2, 2), (2, 2, 2, 2, 2)),
         lambda x, w: np.einsum("ncijk,ocijk->no", x, w)[:, :, None, None, None], lambda t, x, w: t.conv3d(x, w)),
    *(
        Case(f"max-pool{n}d", F + f"max_pool{n}d", ((2, 2, *(2,) * n),),
             lambda x, n=n: x.max(tuple(range(2, n + 2)), keepdims=True),
             lambda t, x, n=n: getattr(t.nn.functional, f"max_pool{n}d")(x, 2), {"kernel_size": 2})
        for n in (1, 2, 3)
    ),
    Case("max-pool1d padded", F + "max_pool1d", ((2, 2, 4),), lambda x: np.stack([x[..., :2].max(-1), x[..., 1:].max(-1)], -1),
         lambda t, x: t.nn.functional.max_pool1d(x - 9, 3, 2, 1) + 9, {"kernel_size": 3, "stride": 2, "padding": 1}),
    *(
        Case(f"avg-pool{n}d", F + f"avg_pool{n}d", ((2, 2, *(2,) * n),),
             lambda x, n=n: x.mean(tuple(range(2, n + 2)), keepdims=True),
             lambda t, x, n=n: getattr(t.nn.functional, f"avg_pool{n}d")(x, 2), {"kernel_size": 2})
        for n in (1, 2, 3)
    ),
    *(
        Case(f"adaptive-avg-pool{n}d", F + f"adaptive_avg_pool{n}d", ((2, 2, *(2,) * n),),
             lambda x, n=n: x.mean(tuple(range(2, n + 2)), keepdims=True),
             lambda t, x, n=n: getattr(t.nn.functional, f"adaptive_avg_pool{n}d")(x, 1), {"output_size": 1})
        for n in (1, 2, 3)
    ),
    Case("adaptive-avg-pool1d parts", F + "adaptive_avg_pool1d", ((2, 2, 4),), lambda x: x.reshape(2, 2, 2, 2).mean(3),
         lambda t, x: t.nn.functional.adaptive_avg_pool1d(x, 2), {"output_size": (2,)}),
    Case("group-norm", F + "group_norm", ((2, 4, 2), Literal(2), (4,), (4,)),
         lambda x, w, b: grouped(x, 2) * w[:, None] + b[:, None], lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b)),
    Case("group-norm plain", F + "group_norm", ((2, 4),), lambda x: grouped(x, 1),
         lambda t, x: t.nn.functional.group_norm(x, 1), {"num_groups": 1, "weight": None, "bias": None, "eps": 1e-5}),
    Case("batch-norm", F + "batch_norm", ((2, 2, 2), (2,), (2,), (2,), (2,)),
         lambda x, m, v, w, b: (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * w[:, None] + b[:, None],
         lambda t, x, m, v, w, b: t.nn.functional.batch_norm(x, m.detach(), v.detach(), w, b), positive=True),
    Case("batch-norm of the batch", F + "batch_norm", ((4, 2, 2), Literal(None), Literal(None), (2,), (2,)),
         lambda x, w, b: by_batch(x) * w[:, None] + b[:, None],
         lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True), {"training": True}),
    Case("batch-norm of the batch plain", F + "batch_norm", ((4, 2),), by_batch,
         lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
         {"running_mean": None, "running_var": None, "training": True}),
    Case("repeat", "torch.Tensor.repeat", ((2, 4), Literal(3), Literal(1), Literal(2)), lambda x: np.tile(x, (3, 1, 2)),
         lambda t, x: x.repeat(3, 1, 2)),
    Case("unbind", "torch.unbind", ((4, 2),), lambda x: (x[:, 0], x[:, 1]), lambda t, x: x.unbind(1), {"dim": 1}),
    Case("flip", "torch.flip", ((2, 4),), lambda x: x[:, ::-1], lambda t, x: x.flip([-1]), {"dims": (-1,)}),
    Case("roll", "torch.roll", ((2, 4), Literal(1), Literal(-1)), lambda x: np.roll(x, 1, 1), lambda t, x: x.roll(1, -1)),
    Case("tril", "torch.tril", ((2, 4, 4),), np.tril, lambda t, x: x.tril()),
    Case("triu", "torch.triu", ((4, 4),), lambda x: np.triu(x, 1), lambda t, x: x.triu(1), {"diagonal": 1}),
    Case("diagonal", "torch.diagonal", ((2, 4, 4),), lambda x: np.array([np.diag(own, 1) for own in x]),
         lambda t, x: t.diagonal(x, 1, 1, 2), {"offset": 1, "dim1": -2, "dim2": -1}),
    Case("detach", "torch.detach", ((4, 2),), lambda x: x, lambda t, x: x.detach()),
    Case("outer", "torch.outer", ((4,), (2,)), np.outer, lambda t, x, y: t.outer(x, y)),
    Case("arange", N + "arange", (), lambda: np.arange(2, 12, 3.0), lambda t: t.arange(2, 12, 3),
         {"start": 2, "end": 12, "step": 3, "dtype": "torch.float32", "requires_grad": False}),
    Case("arange to", "torch.arange", (Literal(4),), lambda: np.arange(4.0), lambda t: t.arange(4)),
    Case("zeros", N + "zeros", (), lambda: np.zeros((2, 4)), lambda t: t.zeros((2, 4)), {"size": (2, 4)}),
    Case("ones", N + "ones", (), lambda: np.ones(2), lambda t: t.ones(2), {"size": (2,)}),
    Case("full", N + "full", (Literal((2, 2)), Literal(0.5)), lambda: np.full((2, 2), 0.5), lambda t: t.full((2, 2), 0.5)),
    Case("zeros of sizes in a row", "torch.zeros", (Literal(2), Literal(4)), lambda: np.zeros((2, 4)), lambda t: t.zeros(2, 4)),
    Case("zeros-like", "torch.zeros_like", ((4, 2),), np.zeros_like, lambda t, x: t.zeros_like(x)),
    Case("ones-like", "torch.ones_like", ((4, 2),), np.ones_like, lambda t, x: t.ones_like(x)),
    Case("full-like", "torch.full_like", ((4, 2), Literal(3)), lambda x: np.full_like(x, 3), lambda t, x: t.full_like(x, 3)),
    Case("sgd-step", "sgd_step", ((2, 4), (2, 4)), lambda w, g: w - 0.1 * (g + 0.2 * w),
         lambda t, w, g: w - 0.1 * (g + 0.2 * w), {"lr": 0.1, "weight_decay": 0.2}),
    Case("momentum-step", "momentum_step", ((4,), (4,), (4,)), lambda w, g, m: (w - 0.1 * (0.5 * m + g), 0.5 * m + g),
         lambda t, w, g, m: (w - 0.1 * (0.5 * m + g), 0.5 * m + g), {"lr": 0.1, "momentum": 0.5}),
    Case("adam-step", "adam_step", ((2, 4),) * 4, lambda *x: adam(np, *x), lambda t, *x: adam(t, *x),
         {"lr": 0.1, "betas": (0.5, 0.25), "eps": 0.01, "weight_decay": 0.2}, positive=True),
    Case("adamw-step", "adamw_step", ((4,),) * 4, lambda *x: adamw(np, *x), lambda t, *x: adamw(t, *x),
         {"lr": 0.1, "betas": (0.5, 0.25), "eps": 0.01, "weight_decay": 0.2, "step": 2}, positive=True),
    Case("dropout nothing", N + "dropout", ((4, 2),), lambda x: x, lambda t, x: x, {"p": 0.1, "training": False}),
)  # fmt: skip

FLAGS = {**dict.fromkeys(("eq", "ne", "lt", "gt", "le", "ge", "logical-and", "logical-or"), 2), "eq zero": 1, "logical-not": 1}
"""Cases whose first operands are zeros and ones: for random numbers the results would be the same throughout."""
