"""The settings of DeepSpeed and of GPT-NeoX, which is built on it, that rules ask about."""

from __future__ import annotations

BATCH = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
NESTED = {
    "zero_optimization": frozenset({"stage"}),
    "fp16": frozenset({"enabled", "fp16_master_weights_and_grads"}),
    "bf16": frozenset({"enabled", "bf16_master_weights_and_grads", "bf16_optimizer_states"}),
}
"""Sections, and the settings of each; a setting is called `section_name`."""

DEEPSPEED = BATCH | {f"{section}_{name}" for section, names in NESTED.items() for name in names} | {"gradient_allreduce_op"}
"""Every setting of a DeepSpeed configuration, by its canonical name."""

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
"""Every setting of a GPT-NeoX configuration, by its canonical name."""

ZERO = frozenset(
    {
        *("stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "use_multi_rank_bucket_allreduce"),
        *("allgather_partitions", "allgather_bucket_size", "overlap_comm", "load_from_fp32_weights", "elastic_checkpoint"),
        *("offload_param", "offload_optimizer", "zenflow", "sub_group_size", "cpu_offload_param", "cpu_offload"),
        *("cpu_offload_use_pin_memory", "ignore_unused_parameters", "legacy_stage1", "round_robin_gradients"),
        *("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights"),
        *("zero_quantized_gradients", "zeropp_loco_param", "mics_shard_size", "mics_hierarchical_params_gather"),
        *("memory_efficient_linear", "pipeline_loading_checkpoint", "override_module_apply", "log_trace_cache_warnings"),
        *("enable_sanity_checks", "save_muon_momentum_buffer_in_memory", "leaf_module"),
        *("stage3_gather_fp16_weights_on_model_save", "cpu_offload_params"),
        *(
            f"{prefix}{name}"
            for prefix in ("", "stage3_")
            for name in (
                *("prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold"),
                *("max_live_parameters", "max_reuse_distance", "gather_16bit_weights_on_model_save"),
                *("module_granularity_threshold", "use_all_reduce_for_fetch_params", "allgather_sequential"),
                "partition_stream_chunk_size",
            )
        ),
    }
)
"""Every key of `zero_optimization`, which takes no others (deepspeed/runtime/zero/config.py, version 0.18), and one of old
versions."""
