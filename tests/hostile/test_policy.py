"""A gate: the project file of a trusted revision, and comments that silence nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared import ROOT

from hostile.workspace import git
from tvlint.cli import main

WRONG = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
ERRORS = ("layers-not-divisible-by-pp", "global-batch-not-divisible")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `main` has a project file, and whose work tree has another one that switches rules off."""
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.sh").write_text("echo nothing\n")
    (tmp_path / "tvlint.toml").write_text('paths = ["train.sh"]\nignore = ["unknown-world-size"]\n')
    (tmp_path / "other.toml").write_text('paths = ["sub"]\n')
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "trusted")
    comment = "# tvlint: ignore[layers-not-divisible-by-pp]"
    (tmp_path / "train.sh").write_text(WRONG.replace("--num-layers 47", f"--num-layers 47 {comment}"))
    (tmp_path / "tvlint.toml").write_text('paths = ["sub"]\nselect = ["missing-wait"]\n')
    return tmp_path


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, set[str]]:
    code = main(["check", "--no-cache", "-o", "concise", *arguments])
    out = capsys.readouterr().out
    return code, {rule for rule in ERRORS if f"[{rule}]" in out}


def test_the_project_file_of_the_revision_decides(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys, "train.sh") == (0, set())
    assert found(capsys, "--policy", "main") == (1, {"global-batch-not-divisible"})
    assert found(capsys, "--policy", "main", "--no-ignore-comments") == (1, set(ERRORS))
    assert found(capsys, "--policy", "main:tvlint.toml", "--no-ignore-comments") == (1, set(ERRORS))
    assert found(capsys, "--policy=main:other.toml")[0] == 4


def test_it_is_found_from_a_folder_inside(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout / "sub")
    assert found(capsys, "--policy", "main", "--no-ignore-comments") == (1, set(ERRORS))


def test_a_revision_without_a_project_file_leaves_the_defaults(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(checkout, "rm", "-q", "--cached", "tvlint.toml")
    git(checkout, "commit", "-q", "-m", "no project file")
    assert found(capsys, "--policy", "HEAD", "--no-ignore-comments") == (1, set(ERRORS))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("nope", "the policy cannot be read: no revision `nope`"),
        ("main:gone.toml", "`main` has no file `gone.toml`"),
        ("main:../outside.toml", "`main` has no file `../outside.toml`"),
        ("main:sub", "`main` has no file `sub`"),
        ("main:", "`main` has no file ``"),
        ("", "nothing to check in `sub`"),
    ],
)
def test_a_policy_that_is_not_there_is_exit_code_2(
    checkout: Path, capsys: pytest.CaptureFixture[str], policy: str, message: str
) -> None:
    code = main(["check", "--policy", policy])
    said = capsys.readouterr()
    assert code == (2 if policy else 4)
    assert message in said.out + said.err


def code_of(arguments: list[str]) -> object:
    try:
        return main(arguments)
    except SystemExit as exit:
        return exit.code


@pytest.mark.parametrize("other", ["refs/tags/origin/main", "refs/heads/origin/main"])
@pytest.mark.parametrize("command", [("check", "--policy"), ("check", "--new-from"), ("diff",)], ids=" ".join)
def test_a_name_of_several_commits_is_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str], other: str, command: tuple[str, ...]
) -> None:
    """Git takes a tag or a branch that somebody named `origin/main` for the branch of the remote, without a word."""
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(checkout, "update-ref", other, "HEAD")
    code_of([*command, "origin/main"])
    assert "different commits" not in "".join(capsys.readouterr())
    git(checkout, "commit", "-q", "-a", "-m", "of a stranger")
    git(checkout, "update-ref", other, "HEAD")
    for name in ("origin/main", "origin/main~0"):
        assert code_of([*command, name]) == 2
        assert f"`{name}` stands for different commits: `{other}`, `refs/remotes/origin/main`" in "".join(capsys.readouterr())
    assert found(capsys, "--policy", "refs/remotes/origin/main")[0] == 1


def test_a_policy_outside_of_a_checkout_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--policy", "main"]) == 2
    assert "not in a git repository" in capsys.readouterr().out


def policy_findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    main(["check", "--no-cache", "-o", "concise", *arguments, "train.sh", "tvlint.toml"])
    return [line for line in capsys.readouterr().out.splitlines() if "[changed-policy]" in line]


def test_a_change_of_the_policy_is_a_finding(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ((said),) = policy_findings(capsys, "--policy", "main")
    assert said.startswith("tvlint.toml:1:1: warning: the project file is not that of `main`, which judges this change")
    assert "other operators" not in said
    git(checkout, "checkout", "-q", "tvlint.toml")
    assert policy_findings(capsys, "--policy", "main") == []
    assert policy_findings(capsys, "--policy", "main:other.toml") == []
    (checkout / "other.toml").write_text("")
    assert len(policy_findings(capsys, "--policy", "main:other.toml")) == 1
    (checkout / "tvlint.toml").unlink()
    assert "takes away the project file" in policy_findings(capsys, "--policy", "main")[0]


def test_other_operators_are_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator = '[[operator]]\nname = "my.norm"\nannotation = "a b -> a b"\n'
    (checkout / "tvlint.toml").write_text(f'paths = ["train.sh"]\nignore = ["unknown-world-size"]\n{operator}')
    (said,) = policy_findings(capsys, "--policy", "main")
    assert "; it declares other operators" in said


def test_a_project_file_with_mistakes_is_said_to_have_them(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "tvlint.toml").write_text('extends = "../elsewhere.toml"\n')
    (said,) = policy_findings(capsys, "--policy", "main")
    assert "; it has mistakes" in said


def test_a_project_file_in_front_of_the_policy_is_a_finding(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(checkout, "checkout", "-q", "tvlint.toml")
    (checkout / "sub" / "tvlint.toml").write_text((checkout / "tvlint.toml").read_text())
    (checkout / "sub" / "train.sh").write_text("echo nothing\n")
    monkeypatch.chdir(checkout / "sub")
    assert len(policy_findings(capsys, "--policy", "main")) == 1


def test_no_comment_silences_it(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "tvlint.toml").write_text(
        'paths = ["sub"] # tvlint: ignore-file[changed-policy]\n# tvlint: ignore[changed-policy]\n'
    )
    assert len(policy_findings(capsys, "--policy", "main")) == 1


def test_the_baseline_is_that_of_the_revision(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(checkout, "checkout", "-q", "tvlint.toml")
    text = 'paths = ["train.sh"]\nbaseline = "known.json"\n'
    (checkout / "tvlint.toml").write_text(text)
    (checkout / "known.json").write_text('{"format": 1, "findings": []}')
    (checkout / "train.sh").write_text(WRONG)
    git(checkout, "add", "tvlint.toml", "known.json")
    git(checkout, "commit", "-q", "-m", "a baseline")
    assert main(["baseline", "write"]) == 0
    assert found(capsys, "train.sh", "--no-ignore-comments") == (0, set())
    assert found(capsys, "--policy", "HEAD", "--no-ignore-comments") == (1, set(ERRORS))
    assert found(capsys, "--policy", "HEAD", "--no-ignore-comments", "--baseline", "known.json") == (1, set(ERRORS))
    assert main(["check", "--policy", "HEAD", "--baseline", "new.json"]) == 2
    assert "the revision of the policy does not have it" in capsys.readouterr().out
