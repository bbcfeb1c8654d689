"""The settings of torchtitan's job configuration that rules ask about, by section."""

from __future__ import annotations

DEGREES = frozenset(
    {
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "tensor_parallel_degree",
        "pipeline_parallel_degree",
        "context_parallel_degree",
        "expert_parallel_degree",
    }
)
SECTIONS = {
    "parallelism": DEGREES | {"pipeline_parallel_microbatch_size"},
    # where the degrees stood before `[parallelism]` was there, in January 2025 (torchtitan/config_manager.py)
    "training": DEGREES | {"local_batch_size", "global_batch_size", "seq_len"},
    "experimental": DEGREES,
}
