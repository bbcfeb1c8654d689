"""The print of a finding stays the same for as long as the finding does."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import reports
from tests.builders.plan_findings import findings_of_plan
from tvlint.cli import main
from tvlint.findings import Finding, Report, Severity
from tvlint.identity import fingerprint, numbered
from tvlint.ir.location import Location
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.forge import junit
from tvlint.rulebook.pages import load_rules
from tvlint.run.change.diff import FilePair, diff
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project
from tvlint.run.silence.baseline import compare, entries_of

RULES = load_rules()

SCRIPT = [
    "#!/bin/bash",
    "MODEL=(",
    "    --num-layers 47",
    "    --pipeline-model-parallel-size 2",
    "    --num-attention-heads 32",
    "    --tensor-model-parallel-size 3",
    ")",
    'torchrun --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}"',
]
PLAN = """
mesh dp=2 tp=2
weight w f32[8,8] tp:S(1)
weight v f32[8,8]
input x f32[4,8]
loss l f32[]
program
  t1 = linear(x, w)
  t2 = gelu(t1)
  t3 = all-gather(v, dim=0) over dp async h4
  t5 = linear(t2, t3)
  wait h4
  l = sum(t5)
"""


def test_what_may_make_a_finding_untrue_is_no_part_of_it() -> None:
    """An argument that is passed on, or not any more, makes no other finding of an old one."""
    message, place = "`ppo_trainer.yaml` has no `actor.grad_offload`", Location("train.sh", 3)
    prints = {
        fingerprint(Finding("unknown-override", Severity.ERROR, said, place))
        for said in (message, f"{message}, unless `$@` chooses another configuration")
    }
    assert len(prints) == 1


def written(path: Path, tmp_path: Path) -> list[dict[str, Any]]:
    assert main(["check", str(path), "-o", f"sarif:{tmp_path / 'out.sarif'}", "--no-cache"]) == 1
    results: list[dict[str, Any]] = json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"]
    return results


def prints(path: Path, tmp_path: Path) -> list[tuple[str, str]]:
    return sorted((result["ruleId"], result["partialFingerprints"]["tvlint/v2"]) for result in written(path, tmp_path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.mark.heavy
@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, len(SCRIPT) - 1), st.sampled_from(["", "# a note", "    # another"])), max_size=4),
    st.sampled_from(["train.sh", "other.sh", "sub/train.sh"]),
    st.sampled_from(["47", "45", "43"]),
)
def test_lines_names_and_values_do_not_change_what_a_finding_is(
    folder: Path, inserted: list[tuple[int, str]], name: str, layers: str
) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "before.sh").write_text("\n".join(SCRIPT) + "\n")
    lines = [line.replace("47", layers) for line in SCRIPT]
    for at, text in sorted(inserted, reverse=True):
        lines.insert(at + 1 if at == 0 else at, text)
    (folder / name).write_text("\n".join(lines) + "\n")
    before = prints(folder / "before.sh", folder)
    assert {rule for rule, _ in before} >= {"layers-not-divisible-by-pp", "heads-not-divisible-by-tp"}
    assert prints(folder / name, folder) == before


def plan_prints(text: str) -> Counter[tuple[str, str]]:
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return Counter((finding.rule, fingerprint(finding)) for finding in findings_of_plan(plan))


@settings(max_examples=25)
@given(st.lists(st.integers(7, 11), max_size=4), st.integers(0, 500))
def test_operators_put_in_between_do_not_change_what_a_finding_is(at: list[int], shift: int) -> None:
    lines = PLAN.split("\n")
    for number, place in enumerate(sorted(at, reverse=True)):
        lines.insert(place, f"  u{number} = relu(x)")
    text = "\n".join(lines)
    for old in (1, 2, 3, 5):
        text = text.replace(f"t{old}", f"t_{old}")
    for old in (1, 2, 3, 5):
        text = text.replace(f"t_{old}", f"t{old + shift}")
    before = plan_prints(PLAN)
    assert {rule for rule, _ in before} >= {"missing-wait"}
    assert plan_prints(text) >= before


def kept(before: Path, after: Path) -> None:
    """Hold what was found before, in the baseline and in JUnit, against what is found in another version of the file."""
    old, new = (check(Candidates((str(path),)), RULES, RULES, Project(before.parent))[0] for path in (before, after))
    entries = entries_of(old.findings, before.parent)
    assert len(old.findings) > 1
    before.unlink()
    compared = compare(new, entries, before.parent)
    assert (compared.new, compared.stale) == ((), ())
    assert cases(new) == cases(old)


def cases(report: Report) -> set[str | None]:
    suites = ElementTree.fromstring(junit.write(report, reports.context(Path())).text)
    return {case.get("name") for case in suites.iter("testcase") if case.get("name") != "rules not evaluated"}


@pytest.mark.heavy
@settings(max_examples=15)
@given(st.lists(st.integers(2, len(SCRIPT) - 1), max_size=4), st.sampled_from(["new.sh", "sub/train.sh"]))
def test_a_renamed_script_with_more_lines_keeps_its_baseline_cases_and_changes(folder: Path, at: list[int], name: str) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    lines = [*SCRIPT]
    for number in sorted(at, reverse=True):
        lines.insert(number, "    # a note")
    old, new = folder / "train.sh", folder / name
    for path, text in ((old, SCRIPT), (new, lines)):
        path.write_text("\n".join(text).replace("--num-layers", "--lr nine --num-layers") + "\n")
    report, notes = diff((FilePair(str(old), str(new)),), RULES, RULES, Project(folder))
    assert (report.findings, report.comparisons, report.problems, notes) == ((), (), (), ())
    kept(old, new)
    new.unlink()


@settings(max_examples=15)
@given(st.lists(st.integers(7, 11), max_size=4), st.integers(0, 500), st.sampled_from(["new.plan", "sub/example.plan"]))
def test_a_renamed_plan_with_more_operators_keeps_its_baseline_and_cases(
    folder: Path, at: list[int], shift: int, name: str
) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    lines = PLAN.replace("  wait h4\n", "  l = sum(t2)\n").split("\n")
    (folder / "example.plan").write_text("\n".join(lines))
    for number, place in enumerate(sorted(at, reverse=True)):
        lines.insert(place, f"  unused{number} = relu(x)")
    text = re.sub(r"\bt(\d)\b", lambda own: f"t{int(own[1]) + shift}", "\n".join(lines))
    (folder / name).write_text(text)
    kept(folder / "example.plan", folder / name)
    (folder / name).unlink()


def test_another_rule_setting_or_tensor_is_another_finding() -> None:
    finding = Finding("a-rule", Severity.ERROR, "`w` is sharded over `tp`", Location("a.plan", 3))
    others = [
        Finding("b-rule", Severity.ERROR, "`w` is sharded over `tp`", Location("a.plan", 3)),
        Finding("a-rule", Severity.ERROR, "`v` is sharded over `tp`", Location("a.plan", 3)),
        Finding("a-rule", Severity.ERROR, "`layers.1.w` is sharded over `tp`", Location("a.plan", 3)),
        Finding("a-rule", Severity.ERROR, "`layers.2.w` is sharded over `tp`", Location("a.plan", 3)),
        Finding("a-rule", Severity.ERROR, "`w` is sharded over `tp`", Location("a.plan", 3), about=(), section="large"),
    ]
    assert len({fingerprint(each) for each in (finding, *others)}) == len(others) + 1
    same = Finding("a-rule", Severity.NOTE, "`w` is not sharded over `tp`, 48 times", Location("b.plan", 4), "help")
    assert fingerprint(same) == fingerprint(finding)
    assert numbered(["a", "b", "a"]) == ["a:1", "b:1", "a:2"]


def test_prints_of_text_files_from_earlier_versions_are_still_written(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("\n".join(SCRIPT) + "\n")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        found = {result["ruleId"]: result["partialFingerprints"]["tvlint/v1"] for result in written(Path("train.sh"), tmp_path)}
    finally:
        os.chdir(here)
    assert found["layers-not-divisible-by-pp"] == "32ce93ef09b99708d966fc5c992c6fa6:1"
    assert found["heads-not-divisible-by-tp"] == "7c1f12a6fc9feeaadd1cc65d42b20127:1"
