"""The GitHub action: its shell steps, run with the files that a runner gives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from shared import ROOT

from tests.builders.action_runner import ACTION, STEPS, new_runner, run, shim
from tests.sampling import sampled_tuples
from tvlint import __version__
from tvlint.home import HOME

WORKFLOWS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = ("action.yml", *WORKFLOWS, "README.md", "docs/ci.md", "docs/cache.md")
OWN = HOME.removeprefix("https://github.com/")


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A runner with a launch script in its workspace."""
    found = new_runner(tmp_path)
    (found / "workspace" / "train.sh").write_text((ROOT / "fixtures" / "tour" / "train.sh").read_text())
    return found


def test_findings_become_annotations_a_summary_and_sarif_and_the_step_goes_on(runner: Path) -> None:
    step = run(runner)
    assert step.code == 0, step.log
    assert step.outputs == {"exit-code": "1", "sarif": "./tvlint.sarif", "category": "tvlint"}
    assert re.search(r"^::error file=train\.sh,line=7,.*::47 layers", step.log, re.MULTILINE), step.log
    assert "47 layers" in step.summary
    assert "layers-not-divisible-by-pp" in (runner / "workspace" / "tvlint.sarif").read_text()


def test_inputs_reach_the_command_and_never_the_shell(runner: Path) -> None:
    folder = runner / "workspace" / "a $(touch ran) b"
    folder.mkdir()
    (runner / "workspace" / "train.sh").rename(folder / "train.sh")
    (folder / "fine.sh").write_text("true\n")
    paths = f"{folder.name}/train.sh\n{folder.name}/fine.sh\n"
    step = run(runner, paths=paths, fail_on="note", prove="false", sarif="out.sarif")
    assert step.outputs["exit-code"] == "1"
    assert not list(runner.rglob("ran"))
    step = run(runner, working_directory=folder.name, fail_on="$(touch ran)")
    assert step.outputs == {"exit-code": "2", "sarif": "", "category": f"tvlint/{folder.name}"}
    assert not list(runner.rglob("ran"))


def test_what_a_change_alters_is_annotated_and_summed_up(runner: Path) -> None:
    workspace = runner / "workspace"

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=workspace, check=True)

    (workspace / "train.sh").write_text(
        "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --bf16 \\\n"
        "  --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512\n"
    )
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    script = (workspace / "train.sh").read_text()
    (workspace / "train.sh").write_text(script.replace("parallel-size 2", "parallel-size 4"))
    step = run(runner, compare="main")
    assert re.search(r"^::warning file=train\.sh,line=1,.*::the global batch goes from 4 to 2", step.log, re.MULTILINE), (
        step.log
    )
    assert "| --tensor-model-parallel-size | 2 | **4** |" in step.summary
    assert step.outputs["exit-code"] == "0"
    assert run(runner, compare="main", fail_on="warning").outputs["exit-code"] == "1"
    assert run(runner, compare="$(touch ran)").outputs["exit-code"] == "2"
    assert not list(runner.rglob("ran"))


@pytest.mark.parametrize(
    ("inputs", "message"),
    sampled_tuples(
        [
            ({"prove": "yes"}, "prove: `true` or `false`, not `yes`"),
            ({"prove": "True"}, "prove: `true` or `false`, not `True`"),
            ({"upload": "yes"}, "upload: `true` or `false`, not `yes`"),
            ({"prove": ""}, "prove: `true` or `false`, not ``"),
            ({"capture_python": "-c"}, "capture-python: a Python, not `-c`"),
            ({"capture_python": "bin/none"}, "has no `tvlint[capture]`; install it there"),
            ({"capture_python": "python", "prove": "false"}, "capture-python: not without proofs"),
            ({"capture_python": "python", "cache_key": "k" * 16}, "capture-python: not with cache-key"),
            ({"fail_on": "errors"}, "fail-on: `error`, `warning` or `note`, not `errors`"),
            ({"sarif": ""}, "sarif: the path of a file, not ``"),
            ({"sarif": "a\n::error::b"}, "sarif: the path of a file, not `a%0A::error::b`"),
            ({"new_from": "--output=x"}, "new-from: a git revision, not `--output=x`"),
            ({"new_from": "no-such-branch"}, "no revision `no-such-branch`"),
            ({"category": "a\nb"}, "category: a name, not `a%0Ab`"),
            ({"compare": "--output=x"}, "compare: a git revision, not `--output=x`"),
            ({"compare": "no-such-branch"}, "`no-such-branch` is neither a file nor a revision"),
            ({"working_directory": "nowhere"}, "working-directory: no folder `nowhere`"),
            ({"working_directory": ".."}, "working-directory: `..` lies outside of the workspace"),
            ({"working_directory": "out"}, "working-directory: `out` lies outside of the workspace"),
            ({"sarif": "nowhere/x.sarif"}, "cannot write `nowhere/x.sarif`"),
            ({"sarif": "out.sarif"}, "`out.sarif` is not written: a link that leads out of the checkout"),
        ],
        3,
    ),
)
def test_what_stops_it_is_an_annotation_and_stands_in_the_summary(runner: Path, inputs: dict[str, str], message: str) -> None:
    workspace = runner / "workspace"
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    (workspace / "out").symlink_to(runner)
    (workspace / "out.sarif").symlink_to(runner / "victim")
    (runner / "victim").write_text("as it was")
    step = run(runner, **inputs)
    assert step.code == 0, step.log
    assert step.outputs["exit-code"] == "2"
    (annotation,) = re.findall(r"^::error title=tvlint(?: diff)?::(.*)$", step.log, re.MULTILINE)
    assert message in annotation
    assert "did not complete (exit code 2)" in step.summary
    assert (runner / "victim").read_text() == "as it was"
    if "compare" not in inputs:
        assert step.outputs["sarif"] == ""


def test_a_comparison_that_fails_fails_the_job_though_nothing_else_is_wrong(runner: Path) -> None:
    (runner / "workspace" / "train.sh").write_text("echo nothing\n")
    assert run(runner).outputs["exit-code"] == "4"
    assert run(runner, compare="origin/main").outputs["exit-code"] == "2"


def test_a_report_of_the_commit_is_never_taken_for_one_of_this_run(runner: Path) -> None:
    (runner / "workspace" / "tvlint.sarif").write_text("forged")
    assert run(runner, fail_on="no").outputs["sarif"] == ""
    assert run(runner).outputs["sarif"] == "./tvlint.sarif"
    assert "forged" not in (runner / "workspace" / "tvlint.sarif").read_text()


def test_the_python_of_windows_is_found(runner: Path) -> None:
    shutil.rmtree(runner / "temp" / "tvlint")
    shim(runner / "temp" / "tvlint" / "Scripts" / "python.exe")
    assert run(runner).outputs["exit-code"] == "1"


@pytest.mark.parametrize("extra", [{}, {"PYTHONPATH": "."}, {"PYTHONSTARTUP": "evil.py", "PYTHONHOME": "."}])
def test_modules_of_the_workspace_are_not_imported(runner: Path, extra: dict[str, str]) -> None:
    for name in ("logging", "json", "venv", "pip", "yaml", "tvlint", "sitecustomize", "__future__", "importlib"):
        (runner / "workspace" / f"{name}.py").write_text("import os\nos.mkdir('ran')\nraise SystemExit(0)\n")
    step = run(runner, extra, paths="train.sh")
    assert step.outputs["exit-code"] == "1", step.log
    assert not list(runner.rglob("ran"))


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("1", 1), ("5", 5), ("", 3)])
def test_the_last_step_fails_as_tvlint_did(code: str, expected: int) -> None:
    assert list(STEPS)[-1] == "Fail on findings"
    environment = {"TVLINT_CODE": code, "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-e", "-c", STEPS["Fail on findings"]["run"]], env=environment)
    assert done.returncode == expected


def test_no_expression_stands_in_a_shell_step() -> None:
    assert not [step for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]


def test_the_packages_are_kept_by_the_lock_of_the_action(tmp_path: Path) -> None:
    names = [step.get("name") for step in ACTION["runs"]["steps"]]
    assert names[1:4] == ["Name the packages", "Keep the packages", "Install tvlint"]
    (tmp_path / "hashlib.py").write_text("raise SystemExit('code of the workspace ran')\n")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "TVLINT_SOURCE": str(ROOT),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    subprocess.run(["bash", "-e", "-c", STEPS["Name the packages"]["run"]], env=environment, check=True)
    lock = sha256((ROOT / "requirements.lock").read_bytes()).hexdigest()
    assert (tmp_path / "output").read_text() == f"lock={lock}\n"
    kept = STEPS["Keep the packages"]
    assert kept["with"]["key"].endswith("${{ inputs.python-version }}-${{ steps.packages.outputs.lock }}")
    assert kept["with"]["path"].replace("${{ runner.temp }}", "$RUNNER_TEMP") in STEPS["Install tvlint"]["run"]
    assert "--require-hashes" in STEPS["Install tvlint"]["run"]
    assert kept["continue-on-error"] is True


def test_a_job_of_several_folders_installs_once(tmp_path: Path) -> None:
    """What the last line of the installation writes keeps the next use from another one, unless that is of another version."""
    last = STEPS["Install tvlint"]["run"].splitlines()[-1]
    (tmp_path / "tvlint").mkdir()

    def outputs(source: str, python: str = "3.12") -> str:
        (tmp_path / source).mkdir(exist_ok=True)
        (tmp_path / source / "requirements.lock").write_text("pyyaml==6\n")
        output = tmp_path / "output"
        output.write_text("")
        own = {"TVLINT_SOURCE": str(tmp_path / source), "TVLINT_PYTHON": python, "GITHUB_OUTPUT": str(output)}
        environment = {**os.environ, "RUNNER_TEMP": str(tmp_path), **own}
        subprocess.run(["bash", "-e", "-c", STEPS["Name the packages"]["run"]], env=environment, check=True)
        subprocess.run(["bash", "-e", "-c", last], env=environment, cwd=tmp_path, check=True)
        return output.read_text()

    assert "installed" not in outputs("v1")
    assert "installed=true" in outputs("v1")
    assert "installed" not in outputs("v2")
    assert "installed" not in outputs("v2", "3.11")
    condition = "steps.packages.outputs.installed != 'true'"
    named = ("Keep the packages", "Install tvlint", "Run tvlint")
    assert [STEPS[name].get("if") for name in named] == [condition, condition, None]


@pytest.mark.heavy
def test_what_was_proved_is_kept_where_a_key_is_given(runner: Path) -> None:
    """The step before restores the folder that the main step fills; entries of another key are as good as none."""
    names = [step.get("name") for step in ACTION["runs"]["steps"]]
    assert names.index("Install tvlint") < names.index("Keep what was found") < names.index("Run tvlint")
    kept = STEPS["Keep what was found"]
    assert (kept["if"], kept["continue-on-error"]) == ("inputs.cache-key != ''", True)
    project = runner / "workspace" / "plans"
    shutil.copytree(ROOT / "fixtures" / "tour", project)
    (project / "tvlint.toml").write_text('[[proof]]\nparallel = ["dp2-tp2.plan"]\nreference = "single.plan"\n')
    home = {"HOME": str(runner / "home"), "XDG_STATE_HOME": str(runner / "state")}

    def is_remembered(key: str) -> bool:
        shutil.rmtree(runner / "home", ignore_errors=True)
        shutil.rmtree(runner / "state", ignore_errors=True)
        return "cached proof of" in run(runner, home, working_directory="plans", cache_key=key).log

    assert not is_remembered("a secret of the repository")
    (folder,) = (runner / "workspace").rglob(".tvlint_cache")
    assert (
        folder.relative_to(runner / "workspace").as_posix()
        in kept["with"]["path"].replace("${{ inputs.working-directory }}", "plans").split()
    )
    assert is_remembered("a secret of the repository")
    assert not is_remembered("a secret of somebody else")


def test_every_action_is_pinned_by_its_commit() -> None:
    for page in PAGES:
        for used, version in re.findall(r"^[ -]*uses: (\S+)(.*)$", (ROOT / page).read_text(), re.MULTILINE):
            pinned = re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", used) and re.fullmatch(r" # v\d+\.\d+\.\d+", version)
            assert pinned or used == f"{OWN}@v{__version__}", f"{page}: {used}{version}"


def test_one_version_of_an_action_is_used_everywhere() -> None:
    used: dict[str, set[str]] = {}
    for page in PAGES:
        for name, version in re.findall(r"uses: ([\w/-]+)@(.*)$", (ROOT / page).read_text(), re.MULTILINE):
            used.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in used.items() if len(versions) > 1} == {}


def test_the_upload_comes_after_the_report_and_before_the_failure() -> None:
    names = [step.get("name") for step in ACTION["runs"]["steps"]]
    assert names[-3:] == ["Run tvlint", "Upload to code scanning", "Fail on findings"]
    upload = STEPS["Upload to code scanning"]
    assert upload["if"] == "inputs.upload == 'true' && steps.tvlint.outputs.sarif != ''"
    assert upload["continue-on-error"] is True
    given = {"sarif_file": "sarif", "category": "category"}
    assert upload["with"] == {name: f"${{{{ steps.tvlint.outputs.{output} }}}}" for name, output in given.items()}


@pytest.mark.parametrize(
    ("schema", "page"),
    [("vendor.github-actions", "action.yml"), *(("vendor.github-workflows", workflow) for workflow in WORKFLOWS)],
)
def test_the_schemas_of_github_accept_it(schema: str, page: str) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(ROOT / page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_finds_nothing() -> None:
    zizmor = shutil.which("zizmor", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if zizmor is None:
        pytest.skip("zizmor is not installed")
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", "--collect=all", "action.yml", ".github", ".pre-commit-hooks.yaml"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
