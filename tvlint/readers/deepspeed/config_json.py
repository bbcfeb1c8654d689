"""DeepSpeed configurations in JSON (`ds_config.json`)."""

from __future__ import annotations

import re

from tvlint.findings import Severity
from tvlint.frameworks.deepspeed import BATCH, DEEPSPEED
from tvlint.ir.configuration import Configuration
from tvlint.readers.deepspeed.sections import (
    CONVERTED,
    duplicates,
    hyphened,
    mistaken_sections,
    mistaken_types,
    mistaken_values,
    settings_of,
    slips,
    too_small,
)
from tvlint.readers.document import Document
from tvlint.readers.sources.json_nodes import NotJson, parse, topmost_keys
from tvlint.readers.sources.yaml_nodes import YamlMapping

FORMAT = "deepspeed-json"
OPENS = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
TELLING = frozenset({"train_micro_batch_size_per_gpu", "zero_optimization", "zero_allow_untested_optimizer"})
NAMES = re.compile(rb'"(?:train_micro_batch_size_per_gpu|zero_optimization|zero_allow_untested_optimizer)"\s*:')
USUAL = TELLING | {
    "train_batch_size",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "fp16",
    "bf16",
    "bfloat16",
    "optimizer",
    "scheduler",
    "activation_checkpointing",
    "data_types",
    "flops_profiler",
    "tensorboard",
    "csv_monitor",
    "communication_data_type",
    "prescale_gradients",
    "comms_logger",
    "curriculum_learning",
    "data_efficiency",
    "compression_training",
    "elasticity",
    "amp",
}
COUNTS = dict.fromkeys(BATCH, "int")
OTHERS = frozenset({"pipe_parallel_size", "pipe-parallel-size", "model_parallel_size", "model-parallel-size", "num_layers"})
"""Keys of GPT-NeoX, whose files have DeepSpeed's keys among their own."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is an object that may be DeepSpeed's; `read` decides by its topmost keys."""
    return OPENS.match(data) is not None and NAMES.search(data) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return the configuration of the file; None where it is no JSON or its topmost keys are not those of DeepSpeed."""
    keys = topmost_keys(data)
    if not keys & TELLING or len(keys & USUAL) < 2 or keys & OTHERS:
        return None
    try:
        root = parse(path, data.decode().removeprefix("\ufeff"))
    except (NotJson, UnicodeDecodeError):
        return None
    if not isinstance(root, YamlMapping):
        return None
    settings = settings_of(root, DEEPSPEED)
    configuration = Configuration(path, FORMAT, "deepspeed", settings, {}, "", False, root.location)
    mistakes = (
        *duplicates(root),
        *slips(root, USUAL, Severity.WARNING, "DeepSpeed"),
        *hyphened(root, USUAL, Severity.WARNING),
        *mistaken_sections(root),
        *mistaken_values(root, COUNTS, {}, CONVERTED),
        *mistaken_types(root),
        *too_small(root),
    )
    return Document(path, FORMAT, configurations=(configuration,), findings=mistakes)
