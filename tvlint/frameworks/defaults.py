"""Defaults of frameworks other than Megatron-LM and nnScaler, as far as they are the same in every version."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.configuration import SettingValue

_PARSER: Mapping[str, SettingValue] = {
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "tensor_parallel_num_weight_shards": None,
}
"""What Megatron-LM's own parser (megatron/training/arguments.py) has had as default of these in every version."""

KEPT: Mapping[str, Mapping[str, SettingValue]] = {
    # swift/megatron/arguments/megatron_args.py, the same from 3.3 to 4.5; the model follows from its checkpoint
    "ms-swift": {
        **_PARSER,
        "expert_model_parallel_size": 1,
        "sequence_parallel": False,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        # no option of its, and megatron_args.py:951 refuses a batch that does not divide
        "decrease_batch_size_if_needed": False,
    },
    # primus/backends/megatron/argument_builder.py: what no preset sets is what the parser of Megatron-LM gives
    "primus": {
        **_PARSER,
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": None,
        "expert_tensor_parallel_num_weight_shards": None,
        "num_experts": None,
        "hybrid_layer_pattern": None,
        "pipeline_model_parallel_layout": None,
        "decoder_num_layers": None,
        "encoder_num_layers": None,
        "decoder_first_pipeline_num_layers": None,
        "decoder_last_pipeline_num_layers": None,
        "account_for_embedding_in_pipeline_split": False,
        "account_for_loss_in_pipeline_split": False,
    },
}
"""Framework -> setting -> default; what is not here is unknown."""

ABSENT: Mapping[str, Mapping[str, SettingValue]] = {
    # areal/api/alloc_mode.py: no letter stands for them
    "areal": {"tensor_parallel_num_weight_shards": None, "expert_tensor_parallel_num_weight_shards": None},
    # options of Megatron-LM's command line alone, which no configuration class of Megatron core has
    "megatron-bridge": {"recompute_activations": False, "num_layers_per_virtual_pipeline_stage": None},
}
"""Framework -> setting that it does not have -> what that means; it holds although a base recipe may set others."""
