"""Where the number of ranks comes from when a configuration does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Report
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project

RULES = load_rules()
SCRIPT = "torchrun --nproc-per-node {ranks} pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 8\n"


def run(folder: Path, text: str, world_size: int | None = None) -> Report:
    """The report on a script with this text."""
    path = folder / "train.sh"
    path.write_text(text, encoding="utf-8")
    project = Project(folder, world_size=world_size)
    return check(Candidates((str(path),), frozenset({str(path)})), RULES, RULES, project)[0]


def sizes(report: Report) -> list[str]:
    """What is said about the number of ranks."""
    return [finding.message for finding in report.findings if finding.rule == "world-size-not-divisible"]


@pytest.mark.parametrize(
    ("ranks", "comment", "project", "expected"),
    [
        ("12", "", None, 1),
        ("16", "# tvlint: world-size=12\n", 12, 0),
        ("$GPUS", "", None, 0),
        ("$GPUS", "# tvlint: world-size=12\n", None, 1),
        ("$GPUS", "# tvlint: world-size=16\n", 12, 0),
        ("$GPUS", "", 12, 1),
        ("$GPUS", "", 16, 0),
    ],
)
def test_the_file_wins_over_the_comment_and_the_comment_over_the_project(
    tmp_path: Path, ranks: str, comment: str, project: int | None, expected: int
) -> None:
    assert len(sizes(run(tmp_path, comment + SCRIPT.format(ranks=ranks), project))) == expected


def test_a_comment_is_about_the_launches_below_it(tmp_path: Path) -> None:
    launch = SCRIPT.format(ranks="$GPUS")
    report = run(tmp_path, f"# tvlint: world-size=16\n{launch}# tvlint: world-size=12\n{launch}")
    assert [finding.location.line for finding in report.findings if finding.rule == "world-size-not-divisible"] == [3]
    assert len(sizes(run(tmp_path, f"{launch}# tvlint: world-size=12\n"))) == 1


@pytest.mark.parametrize("value", ["", "0", "-8", "many", "8x", "99999999999"])
def test_a_comment_without_a_number_of_ranks_is_a_problem(tmp_path: Path, value: str) -> None:
    report = run(tmp_path, f"# tvlint: world-size={value}\n" + SCRIPT.format(ranks="$GPUS"))
    assert ["no number of ranks" in problem.message for problem in report.problems] == [True]
    assert report.problems[0].location.line == 1
