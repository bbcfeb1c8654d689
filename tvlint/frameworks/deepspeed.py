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
