"""No setting that a file can hold stops a topology, or a report of it."""

from __future__ import annotations

import json

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st
from test_topology_reports import SCHEMA, Page

from tests.builders.topologies import LLAMA, topology
from tvlint.ir.configuration import Unknown
from tvlint.reporters.html import topology as topology_html
from tvlint.reporters.json import topology as topology_json
from tvlint.reporters.text import topology as topology_text

NAMES = [
    *LLAMA, "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "world_size", "num_experts",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "global_batch_size", "rampup_batch_size", "moe_layer_freq",
    "step_batch_size_schedule", "num_virtual_stages_per_pipeline_rank", "microbatch_group_size_per_vp_stage", "mtp_num_layers",
    "pipeline_model_parallel_layout", "hybrid_layer_pattern", "decoder_first_pipeline_num_layers", "moe_router_topk",
    "decoder_last_pipeline_num_layers", "recompute_granularity", "recompute_num_layers", "recompute_modules", "bf16", "fp16",
    "use_distributed_optimizer", "num_distributed_optimizer_instances", "multi_latent_attention", "q_lora_rank", "vocab_size",
    "tensor_parallel_num_weight_shards", "sequence_parallel", "moe_shared_expert_intermediate_size", "transformer_impl",
    "use_tp_pp_dp_mapping", "tokenizer_type",
]  # fmt: skip
SMALL = st.sampled_from([1, 2, 3, 4, 8, 16])
NUMBERS = [0, -1, 10**5, 2**18, 10**12, 10**30, 1.5, float("nan"), float("inf"), True, False, None]
TEXTS = ["", "8", "Et|t|tL", "([0]*3+[1]*5)", "M-M*|M-", "full", "selective", "1:2 3", "$X", "\x1b[31m`"]
LISTS = [(), ("1", "2", "3"), (1, "x")]
VALUE = st.one_of(SMALL, SMALL, st.sampled_from([*NUMBERS, *TEXTS, *LISTS]), st.just(Unknown("depends on `$1`")))


@settings(max_examples=10)
@given(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=14), st.none() | st.integers(0, 10**9))
def test_any_settings_have_a_topology_and_reports(chosen: dict[str, object], rank: int | None) -> None:
    found = topology(**{**LLAMA, **chosen})
    text = topology_text.write([found], 100, False, rank).text
    assert "\x1b" not in text
    jsonschema.validate(json.loads(topology_json.write([found], rank).text), SCHEMA, jsonschema.Draft202012Validator)
    assert Page(topology_html.write([found], "1", rank).text).open == []
