"""The settings of DeepSpeed and of GPT-NeoX, which is built on it, that rules ask about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

BATCH = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
NESTED = {
    "zero_optimization": frozenset({"stage"}),
    "fp16": frozenset({"enabled", "fp16_master_weights_and_grads"}),
    "bf16": frozenset({"enabled", "bf16_master_weights_and_grads", "bf16_optimizer_states"}),
}
"""Sections, and the settings of each; a setting is called `section_name`."""

DEEPSPEED = BATCH | {f"{section}_{name}" for section, names in NESTED.items() for name in names} | {"gradient_allreduce_op"}
"""The settings of a DeepSpeed configuration that rules read, by canonical name."""

NEOX = (
    BATCH
    | {f"{section}_{name}" for section, names in NESTED.items() for name in names}
    | {
        "pipe_parallel_size",
        "model_parallel_size",
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "num_kv_heads",
        "seq_length",
        "max_position_embeddings",
        "precision",
        "moe_num_experts",
        "fp16_lm_cross_entropy",
        "num_unique_layers",
    }
)
"""The settings of a GPT-NeoX configuration that rules read, by canonical name."""

_OF_STAGE_3 = {
    "int": (
        *("prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold", "max_live_parameters"),
        *("max_reuse_distance", "module_granularity_threshold"),
    ),
    "bool": ("gather_16bit_weights_on_model_save", "use_all_reduce_for_fetch_params"),
    "other": ("allgather_sequential", "partition_stream_chunk_size"),
}
_OF_EVERY_STAGE = {
    "int": (
        *("stage", "reduce_bucket_size", "allgather_bucket_size", "sub_group_size", "zero_hpz_partition_size"),
        "mics_shard_size",
    ),
    "bool": (
        *("contiguous_gradients", "reduce_scatter", "use_multi_rank_bucket_allreduce", "allgather_partitions"),
        *("overlap_comm", "load_from_fp32_weights", "elastic_checkpoint", "cpu_offload_param", "cpu_offload"),
        *("cpu_offload_use_pin_memory", "ignore_unused_parameters", "legacy_stage1", "round_robin_gradients"),
        *("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"),
        *("mics_hierarchical_params_gather", "memory_efficient_linear", "pipeline_loading_checkpoint"),
        *("override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks"),
        *("save_muon_momentum_buffer_in_memory", "stage3_gather_fp16_weights_on_model_save", "cpu_offload_params"),
    ),
    "other": ("offload_param", "offload_optimizer", "zenflow", "zeropp_loco_param", "leaf_module"),
}
ZERO = {name: kind for kind, names in _OF_EVERY_STAGE.items() for name in names} | {
    f"{prefix}{name}": kind for kind, names in _OF_STAGE_3.items() for name in names for prefix in ("", "stage3_")
}
"""Every key of `zero_optimization`, which takes no others (deepspeed/runtime/zero/config.py, version 0.18), and one of old
versions, with the type of its value."""
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "zero_optimization": ZERO,
    "fp16": {
        **dict.fromkeys(("enabled", "auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"), "bool"),
        **dict.fromkeys(("initial_scale_power", "loss_scale_window", "hysteresis"), "int"),
        **dict.fromkeys(("loss_scale", "min_loss_scale"), "float"),
        **dict.fromkeys(("opt_level", "fp16", "type"), "other"),
    },
    "bf16": dict.fromkeys(
        ("enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads", "bf16_optimizer_states"),
        "bool",
    ),
}
"""The keys of sections, each with the type of its value (deepspeed/runtime/precision_config.py)."""
OFFLOADS = frozenset({"offload_param", "offload_optimizer"})
OFFLOAD = {
    **dict.fromkeys(("buffer_count", "buffer_size", "max_in_cpu"), "int"),
    **dict.fromkeys(("pin_memory", "pipeline_read", "pipeline_write", "pipeline", "fast_init", "super_offload"), "bool"),
    **dict.fromkeys(("ratio", "cpuadam_cores_perc"), "float"),
    **dict.fromkeys(("device", "nvme_path"), "other"),
}
"""The keys of those sections of `zero_optimization` (deepspeed/runtime/zero/offload_config.py)."""
DEVICES = {"device": "none cpu nvme"}

NEOX_SHARES = frozenset({"attention_dropout", "hidden_dropout", "rotary_pct", "warmup"})
"""Settings of GPT-NeoX that go from 0 to 1."""
NEOX_COUNTS = frozenset({"train_iters", "eval_iters", "eval_interval", "lr_decay_iters"})
"""Settings of GPT-NeoX that are never negative."""
TYPES: Mapping[str, str] = {
    "optimizer": "Adam AdamW Lamb Lion Muon OneBitAdam ZeroOneAdam OneBitLamb cpu_adam cpu_torch_adam sm3 madgrad_wd SGD",
    "scheduler": "LRRangeTest OneCycle WarmupLR WarmupDecayLR WarmupCosineLR",
}
"""What `type` is in these sections by DeepSpeed's (deepspeed/runtime/engine.py, lr_schedules.py) and GPT-NeoX's own code; any
other optimizer is one of torch."""

PARAMS = frozenset(
    {
        *(
            "lr",
            "betas",
            "eps",
            "weight_decay",
            "torch_adam",
            "adam_w_mode",
            "bias_correction",
            "amsgrad",
            "max_coeff",
            "min_coeff",
        ),
        *("freeze_step", "cuda_aware", "comm_backend_name", "momentum", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps"),
        *("warmup_type", "total_num_steps", "last_batch_iteration", "warmup_min_ratio", "cos_min_ratio", "warmup_ratio"),
    }
)
"""What optimizers and schedules take (deepspeed/runtime/config.py, lr_schedules.py)."""


@cache
def neox_kinds() -> Mapping[str, str]:
    """Return every setting of GPT-NeoX, with the type of its value."""
    kinds: dict[str, list[str]] = _neox()["kinds"]
    return {name: kind for kind, lines in kinds.items() for line in lines for name in line.split()}


@cache
def neox_choices() -> Mapping[str, str]:
    """Return what settings of GPT-NeoX take that take one of a few words."""
    found: dict[str, str] = _neox()["choices"]
    return found


def _neox() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("neox.json").read_bytes())
    return found
