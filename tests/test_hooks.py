"""The pre-commit hooks, run by pre-commit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from checkout import commit_all, copy_of_checkout, run_clean
from shared import ROOT

from tvlint.cli.arguments import parse

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@pytest.mark.parametrize("name", HOOKS)
def test_the_entry_is_a_command_and_arguments_stay_free(name: str) -> None:
    hook = HOOKS[name]
    command, *arguments = hook["entry"].split()
    assert command == "tvlint"
    assert callable(parse([*arguments, "train.sh"] if hook.get("pass_filenames", True) else arguments).run)
    assert not {"args", "verbose", "types_or"} & hook.keys()


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

    command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), "--hook-stage", "pre-push", "--color", "never"]
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
