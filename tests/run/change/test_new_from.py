"""`tvlint check --new-from`: only findings that a change brings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tvlint.cli import main
from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.run.project.discovery import Candidates

PIPELINE = "--pipeline-model-parallel-size 2"
WRONG = f"#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 47 {PIPELINE} --hidden-size 64\n"
RULE = "layers-not-divisible-by-pp"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.sh").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "tvlint.toml").write_text(f'select = ["{RULE}"]\n')
    commit(folder, old=WRONG)
    git(folder, "switch", "-qc", "change")
    monkeypatch.chdir(folder)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], int]:
    capsys.readouterr()
    code = main(["check", "-o", "json", "--no-cache", "--new-from", "main", *arguments])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, [finding["path"] for finding in report["findings"]], report["known"]


def test_only_what_the_change_brings_is_told(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys) == (0, [], 1)
    commit(repository, old="# more\n\n" + WRONG.replace("47", "45"), new=WRONG)
    assert told(capsys) == (1, ["new.sh"], 1)
    assert told(capsys, "old.sh") == (0, [], 1)


LONG = "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py \\\n --num-layers {} \\\n --pipeline-model-parallel-size {}\n"


@pytest.mark.parametrize(("before", "after", "line", "others"), [((47, 1), (47, 2), 4, [3]), ((48, 2), (47, 2), 3, [4])])
def test_a_finding_stands_on_the_line_that_the_change_has_written(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    before: tuple[int, int],
    after: tuple[int, int],
    line: int,
    others: list[int],
) -> None:
    git(repository, "switch", "-q", "main")
    commit(repository, old=LONG.format(*before))
    git(repository, "switch", "-q", "change")
    git(repository, "reset", "-q", "--hard", "main")
    commit(repository, old="# more\n" + LONG.format(*after))
    assert main(["check", "-o", "json", "--no-cache", "--new-from", "main"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["path"], finding["line"]) == ("old.sh", line + 1)
    assert [each["line"] for each in finding["related"]] == [each + 1 for each in others]


def test_a_renamed_file_brings_nothing_and_a_copy_does(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "mv", "old.sh", "other.sh")
    assert told(capsys) == (0, [], 1)
    (repository / "old.sh").write_text(WRONG)
    assert told(capsys) == (1, ["other.sh"], 1)


def test_what_the_other_branch_has_since_mended_is_still_not_new(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "switch", "-q", "main")
    commit(repository, old=WRONG.replace("47", "48"))
    git(repository, "switch", "-q", "change")
    assert told(capsys) == (0, [], 1)


def test_what_is_read_by_a_file_is_taken_from_the_same_commit(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = 'source "$(dirname "$0")/common.sh"\n' + WRONG.replace(
        "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size $PP"
    )
    git(repository, "switch", "-q", "main")
    commit(repository, common="PP=1\n", run=script)
    git(repository, "switch", "-q", "change")
    git(repository, "reset", "-q", "--hard", "main")
    assert told(capsys) == (0, [], 1)
    commit(repository, common="PP=2\n")
    code, paths, known = told(capsys)
    assert (code, known) == (1, 1)
    assert set(paths) <= {"common.sh", "run.sh"}
    assert paths


@pytest.mark.parametrize("revision", ["nosuch", "unrelated", "--all"])
def test_it_is_loud_where_the_commit_is_not_known(revision: str, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "switch", "-q", "--orphan", "unrelated")
    commit(repository, new=WRONG)
    git(repository, "switch", "-q", "change")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["check", f"--new-from={revision}", "--no-cache"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "fetch-depth: 0" in said
    assert "two files" not in said
    assert (f"no revision `{revision}`" in said) is (revision != "unrelated")


def test_what_is_not_known_of_the_time_before_ends_the_run(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding that was there would be told as new."""

    def ended(candidates: Candidates, *_: object) -> tuple[Report, object]:
        return Report(problems=(Problem("the file needs more than 1 seconds", Location(candidates.files[0]), "", True),)), None

    monkeypatch.setattr("tvlint.run.change.new_from.check", ended)
    with pytest.raises(SystemExit) as ending:
        main(["check", "--no-cache", "--new-from", "main"])
    assert ending.value.code == 2
    said = capsys.readouterr().err
    assert "what `old.sh` held before the change is not known: the file needs more than 1 seconds" in said
