"""Small models in the idioms of those that people give to nnScaler; each takes a sample and returns its loss first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nnscaler
import torch
from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """Linear layers with activations between them."""

    def __init__(self, width: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of squares of what the layers make."""
        for layer in self.layers:
            sample = functional.relu(layer(sample))
        return torch.sum(sample * sample)


class LayerNorm(nn.Module):
    """A layer norm whose bias may be absent."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalAttention(nn.Module):
    """Packed projections and scaled dot products, with dropout while the model trains."""

    def __init__(self, width: int, heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.packed = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.heads, self.width, self.dropout = heads, width, dropout
        self.residual_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attend to what came before."""
        batch, length, width = x.size()
        q, k, v = self.packed(x).split(self.width, dim=2)
        k = k.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q = q.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        v = v.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        p = self.dropout if self.training else 0
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.residual_dropout(self.out(y))


class GptBlock(nn.Module):
    """Attention and a feed-forward layer, each after a norm and around a residual."""

    def __init__(self, width: int, heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.first_norm = LayerNorm(width, bias)
        self.attention = CausalAttention(width, heads, dropout, bias)
        self.second_norm = LayerNorm(width, bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        x = x + self.attention(self.first_norm(x))
        return x + self.dropout(self.down(functional.gelu(self.up(self.second_norm(x)))))


class Gpt(nn.Module):
    """A decoder with learned positions and a tied head; `anchors` marks where a pipeline may cut it."""

    def __init__(self, *, dropout: float = 0.0, bias: bool = False, layers: int = 2, anchors: bool = False) -> None:
        super().__init__()
        width, heads, tokens, length = 32, 4, 64, 16
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout, bias) for _ in range(layers))
        self.norm = LayerNorm(width, bias)
        self.head = nn.Linear(width, tokens, bias=False)
        self.tokens.weight = self.head.weight
        self.anchors = anchors

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of the next tokens."""
        ids, targets = sample["ids"], sample["targets"]
        positions = torch.arange(0, ids.size(1), dtype=torch.long)
        x = self.dropout(self.tokens(ids) + self.positions(positions))
        for index, block in enumerate(self.blocks):
            if self.anchors:
                nnscaler.runtime.function.anchor(f"block {index}")
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class RmsNorm(nn.Module):
    """A root mean square norm that computes in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        kept = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kept)


class Rotary(nn.Module):
    """Angles of positions, which need no gradient and no lower precision."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("inverse", 1.0 / (10000 ** (torch.arange(0, width, 2).float() / width)), persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine for each position."""
        inverse = self.inverse[None, :, None].float().expand(positions.shape[0], -1, 1)
        with torch.autocast(device_type="cuda", enabled=False):
            angles = (inverse.float() @ positions[:, None, :].float()).transpose(1, 2)
            both = torch.cat((angles, angles), dim=-1)
            cosine, sine = both.cos(), both.sin()
        return cosine.to(dtype=x.dtype), sine.to(dtype=x.dtype)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return `x` turned by the angles."""
    half = x.shape[-1] // 2
    return (x * cosine) + (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine)


class LlamaAttention(nn.Module):
    """Grouped query attention with rotary positions."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.size, bias=False)
        self.v = nn.Linear(width, groups * self.size, bias=False)
        self.rotary = Rotary(self.size)
        self.dropout = 0.0

    def repeated(self, x: Tensor) -> Tensor:
        """Return the heads of each group once for each query."""
        batch, groups, length, size = x.shape
        times = self.heads // self.groups
        return x[:, :, None, :, :].expand(batch, groups, times, length, size).reshape(batch, groups * times, length, size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Attend to what came before."""
        batch, length, _ = x.size()
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        cosine, sine = self.rotary(v, positions)
        cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
        q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        p = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, self.repeated(k), self.repeated(v), dropout_p=p, is_causal=length > 1)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, -1))


class LlamaBlock(nn.Module):
    """Attention and a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = RmsNorm(width), RmsNorm(width)
        self.attention = LlamaAttention(width, heads, groups)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Run the block."""
        x = x + self.attention(self.first_norm(x), positions)
        h = self.second_norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """A decoder with rotary positions and grouped queries."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        width, heads, groups, self.vocabulary = 32, 4, 2, 64
        self.tokens = nn.Embedding(self.vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, self.vocabulary, bias=False)

    def forward(self, sample: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the summed cross entropy of the next tokens, and how many there are."""
        ids = sample["ids"]
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, positions)
        logits = self.head(self.norm(x)).float()
        labels = sample["targets"].view(-1)
        loss = functional.cross_entropy(logits.view(-1, self.vocabulary), labels, reduction="sum")
        return loss, labels.size(0)


class Encoder(nn.Module):
    """A block of a vision transformer, attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.0)

    def split(self, x: Tensor) -> Tensor:
        """Return the heads of `x`."""
        return x.view((*x.size()[:-1], self.heads, self.size)).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        h = self.first_norm(x)
        q, k, v = self.split(self.q(h)), self.split(self.k(h)), self.split(self.v(h))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size)
        mixed = torch.matmul(self.dropout(functional.softmax(scores, dim=-1)), v).permute(0, 2, 1, 3).contiguous()
        x = x + self.out(mixed.view((*mixed.size()[:-2], self.heads * self.size)))
        return x + self.down(functional.gelu(self.up(self.second_norm(x))))


class Vit(nn.Module):
    """A vision transformer: patches by a convolution, a class token, a classifier of that token."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        width, patches, self.classes = 32, 16, 8
        self.patches = nn.Conv2d(3, width, kernel_size=4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, width))
        self.blocks = nn.ModuleList(Encoder(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, self.classes)

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of the classes."""
        pixels = sample["pixels"]
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(pixels.shape[0], -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)[:, 0, :])
        return functional.cross_entropy(logits.view(-1, self.classes), sample["classes"].view(-1))


@nnscaler.register_op("B (nh^ ws^) (nw^ ws^) C -> (B nh^ nw^) ws^ ws^ C", name="windows")
def windows(x: Tensor, ws: int) -> Tensor:
    """Return the square windows of images."""
    batch, high, wide, width = x.shape
    x = x.view(batch, high // ws, ws, wide // ws, ws, width)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, ws, ws, width)


@nnscaler.register_op("(B nh^ nw^) ws^ ws^ C -> B (nh^ ws^) (nw^ ws^) C", name="images")
def images(x: Tensor, ws: int, nh: int, nw: int) -> Tensor:
    """Return the images of square windows."""
    batch = x.shape[0] // (nh * nw)
    x = x.view(batch, nh, nw, ws, ws, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(batch, nh * ws, nw * ws, -1)


@nnscaler.register_op("B N^ C^, (h+ dh^ 3) C^, (h+ dh^ 3), C^ (h+ dh^) -> B N^ C^", name="window_attention")
def window_attention(x: Tensor, packed: Tensor, packed_bias: Tensor, out: Tensor, h: int, scale: float) -> Tensor:
    """Attend inside windows."""
    batch, length, _ = x.shape
    dh = packed.size(0) // 3 // h
    qkv = functional.linear(x, packed, packed_bias).reshape(batch, length, h, dh, 3).permute(4, 0, 2, 1, 3)
    attention = functional.softmax((qkv[0] * scale) @ qkv[1].transpose(-2, -1), dim=-1)
    return functional.linear((attention @ qkv[2]).transpose(1, 2).reshape(batch, length, h * dh), out)


@nnscaler.register_op("B N^ E^, H+ E^, H+, E^ H+ -> B N^ E^", name="feed_forward")
def feed_forward(x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
    """Run two layers with an activation between them."""
    return functional.linear(functional.gelu(functional.linear(x, up, bias)), down)


@nnscaler.register_op("B (2 h^ 2 w^) C^ -> B (h^ w^) (4 C^)", name="merged")
def merged(x: Tensor, h: int, w: int) -> Tensor:
    """Return each square of four patches as one."""
    batch, _, width = x.shape
    x = x.view(batch, h, 2, w, 2, width).permute(0, 1, 3, 4, 2, 5)
    return x.contiguous().view(batch, h * w, 4 * width)


@nnscaler.register_op("B ic+ (ps^ w^) (ps^ h^), oc ic+ k^ k^, oc -> B oc w^ h^", name="patched")
def patched(x: Tensor, w: Tensor, b: Tensor, ps: int) -> Tensor:
    """Return the patches of images."""
    return torch.conv2d(x, w, b, stride=ps)


@nnscaler.register_op("* -> *", name="drop_path")
def drop_path(x: Tensor, p: float) -> Tensor:
    """Drop whole samples at random."""
    kept = 1 - p
    return x.div(kept) * torch.floor(kept + torch.rand((x.shape[0], *(1,) * (x.ndim - 1)), dtype=x.dtype))


class SwinBlock(nn.Module):
    """Attention inside windows, shifted or not."""

    def __init__(self, width: int, heads: int, side: int, window: int, shift: int, drop: float) -> None:
        super().__init__()
        self.heads, self.side, self.window, self.shift, self.drop = heads, side, window, shift, drop
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.packed_bias = nn.Parameter(torch.randn(3 * width, width)), nn.Parameter(torch.randn(3 * width))
        self.out, self.out_bias = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.randn(width))
        self.up, self.up_bias = nn.Parameter(torch.randn(2 * width, width)), nn.Parameter(torch.randn(2 * width))
        self.down = nn.Parameter(torch.randn(width, 2 * width))

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        batch, length, width = x.shape
        h = self.first_norm(x).view(batch, self.side, self.side, width)
        if self.shift:
            h = torch.roll(h, shifts=(-self.shift, -self.shift), dims=(1, 2))
        h = windows(h, self.window).view(-1, self.window * self.window, width)
        h = window_attention(h, self.packed, self.packed_bias, self.out, self.heads, (width // self.heads) ** -0.5)
        h = (h + self.out_bias).view(-1, self.window, self.window, width)
        h = images(h, self.window, self.side // self.window, self.side // self.window)
        if self.shift:
            h = torch.roll(h, shifts=(self.shift, self.shift), dims=(1, 2))
        h = h.view(batch, length, width)
        if self.drop:
            h = drop_path(h, self.drop)
        x = x + h
        return x + feed_forward(self.second_norm(x), self.up, self.up_bias, self.down)


class Swin(nn.Module):
    """A hierarchical vision transformer with windows, its operators registered with annotations."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        width, side = 16, 8
        self.patch, self.patch_bias = nn.Parameter(torch.randn(width, 3, 4, 4)), nn.Parameter(torch.randn(width))
        self.blocks = nn.ModuleList(SwinBlock(width, 4, side, 4, shift, drop) for shift in (0, 2))
        self.merge = nn.Linear(4 * width, 2 * width, bias=False)
        self.last = SwinBlock(2 * width, 4, side // 2, 4, 0, drop)
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 8)
        self.side = side

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of the classes."""
        x = patched(sample["pixels"], self.patch, self.patch_bias, 4).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        x = self.last(self.merge(merged(x, self.side // 2, self.side // 2)))
        logits = self.head(self.norm(x).mean(dim=1))
        return functional.cross_entropy(logits, sample["classes"])


class Moe(nn.Module):
    """Experts behind a router, every token weighed for every expert."""

    def __init__(self, experts: int = 4, active: int = 2) -> None:
        super().__init__()
        width, self.vocabulary, self.count, self.active = 16, 64, experts, active
        self.tokens, self.router = nn.Embedding(self.vocabulary, width), nn.Linear(width, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(experts))
        self.head = nn.Linear(width, self.vocabulary, bias=False)

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the summed cross entropy of the next tokens."""
        x = self.tokens(sample["ids"])
        scores = functional.softmax(self.router(x), dim=-1)
        best, chosen = torch.topk(scores, self.active, dim=-1)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best)
        mixed = torch.zeros_like(x)
        for index in range(self.count):
            made = self.down[index](functional.silu(self.up[index](x)))
            mixed = mixed + made * weights[:, :, index].unsqueeze(-1)
        logits = self.head(x + mixed)
        return functional.cross_entropy(logits.view(-1, self.vocabulary), sample["targets"].view(-1), reduction="sum")


class Softmax(nn.Module):
    """A softmax by torch's own name, not that of `torch.nn.functional`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.score = nn.Linear(width, width, bias=False)

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of squares of the shares."""
        return torch.sum(torch.softmax(self.score(sample), dim=-1) ** 2)


class Unbound(nn.Module):
    """A packed projection that is taken apart by `unbind`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.packed = nn.Linear(width, 2 * width, bias=False)

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of the products of both parts."""
        first, second = self.packed(sample).view(sample.size(0), 2, -1).unbind(1)
        return torch.sum(first * second)


class Hidden(nn.Module):
    """A model that returns what it computed on the way beside its loss."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up = nn.Linear(width, width, bias=False)
        self.down = nn.Linear(width, width, bias=False)

    def forward(self, sample: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of squares, and the hidden value."""
        hidden = functional.relu(self.up(sample))
        return torch.sum(self.down(hidden) ** 2), hidden


class Shaped(nn.Module):
    """A model that uses only the shape of a value where it adds up results."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of squares of what starts from zeros."""
        first = made = self.layers[0](sample)
        for layer in self.layers[1:]:
            made = layer(functional.relu(made))
        return torch.sum((torch.zeros_like(first) + made) ** 2)


class Recurrent(nn.Module):
    """A cell that is run for each position, from zeros of the shape of the first."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.given = nn.Linear(width, width, bias=False)

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of squares of the last state."""
        positions = self.given(sample).view(sample.size(0), 4, -1)
        state = torch.zeros_like(positions[:, 0])
        for position in range(4):
            state = torch.tanh(positions[:, position] + state)
        return torch.sum(state**2)


class Positions(nn.Module):
    """A loss of every position, with the classes as second dimension, as `cross_entropy` takes them."""

    def __init__(self, width: int = 16, vocabulary: int = 64) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of the tokens that follow."""
        return functional.cross_entropy(self.head(self.tokens(sample["ids"])).transpose(1, 2), sample["targets"])


class Transposed(nn.Module):
    """A head that is the embedding, transposed by the attribute `T`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the cross-entropy of all positions."""
        x = self.tokens(sample["ids"])
        x = x + self.down(functional.relu(self.up(x)))
        return functional.cross_entropy((x @ self.tokens.weight.T).view(-1, 64), sample["targets"].view(-1))


class Pooled(nn.Module):
    """Pooled pictures, attention over their places with a table of biases and keys of one head, and losses added up from 0."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.stem, self.heads = nn.Conv2d(3, width, 3, padding=1), heads
        self.queries, self.shared = nn.Linear(width, width), nn.Linear(width, 2 * width // heads)
        self.biases = nn.Parameter(torch.zeros(7, heads))
        self.register_buffer("apart", torch.arange(4)[:, None] - torch.arange(4)[None] + 3)
        self.classes, self.sides = nn.Linear(width, 8), nn.Linear(width, 8)

    def forward(self, sample: dict[str, Tensor]) -> Tensor:
        """Return the sum of two cross-entropies."""
        x = functional.max_pool2d(self.stem(sample["pixels"]), 3, 8, 1).flatten(2).transpose(1, 2)
        batch, length, width = x.shape
        q = self.queries(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        k, v = self.shared(x).view(batch, length, 2, width // self.heads).unbind(2)
        k = k.unsqueeze(1).expand(-1, self.heads, -1, -1)
        v = v.unsqueeze(1).expand(-1, self.heads, -1, -1)
        bias = self.biases[self.apart.view(-1)].view(length, length, -1).permute(2, 0, 1).unsqueeze(0)
        y = functional.softmax(torch.matmul(q, k.transpose(2, 3)) + bias, dim=-1)
        x = x + torch.matmul(y, v).transpose(1, 2).reshape(batch, length, width)
        loss = 0
        for head in (self.classes, self.sides):
            loss = loss + functional.cross_entropy(head(x.mean(1)), sample["classes"], reduction="sum")
        return loss


class Frozen(nn.Module):
    """A frozen layer beside layers that are trained to give what it gives."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.teacher = nn.Linear(width, width, bias=False).requires_grad_(False)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, sample: Tensor) -> Tensor:
        """Return the sum of squared differences."""
        asked = torch.tanh(self.teacher(sample))
        x = sample
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return torch.sum((x - asked) ** 2)


@dataclass(frozen=True)
class Model:
    """A model and what it is given."""

    make: Callable[[], nn.Module]
    sample: Callable[[int], Any]
    """One sample of so many rows."""


def _text(rows: int) -> dict[str, Tensor]:
    return {"ids": torch.randint(0, 64, (rows, 16)), "targets": torch.randint(0, 64, (rows, 16))}


def _pictures(side: int) -> Callable[[int], dict[str, Tensor]]:
    return lambda rows: {"pixels": torch.randn(rows, 3, side, side), "classes": torch.randint(0, 8, (rows,))}


def _rows(rows: int) -> Tensor:
    return torch.randn(rows, 16)


MODELS = {
    "mlp": Model(Mlp, _rows),
    "gpt": Model(Gpt, _text),
    "gpt_bias": Model(lambda: Gpt(bias=True), _text),
    "gpt_dropout": Model(lambda: Gpt(dropout=0.1), _text),
    "gpt_anchors": Model(lambda: Gpt(anchors=True), _text),
    "llama": Model(Llama, _text),
    "vit": Model(Vit, _pictures(16)),
    "swin": Model(Swin, _pictures(32)),
    "swin_drop": Model(lambda: Swin(drop=0.1), _pictures(32)),
    "moe": Model(Moe, _text),
    "softmax": Model(Softmax, _rows),
    "unbound": Model(Unbound, _rows),
    "hidden": Model(Hidden, _rows),
    "shaped": Model(Shaped, _rows),
    "recurrent": Model(Recurrent, _rows),
    "positions": Model(Positions, _text),
    "frozen": Model(Frozen, _rows),
    "transposed": Model(Transposed, _text),
    "pooled": Model(Pooled, _pictures(16)),
}
