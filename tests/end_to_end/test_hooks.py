"""The pre-commit hooks, run by pre-commit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shared import ROOT

from tests.builders.checkout import commit_all, copy_of_checkout, run_clean
from tests.sampling import sampled
from tvlint.cli.arguments import parse

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@pytest.mark.parametrize("name", HOOKS)
def test_the_entry_is_a_command_and_arguments_stay_free(name: str) -> None:
    hook = HOOKS[name]
    command, *arguments = hook["entry"].removeprefix("python -I -m ").split()
    assert command == "tvlint"
    assert callable(parse([*arguments, "train.sh"] if hook.get("pass_filenames", True) else arguments).run)
    assert not {"verbose", "types_or"} & hook.keys()
    assert hook.get("args", ["--"]) == ["--"]


@pytest.mark.parametrize(
    "name",
    [
        "train.sh",
        "a/b.yaml",
        "c.yml",
        "d.sbatch",
        "e.slurm",
        "plan.json",
        "f.pkl.xz",
        "g.plan",
        "h.csv",
        "i/gencode0.py",
        "recipe.py",
        "job.toml",
    ],
)
def test_the_fast_hook_sees_the_files_that_tvlint_reads(name: str) -> None:
    assert re.search(HOOKS["tvlint"]["files"], name)
    assert not re.search(HOOKS["tvlint"]["files"], f"{name}.md")


@pytest.mark.heavy
def test_pre_commit_runs_every_hook(tmp_path: Path) -> None:
    hooks = copy_of_checkout(tmp_path / "hooks")
    project = tmp_path / "project"
    project.mkdir()
    wrong = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
    (project / "train.sh").write_text(wrong)
    (project / "other.sh").write_text(wrong.replace("layers 47", "layers 45"))
    (project / "backup.sh").write_text("tar czf backup.tgz data\n")
    for name in ("single.plan", "dp2-tp2-broken.plan"):
        (project / name).write_text((ROOT / "fixtures" / "tour" / name).read_text())
    (project / "tvlint.toml").write_text("[[proof]]\nreference = 'single.plan'\nparallel = ['dp2-tp2-broken.plan']\n")
    commit_all(project)

    command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), "--hook-stage", "manual", "--color", "never"]
    command += ["--files", "train.sh", "backup.sh", "tvlint.toml"]
    done = run_clean(command, project, PRE_COMMIT_HOME=str(tmp_path / "home"))
    parts = re.split(r"^(tvlint \([^)]*\))\.*(?:\(.*\))?(Passed|Failed|Skipped)\n", done.stdout, flags=re.MULTILINE)
    said = {parts[at]: parts[at + 1] + parts[at + 2] for at in range(1, len(parts), 3)}
    assert len(said) == len(HOOKS), done.stdout + done.stderr
    changed = said["tvlint (changed configurations)"]
    assert changed.startswith("Failed")
    assert "train.sh:7:18: error: 47 layers" in changed
    assert "other.sh" not in changed
    assert "backup.sh" not in changed
    whole = said["tvlint (whole project)"]
    assert "other.sh:7:18: error: 45 layers" in whole
    assert "refuted" not in whole
    assert "refuted: dp2-tp2-broken.plan" in said["tvlint (whole project and its proofs)"]
    assert said["tvlint (project file)"].startswith("Passed")


@pytest.mark.parametrize("name", HOOKS)
def test_the_entry_is_isolated_python(name: str) -> None:
    assert HOOKS[name]["entry"].startswith("python -I -m tvlint ")


@pytest.mark.parametrize("stage", ["pre-commit", "pre-merge-commit", "pre-push"])
def test_no_stage_tells_the_same_twice(stage: str) -> None:
    changed = {name for name, hook in HOOKS.items() if stage in hook["stages"]} - {"tvlint-config"}
    assert changed == ({"tvlint-prove"} if stage == "pre-push" else {"tvlint", "tvlint-full"})


def hook(project: Path, name: str, *files: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a hook as pre-commit does: its entry, the arguments of the user, the names of files."""
    command = [*HOOKS[name]["entry"].split(), *args, *files]
    assert command[0] == "python"
    return subprocess.run(
        [sys.executable, *command[1:]], cwd=project, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


WRONG = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
EVIL = ("--config=evil.toml", "-ohtml:pwned.sh", "--output=json:pwned.json", "--no-prove", "--help", "--select=missing-wait")


@pytest.mark.parametrize(
    "args", sampled([(), ("--fail-on=warning",), ("--fail-on", "warning"), ("--fail-on=note", "--"), ("--",)], 3)
)
@pytest.mark.parametrize("evil", EVIL)
def test_a_file_named_like_an_option_is_no_option(tmp_path: Path, evil: str, args: tuple[str, ...]) -> None:
    (tmp_path / "train.sh").write_text(WRONG)
    (tmp_path / "evil.toml").write_text('select = ["missing-wait"]\n')
    (tmp_path / evil).write_text("")
    before = sorted(tmp_path.iterdir())
    for files in ((evil, "train.sh"), ("train.sh", evil)):
        done = hook(tmp_path, "tvlint", *files, args=args)
        if "--" in args:
            assert done.returncode == 1, done.stderr
            assert "train.sh:7:18: error: 47 layers" in done.stdout
        else:
            assert done.returncode == 2, done.stdout
            assert f"`{evil}` is an option and the name of a file here" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("args", [(), ("--fail-on=warning",), ("--",)])
def test_a_file_whose_name_begins_with_a_hyphen_is_checked(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "-x.sh").write_text(WRONG)
    (tmp_path / "--").write_text("")
    done = hook(tmp_path, "tvlint", "-x.sh", args=args)
    assert done.returncode == 1, done.stderr
    assert "-x.sh:7:18: error: 47 layers" in done.stdout
    done = hook(tmp_path, "tvlint", "--", "-x.sh", args=args)
    assert done.returncode == 1, done.stderr


def test_an_option_of_the_user_is_never_swallowed_by_a_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(WRONG)
    (tmp_path / "--fail-on=note").write_text("")
    done = hook(tmp_path, "tvlint", "train.sh", args=("--fail-on=note",))
    assert done.returncode == 2
    assert "is an option and the name of a file here" in done.stderr


def test_names_of_files_come_behind_two_hyphens_where_the_user_gives_no_arguments() -> None:
    named = [name for name, hook in HOOKS.items() if hook.get("pass_filenames", True)]
    assert named == ["tvlint"]
    assert HOOKS["tvlint"]["args"] == ["--"]


@pytest.mark.parametrize("evil", ["-o", "--output", "--fail-on"])
def test_a_file_named_like_an_option_with_a_value_blocks_nothing(tmp_path: Path, evil: str) -> None:
    (tmp_path / "train.sh").write_text(WRONG)
    (tmp_path / "note").write_text("")
    (tmp_path / evil).write_text("")
    value = "warning" if evil == "--fail-on" else "github:report.txt"
    done = hook(tmp_path, "tvlint", "train.sh", args=(evil, value))
    assert done.returncode == 1, done.stderr
    assert "47 layers" in done.stdout
    # What may be the name of a file, with or without the next one, is still refused.
    for files in ((evil,), (evil, "note"), ("train.sh", evil)):
        done = hook(tmp_path, "tvlint", *files)
        assert done.returncode == 2
        assert f"`{evil}` is an option and the name of a file here" in done.stderr


@pytest.mark.parametrize("name", ["tvlint-full", "tvlint-prove"])
def test_a_hook_with_nothing_to_check_blocks_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "readme.md").write_text("nothing\n")
    assert hook(tmp_path, name).returncode == 0
    (tmp_path / "train.sh").write_text(WRONG)
    assert hook(tmp_path, name).returncode == 1
