"""`tvlint baseline`: what was there before stays known, what is new is told, and it never grows unseen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampling import sampled
from tvlint.cli import main
from tvlint.findings import Finding, Report, Severity
from tvlint.ir.location import Location
from tvlint.run.project.project_file import Project, ProjectError
from tvlint.run.silence.baseline import compare, entries_of, grown, load, pruned

SCRIPT = """\
#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 47 --pipeline-model-parallel-size 2 \\
    --num-attention-heads 32 --tensor-model-parallel-size 3 --hidden-size 4096
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text(SCRIPT)
    (tmp_path / "tvlint.toml").write_text('baseline = "tvlint-baseline.json"\n')
    assert main(["baseline", "write"]) == 0
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], int]:
    capsys.readouterr()
    code = main(["check", "-o", "json", "--no-cache", "--fail-on", "note", *arguments])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, sorted(finding["rule"] for finding in report["findings"]), report["known"]


def test_what_was_there_is_not_told_and_what_is_new_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rules, known = told(capsys)
    assert (code, rules) == (0, [])
    assert known >= 2
    (project / "train.sh").write_text("# a note\n\n" + SCRIPT.replace("47", "45"))
    assert told(capsys) == (0, [], known)
    (project / "other.sh").write_text(SCRIPT.replace("-size 3", "-size 4"))
    code, rules, _ = told(capsys)
    assert code == 1
    assert "layers-not-divisible-by-pp" in rules
    assert told(capsys, "--baseline", "none.json")[0] == 2


def test_what_is_told_once_a_run_is_known_in_whichever_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hook checks some of the files: the first of them is not the first of all."""
    unknown = SCRIPT.replace("--nproc_per_node 8", "--nnodes $N")
    (project / "a.sh").write_text(unknown)
    (project / "b.sh").write_text(unknown)
    assert "unknown-world-size" in told(capsys)[1]
    assert main(["baseline", "write"]) == 0
    assert told(capsys)[:2] == told(capsys, "b.sh")[:2] == told(capsys, "--changed", "b.sh")[:2] == (0, [])
    assert main(["baseline", "verify"]) == 0
    (project / "a.sh").write_text(SCRIPT)
    (project / "b.sh").write_text(SCRIPT)
    assert main(["baseline", "verify"]) == 1
    assert main(["baseline", "prune"]) == 0
    (project / "b.sh").write_text(unknown)
    assert told(capsys, "b.sh")[1] == ["unknown-world-size"]


def test_a_renamed_file_keeps_its_entries_and_a_copy_has_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = told(capsys)[2]
    (project / "train.sh").rename(project / "renamed.sh")
    assert told(capsys) == (0, [], known)
    (project / "train.sh").write_text(SCRIPT)
    code, rules, again = told(capsys)
    assert (code, again) == (1, known)
    assert "layers-not-divisible-by-pp" in rules


def test_what_is_mended_is_said_and_pruned_and_then_new_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baseline", "verify"]) == 0
    (project / "train.sh").write_text(SCRIPT.replace("47", "48"))
    capsys.readouterr()
    assert main(["check", "--no-cache"]) == 0
    assert "1 finding of the baseline is gone" in capsys.readouterr().err
    assert main(["baseline", "verify"]) == 1
    assert "layers-not-divisible-by-pp" in capsys.readouterr().err
    assert main(["baseline", "prune"]) == 0
    assert main(["baseline", "verify"]) == 0
    (project / "train.sh").write_text(SCRIPT)
    assert told(capsys)[1] == ["layers-not-divisible-by-pp"]


def test_in_ci_it_only_shrinks(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CI", "true")
    before = (project / "tvlint-baseline.json").read_bytes()
    (project / "more.sh").write_text(SCRIPT)
    with pytest.raises(SystemExit) as ended:
        main(["baseline", "write"])
    assert ended.value.code == 2
    assert "in CI it only shrinks" in capsys.readouterr().err
    assert (project / "tvlint-baseline.json").read_bytes() == before
    (project / "more.sh").unlink()
    (project / "train.sh").write_text(SCRIPT.replace("47", "48"))
    assert main(["baseline", "write"]) == 0
    assert len((project / "tvlint-baseline.json").read_bytes()) < len(before)


def test_a_run_judges_the_entries_of_the_rules_and_files_that_it_looks_for(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was renamed stands where a part of the project does not show it; no entry is lost to such a run."""
    (project / "part").mkdir()
    (project / "part/good.sh").write_text(SCRIPT.replace("47", "48").replace("-size 3", "-size 4"))
    known = told(capsys)[2]
    one = ["--select", "layers-not-divisible-by-pp"]
    for arguments in (["part"], one):
        assert [main(["baseline", action, *arguments]) for action in ("write", "verify", "prune")] == [0, 0, 0]
    (project / "train.sh").rename(project / "renamed.sh")
    for arguments in (["part"], ["--changed"], one, ["--ignore", one[1]]):
        main(["check", "--no-cache", *arguments])
        assert "of the baseline" not in capsys.readouterr().err
    for arguments in (["part"], one):
        assert [main(["baseline", action, *arguments]) for action in ("verify", "prune")] == [0, 0]
    monkeypatch.chdir("part")
    assert main(["baseline", "prune"]) == 0
    monkeypatch.chdir(project)
    assert told(capsys) == (0, [], known)
    (project / "renamed.sh").unlink()
    assert main(["baseline", "verify"]) == 1
    assert main(["baseline", "prune"]) == 0
    assert json.loads((project / "tvlint-baseline.json").read_bytes())["findings"] == []


def test_what_cannot_be_read_leaves_it_as_it_is(project: Path) -> None:
    before = (project / "tvlint-baseline.json").read_bytes()
    (project / "broken.yaml").write_text("MODEL_ARGS: [\n")
    assert main(["baseline", "write", ".", "broken.yaml", "nosuch.sh"]) == 2
    assert (project / "tvlint-baseline.json").read_bytes() == before


def test_a_baseline_named_as_a_path_to_check_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["baseline", "write", "known.json"]) == 2
    assert "`--baseline known.json` names a baseline; `known.json` alone is a path to check" in capsys.readouterr().err
    assert not (tmp_path / "known.json").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2, "findings": []}', '{"format": 1, "findings": [1]}', "[" * 100_000,
             '{"format": 1, "findings": [{"path": "a", "rule": "b", "fingerprint": "c", "count": -1}]}'],
)  # fmt: skip
def test_a_broken_baseline_is_a_problem_at_its_file(text: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tvlint-baseline.json").write_text(text)
    with pytest.raises(ProjectError):
        load(project / "tvlint-baseline.json", Project(project))
    capsys.readouterr()
    assert main(["check", "-o", "concise", "--no-cache"]) == 2
    assert capsys.readouterr().out.startswith("tvlint-baseline.json:1:1: error: the baseline")


def test_statistics_count_by_rule_and_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tvlint.toml").write_text("")
    (project / "other.sh").write_text(SCRIPT)
    capsys.readouterr()
    assert main(["check", "--statistics", "--no-cache", "--select", "layers-not-divisible-by-pp"]) == 1
    *counts, recognised, total = capsys.readouterr().out.splitlines()
    assert counts == ["     2  error    layers-not-divisible-by-pp", "", "     1  other.sh", "     1  train.sh", ""]
    assert recognised.startswith("recognised 2 files as megatron-lm (")
    assert total == "2 errors in 2 files"


FINDINGS = st.lists(
    st.builds(
        lambda path, rule, name: Finding(rule, Severity.ERROR, f"`{name}` is wrong", Location(path, 1)),
        st.sampled_from(["a.sh", "b.sh", "c/d.sh"]), st.sampled_from(["one", "two"]), st.sampled_from(["w", "v"]),
    ),
    max_size=8,
)  # fmt: skip


@given(FINDINGS, FINDINGS)
def test_a_baseline_holds_what_it_was_made_of_and_no_more(old: list[Finding], new: list[Finding]) -> None:
    folder = Path.cwd()
    entries = entries_of(tuple(old), folder)
    same = compare(Report(tuple(old), checked=("a.sh", "b.sh", "c/d.sh")), entries, folder)
    assert (same.new, len(same.known), same.stale) == ((), len(old), ())
    found = compare(Report(tuple(new), checked=("a.sh", "b.sh", "c/d.sh")), entries, folder)
    assert len(found.new) + len(found.known) == len(new)
    assert len(found.new) >= grown(entries, entries_of(tuple(new), folder))
    left = pruned(entries, found.stale)
    assert sum(entry.count for entry in left) == len(found.known)
    assert grown(entries, left) == 0
    assert os.fspath(folder)


@pytest.mark.parametrize(
    "format", sampled(["text", "concise", "junit", "github", "gitlab", "rdjson", "markdown", "summary", "html", "sarif"], 3)
)
def test_what_a_baseline_holds_is_counted_in_every_format(
    project: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    known = told(capsys)[2]
    assert main(["check", "-o", format, "--no-cache"]) == 0
    assert f"{known} findings already known" in capsys.readouterr().out
    assert main(["check", "-o", format, "--no-cache", "--no-baseline"]) == 1
    assert "already known" not in capsys.readouterr().out


@pytest.mark.parametrize("action", ["write", "prune", "verify"])
@pytest.mark.parametrize("named", [True, False])
def test_a_baseline_is_neither_read_nor_written_through_a_link_that_leaves_the_checkout(
    project: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], action: str, named: bool
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "known.json"
    baseline = project / "tvlint-baseline.json"
    outside.write_text(baseline.read_text().replace("47 layers", "secret layers"))
    before = outside.read_bytes()
    (project / ".git").mkdir()
    baseline.unlink()
    baseline.symlink_to(outside)
    (project / "train.sh").write_text(SCRIPT.replace("47", "48"))
    assert main(["baseline", action, "-o", "text", *(["--baseline", "tvlint-baseline.json"] if named else [])]) == 2
    told = "".join(capsys.readouterr())
    assert "a link that leads out of the checkout" in told or "what lies outside of its checkout" in told
    assert "secret" not in told
    assert outside.read_bytes() == before
