"""Recognise the framework of a launch from its content."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.frameworks.kin import MEGATRON, framework_of_packages
from tvlint.frameworks.megatron import hyphens
from tvlint.frameworks.releases import RELEASES
from tvlint.ir.configuration import AFTER_RELEASE
from tvlint.ir.patterns import Pattern
from tvlint.readers.megatron.program import framework_of_program, framework_of_tree

ASCEND = Pattern(r"ASCEND_\w+")
"""Variables of the environment that only Ascend's processors have."""
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
DEEPSPEED_FLAG = Pattern(
    r"--(?:deepspeed(?:-.*)?|zero-stage|no-pipeline-parallel|pp-partition-method|kill-switch-path"
    r"|abort-on-unmet-fused-kernel-constraints|ds-sequence-parallel-size)"
)
"""Options that only Megatron-DeepSpeed and its forks have."""
SLIME_FLAG = Pattern(r"--(?:actor-num-(?:nodes|gpus-per-node)|num-rollout|rollout-batch-size|rollout-num-gpus(?:-per-engine)?)")
"""Options that only slime and miles have."""
SWIFT = frozenset({"megatron"})
"""The command of ms-swift; a Python file among its arguments is no program."""
UNLIKE_MINDSPEED = {
    "--layerwise-disaggregated-training": "mindspeed-disaggregated",
    "--unaligned-linear": "mindspeed-unaligned",
}
"""Options of MindSpeed by which sizes need not divide: with the first, the groups of different machines differ; with the
second, the heads and tokens of ranks. No rule about sizes holds, so each counts as a framework of its own."""


FURTHER = "override_transformer_config"
"""Where verl keeps, in a section, what it sets of Megatron core besides the settings that have a name of their own."""

SNAPSHOT = Pattern(r"\bMegatron-LM-(2[3-9](?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))\b")


def version_of_script(text: str) -> str:
    """Return the version of the one dated snapshot that a script names (`Megatron-LM-250624`): the release before it, and what
    came after; empty if it names none or several.
    """
    dates = set(SNAPSHOT.findall(text))
    date = dates.pop() if len(dates) == 1 else ""
    return next((version + AFTER_RELEASE for since, version in reversed(RELEASES) if date >= since), "")


def framework_of_launch(
    program: str,
    script: str,
    flags: Iterable[str],
    launchers: Iterable[str] = (),
    environment: Iterable[str] = (),
    modules: frozenset[str] = frozenset(),
) -> str:
    """Return the framework that a launch runs; Megatron-LM where nothing that runs says otherwise.

    `program` is the path or module that the file at `script` starts with options `flags`; `launchers` are the words before it,
    `environment` the variables that it is given, `modules` those that it builds the model of. Options that one framework alone
    has come first, then the program's own imports and path, then the repository around the script: a fork of Megatron-LM holds
    its packages too.
    """
    written = {hyphens(flag) for flag in flags}
    if program in SWIFT:
        return "ms-swift"
    for option, framework in UNLIKE_MINDSPEED.items():
        if option in written:
            return framework
    if written & MINDSPEED_FLAGS or any(ASCEND.fullmatch(name) for name in environment):
        return "mindspeed"
    if any(map(DEEPSPEED_FLAG.fullmatch, written)) or "deepspeed" in {word.rpartition("/")[2] for word in launchers}:
        return "megatron-deepspeed"
    if any(map(SLIME_FLAG.fullmatch, written)):
        return "slime"
    found = framework_of_packages(modules) or framework_of_program(program, script)
    return found if found not in ("", MEGATRON) else framework_of_tree(script) or MEGATRON


def framework_of_sections(keys: Iterable[str]) -> str:
    """Return the framework that a YAML file with these top-level keys configures; some user of Megatron core where none says
    so.
    """
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
