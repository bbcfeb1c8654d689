"""Count the parameters of the modules of a GPT model, in all and on one rank.

Counted as megatron/core builds them: transformer/attention.py, multi_latent_attention.py, mlp.py, moe/,
multi_token_prediction.py, models/gpt/gpt_model.py. What is split over tensor parallel ranks, what over experts, and what each
rank holds whole follows from the kind of linear layer there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.topology.quantity import divide


@dataclass(frozen=True, slots=True)
class Latent:
    """The sizes of multi-latent attention."""

    query_rank: int | None
    key_value_rank: int
    head: int
    positional: int
    value: int
    splits_down: bool = False
    """Whether the projections down are split over tensor parallel ranks, as without Transformer Engine; else each has all."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The sizes of mixture-of-experts layers, and which layers are such."""

    count: int
    ffn: int
    chosen: int
    layers: tuple[bool, ...]
    shared_ffn: int = 0
    shared_gate: bool = False
    latent: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """The sizes of a GPT model."""

    layers: int
    hidden: int
    heads: int
    query_groups: int
    head: int
    ffn: int
    gated: bool
    vocabulary: int | None
    """Padded; None where it is not known."""
    tied: bool
    bias: bool
    query_bias: bool = False
    norm_bias: bool = True
    query_norm: bool = False
    output_gate: bool = False
    positions: int = 0
    """Learned positions; 0 where there are none."""
    extra_layers: int = 0
    """Multi-token-prediction layers with weights of their own."""
    latent: Latent | None = None
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Over how many ranks parameters are split."""

    tp: int = 1
    ep: int = 1
    expert_tp: int = 1


@dataclass(frozen=True, slots=True)
class Count:
    """Numbers of parameters: of all layers but the experts, and of the experts."""

    dense: int = 0
    experts: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.dense + other.dense, self.experts + other.experts)

    def __mul__(self, times: int) -> Count:
        return Count(self.dense * times, self.experts * times)

    @property
    def total(self) -> int:
        return self.dense + self.experts


WHOLE = Split()


def norm(model: Model) -> int:
    """One normalisation over the hidden size; LayerNorm has a bias, RMSNorm none."""
    return model.hidden * (2 if model.norm_bias else 1)


def attention(model: Model, tp: int) -> int:
    """Return the attention of one layer on one of `tp` ranks."""
    if model.latent is not None:
        return _latent_attention(model, model.latent, tp)
    queries = model.heads * model.head
    out = queries * (2 if model.output_gate else 1) + 2 * model.query_groups * model.head
    divide(model.heads, tp, "the number of attention heads:")
    projected = divide(out, tp, "the width of queries, keys and values:")
    count = model.hidden * projected + (projected if model.bias or model.query_bias else 0)
    count += divide(queries, tp) * model.hidden + (model.hidden if model.bias else 0)
    return count + (2 * model.head * (2 if model.norm_bias else 1) if model.query_norm else 0)


def _latent_attention(model: Model, latent: Latent, tp: int) -> int:
    heads = divide(model.heads, tp, "the number of attention heads:")
    norms = (2 if model.norm_bias else 1) if model.query_norm else 0
    width = latent.head + latent.positional
    down = tp if latent.splits_down else 1
    if latent.query_rank is None:
        count = model.hidden * heads * width
    else:
        count = model.hidden * divide(latent.query_rank, down) + norms * latent.query_rank + latent.query_rank * heads * width
    count += model.hidden * divide(latent.key_value_rank + latent.positional, down) + norms * latent.key_value_rank
    count += latent.key_value_rank * heads * (latent.head + latent.value)
    return count + heads * latent.value * model.hidden + (model.hidden if model.bias else 0)


def mlp(model: Model, hidden: int, ffn: int, tp: int, bias: bool) -> int:
    """Return a feed-forward network on one of `tp` ranks: gated ones have two projections up."""
    part = divide(ffn, tp, "the feed-forward size:")
    up = 2 if model.gated else 1
    return hidden * part * (up + 1) + (up * part + hidden if bias else 0)


def layer(model: Model, number: int, split: Split) -> Count:
    """Layer `number`, from 0, on one rank; its two normalisations are held whole."""
    dense = attention(model, split.tp) + 2 * norm(model)
    experts = model.experts
    if experts is None or not experts.layers[number]:
        return Count(dense + mlp(model, model.hidden, model.ffn, split.tp, model.bias))
    hidden = experts.latent or model.hidden
    dense += model.hidden * experts.count + (experts.count if model.bias else 0)
    dense += 2 * model.hidden * experts.latent
    if experts.shared_ffn:
        dense += mlp(model, model.hidden, experts.shared_ffn, split.tp, False)
        dense += model.hidden if experts.shared_gate else 0
    local = divide(experts.count, split.ep, "the number of experts:")
    return Count(dense, local * mlp(model, hidden, experts.ffn, split.expert_tp, model.bias))


def extra_layer(model: Model, split: Split) -> Count:
    """One multi-token-prediction layer: a layer like the last, a projection of two hidden states, and three normalisations."""
    projection = divide(2 * model.hidden * model.hidden, split.tp, "the size of a projection:")
    return layer(model, model.layers - 1, split) + Count(projection + 3 * norm(model))


def embedding(model: Model, tp: int) -> int:
    """Return the word embedding on one of `tp` ranks, which is also the size of the output layer."""
    if model.vocabulary is None:
        raise ValueError("the padded vocabulary is not known")
    return divide(model.vocabulary, tp, "the padded vocabulary:") * model.hidden


def without_vocabulary(model: Model) -> Count:
    """Return all parameters of the model but its word embedding and output layer, each counted once."""
    count = Count(model.positions * model.hidden + norm(model))
    for number, times in alike(model, range(model.layers)):
        count += layer(model, number, WHOLE) * times
    return count + extra_layer(model, WHOLE) * model.extra_layers if model.extra_layers else count


def vocabulary(model: Model) -> int:
    """Return the parameters of the word embedding and the output layer, which may be one."""
    return embedding(model, 1) * (1 if model.tied else 2)


def idle(model: Model) -> int:
    """Return the parameters that one token does not pass: experts that are not chosen, and the prediction of more tokens."""
    found = 0
    if model.experts is not None:
        experts = sum(layer(model, number, WHOLE).experts * times for number, times in alike(model, range(model.layers)))
        found += experts // model.experts.count * (model.experts.count - min(model.experts.chosen, model.experts.count))
    return found + (extra_layer(model, WHOLE) * model.extra_layers).total if model.extra_layers else found


def alike(model: Model, layers: range) -> list[tuple[int, int]]:
    """Return a layer of each kind among `layers` and how many are alike."""
    if model.experts is None:
        return [(layers[0], len(layers))] if layers else []
    kinds: dict[bool, list[int]] = {}
    for number in layers:
        kinds.setdefault(model.experts.layers[number], []).append(number)
    return [(members[0], len(members)) for members in kinds.values()]
