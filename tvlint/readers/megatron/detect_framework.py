"""Which framework a launch belongs to, where its content says so for certain."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MINDSPEED = re.compile(r"\bmindspeed(?:_|\b)|\bASCEND_\w+|\bHCCL_\w+|\btorch_npu\b", re.IGNORECASE)
MINDSPEED_FLAGS = frozenset(
    {
        "--context-parallel-algo",
        "--npu-deterministic",
        "--num-layer-list",
        "--reuse-fp32-param",
        "--swap-attention",
        "--use-ascend-mc2",
        "--use-cp-send-recv-overlap",
        "--use-fused-ring-attention-update",
        "--use-fused-rmsnorm",
        "--use-fused-rotary-pos-emb",
        "--use-fused-swiglu",
        "--use-mc2",
    }
)
"""Options that only MindSpeed has."""
SWIFT = frozenset({"megatron"})
SWIFT_COMMAND = re.compile(r"^[^#\n]*\bmegatron[ \t]+(?:pt|sft|rlhf|export)\b", re.MULTILINE)
"""The command line of ms-swift; a Python file among its arguments is no program."""
UNLIKE_MINDSPEED = {
    "--layerwise-disaggregated-training": "mindspeed-disaggregated",
    "--unaligned-linear": "mindspeed-unaligned",
}
"""Options of MindSpeed by which sizes need not divide: with the first, the groups of different machines differ; with the
second, the heads and tokens of ranks. No rule about sizes holds, so each counts as a framework of its own."""


FURTHER = "override_transformer_config"
"""Where verl keeps, in a section, what it sets of Megatron core besides the settings that have a name of their own."""

NAMED = {
    "ms-swift": SWIFT_COMMAND,
    "mindspeed": MINDSPEED,
    "megatron-deepspeed": re.compile(r"^[^#\n]*\bdeepspeed\b", re.IGNORECASE | re.MULTILINE),
    "primus": re.compile(r"\bprimus\b", re.IGNORECASE),
    "megatron-bridge": re.compile(r"\bmegatron[-./_]bridge\b", re.IGNORECASE),
    "nemo": re.compile(r"\bimport nemo\b|\bnemo[./](?:collections|lightning|run)\b|\bnemo_run\b", re.IGNORECASE),
}
SNAPSHOT = re.compile(r"\bMegatron-LM-(2[3-9](?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))\b")
RELEASES = (
    ("230101", "0.2"),
    ("240105", "0.4"),
    ("240226", "0.5"),
    ("240418", "0.6"),
    ("240530", "0.7"),
    ("240812", "0.8"),
    ("241024", "0.9"),
    ("250217", "0.10"),
    ("250314", "0.11"),
    ("250506", "0.12"),
    ("250725", "0.13"),
    ("251008", "0.14"),
    ("251205", "0.15"),
    ("260226", "0.16"),
    ("260414", "0.17"),
    ("260622", "0.18"),
    ("260819", "0.19"),
)
"""When a version of Megatron core came out."""


@lru_cache(maxsize=4)
def version_of_script(text: str) -> str:
    """The version of the one dated snapshot that a script names (`Megatron-LM-250624`); empty if it names none or several."""
    dates = set(SNAPSHOT.findall(text))
    date = dates.pop() if len(dates) == 1 else ""
    return next((version for since, version in reversed(RELEASES) if date >= since), "")


def framework_of_script(text: str, program: str, flags: Iterable[str]) -> str:
    """The framework that a launch of `program` with `flags` runs; Megatron-LM unless the script says otherwise."""
    written = set(flags)
    named = _frameworks_named_in(text)
    if program in SWIFT or "ms-swift" in named:
        return "ms-swift"
    for option, framework in UNLIKE_MINDSPEED.items():
        if option in written or option.replace("-", "_").replace("__", "--", 1) in written:
            return framework
    if "mindspeed" in named or written & MINDSPEED_FLAGS:
        return "mindspeed"
    if "--deepspeed" in written:
        return "megatron-deepspeed"
    return named[0] if named else "megatron-lm"


@lru_cache(maxsize=4)
def _frameworks_named_in(text: str) -> tuple[str, ...]:
    """Return the frameworks that a script names, those first that decide; searched once for all launches of a script."""
    return tuple(name for name, pattern in NAMED.items() if pattern.search(text))


def framework_of_sections(keys: Iterable[str]) -> str:
    """The framework that a YAML file with these top-level keys configures; some user of Megatron core where none says so."""
    names = set(keys)
    if {"actor_rollout_ref"} & names:
        return "verl"
    if {"trainer", "exp_manager"} <= names or ({"trainer", "run"} <= names and "model" in names):
        return "nemo"
    if {"trainer", "inference"} <= names or {"trainer", "gpt_model_file"} <= names:
        return "nemo"
    if ("modules" in names and ({"work_group", "exp_name"} & names)) or "extends" in names:
        return "primus"
    return "megatron-core"
