"""Memory of ranks against the published tables, and sums written out by hand."""

from __future__ import annotations

import pytest

from tests.builders.topologies import LLAMA, known, shipped, topology
from tvlint.ir.configuration import Unknown

PAPER = {
    "num_layers": 1,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "seq_length": 512,
    "max_position_embeddings": 512,
    "micro_batch_size": 4,
    "padded_vocab_size": 1024,
    "pipeline_model_parallel_size": 1,
    "transformer_impl": "local",
}
"""A layer as Korthikanti et al. have it: 4h wide, dropout, one head width of h/a, scores kept."""
S, B, H, A, V = 512, 4, 1024, 16, 1024


def layer_bytes(**changed: object) -> int:
    """What one more layer adds to the activations."""
    one, two = (known(known(topology(**{**PAPER, **changed, "num_layers": layers}).memory)[0].activations) for layers in (1, 2))
    return two - one


@pytest.mark.parametrize("t", [2, 8])
def test_a_layer_keeps_what_table_2_of_the_paper_says(t: int) -> None:
    sbh, scores = S * B * H, 5 * A * S // H
    split = {"tensor_model_parallel_size": t}
    sequence = {**split, "sequence_parallel": True}
    assert layer_bytes(**split) == sbh * 10 + sbh * 24 // t + sbh * scores // t
    assert layer_bytes(**sequence) == (sbh * 34 + sbh * scores) // t
    assert layer_bytes(**split, recompute_granularity="selective") == sbh * 10 + sbh * 24 // t
    assert layer_bytes(**sequence, recompute_granularity="selective") == sbh * 34 // t
    assert layer_bytes(**split, recompute_granularity="full", recompute_num_layers=1) == sbh * 2
    assert layer_bytes(**sequence, recompute_granularity="full", recompute_num_layers=1) == sbh * 2 // t


def test_without_any_parallelism_a_layer_keeps_34_and_its_scores() -> None:
    assert layer_bytes() == S * B * H * 34 + 5 * A * S * S * B
    assert layer_bytes(recompute_activations=True) == S * B * H * 34
    assert layer_bytes(transformer_impl="transformer_engine") == S * B * H * 34
    assert layer_bytes(transformer_impl="transformer_engine", attention_backend="unfused") == layer_bytes()


def test_context_parallelism_divides_the_sequence() -> None:
    fused = {"transformer_impl": "transformer_engine"}
    assert layer_bytes(**fused, context_parallel_size=4) == S // 4 * B * H * 34


def test_the_ends_of_the_model_keep_what_the_paper_says() -> None:
    """Section 4.3: s b h for the dropout of the embedding, 4 s b h (1 + v/h) for the last norm, the output and its logits."""
    found = known(known(topology(**PAPER).memory)[0].activations)
    assert found - layer_bytes() == S * B * H + 4 * S * B * (H + V)


def test_full_recomputation_keeps_inputs_and_one_part_at_a_time() -> None:
    full = {**PAPER, "num_layers": 8, "recompute_granularity": "full"}
    ends = S * B * H + 4 * S * B * (H + V)
    one = S * B * H * 34 + 5 * A * S * S * B

    def kept(**changed: object) -> int:
        return int(known(known(topology(**{**full, **changed}).memory)[0].activations))

    assert kept(recompute_method="uniform", recompute_num_layers=1) == ends + 8 * 2 * S * B * H + one
    assert kept(recompute_method="uniform", recompute_num_layers=4) == ends + 2 * 2 * S * B * H + 4 * one
    assert kept(recompute_method="block", recompute_num_layers=3) == ends + 3 * 2 * S * B * H + 5 * one + one


def test_a_gated_layer_with_query_groups_by_hand() -> None:
    """Llama 3 8B: norms and inputs 8h, queries and output 4h, keys and values 4 x 1024, and 6 x 14336 inside."""
    one, two = (known(known(topology(**{**LLAMA, "num_layers": layers}).memory)[0].activations) for layers in (1, 2))
    assert two - one == 8192 * (8 * 4096 + 4 * 4096 + 4 * 1024 + 6 * 14336)


def test_a_layer_of_experts_keeps_a_network_for_each_choice() -> None:
    moe = {**LLAMA, "num_experts": 8, "moe_router_topk": 2}
    one, two = (known(known(topology(**{**moe, "num_layers": layers}).memory)[0].activations) for layers in (1, 2))
    assert two - one == 8192 * (8 * 4096 + 4 * 4096 + 4 * 1024 + 2 * (2 * 4096 + 6 * 14336))


def test_earlier_pipeline_stages_hold_more_micro_batches() -> None:
    run = {**LLAMA, "pipeline_model_parallel_size": 4, "global_batch_size": 16}
    held = [known(stage.activations) for stage in known(topology(**run).memory)]
    layer = 8192 * (8 * 4096 + 4 * 4096 + 4 * 1024 + 6 * 14336)
    assert held[:3] == [4 * 8 * layer, 3 * 8 * layer, 2 * 8 * layer]
    few = [known(stage.activations) for stage in known(topology(**{**run, "global_batch_size": 2}).memory)]
    assert few[:3] == [2 * 8 * layer, 2 * 8 * layer, 2 * 8 * layer]


@pytest.mark.parametrize(
    ("changed", "whole", "held", "split"),
    [
        ({"bf16": True}, 18, 6, 12),
        ({"fp16": True}, 20, 4, 16),
        ({}, 16, 8, 8),
        ({"bf16": True, "grad_reduce_in_bf16": True}, 20, 4, 16),
        ({"fp16": True, "accumulate_allreduce_grads_in_fp32": True}, 18, 6, 12),
        ({"bf16": True, "use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}, 14, 6, 8),
    ],
)
def test_bytes_a_parameter_are_those_of_the_documented_table(
    changed: dict[str, object], whole: int, held: int, split: int
) -> None:
    def stage(**more: object) -> tuple[int, int, int]:
        found = known(topology(**{**LLAMA, **changed, **more}).memory)[0]
        return known(found.parameters), known(found.weights) + known(found.gradients), known(found.optimizer)

    count, kept, state = stage(world_size=4)
    assert kept + state == whole * count
    count, kept, state = stage(world_size=4, use_distributed_optimizer=True)
    assert (kept, state) == (held * count, split * count // 4)
    _, _, both = stage(world_size=4, context_parallel_size=2, use_distributed_optimizer=True)
    assert both == state
    _, _, halves = stage(world_size=4, use_distributed_optimizer=True, num_distributed_optimizer_instances=2)
    assert halves == 2 * state


def test_experts_split_their_optimizer_state_over_their_own_data_parallel_ranks() -> None:
    found = shipped("launch-mixtral-8x7b")
    hidden = 4096
    experts, whole = 8 * 3 * hidden * 14336, 8 * (2 * hidden + hidden * 8)
    attention = 8 * (hidden * (32 + 16) * 128 + hidden * hidden) // 2
    assert known(known(found.memory)[1].optimizer) == round(12 * (attention + whole) / 8 + 12 * experts / 2)


def test_megatrons_own_estimate_by_hand() -> None:
    """Its two formulas on a model small enough to write out: hidden 1024, 4096 wide, vocabulary 1024, one rank."""
    run = {**PAPER, "num_layers": 2, "add_bias_linear": False, "bf16": True, "world_size": 1}
    found = known(topology(**run).megatron)
    layer = 4 * H * H + 2 * H * 4 * H + 4 * H
    assert found.weights_and_optimizer == 18 * (2 * layer + 2 * H + H * V)
    kept = 2 * S * B * H * 34 + 8 * S * B + S * B * H
    assert found.activations == round((kept + 2 * S * B * (V + H)) * 1.05)
    split = {**run, "tensor_model_parallel_size": 2, "sequence_parallel": True, "recompute_granularity": "selective"}
    found = known(topology(**{**split, "world_size": 2}).megatron)
    assert found.activations == (kept + 4 * S * B * (H + V)) // 2


@pytest.mark.parametrize(
    ("changed", "part", "reason"),
    [
        ({"use_megatron_fsdp": True}, "weights", "use_megatron_fsdp"),
        ({"optimizer": "muon"}, "optimizer", "`muon`"),
        ({"main_grads_dtype": "fp6", "bf16": True}, "gradients", "`fp6`"),
        ({"seq_length": None}, "activations", "`seq_length` is not given"),
        ({"recompute_granularity": "selective", "recompute_modules": ("mla_up_proj",)}, "activations", "`mla_up_proj`"),
        ({"multi_latent_attention": True}, "activations", "multi-latent attention"),
    ],
)
def test_memory_that_cannot_be_told_says_why(changed: dict[str, object], part: str, reason: str) -> None:
    stage = known(topology(**{**LLAMA, **changed}).memory)[0]
    value = getattr(stage, part)
    assert isinstance(value, Unknown)
    assert reason in value.reason
    assert isinstance(stage.total, Unknown)


@pytest.mark.parametrize(("part", "held"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0), (None, 0.0)])
def test_the_host_holds_the_state_of_the_part_that_it_updates(part: float | None, held: float) -> None:
    settings: dict[str, object] = {
        **LLAMA,
        "bf16": True,
        "use_distributed_optimizer": True,
        "use_precision_aware_optimizer": True,
    }
    (whole,) = known(topology(**settings).memory)
    offloaded = settings | {"optimizer_cpu_offload": True} | ({} if part is None else {"optimizer_offload_fraction": part})
    (found,) = known(topology(**offloaded).memory)
    assert known(found.optimizer) == pytest.approx(known(whole.optimizer) * held, abs=1)
    assert (found.weights, found.gradients) == (whole.weights, whole.gradients)
