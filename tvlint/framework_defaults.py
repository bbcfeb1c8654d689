"""Defaults of frameworks other than Megatron-LM and nnScaler, as far as they are the same in every version."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.configuration import SettingValue

DEFAULTS: Mapping[str, Mapping[str, SettingValue]] = {
    # Megatron-LM's own parser (megatron/training/arguments.py), to which MindSpeed adds options without changing these
    "mindspeed": {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "context_parallel_size": 1,
        "tensor_parallel_num_weight_shards": None,
    },
}
"""Framework -> setting -> default; what is not here is unknown."""
