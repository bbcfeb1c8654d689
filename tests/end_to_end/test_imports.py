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


def test_what_waits_for_a_worker_holds_next_to_nothing_when_it_is_forked() -> None:
    script = "import sys, tvlint.cli, tvlint.run.process.supervisor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    names = {name for name in done.stdout.split() if name.startswith("tvlint.")}
    assert {name for name in names if not name.startswith("tvlint.run")} == {"tvlint.cli", "tvlint.ir", "tvlint.ir.values"}
    assert not names & {"tvlint.run.process.worker", "tvlint.run.output.outputs"}
    assert not set(done.stdout.split()) & (HEAVY | {"argparse", "pickle", "pathlib", "dataclasses"})


@pytest.mark.parametrize("format", ["text", "concise", "json", "sarif", "github"])
def test_a_check_of_a_configuration_stays_light(tmp_path: Path, format: str) -> None:
    script = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
    two_changes = (
        "torchrun --nproc-per-node 12 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 "
        "--num-layers 48 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 1 --global-batch-size 64 --bf16\n"
    )
    (tmp_path / "train.sh").write_text(script + two_changes)
    names = imported("check", "train.sh", "-o", format, cwd=tmp_path)
    assert not names & (HEAVY if format in ("json", "sarif") else HEAVY | {"dataclasses"})
    assert not names & {"random", "shutil", "tempfile", "threading"}
    assert "tvlint.rulebook.evaluate" in names
    unused = ("tvlint.equivalence.", "tvlint.analyses.relations.", "tvlint.checks.")
    assert not [name for name in names if name.startswith(unused)]


def test_a_clean_script_of_a_model_that_is_named_like_an_action_stays_light(tmp_path: Path) -> None:
    script = (ROOT / "fixtures" / "clean" / "launch-llama3-8b" / "train.sh").read_text()
    (tmp_path / "train.sh").write_text(f"# llama3 8B\n{script}")
    names = imported("check", "train.sh", cwd=tmp_path)
    assert not names & (HEAVY | {"dataclasses", "difflib", "textwrap", "unicodedata", "tvlint.readers.schedule_csv"})


def test_yaml_beside_a_baseline_imports_no_reader_of_python(tmp_path: Path) -> None:
    (tmp_path / "model_config.yaml").write_text(
        "MODEL_ARGS:\n  --num-layers: 24\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --tensor-model-parallel-size: 2\n"
    )
    (tmp_path / "tvlint.toml").write_text('baseline = "tvlint-baseline.json"\n')
    (tmp_path / "tvlint-baseline.json").write_text('{"format": 1, "findings": []}')
    names = imported("check", "-o", "concise", cwd=tmp_path)
    assert {"tvlint.run.silence.baseline", "tvlint.readers.megatron.sections"} <= names
    of_python = {"tvlint.readers.recipe.scopes", "tvlint.readers.megatron.python.names"}
    assert not names & (HEAVY | of_python | {"dataclasses", "inspect"})
