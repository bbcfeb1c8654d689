"""What a run says that it recognised, and that nothing is clean where no rule holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.cli import main

LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 3 {}\n"


def check(script: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main(["check", "--no-cache", str(script)])
    return code, capfd.readouterr().out.splitlines()[-2:]


def test_the_framework_and_the_number_of_its_rules_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(LAUNCH.format(""))
    code, (recognised, _) = check(script, capfd)
    assert code == 1
    assert recognised.startswith("recognised 1 file as megatron-lm (")


def test_a_file_that_no_rule_holds_for_is_not_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(LAUNCH.format("--unaligned-linear"))
    assert check(script, capfd) == (4, ["recognised 1 file as mindspeed-unaligned (no rule applies)", "nothing was checked"])
