"""Derive from the settings which activations a step keeps."""

from __future__ import annotations

from tvlint.ir.configuration import Unknown
from tvlint.topology.activations import Running
from tvlint.topology.quantity import Settings, Undecided


def running(settings: Settings) -> Running:
    """Return how the step runs, as far as activations depend on it; raises `Undecided` where a setting is not known."""
    tp = settings.count("tensor_model_parallel_size", 1)
    granularity = settings.text("effective_recompute_granularity")
    full, block = 0, None
    for name in ("cpu_offloading_num_layers", "fine_grained_activation_offloading"):
        moved = settings.lookup(name)
        if moved and not isinstance(moved, Unknown):
            raise Undecided(Unknown(f"`{name}` moves activations to the host, and it is not known how many are there at once"))
    if granularity == "full":
        every = settings.optional("recompute_num_layers", 1) or 1
        blocked = settings.text("recompute_method") == "block"
        full, block = (1, every) if blocked else (every, None)
    modules = frozenset(settings.texts("recompute_modules") or ("core_attn",)) if granularity == "selective" else frozenset()
    return Running(
        sequence=settings.count("seq_length", 1),
        micro_batch=settings.count("micro_batch_size", 1),
        tp=tp,
        cp=settings.count("context_parallel_size", 1),
        sequence_parallel=tp > 1 and settings.flag("sequence_parallel"),
        keeps_scores=settings.flag("keeps_attention_scores"),
        hidden_dropout=settings.number("hidden_dropout") > 0,
        recomputed=modules,
        full=full,
        block=block,
        distributes_inputs=settings.flag("distribute_saved_activations"),
    )
