"""Small models, layer by layer, each with the ways of splitting it over the ranks of a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from oracle.trace import Trace
from tvlint.ir.operators import Collective

ACTIVATIONS = ("torch.relu", "torch.nn.functional.silu", "torch.nn.functional.gelu", "torch.tanh", "torch.sigmoid", "torch.exp")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what it does to the activation, in which of its ways, and the weights whose gradients stay partial."""

    build: Callable[[Trace, str, str], str]
    partial: tuple[str, ...] = ()


def _norm(trace: Trace, x: str, logical: str) -> str:
    shape = trace.shape(x)
    one = (*shape[:-1], 1)
    wide = trace.op("torch.Tensor.float", (x,), shape)
    square = trace.op("torch.pow", (wide, 2), shape)
    mean = trace.op("torch.mean", (square,), one, dim=(len(shape) - 1,), keepdim=True)
    scale = trace.op("torch.rsqrt", (trace.op("torch.add", (mean, 0.05), one, alpha=1),), one)
    normal = trace.op("torch.mul", (wide, scale), shape)
    narrow = trace.op("nnscaler.runtime.function.to", (normal,), shape, dtype_or_device="float32")
    return trace.op("torch.mul", (narrow, trace.weight(logical, shape[-1:])), shape)


def linear(trace: Trace, x: str, weight: str, bias: str | None = None) -> str:
    out = (*trace.shape(x)[:-1], trace.shape(weight)[0])
    if bias is None:
        return trace.op("torch.nn.functional.linear", (x, weight), out, bias=None)
    return trace.op("torch.nn.functional.linear", (x, weight, bias), out)


def mlp_layer(number: int, random: Random, tp: int, width: int = 4) -> Layer:
    """Two linears with an activation between, split in one of several ways; `width` is the hidden size."""
    style = random.choice(("columns-rows", "rows", "columns", "whole", "batch", "exchange"))
    activation, biased = random.choice(ACTIVATIONS), random.random() < 0.4
    uneven = tp == 2 and random.random() < 0.3
    twice = random.random() < 0.3
    hidden = 2 * width
    sizes = (hidden - 3, 3) if uneven else ()

    def build(trace: Trace, x: str, _: str) -> str:
        first, second = f"layer{number}.first", f"layer{number}.second"

        def bias(dim: int | None = None, shares: tuple[int, ...] = ()) -> str | None:
            return trace.weight(f"{first}.bias", (hidden,), dim, shares) if biased else None

        if style == "columns-rows":
            x = trace.entered(x)
            hidden_value = linear(trace, x, trace.weight(first, (hidden, width), 0, sizes), bias(0, sizes))
            hidden_value = trace.op(activation, (hidden_value,), trace.shape(hidden_value))
            return trace.summed(linear(trace, hidden_value, trace.weight(second, (width, hidden), 1, sizes)))
        if style == "rows":
            y = trace.summed(linear(trace, trace.cut(x, 1), trace.weight(first, (hidden, width), 1)))
            if biased:
                y = trace.op("torch.add", (y, trace.weight(f"{first}.bias", (hidden,))), trace.shape(y), alpha=1)
            y = trace.op(activation, (y,), trace.shape(y))
            return linear(trace, y, trace.weight(second, (width, hidden)))
        if style == "columns":
            y = linear(trace, trace.entered(x), trace.weight(first, (hidden, width), 0), bias(0))
            y = trace.gathered(trace.op(activation, (y,), trace.shape(y)), 1)
            return linear(trace, y, trace.weight(second, (width, hidden)))
        if style == "exchange":
            y = linear(trace, trace.entered(x), trace.weight(first, (hidden, width), 0), bias(0))
            y = trace.exchanged(trace.op(activation, (y,), trace.shape(y)), 0, 1)
            return trace.gathered(linear(trace, y, trace.weight(second, (width, hidden))), 0)
        split = style == "batch"
        y = trace.cut(x, 0) if split else x
        if twice:
            one, two = trace.copies(y, 2)
            y = trace.op("torch.add", (two, one), trace.shape(y), alpha=1)
        y = linear(trace, y, trace.weight(first, (hidden, width)), bias())
        y = trace.op(activation, (y,), trace.shape(y))
        y = linear(trace, y, trace.weight(second, (width, hidden)))
        return trace.gathered(y, 0) if split else y

    partial = {
        "batch": (f"layer{number}.first", f"layer{number}.second", f"layer{number}.first.bias"),
        "exchange": (f"layer{number}.second",),
    }
    return Layer(build, partial.get(style, ()))


def llama_layer(number: int, random: Random, tp: int) -> Layer:
    """Attention and a gated feed-forward, with residuals and norms; heads split, the sequence too in some."""
    heads, size, hidden, inner = 2 * max(1, tp // 2), 2, 4, 8
    sequence = random.random() < 0.35
    multiref = random.random() < 0.5

    def leave(trace: Trace, x: str) -> str:
        return trace.scattered(x, 1) if sequence else trace.summed(x)

    def enter(trace: Trace, x: str) -> str:
        return trace.gathered(x, 1, Collective.REDUCE_SCATTER) if sequence else trace.entered(x)

    def build(trace: Trace, x: str, tokens: str) -> str:
        if sequence:
            x = trace.cut(x, 1)
        name = f"layer{number}"
        kept, used = trace.copies(x, 2) if multiref else (x, x)
        y = enter(trace, _norm(trace, used, f"{name}.norm"))
        batch, length, _ = trace.shape(y)
        own = heads // trace.tp
        full, flat = (batch, length, own, size), (batch, length, own * size)
        q, k, v = (
            trace.op(
                "torch.Tensor.view",
                (linear(trace, y, trace.weight(f"{name}.{part}", (heads * size, hidden), 0)),),
                full,
                size=full,
            )
            for part in "qkv"
        )
        angles = trace.buffer("angles", (length, size // 2))
        q, k = trace.ops("model.apply_rotary_emb", (q, k, angles), full, full)
        turned = (batch, own, length, size)
        q, k, v = (trace.op("torch.transpose", (each,), turned, dim0=1, dim1=2) for each in (q, k, v))
        k = trace.op("torch.transpose", (k,), (batch, own, size, length), dim0=2, dim1=3)
        square = (batch, own, length, length)
        scores = trace.op("torch.div", (trace.op("torch.matmul", (q, k), square), 1.5), square, rounding_mode=None)
        mask = trace.op("model.create_mask", (tokens, y), (1, 1, length, length))
        scores = trace.op("model.apply_mask", (scores, mask), square)
        scores = trace.op("torch.nn.functional.softmax", (scores,), square, dim=-1, _stacklevel=3, dtype=None)
        mixed = trace.op("torch.transpose", (trace.op("torch.matmul", (scores, v), turned),), full, dim0=1, dim1=2)
        mixed = trace.op("torch.Tensor.contiguous", (mixed,), full)
        mixed = trace.op("torch.Tensor.view", (mixed,), flat, size=(batch, length, -1))
        out = leave(trace, linear(trace, mixed, trace.weight(f"{name}.o", (hidden, heads * size), 1)))
        x = trace.op("torch.add", (kept, out), trace.shape(kept), alpha=1)
        y = enter(trace, _norm(trace, x, f"{name}.norm2"))
        one = linear(trace, y, trace.weight(f"{name}.gate", (inner, hidden), 0))
        one = trace.op("torch.nn.functional.silu", (one,), trace.shape(one), inplace=False)
        two = linear(trace, y, trace.weight(f"{name}.up", (inner, hidden), 0))
        both = trace.op("torch.mul", (one, two), trace.shape(one))
        down = leave(trace, linear(trace, both, trace.weight(f"{name}.down", (hidden, inner), 1)))
        x = trace.op("torch.add", (x, down), trace.shape(x), alpha=1)
        return trace.gathered(x, 1) if sequence else x

    return Layer(build, (f"layer{number}.norm", f"layer{number}.norm2") if sequence else ())


def moe_layer(number: int, random: Random, tp: int) -> Layer:
    """A gate and four experts, split by expert."""
    hidden, inner, count, chosen = 4, 2, 4, 2

    def build(trace: Trace, x: str, _: str) -> str:
        name, (rows, _width) = f"layer{number}", trace.shape(x)
        weights, indices = trace.ops(
            "model.gate_fw",
            (x, trace.weight(f"{name}.gate", (count, hidden))),
            (rows, chosen),
            (rows, chosen),
            score_func="sigmoid",
            bias=None,
            n_groups=2,
            topk_groups=1,
            topk=chosen,
            route_scale=2.5,
        )
        own = count // trace.tp
        experts = [
            trace.weight(f"{name}.{part}", (count, *shape), 0)
            for part, shape in (("one", (inner, hidden)), ("two", (inner, hidden)), ("three", (hidden, inner)))
        ]
        y = trace.op(
            "model.nnscaler_moe_gmm",
            (trace.entered(x), trace.entered(weights), indices, *experts),
            (rows, hidden),
            n_routed_experts=count,
            local_expert_start=own * trace.index,
            local_expert_end=own * (trace.index + 1),
        )
        return trace.op("torch.add", (x, trace.summed(y)), (rows, hidden), alpha=1)

    return Layer(build)


def embedding(trace: Trace, tokens: str, words: int, hidden: int, split: bool) -> str:
    own, at = (words // trace.tp, trace.index) if split else (words, 0)
    weight = trace.weight("embedding", (words, hidden), 0 if split else None)
    out = (*trace.shape(tokens), hidden)
    ranges = {"start": own * at, "stop": own * (at + 1)} if split else {"start": 0, "stop": words}
    y = trace.op("nnscaler.runtime.function.embedding", (tokens, weight), out, padding_idx=None, **ranges)
    return trace.summed(y) if split else y


def head(trace: Trace, x: str, words: int, style: str) -> str:
    """The sum of the logits: the vocabulary split and the sum partial, gathered first, or whole."""
    whole = (words, trace.shape(x)[-1])
    if style == "whole":
        y = linear(trace, x, trace.weight("head", whole))
    else:
        y = linear(trace, trace.entered(x), trace.weight("head", whole, 0))
    if style == "gathered":
        y = trace.gathered(y, len(trace.shape(y)) - 1)
    y = trace.op("torch.nn.functional.silu", (y,), trace.shape(y), inplace=False)
    loss = trace.op("torch.sum", (y,), (1,))
    return trace.summed(loss) if style == "partial" else loss
