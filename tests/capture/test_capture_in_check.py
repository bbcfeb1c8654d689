"""Launches of a project file: run where the command line says so alone, remembered while nothing that ran changes."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tvlint.cli import main

KEY = "a key of sixteen characters or more"
PROJECT = """[[proof]]
launch = "torchrun --nproc-per-node 2 tensor_parallel_mlp.py"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TVLINT_CACHE_KEY", KEY)
    shutil.copy(ROOT / "fixtures" / "capture" / "tensor_parallel_mlp.py", tmp_path)
    (tmp_path / "tvlint.toml").write_text(PROJECT)
    return tmp_path


def said_of(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("arguments", [["check"], ["check", "."], ["check", "--no-prove", "--capture"]])
def test_a_launch_is_not_run_unless_the_command_line_says_so(
    here: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "tensor_parallel_mlp.py").write_text("open('it-ran', 'w')\n")
    asked = "--no-prove" not in arguments
    assert main([*arguments, "--may-be-empty"]) == (5 if asked else 0)
    out, _ = said_of(capsys)
    assert not (here / "it-ran").exists()
    assert "proved:" not in out
    assert ("[not-captured]" in out) == asked


def test_a_named_file_asks_for_no_launch(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.sh").write_text("torchrun --nproc-per-node 2 pretrain_gpt.py --tensor-model-parallel-size 2\n")
    assert main(["check", "train.sh"]) == 0
    assert "not-captured" not in said_of(capsys)[0]
    assert main(["check"]) == 5
    assert "tvlint.toml:1:3" in said_of(capsys)[0]


def test_no_key_of_the_project_file_lets_a_launch_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text(f"capture = true\n{PROJECT}")
    assert main(["check"]) == 2
    assert "unknown key `capture`" in said_of(capsys)[0]


@pytest.mark.parametrize(
    "command", ["srun train.py", "torchrun --nproc-per-node 2 nothing.py", "bash nothing.sh", "torchrun 'unclosed"]
)
def test_a_launch_that_cannot_be_captured_is_a_problem(here: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text(f'[[proof]]\nlaunch = "{command}"\n')
    assert main(["check", "--capture"]) == 2
    assert "tvlint.toml:1:3: error: " in said_of(capsys)[0]


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install 'tvlint[capture]'")
def test_a_launch_is_proved_and_remembered_until_what_ran_changes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--capture"]) == 0
    out, err = said_of(capsys)
    assert out.startswith("proved: torchrun --nproc-per-node 2 tensor_parallel_mlp.py trains the same model as")
    assert "cached" not in out
    assert "launch" not in err
    assert main(["check"]) == 0
    assert "cached proof of" in said_of(capsys)[0]
    program = here / "tensor_parallel_mlp.py"
    text = program.read_text()
    assert text.count("            dist.all_reduce(x)") == 1
    program.write_text(text.replace("            dist.all_reduce(x)", "            pass"))
    assert main(["check"]) == 5
    out, _ = said_of(capsys)
    assert "proved:" not in out
    assert "[not-captured]" in out
    assert main(["check", "--capture"]) == 1
    assert said_of(capsys)[0].startswith("refuted: torchrun --nproc-per-node 2 tensor_parallel_mlp.py")
