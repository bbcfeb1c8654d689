"""Fields of Megatron core's configuration: their names, and the defaults of sizes and splits, which no framework changes."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.configuration import SettingValue

CANONICAL: Mapping[str, str] = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
"""Fields of the configuration classes that the command line calls otherwise, and how it does."""
DEFAULTS: Mapping[str, SettingValue] = {
    # megatron/core/model_parallel_config.py, ModelParallelConfig
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": None,
    "tensor_parallel_num_weight_shards": None,
    "expert_tensor_parallel_num_weight_shards": None,
    "num_layers_per_virtual_pipeline_stage": None,
    "num_virtual_stages_per_pipeline_rank": None,
    "microbatch_group_size_per_vp_stage": None,
    # megatron/core/transformer/transformer_config.py, TransformerConfig
    "num_experts": None,
    "pipeline_model_parallel_layout": None,
    "hybrid_layer_pattern": None,
    "hybrid_override_pattern": None,
    "encoder_num_layers": None,
    "experimental_attention_variant": None,
    "heterogeneous_layers_config_path": None,
    "decoder_num_layers": None,
    "decoder_first_pipeline_num_layers": None,
    "decoder_last_pipeline_num_layers": None,
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
    "mtp_num_layers": None,
    # megatron/core/num_microbatches_calculator.py
    "decrease_batch_size_if_needed": False,
    "step_batch_size_schedule": None,
    # megatron/core/parallel_state.py, the default order
    "use_tp_pp_dp_mapping": False,
    # sizes that no framework makes up
    "world_size": None,
    "num_layers": None,
    "hidden_size": None,
    "num_attention_heads": None,
    "seq_length": None,
    "micro_batch_size": None,
    "vocab_size": None,
    "padded_vocab_size": None,
}
"""Setting -> its default, by the names of Megatron-LM's options."""
OF_FRAMEWORK: Mapping[str, Mapping[str, SettingValue]] = {
    # verl/workers/config/engine.py:117, verl/utils/megatron/optimizer.py:52, verl/utils/megatron_utils.py:140
    "verl": {
        "bf16": True,
        "fp16": False,
        "optimizer": "adam",
        "use_distributed_optimizer": True,
        "accumulate_allreduce_grads_in_fp32": True,
        "grad_reduce_in_bf16": False,
        "num_distributed_optimizer_instances": 1,
        "use_precision_aware_optimizer": False,
        "optimizer_cpu_offload": False,
        "use_megatron_fsdp": False,
        "use_torch_fsdp2": False,
        "fp8_param_gather": False,
    },
}
"""Framework -> what it sets of its own where the file gives nothing else."""
NOTE = "sizes and splits that the file does not set have the defaults of Megatron core"
