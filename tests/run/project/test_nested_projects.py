"""A file is judged by the nearest project file, with its profiles and what it extends, wherever tvlint is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile.workspace import git
from shared import ROOT

from tvlint.cli import main

WRONG = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
LAYERS, BATCH = "layers-not-divisible-by-pp", "global-batch-not-divisible"
UNSIZED = "MODEL_ARGS:\n  --num-layers: 8\n  --tensor-model-parallel-size: 4\n  --num-attention-heads: 8\n"


@pytest.fixture
def monorepo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a wrong script in `one` and `two`; `two` has a project file of its own."""
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two", "two/deep", "two/h100"):
        (tmp_path / folder).mkdir()
    for folder in ("one", "two/deep"):
        (tmp_path / folder / "train.sh").write_text(WRONG)
    (tmp_path / "two/h100/args.yaml").write_text(UNSIZED)
    (tmp_path / "tvlint.toml").write_text(f'ignore = ["{LAYERS}"]\n')
    (tmp_path / "two/tvlint.toml").write_text(f'[severity]\n{BATCH} = "warning"\n')
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(["check", "--no-cache", "-o", "json", *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def told(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    """The errors and warnings, by file name from the checkout."""
    return {
        (finding["path"], finding["rule"], finding["severity"])
        for finding in found["findings"]
        if finding["severity"] != "note"
    }


ONE = {("one/train.sh", BATCH, "error")}
TWO = {("two/deep/train.sh", LAYERS, "error"), ("two/deep/train.sh", BATCH, "warning")}


def test_each_file_is_judged_by_the_nearest_project_file(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys)
    assert told(found) == ONE | TWO
    assert found["judged_by"] == [{"path": "two/tvlint.toml", "files": 2}]
    assert told(report(capsys, "two/deep/train.sh", "one/train.sh")) == ONE | TWO
    assert told(report(capsys, "--changed", "two/deep/train.sh")) == TWO
    assert main(["check", "two", "--no-cache"]) == 1
    assert "judged by two/tvlint.toml: 2 files" in capsys.readouterr().out


def test_what_is_found_does_not_depend_on_where_tvlint_starts(
    monorepo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(monorepo / "two")
    assert told(report(capsys)) == TWO
    monkeypatch.chdir(monorepo / "two/deep")
    assert told(report(capsys, "train.sh")) == TWO


def test_the_file_that_is_named_counts_alone(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--config", "tvlint.toml")
    assert told(found) == ONE | {("two/deep/train.sh", BATCH, "error")}
    assert [each["path"] for each in found["findings"] if each["rule"] == "unjudged-file"] == ["two/tvlint.toml"]


def test_a_file_takes_what_it_does_not_give_from_the_one_that_it_extends(
    monorepo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (monorepo / "two/tvlint.toml").write_text(f'extends = "../tvlint.toml"\n[severity]\n{BATCH} = "note"\n')
    assert told(report(capsys)) == ONE
    (monorepo / "two/tvlint.toml").write_text('extends = "../tvlint.toml"\nignore = []\n')
    assert told(report(capsys)) == ONE | {(path, rule, "error") for path, rule, _ in TWO}


def test_a_profile_gives_settings_to_its_files(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def unsized(*arguments: str) -> bool:
        return any(finding["rule"] == "unknown-world-size" for finding in report(capsys, *arguments)["findings"])

    assert unsized()
    profile = '[[profile]]\nfiles = ["h100/*"]\nworld-size = {}\n'
    (monorepo / "two/tvlint.toml").write_text(profile.format(8))
    assert not unsized()
    assert told(report(capsys, "two/h100/args.yaml")) == set()
    (monorepo / "two/tvlint.toml").write_text(profile.format(6))
    assert {rule for _, rule, _ in told(report(capsys, "two/h100/args.yaml"))} == {"world-size-not-divisible"}
    assert told(report(capsys, "two/h100/args.yaml", "--world-size", "8")) == set()
    (monorepo / "two/tvlint.toml").write_text(profile.format(8).replace("h100", "a100"))
    assert unsized()


def test_what_a_file_below_excludes_is_left_out_of_folders(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (monorepo / "two/tvlint.toml").write_text('exclude = ["deep"]\n')
    assert told(report(capsys)) == ONE
    assert {path for path, _, _ in told(report(capsys, "two/deep/train.sh"))} == {"two/deep/train.sh"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "../../elsewhere.toml"\n', "lies outside of the checkout"),
        ('extends = "gone.toml"\n', "which this file extends, cannot be read"),
        ('extends = "tvlint.toml"\n', "extends this file in the end"),
        ('extends = "loop.toml"\n', "extends this file in the end"),
        ('ignore = ["no-such-rule"]\n', "unknown rule `no-such-rule`"),
        ("[[profile]]\nworld-size = 8\n", "a `[[profile]]` needs `files`"),
        ('[[profile]]\nfiles = ["*"]\nignore = []\n', "unknown key `ignore`"),
    ],
)
def test_a_wrong_file_below_is_a_problem_at_its_line(
    monorepo: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (monorepo.parent / "elsewhere.toml").write_text("")
    (monorepo / "two/loop.toml").write_text('extends = "tvlint.toml"\n')
    (monorepo / "two/tvlint.toml").write_text(text)
    git(monorepo, "add", "-A")
    assert main(["check", "two", "--no-cache"]) == 2
    assert main(["config", "verify"]) == 2
    said = capsys.readouterr().out
    assert said.count(message) == 2
    assert "two/tvlint.toml:" in said or "two/loop.toml:" in said


def test_a_link_out_of_the_checkout_is_not_extended(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (monorepo.parent / "elsewhere.toml").write_text(f'ignore = ["{BATCH}"]\n')
    (monorepo / "two/base.toml").symlink_to(monorepo.parent / "elsewhere.toml")
    (monorepo / "two/tvlint.toml").write_text('extends = "base.toml"\n')
    assert main(["check", "two", "--no-cache"]) == 2
    assert "lies outside of the checkout" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "reason"), [(".git/config", "git keeps it for itself"), ("secret.toml", "git does not track it")]
)
def test_a_project_file_of_a_commit_extends_what_is_in_the_commit(
    monorepo: Path, capsys: pytest.CaptureFixture[str], named: str, reason: str
) -> None:
    (monorepo / "two/tvlint.toml").write_text(f'extends = "../{named}"\n')
    git(monorepo, "add", "-A")
    (monorepo / "secret.toml").write_text("hunter2 = 1\n")
    assert main(["check", "two", "--no-cache"]) == 2
    said = capsys.readouterr().out
    assert f"which this file extends, cannot be read: {reason}" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("command", [("check", "--no-cache"), ("baseline", "write"), ("baseline", "verify")])
@pytest.mark.parametrize(
    ("named", "reason"),
    [("../outside.json", "outside of its checkout"), (".git/config", "git keeps"), ("link.json", "outside")],
)
def test_a_project_file_names_a_baseline_in_its_checkout_only(
    monorepo: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], named: str, reason: str
) -> None:
    (monorepo / "link.json").symlink_to("../outside.json")
    (monorepo / "tvlint.toml").write_text(f'baseline = "{named}"\n')
    before = (monorepo / ".git/config").read_bytes()
    assert main(command) == 2
    assert reason in capsys.readouterr().out
    assert not (monorepo.parent / "outside.json").exists()
    assert (monorepo / ".git/config").read_bytes() == before


def known_in_two(monorepo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is found in `two` now in the baseline of its own project file."""
    (monorepo / "two/tvlint.toml").write_text('baseline = "known/two.json"\n')
    (monorepo / "two/known").mkdir()
    monkeypatch.chdir(monorepo / "two")
    assert main(["baseline", "write"]) == 0
    monkeypatch.chdir(monorepo)


def test_what_a_folder_knows_is_known_from_above(
    monorepo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known_in_two(monorepo, monkeypatch)
    assert told(report(capsys)) == ONE
    assert told(report(capsys, "--changed", "two/deep/train.sh")) == set()
    assert report(capsys, "two")["known"] == 3
    script = monorepo / "two/deep/train.sh"
    script.write_text(WRONG.replace("--num-attention-heads 32", "--num-attention-heads 30"))
    assert {rule for _, rule, _ in told(report(capsys, "two"))} >= {"heads-not-divisible-by-tp"}


def test_baselines_of_all_folders_are_kept_at_once(
    monorepo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known_in_two(monorepo, monkeypatch)
    assert main(["baseline", "verify"]) == 0
    assert main(["baseline", "write"]) == 0
    entries = json.loads((monorepo / "tvlint-baseline.json").read_text())["findings"]
    assert {(entry["path"], entry["rule"]) for entry in entries} == {("one/train.sh", BATCH)}
    (monorepo / "tvlint.toml").write_text(f'ignore = ["{LAYERS}"]\nbaseline = "tvlint-baseline.json"\n')
    assert told(report(capsys)) == set()
    (monorepo / "two/deep/train.sh").unlink()
    assert main(["baseline", "verify"]) == 1
    assert "`two/known/two.json`: no more: ../deep/train.sh: 47 layers" in capsys.readouterr().err
    monkeypatch.setenv("CI", "true")
    (monorepo / "two/deep/new.sh").write_text(WRONG + WRONG)
    before = (monorepo / "tvlint-baseline.json").read_bytes()
    with pytest.raises(SystemExit):
        main(["baseline", "write"])
    assert (monorepo / "tvlint-baseline.json").read_bytes() == before


def test_a_folder_of_a_monorepo_begins_with_itself(
    monorepo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known_in_two(monorepo, monkeypatch)
    monkeypatch.chdir(monorepo / "one")
    assert main(["init", "--no-cache"]) == 0
    said = capsys.readouterr().err
    assert "wrote `tvlint-baseline.json` with what was here before: 2 errors" in said
    assert "nothing in `../tvlint.toml` does" in said
    monkeypatch.chdir(monorepo)
    (monorepo / "tvlint.toml").unlink()
    assert main(["init", "--no-cache"]) == 0
    assert not (monorepo / "tvlint-baseline.json").exists()
    assert told(report(capsys)) == set()


def test_pairs_of_a_folder_are_proved_from_above(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("single.plan", "dp2-tp2.plan"):
        (monorepo / "two" / name).write_text((ROOT / "fixtures" / "tour" / name).read_text())
    (monorepo / "two/tvlint.toml").write_text('[[proof]]\nreference = "single.plan"\nparallel = ["dp2-tp2.plan"]\n')
    (verdict,) = report(capsys)["verdicts"]
    assert (verdict["parallel"], verdict["verdict"]) == ("two/dp2-tp2.plan", "proved")


def test_a_gate_takes_all_project_files_from_the_revision(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (monorepo / "base.toml").write_text(f'[severity]\n{LAYERS} = "warning"\n')
    (monorepo / "two/tvlint.toml").write_text('extends = "../base.toml"\n')
    git(monorepo, "add", "-A")
    git(monorepo, "commit", "-q", "-m", "two files")
    trusted = ONE | {("two/deep/train.sh", LAYERS, "warning"), ("two/deep/train.sh", BATCH, "error")}
    assert told(report(capsys, "--policy", "main")) == trusted
    off = f'ignore = ["{LAYERS}", "{BATCH}"]\n'
    (monorepo / "two/tvlint.toml").write_text(off)
    (monorepo / "two/deep/tvlint.toml").write_text(off)
    (monorepo / "base.toml").write_text(off)
    assert told(report(capsys)) == ONE
    changed = {(path, "changed-policy", "warning") for path in ("two/tvlint.toml", "two/deep/tvlint.toml", "base.toml")}
    assert told(report(capsys, "--policy", "main")) == trusted | changed


def test_an_old_commit_is_judged_by_the_same_files(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(report(capsys, "--new-from", "main")) == set()
    (monorepo / "two/deep/train.sh").write_text(WRONG.replace("size 4", "size 3"))
    assert {rule for _, rule, _ in told(report(capsys, "--new-from", "main"))} - {LAYERS, BATCH} != set()
