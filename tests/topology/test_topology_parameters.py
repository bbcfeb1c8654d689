"""Numbers of parameters against what is published, and against sums written out by hand."""

from __future__ import annotations

import pytest

from tests.builders.topologies import LLAMA, known, shipped, topology
from tvlint.ir.configuration import Unknown

PUBLISHED = {
    "launch-llama3-8b": 8_030_261_248,
    "launch-llama3-70b": 70_553_706_496,
    "launch-llama3-405b": 405_853_388_800,
    "launch-mixtral-8x7b": 46_702_792_704,
}
"""The sizes that the published checkpoints of these models have."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_published_size(name: str) -> None:
    assert known(shipped(name).parameters).total == PUBLISHED[name]


def test_mixtral_uses_thirteen_billion_for_a_token() -> None:
    assert known(shipped("launch-mixtral-8x7b").parameters).active == 12_879_925_248


def test_gpt3_is_175_billion_with_biases_and_learned_positions() -> None:
    total = known(shipped("launch-gpt3-175b").parameters).total
    hidden, layers = 12288, 96
    layer = 12 * hidden * hidden + 13 * hidden
    assert total == layers * layer + (50257 + 2048) * hidden + 2 * hidden == 174_604_259_328


def test_deepseek_v3_is_671_billion_and_its_prediction_module_eleven_and_a_half() -> None:
    """The published count of the main model, and 11.5 billion of the module besides the embedding and output it shares."""
    parameters = known(shipped("launch-deepseek-v3").parameters)
    hidden = 7168
    attention = hidden * 1536 + 1536 + 1536 * 128 * 192 + hidden * 576 + 512 + 512 * 128 * 256 + 128 * 128 * hidden
    experts = 256 * 3 * hidden * 2048 + hidden * 256 + 3 * hidden * 2048
    module = attention + experts + 2 * hidden + 2 * hidden * hidden + 3 * hidden
    assert parameters.total - module == 671_026_404_352
    assert round(module / 1e9, 1) == 11.6
    assert round(parameters.active / 1e9, 1) == 37.6


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_what_ranks_hold_adds_up_to_the_model(tp: int, pp: int, tied: bool) -> None:
    """Split parameters once, replicated ones and the copy of a tied embedding as often as they are held."""
    found = topology(
        **{**LLAMA, "untie_embeddings_and_output_weights": not tied},
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
    )
    held = sum(known(stage.parameters) * tp for stage in known(found.memory))
    norms = (2 * 32 + 1) * 4096
    copies = 128256 * 4096 if tied and pp > 1 else 0
    assert held == known(found.parameters).total + (tp - 1) * norms + copies


def test_experts_are_split_over_their_own_ranks() -> None:
    found = shipped("launch-mixtral-8x7b")
    hidden, ffn = 4096, 14336
    experts = 8 * 8 * 3 * hidden * ffn // 8
    attention = 8 * (hidden * (32 + 16) * 128 + hidden * hidden) // 2
    whole = 8 * (2 * hidden + hidden * 8)
    assert known(known(found.memory)[1].parameters) == experts + attention + whole


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"add_qkv_bias": True}, 32 * (32 + 16) * 128),
        ({"qk_layernorm": True}, 32 * 2 * 128),
        ({"attention_output_gate": True}, 32 * 4096 * 4096),
        ({"normalization": "LayerNorm"}, (2 * 32 + 1) * 4096),
        ({"swiglu": False}, -32 * 4096 * 14336),
        ({"mtp_num_layers": 2}, 2 * (218_112_000 + 2 * 4096 * 4096 + 3 * 4096)),
        ({"mtp_num_layers": 2, "mtp_use_repeated_layer": True}, 218_112_000 + 2 * 4096 * 4096 + 3 * 4096),
        ({"position_embedding_type": "learned_absolute"}, 8192 * 4096),
        ({"position_embedding_type": "learned_absolute", "use_rotary_position_embeddings": True}, 0),
        ({"kv_channels": 64}, -32 * (4096 * (32 + 16) * 64 + 4096 * 32 * 64)),
    ],
)
def test_a_setting_adds_what_it_should(changed: dict[str, object], more: int) -> None:
    assert known(topology(**{**LLAMA, **changed}).parameters).total == 8_030_261_248 + more


def test_shared_and_latent_experts_count() -> None:
    moe = {**LLAMA, "num_experts": 4, "moe_ffn_hidden_size": 512, "moe_layer_freq": "([0]*31+[1])"}
    base = known(topology(**moe).parameters).total
    dense, experts, router = 3 * 4096 * 14336, 4 * 3 * 4096 * 512, 4 * 4096
    assert base == 8_030_261_248 - dense + experts + router
    shared = {"moe_shared_expert_intermediate_size": 256, "moe_shared_expert_gate": True}
    assert known(topology(**moe, **shared).parameters).total == base + 3 * 4096 * 256 + 4096
    latent = known(topology(**moe, moe_latent_size=1024).parameters).total
    assert latent == base - experts + 4 * 3 * 1024 * 512 + 2 * 4096 * 1024


def test_the_vocabulary_is_padded_and_without_one_the_rest_is_told() -> None:
    given = {**LLAMA, "padded_vocab_size": None, "vocab_size": 50257, "tensor_model_parallel_size": 8}
    found = topology(**given)
    assert (known(found.vocabulary).padded, known(found.vocabulary).multiple) == (51200, 1024)
    found = topology(**{**LLAMA, "padded_vocab_size": None})
    parameters = known(found.parameters)
    assert isinstance(parameters.total, Unknown)
    assert "tokenizer" in parameters.total.reason
    assert parameters.without_vocabulary == 8_030_261_248 - 2 * 128256 * 4096


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"hybrid_layer_pattern": "M-M*"}, "hybrid models"),
        ({"num_layers": None}, "`num_layers` is not given"),
        ({"num_experts": 4, "moe_layer_freq": "([0]*3+[1]*3)"}, "6 layers, the model 32"),
        ({"num_attention_heads": Unknown("depends on `$1`")}, "depends on `$1`"),
    ],
)
def test_parameters_that_cannot_be_told_say_why(changed: dict[str, object], reason: str) -> None:
    found = topology(**{**LLAMA, **changed}).parameters
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_heads_that_do_not_divide_leave_the_rank_unknown_and_the_model_known() -> None:
    found = topology(**LLAMA, tensor_model_parallel_size=3)
    assert known(found.parameters).total == 8_030_261_248
    held = known(found.memory)[0].parameters
    assert isinstance(held, Unknown)
    assert "attention heads: 32 is not a multiple of 3" in held.reason


SMALL = {
    "num_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "seq_length": 64,
    "max_position_embeddings": 64,
    "micro_batch_size": 1,
    "vocab_size": 1000,
    "position_embedding_type": "rope",
    "add_bias_linear": False,
    "num_experts": 8,
    "moe_ffn_hidden_size": 128,
    "moe_layer_freq": "([0]*2+[1]*6)",
    "bf16": True,
}
SPLIT = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "expert_model_parallel_size": 2}
INTERLEAVED = {
    "tensor_model_parallel_size": 4,
    "pipeline_model_parallel_size": 2,
    "num_layers_per_virtual_pipeline_stage": 2,
}
MODERN = {"swiglu": True, "normalization": "RMSNorm"}


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        (
            {**SPLIT, **MODERN, "world_size": 32, "moe_shared_expert_intermediate_size": 256},
            [885760, 857088, 857088, 988416],
        ),
        (
            {**INTERLEAVED, "world_size": 16, "group_query_attention": True, "num_query_groups": 4},
            [794624, 799232],
        ),
        (
            {
                **MODERN,
                "world_size": 8,
                "pipeline_model_parallel_size": 2,
                "expert_model_parallel_size": 2,
                "qk_layernorm": True,
                "untie_embeddings_and_output_weights": True,
            },
            [3086592, 2894336],
        ),
    ],
)
def test_a_rank_holds_as_many_parameters_as_the_modules_that_megatron_builds_on_it(
    settings: dict[str, object], counts: list[int]
) -> None:
    """Counted in models that Megatron-LM 0.20 (in development) built for the ranks of each pipeline stage."""
    found = topology(**{**SMALL, **settings})
    assert [known(stage.parameters) for stage in known(found.memory)] == counts


LATENT = {
    **{name: value for name, value in SMALL.items() if "expert" not in name and not name.startswith("moe")},
    "multi_latent_attention": True,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_head_dim": 32,
    "qk_pos_emb_head_dim": 16,
    "v_head_dim": 32,
    "tensor_model_parallel_size": 2,
}


def test_projections_down_are_split_over_ranks_only_without_transformer_engine() -> None:
    whole, split = (
        known(known(topology(**LATENT, transformer_impl=chosen).memory)[0].parameters)
        for chosen in ("transformer_engine", "local")
    )
    assert whole - split == 8 * 256 * (96 + 64 + 16) // 2
