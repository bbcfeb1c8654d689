"""Defaults of frameworks other than Megatron-LM and nnScaler, as far as they are the same in every version."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.configuration import SettingValue

KEPT: Mapping[str, Mapping[str, SettingValue]] = {
    # Megatron-LM's own parser (megatron/training/arguments.py), to which MindSpeed adds options without changing these
    "mindspeed": {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "context_parallel_size": 1,
        "tensor_parallel_num_weight_shards": None,
    },
}
"""Framework -> setting -> default; what is not here is unknown."""

ABSENT: Mapping[str, Mapping[str, SettingValue]] = {
    # options of Megatron-LM's command line alone, which no configuration class of Megatron core has
    "megatron-bridge": {"recompute_activations": False, "num_layers_per_virtual_pipeline_stage": None},
}
"""Framework -> setting that it does not have -> what that means; it holds although a base recipe may set others."""
