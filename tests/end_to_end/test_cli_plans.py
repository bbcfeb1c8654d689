"""`tvlint prove`, the proofs of `tvlint check`, and `tvlint convert`, on the plans of the tour."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from shared import ROOT, SHARED, needs_shared

from tvlint.cli import main

TOUR = ROOT / "fixtures" / "tour"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in TOUR.glob("*.plan"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdicts(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["verdicts"]
    return found


def test_a_correct_plan_is_proved_and_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "dp2-tp2.plan", "--reference", "single.plan", "-o", "json"]) == 0
    [verdict] = verdicts(capsys)
    assert (verdict["verdict"], verdict["parallel"], verdict["reference"]) == ("proved", "dp2-tp2.plan", "single.plan")
    assert verdict["seconds"] > 0
    assert verdict["peak_bytes"] > 1 << 20
    assert verdict["stages"]["total"] == verdict["stages"]["proved"] > 0
    assert verdict["assumptions"]


def test_a_wrong_plan_is_refuted_at_its_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "dp2-tp2-broken.plan", "--reference", "single.plan", "-o", "json"]) == 1
    [verdict] = verdicts(capsys)
    assert verdict["verdict"] == "refuted"
    [reason] = verdict["reasons"]
    line = (here / "dp2-tp2-broken.plan").read_text().splitlines()[reason["line"] - 1]
    assert (reason["name"], line.split()[0]) == ("missing-allreduce", "b")


def test_what_is_not_understood_is_unknown_and_exits_5(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in here.glob("*.plan"):
        path.write_text(path.read_text().replace("torch.nn.functional.gelu", "acme.squash"))
    assert main(["prove", "dp2-tp2.plan", "--reference", "single.plan", "-o", "json"]) == 5
    [verdict] = verdicts(capsys)
    assert verdict["verdict"] == "unknown"
    assert verdict["reasons"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_several_plans_keep_their_order_whatever_the_jobs(here: Path, capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    plans = ["dp2-tp2-broken.plan", "dp2-tp2.plan", "single.plan"]
    assert main(["prove", *plans, "--reference", "single.plan", "--jobs", jobs, "-o", "json"]) == 1
    assert [(found["parallel"], found["verdict"]) for found in verdicts(capsys)] == [
        ("dp2-tp2-broken.plan", "refuted"),
        ("dp2-tp2.plan", "proved"),
        ("single.plan", "proved"),
    ]


def test_a_plan_that_cannot_be_read_exits_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wrong.plan").write_text((here / "single.plan").read_text() + "\nfrobnicate\n")
    (here / "notes.md").write_text("# notes\n")
    for path in ("wrong.plan", "notes.md", "gone.plan"):
        assert main(["prove", "dp2-tp2.plan", "--reference", path, "-o", "concise"]) == 2
        said = capsys.readouterr()
        assert path in said.out
        assert said.err == ""


def test_check_proves_the_pairs_of_the_project_after_the_rules(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text("[[proof]]\nreference = 'single.plan'\nparallel = ['dp2-tp2.plan']\n")
    assert main(["check", "single.plan", "dp2-tp2.plan", "-o", "json"]) == 0
    assert [verdict["verdict"] for verdict in verdicts(capsys)] == ["proved"]
    (here / "tvlint.toml").write_text("[[proof]]\nreference = 'single.plan'\nparallel = ['dp2-tp2-broken.plan']\n")
    assert main(["check", "single.plan", "-o", "json"]) == 1
    assert [verdict["verdict"] for verdict in verdicts(capsys)] == ["refuted"]
    assert main(["check", "single.plan", "--no-prove", "-o", "json"]) == 0
    assert verdicts(capsys) == []


def test_check_of_named_files_proves_the_pairs_that_have_a_plan_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "tvlint.toml").write_text(
        "[[proof]]\nreference = 'single.plan'\nparallel = ['dp2-tp2.plan', 'dp2-tp2-broken.plan']\n"
    )
    for asked, proved in (
        ([], ["proved", "refuted"]),
        (["dp2-tp2.plan"], ["proved"]),
        ([str(here)], ["proved", "refuted"]),
        (["single.plan"], ["proved", "refuted"]),
        (["--changed", "tvlint.toml"], ["proved", "refuted"]),
    ):
        main(["check", *asked, "-o", "json"])
        assert [verdict["verdict"] for verdict in verdicts(capsys)] == proved
    (here / "train.sh").write_text("echo\n")
    main(["check", "train.sh"])
    said = capsys.readouterr()
    assert "proved" not in said.out
    assert "2 pairs of `[[proof]]` with no plan in what was named" in said.err


def test_a_plan_stays_the_same_plan_in_every_format(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "dp2-tp2.plan", "-o", "json:a.json"]) == 0
    assert main(["convert", "a.json", "-o", "text:b.plan"]) == 0
    assert main(["convert", "b.plan"]) == 0
    again = capsys.readouterr().out
    first, second = json.loads((here / "a.json").read_text()), json.loads(again)
    assert first.keys() == second.keys()
    assert main(["prove", "b.plan", "--reference", "single.plan"]) == 0
    assert main(["prove", "a.json", "--reference", "single.plan"]) == 0


@needs_shared
def test_a_plan_of_nnscaler_is_proved_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert SHARED is not None
    good = SHARED / "plans" / "good"
    parallel = good / "mlp_default_dp2_pp2_tp2_nm2_gbs16_dim1024_ly4.pkl.xz"
    reference = good / "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim1024_ly4.pkl.xz"
    assert main(["prove", str(parallel), "--reference", str(reference), "-o", "json"]) == 0
    assert [verdict["verdict"] for verdict in verdicts(capsys)] == ["proved"]
