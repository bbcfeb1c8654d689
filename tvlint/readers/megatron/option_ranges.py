"""Numbers that no program takes, whatever its parser says: by what an option is called."""

from __future__ import annotations

import math

from tvlint.findings import Finding, Severity
from tvlint.frameworks.megatron import Option
from tvlint.ir.configuration import Setting

RULE = "option-value-out-of-range"
_SIZES = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size"),
    *("micro_train_batch_size", "micro_rollout_batch_size", "gradient_accumulation_steps", "tensor_parallel_size"),
    *("ring_attn_size", "n_samples_per_prompt", "max_len", "max_seq_length"),
    *("max_seq_len", "max_length", "cutoff_len", "model_max_length", "max_prompt_length", "block_size"),
)
RANGES = {
    **dict.fromkeys(_SIZES, (1, math.inf)),
    **dict.fromkeys(("warmup_ratio", "lr_warmup_ratio", "gpu_memory_utilization", "label_smoothing_factor"), (0, 1)),
    **dict.fromkeys(("dropout", "lora_dropout", "hidden_dropout", "attention_dropout"), (0, 1)),
    "num_train_epochs": (0, math.inf),
    "zero_stage": (0, 3),
}
"""From which number to which an option goes, by the last part of its name."""


def out_of_range(setting: Setting, known: Option) -> Finding | None:
    """Return the finding about a number beyond all that an option of this name means.

    A program whose own default lies beyond has a meaning for such numbers.
    """
    name = known.dest.rpartition(".")[2].replace("-", "_")
    least, most = RANGES.get(name, (-math.inf, math.inf))
    value = setting.value
    if isinstance(value, bool) or not isinstance(value, int | float) or least <= value <= most:
        return None
    if known.default is None or not least <= known.default <= most:
        return None
    help = f"use {least} or more" if most == math.inf else f"use a number from {least} to {most}"
    return Finding(RULE, Severity.ERROR, f"`{setting.written}` is {value}", setting.location, help)
