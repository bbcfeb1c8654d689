"""The version of Megatron that a file is judged by, where it lies in the source tree of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tvlint.findings import Finding, Severity
from tvlint.readers.megatron.source_tree_version import version_of_tree
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

RULE = "moe-bias-with-expert-tensor-parallel"
"""A rule that holds since 0.15."""
LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel --num-experts 4 "
    "--num-layers 8 --hidden-size 512 --num-attention-heads 8"
)


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """A source tree with these files, and a folder of scripts in it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    scripts = root / "examples" / "gpt"
    scripts.mkdir(parents=True)
    return scripts


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"megatron/core/package_info.py": "MAJOR = 0\nMINOR = 11\nPATCH = 2\n"}, "0.11"),
        ({"megatron/core/package_info.py": "MAJOR = 1 # first\nMINOR = 0\n"}, "1.0"),
        ({"megatron/core/package_info.py": "MAJOR = read()\nMINOR = 0\n"}, ""),
        ({"megatron/core/package_info.py": "", "megatron/arguments.py": ""}, ""),
        ({"megatron/arguments.py": ""}, "0.1"),
        ({"megatron/arguments.py": "", "megatron/training/arguments.py": ""}, ""),
        ({"megatron/initialize.py": ""}, ""),
    ],
)
def test_the_version_is_that_of_the_tree_around(tmp_path: Path, files: Mapping[str, str], version: str) -> None:
    (tmp_path / ".git").mkdir()
    assert version_of_tree(str(tree(tmp_path, files))) == version


def test_the_search_ends_at_the_root_of_a_repository(tmp_path: Path) -> None:
    scripts = tree(tmp_path, {"megatron/core/package_info.py": "MAJOR = 0\nMINOR = 11\n"})
    (tmp_path / "examples" / ".git").write_text("gitdir: elsewhere\n")
    assert version_of_tree(str(scripts)) == ""


@pytest.mark.parametrize(
    ("minor", "more", "severity"),
    [
        (11, "", None),
        (15, "", Severity.WARNING),
        (15, " --moe-latent-size 64", Severity.WARNING),
        (16, "", Severity.ERROR),
        (None, "", Severity.WARNING),
        (None, " --moe-latent-size 64", Severity.ERROR),
        (None, " --fim-rate 0.5 --trust-remote-code", Severity.WARNING),
    ],
)
def test_a_rule_of_later_versions_is_an_error_only_where_the_version_is_told(
    tmp_path: Path, minor: int | None, more: str, severity: Severity | None
) -> None:
    (tmp_path / ".git").mkdir()
    scripts = tree(tmp_path, {"megatron/core/package_info.py": f"MAJOR = 0\nMINOR = {minor}\n"} if minor else {})
    script = scripts / "train.sh"
    script.write_text(LAUNCH + more + "\n")
    document = read(str(script))
    assert document is not None
    (configuration,) = document.configurations
    found = [each for each in evaluate(configuration, {RULE: load_rules()[RULE]}) if isinstance(each, Finding)]
    assert [each.severity for each in found] == ([severity] if severity is not None else [])
    if minor != 16 and found:
        told = "as `--moe-latent-size` shows" if severity is Severity.ERROR else "taken as given"
        assert (found[0].help or "").endswith(f"(holds for megatron-lm >=0.15, {told})")
