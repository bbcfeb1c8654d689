"""Bytes of activations that a rank keeps for the backward.

The terms are those of Korthikanti et al. 2022 (arxiv.org/abs/2205.05198, sections 4 and 5), each with the width that the model
gives it: s b h (34 + 5 a s / h) bytes a layer become, for t tensor parallel ranks, s b h (10 + 24/t + 5 a s / (h t)); sequence
parallelism divides the 10 as well; selective recomputation and fused attention keep no scores. Gated feed-forward networks keep
both halves, query groups narrow keys and values, dropout masks count where there is dropout. Beyond the paper: context
parallelism divides the sequence, and an expert layer keeps the network once for each expert that a token is sent to, experts
being chosen evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tvlint.topology.stages import Chunk
from tvlint.topology.transformer import Experts, Model

SOURCE = "Korthikanti et al. 2022, arxiv.org/abs/2205.05198, sections 4 and 5, with this model's widths"
_COVERED = frozenset({"core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts"})


@dataclass(frozen=True, slots=True)
class Running:
    """The settings that decide which activations a step keeps: batch sizes, splits, recomputation.

    `recomputed` names Megatron's modules of selective recomputation. `full` is how many layers share one kept input with full
    recomputation, 0 without it; `block` how many layers of each stage are recomputed so, None for all of them.
    """

    sequence: int
    micro_batch: int
    tp: int
    cp: int
    sequence_parallel: bool
    keeps_scores: bool
    hidden_dropout: bool
    recomputed: frozenset[str] = frozenset()
    full: int = 0
    block: int | None = None
    distributes_inputs: bool = False


def check(running: Running, model: Model) -> None:
    """Raise `ValueError` where the terms do not cover the model or what it recomputes."""
    if model.latent is not None:
        raise ValueError("no published formula covers the activations of multi-latent attention")
    beyond = sorted(running.recomputed - _COVERED)
    if beyond:
        raise ValueError(f"the formula does not cover recomputing `{beyond[0]}`")


def per_layer(running: Running, model: Model, experts: Experts | None) -> Fraction:
    """Bytes that one layer keeps of one micro-batch; `experts` are those of the layer, if it has any."""
    check(running, model)
    whole = Fraction(1, running.tp) if running.sequence_parallel else Fraction(1)
    split = Fraction(1, running.tp)
    norm_output = 0 if "layernorm" in running.recomputed else 2 * model.hidden
    mask = model.hidden if running.hidden_dropout else 0
    queries, keys = model.heads * model.head, model.query_groups * model.head
    attention = whole * (2 * model.hidden + norm_output + mask) + split * 2 * (2 * queries + 2 * keys)
    if running.keeps_scores and "core_attn" not in running.recomputed:
        attention += split * 5 * model.heads * running.sequence
    if experts is None:
        inside = Fraction(0) if "mlp" in running.recomputed else split * _network(model, model.ffn)
        return _tokens(running) * (attention + whole * (2 * model.hidden + norm_output + mask) + inside)
    inside = Fraction(0)
    if "moe" not in running.recomputed:
        routed = _network(model, experts.ffn) - (2 * experts.ffn if "moe_act" in running.recomputed else 0)
        inside += split * experts.chosen * (2 * (experts.latent or model.hidden) + routed)
        if experts.shared_ffn and "shared_experts" not in running.recomputed:
            inside += split * _network(model, experts.shared_ffn)
    return _tokens(running) * (attention + whole * (2 * model.hidden + norm_output + mask) + inside)


def _network(model: Model, ffn: int) -> int:
    """Return what a token keeps inside a feed-forward network: what goes into the activation and what comes out of it."""
    return 2 * ffn * (3 if model.gated else 2)


def _tokens(running: Running) -> Fraction:
    return Fraction(running.sequence * running.micro_batch, running.cp)


def of_stage(running: Running, model: Model, held: Sequence[Chunk], in_flight: Sequence[int]) -> int:
    """Bytes on a rank of a pipeline stage at its first peak, its ends included."""
    check(running, model)
    bytes = Fraction(0)
    working = Fraction(0)
    whole = Fraction(1, running.tp) if running.sequence_parallel else Fraction(1)
    for chunk, times in zip(held, in_flight, strict=True):
        kept, once = _chunk(running, model, chunk)
        bytes += kept * times
        working = max(working, once)
        if chunk.embedding and running.hidden_dropout:
            bytes += _tokens(running) * whole * model.hidden * times
        if chunk.loss:
            if model.vocabulary is None:
                raise ValueError("the padded vocabulary is not known")
            bytes += _tokens(running) * (whole * 4 * model.hidden + Fraction(4 * model.vocabulary, running.tp))
    return int(bytes + working)


def _chunk(running: Running, model: Model, chunk: Chunk) -> tuple[Fraction, Fraction]:
    """Return what a virtual stage keeps of one micro-batch, and what recomputing one part of it takes for a while."""
    layers = [_experts(model, number) for number in range(chunk.first, chunk.first + chunk.layers)]
    layers += [_experts(model, model.layers - 1)] * chunk.extra
    sizes = {experts is not None: per_layer(running, model, experts) for experts in layers}
    if not running.full:
        return sum((sizes[experts is not None] for experts in layers), Fraction(0)), Fraction(0)
    split = running.tp if running.sequence_parallel or running.distributes_inputs else 1
    one_input = _tokens(running) * Fraction(2 * model.hidden, split)
    again = len(layers) if running.block is None else min(running.block, len(layers))
    kept = sum((sizes[experts is not None] for experts in layers[again:]), Fraction(0))
    inputs = one_input * -(-again // running.full)
    return kept + inputs, max(sizes.values(), default=Fraction(0)) * min(running.full, again)


def _experts(model: Model, number: int) -> Experts | None:
    return model.experts if model.experts is not None and model.experts.layers[number] else None
