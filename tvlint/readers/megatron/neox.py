"""GPT-NeoX configurations: YAML or JSON, keys with hyphens or underscores; each file is one part of a run's arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvlint.findings import Finding, Severity
from tvlint.frameworks.deepspeed import NEOX, NEOX_COUNTS, NEOX_SHARES, neox_choices, neox_kinds
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.readers.deepspeed.sections import (
    EXACT,
    mistaken_sections,
    mistaken_types,
    mistaken_values,
    settings_of,
    slips,
    too_small,
)
from tvlint.readers.document import Document, refuse_larger
from tvlint.readers.languages import is_yaml
from tvlint.readers.sources.json_nodes import topmost_keys
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, only_document

FORMAT = "neox-yaml"
LARGEST = 4 << 20
NAMES = re.compile(rb"^[ \t{]*[\"']?pipe[-_]parallel[-_]size[\"']?[ \t]*:", re.MULTILINE)
TELLING = frozenset(
    {
        "train_micro_batch_size_per_gpu",
        "train_batch_size",
        "zero_optimization",
        "pos_emb",
        "no_weight_tying",
        "checkpoint_activations",
        "partition_activations",
        "attention_config",
        "data_impl",
        "lr_decay_style",
        "scaled_upper_triang_masked_softmax_fusion",
        "output_layer_parallelism",
        "gpt_j_residual",
        "vocab_file",
    }
)
NUMBER = re.compile(r"[-+]?\d{1,40}(?:\.\d{0,40})?")
LONGEST = 40
WITH_UNIT = re.compile(r"[-+]?\d[\d.]*[A-Za-z]")


def _is_number(value: object) -> bool:
    """Return whether a value may be a number to a fork: one with a letter behind it is none."""
    return not isinstance(value, str) or WITH_UNIT.fullmatch(value) is None


FOR_FORKS = dict.fromkeys(("int", "float"), _is_number)
PLAIN = frozenset({"global", "local", "sparse_fixed", "sparse_variable", "bigbird", "bslongformer", "flash"})
"""Kinds of attention that split their heads over the model-parallel ranks."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` sets `pipe-parallel-size` and may be YAML."""
    return NAMES.search(data) is not None and is_yaml(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return the settings of the file, never complete; None where it is not surely one of GPT-NeoX."""
    refuse_larger(path, data, LARGEST)
    keys = topmost_keys(data) if path.endswith(".json") else frozenset()
    if keys and keys.isdisjoint(("pipe_parallel_size", "pipe-parallel-size")):
        return None
    root = only_document(path, data)
    if not isinstance(root, YamlMapping):
        return None
    entries = {key.text.replace("-", "_"): node for key, node in root.entries if isinstance(key, YamlScalar)}
    if "pipe_parallel_size" not in entries or len(TELLING & set(entries)) < 2:
        return None
    settings = settings_of(root, NEOX)
    for name in ("num_attention_heads", "hidden_size"):
        if name in settings and not _plain_attention(entries.get("attention_config")):
            settings[name] = _unknown(settings[name], "`attention_config` has layers of another kind")
    if "autotuning" in entries and "zero_optimization_stage" in settings:
        settings["zero_optimization_stage"] = _unknown(settings["zero_optimization_stage"], "autotuning chooses it")
    configuration = Configuration(path, FORMAT, "gpt-neox", settings, {}, "", False, root.location)
    return Document(path, FORMAT, configurations=(configuration,), findings=tuple(_mistakes(root, entries)))


def _mistakes(root: YamlMapping, entries: Mapping[str, YamlNode]) -> Iterator[Finding]:
    """Yield what GPT-NeoX refuses: slips, and every other value where all keys are its own.

    Forks of it have further keys, and take further values.
    """
    yield from slips(root, neox_kinds(), Severity.ERROR, "GPT-NeoX")
    yield from mistaken_sections(root)
    yield from mistaken_types(root)
    yield from too_small(root)
    yield from _beyond(root)
    is_fork = not entries.keys() <= neox_kinds().keys() or "autotuning" in entries
    found = mistaken_values(root, neox_kinds(), neox_choices(), FOR_FORKS if is_fork else EXACT)
    yield from (each for each in found if each.fixes or each.rule == "option-value-not-a-number" or not is_fork)


def _beyond(root: YamlMapping) -> Iterator[Finding]:
    """Yield a finding for each share above 1, and for each count below 0."""
    for key, node in root.entries:
        if isinstance(key, YamlScalar) and isinstance(node, YamlScalar) and NUMBER.fullmatch(node.text):
            name, value = key.text.replace("-", "_"), float(node.text)
            is_share = name in NEOX_SHARES
            if (value < 0 and (is_share or name in NEOX_COUNTS)) or (is_share and value > 1):
                help = "use a number from 0 to 1" if is_share else "use 0 or more"
                message = f"`{key.text}` is {node.text[:LONGEST]}"
                yield Finding("option-value-out-of-range", Severity.ERROR, message, node.location, help)


def _unknown(setting: Setting, reason: str) -> Setting:
    return replace(setting, value=Unknown(reason))


def _plain_attention(node: YamlNode | None) -> bool:
    """Return whether every kind of attention that the setting names is of those that split heads; an absent one is."""
    pending = [node] if node is not None else []
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, YamlSequence):
            pending += each.items
        elif isinstance(each, YamlScalar):
            if not each.text.isdigit() and each.text not in (*PLAIN, "all"):
                return False
        else:
            return False
    return True
