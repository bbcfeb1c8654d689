"""The memory that Megatron itself tells at the start of a run, so that its log can be compared.

The formulas are those of megatron/training/theoretical_memory_usage.py, for the most loaded rank: they know no biases, no
learned positions, no uneven stages, no context parallelism and no fused attention, and count 18 bytes or 6 + 12/d a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.ir.configuration import Unknown
from tvlint.topology.model import model
from tvlint.topology.quantity import Settings, need
from tvlint.topology.topology import MegatronEstimate
from tvlint.topology.transformer import Experts, Model


@dataclass(frozen=True, slots=True)
class _Held:
    """Parameters by how a rank holds them: split over tensor parallel ranks, whole, split over experts."""

    split: float
    whole: float
    experts: float


def theoretical(settings: Settings, micro_batches: int | Unknown) -> MegatronEstimate:
    """Return both footprints; raises `Undecided` where Megatron would not tell them or a setting is not known."""
    sizes = model(settings)
    if sizes.vocabulary is None:
        raise ValueError("`vocab_size` is not given: the tokenizer decides")
    with_sequence = settings.flag("sequence_parallel") and settings.text("effective_recompute_granularity") == "selective"
    steps = need(micro_batches)
    weights = _weights(settings, sizes, sizes.vocabulary)
    activations = _activations(settings, sizes, sizes.vocabulary, steps, with_sequence)
    return MegatronEstimate(round(weights), round(activations))


def _weights(settings: Settings, sizes: Model, vocabulary: int) -> float:
    tp, pp = settings.count("tensor_model_parallel_size", 1), settings.count("pipeline_model_parallel_size", 1)
    expert_ranks = settings.count("effective_expert_tensor_parallel_size", 1) * settings.count("expert_model_parallel_size", 1)
    with_experts = sum(sizes.experts.layers) if sizes.experts is not None else 0
    block = _layers(sizes, sizes.layers - with_experts, with_experts)
    last_has_experts = sizes.experts is not None and sizes.experts.layers[-1]
    extra = settings.optional("mtp_num_layers") or 0
    ahead = _layers(sizes, 0 if last_has_experts else extra, extra if last_has_experts else 0)
    embedding = sizes.hidden * vocabulary
    norm = sizes.hidden * (2 if sizes.norm_bias else 1)
    split = (block.split / pp + ahead.split + embedding * (2 if not sizes.tied and pp == 1 else 1)) / tp
    whole = (block.whole + norm) / pp + ahead.whole
    experts = (block.experts / pp + ahead.experts) / expert_ranks
    return (split + whole) * _bytes(settings, "data_parallel_size") + experts * _bytes(settings, "expert_data_parallel_size")


def _bytes(settings: Settings, ranks: str) -> float:
    return 6 + 12 / settings.count(ranks, 1) if settings.flag("use_distributed_optimizer") else 18


def _layers(sizes: Model, dense: int, with_experts: int) -> _Held:
    hidden, up = sizes.hidden, 3 if sizes.gated else 2
    norms = 2 * hidden * (2 if sizes.norm_bias else 1)
    attention = _attention(sizes)
    split = (attention + up * hidden * sizes.ffn) * dense
    whole = float(norms * dense)
    if sizes.experts is None:
        return _Held(split, whole, 0)
    experts: Experts = sizes.experts
    split += (attention + up * hidden * experts.shared_ffn) * with_experts
    router = hidden * experts.count + (experts.count if sizes.bias else 0) + 2 * hidden * experts.latent
    whole += (norms + router + (hidden if experts.shared_gate else 0)) * with_experts
    return _Held(split, whole, up * (experts.latent or hidden) * experts.ffn * experts.count * with_experts)


def _attention(sizes: Model) -> float:
    if sizes.latent is None:
        return 2 * sizes.hidden * sizes.head * (sizes.heads + sizes.query_groups)
    latent, hidden, norm = sizes.latent, sizes.hidden, 2 if sizes.norm_bias else 1
    queries = sizes.heads * (latent.head + latent.positional)
    count = hidden * queries if latent.query_rank is None else latent.query_rank * (hidden + queries + norm)
    count += latent.key_value_rank * (hidden + sizes.heads * (latent.head + latent.value) + norm)
    return count + hidden * latent.positional + sizes.heads * latent.value * hidden


def _activations(settings: Settings, sizes: Model, vocabulary: int, steps: int, with_sequence: bool) -> float:
    tp, pp = settings.count("tensor_model_parallel_size", 1), settings.count("pipeline_model_parallel_size", 1)
    tokens = settings.count("seq_length", 1) * settings.count("micro_batch_size", 1)
    layer = tokens * (18 * sizes.hidden + 4 * sizes.ffn) if with_sequence else tokens * sizes.hidden * (10 + 24 / tp)
    kept: float = layer * sizes.layers + (8 * tokens + tokens * sizes.hidden) * pp
    virtual = settings.count("virtual_stages", 1)
    if virtual > 1:
        kept *= 1 + (pp - 1) / (pp * virtual)
    elif pp > 1:
        kept *= min(1, steps / pp)
    if with_sequence:
        return (kept + (tokens * 4 * (sizes.hidden + vocabulary) if pp == 1 else 0)) / tp
    return (kept + (tokens * 2 * (vocabulary / tp + sizes.hidden) if pp == 1 else 0)) * 1.05
