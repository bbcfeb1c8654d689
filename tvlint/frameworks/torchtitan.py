"""The settings of torchtitan's job configuration that rules ask about, by section."""

from __future__ import annotations

SECTIONS = {
    "parallelism": frozenset(
        {
            "data_parallel_replicate_degree",
            "data_parallel_shard_degree",
            "tensor_parallel_degree",
            "pipeline_parallel_degree",
            "context_parallel_degree",
            "expert_parallel_degree",
            "pipeline_parallel_microbatch_size",
        }
    ),
    "training": frozenset({"local_batch_size", "global_batch_size", "seq_len"}),
}
