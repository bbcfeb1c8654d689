"""What starts quickly stays light: no command imports what it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from shared import ROOT

HEAVY = {"z3", "networkx", "numpy", "jsonschema", "junit_xml", "rich", "hypothesis", "torch", "referencing", "zstandard"}


def imported(*arguments: str, cwd: Path = ROOT) -> set[str]:
    """The top-level modules, and those of tvlint in full, that a run of tvlint imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tvlint", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "tvlint.cli" in names, done.stderr[-2000:]
    return {name if name.startswith("tvlint.") else name.partition(".")[0] for name in names}


def test_the_version_imports_next_to_nothing() -> None:
    names = imported("--version")
    assert not names & (HEAVY | {"yaml", "argparse", "tree_sitter", "importlib.metadata", "json", "re"})
    assert {name for name in names if name.startswith("tvlint.")} == {"tvlint.cli"}


def test_help_imports_no_reader_and_no_rule() -> None:
    names = imported("--help")
    assert not names & (HEAVY | {"yaml", "tree_sitter"})
    assert not [name for name in names if name.startswith(("tvlint.readers.", "tvlint.rulebook.", "tvlint.equivalence."))]


@pytest.mark.parametrize("format", ["text", "concise", "json", "sarif", "github"])
def test_a_check_of_a_configuration_stays_light(tmp_path: Path, format: str) -> None:
    (tmp_path / "train.sh").write_text((ROOT / "fixtures" / "tour" / "train.sh").read_text())
    names = imported("check", "train.sh", "-o", format, cwd=tmp_path)
    assert not names & HEAVY
    assert "tvlint.rulebook.evaluate" in names
    unused = ("tvlint.equivalence.", "tvlint.analyses.relations.", "tvlint.checks.")
    assert not [name for name in names if name.startswith(unused)]
