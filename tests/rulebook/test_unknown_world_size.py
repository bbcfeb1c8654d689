"""What a run says where nothing tells how many ranks run: one note, which fails no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.cli import main

LAUNCH = """torchrun --nproc-per-node $GPUS pretrain_gpt.py \\
  --tensor-model-parallel-size {tp} --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\
  --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 16
"""


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["check", "--no-cache", "-o", "concise", *arguments]) == 0
    return [line for line in capfd.readouterr().out.splitlines() if "unknown-world-size" in line]


def test_a_file_of_several_launches_says_it_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(LAUNCH.format(tp=4) + LAUNCH.format(tp=8))
    (line,) = said(capfd, str(script))
    assert "need a multiple of 4" in line
    assert ":1:" in line


def test_whoever_says_the_world_size_hears_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(LAUNCH.format(tp=4))
    assert said(capfd, str(script), "--world-size", "16") == []
    (tmp_path / "tvlint.toml").write_text("world-size = 16\n")
    assert said(capfd, str(script), "--config", str(tmp_path / "tvlint.toml")) == []


def test_sizes_of_one_need_no_certain_number_of_ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(LAUNCH.format(tp=1))
    assert said(capfd, str(script)) == []


def test_a_run_says_it_once_and_counts_the_other_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(14):
        (tmp_path / f"train{number:02}.sh").write_text(LAUNCH.format(tp=4))
    (line,) = said(capfd, str(tmp_path))
    assert "train00.sh" in line
    assert main(["check", "--no-cache", str(tmp_path)]) == 0
    assert "the same in 13 other files" in capfd.readouterr().out


def test_who_silences_it_in_one_file_hears_of_the_next(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        (tmp_path / f"train{number}.sh").write_text(LAUNCH.format(tp=4))
    silenced = "# tvlint: ignore-file[unknown-world-size]\n" + LAUNCH.format(tp=4)
    (tmp_path / "train0.sh").write_text(silenced)
    (line,) = said(capfd, str(tmp_path))
    assert "train1.sh" in line


def test_text_shows_the_first_notes_of_many_files_and_counts_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(14):
        (tmp_path / f"train{number}.j2").write_text("args: --tensor-model-parallel-size 4\n")
    assert main(["check", "--no-cache", str(tmp_path)]) in (0, 4)
    text = capfd.readouterr().out
    assert text.count("note: `--tensor-model-parallel-size` is passed here") == 10
    assert "note: and 4 more notes `launch-not-followed`\n" in text
