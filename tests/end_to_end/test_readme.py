"""The README's blocks do what the README says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from shared import ROOT

from tests.builders.checkout import copy_of_checkout, run_clean
from tvlint.cli.arguments import parse
from tvlint.reporters import FORMATS
from tvlint.run.output import exit_code

README = (ROOT / "README.md").read_text()


def block(name: str, page: str = "README.md") -> str:
    """The fenced block with this word after its language."""
    match = re.search(rf"^```\w+ {name}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert match is not None, f"{page} has no block `{name}`"
    return match[1]


@pytest.mark.parametrize("line", block("run").splitlines())
def test_every_command_shown_is_a_command(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] == "tvlint"
    assert callable(parse(words[1:]).run)


def test_the_continuous_integration_runs_the_test_command_of_the_readme() -> None:
    command = block("tests").partition(r"\ ".strip() + "\n")[2].strip().removeprefix("&& ")
    assert command == "ruff check . && ruff format --check . && mypy && lint-imports && pytest -n 3"
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step] == ["bash .ci/run"]


def test_the_hooks_shown_exist() -> None:
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    [repository] = yaml.safe_load(block("pre-commit"))["repos"]
    assert {hook["id"] for hook in repository["hooks"]} <= hooks
    page = (ROOT / "docs" / "ci.md").read_text()
    assert all(f"| `{hook}` |" in page for hook in hooks)


@pytest.mark.parametrize("page", ["README.md", "docs/ci.md"])
def test_the_workflows_shown_use_inputs_and_outputs_of_the_action(page: str) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    [job] = yaml.safe_load(block("workflow", page))["jobs"].values()
    [step] = [step for step in job["steps"] if step["uses"].startswith("tvlint/")]
    assert step.get("with", {}).keys() <= action["inputs"].keys()
    assert set(re.findall(r"steps\.tvlint\.outputs\.([\w-]+)", str(job))) <= action["outputs"].keys()


def test_the_formats_and_exit_codes_listed_are_those_there_are() -> None:
    table = README.partition("it writes")[2].partition("exit code")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(FORMATS)
    codes = {value for name, value in vars(exit_code).items() if name.isupper() and value < 100}
    assert {int(code) for code in re.findall(r"^\| (\d) \|", README, re.MULTILINE)} == codes


PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_to_one(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (ROOT / page).read_text()):
        assert (folder / target).exists(), f"{page} links to {target}"


def test_the_architecture_names_every_room_of_the_proof() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text().partition("## The proof")[2].partition("## ")[0]
    named = set(re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE))
    rooms = {
        path.parent.relative_to(ROOT / "tvlint").as_posix()
        for folder in ("analyses/relations", "equivalence")
        for path in (ROOT / "tvlint" / folder).glob("*/__init__.py")
    }
    assert named == rooms


def test_the_example_needs_no_file_that_is_not_shipped() -> None:
    words = shlex.split(block("tour"))
    config = Path(words[words.index("--config") + 1])
    assert (ROOT / config).is_file()


@pytest.mark.heavy
def test_the_example_does_what_the_readme_says(tmp_path: Path) -> None:
    checkout = copy_of_checkout(tmp_path / "checkout")
    done = run_clean(["bash", "-c", block("tour")], checkout)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tvlint:" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "fixtures/tour/train.sh:7:18: error: 47 layers do not divide over 2 pipeline stages" in done.stdout
    assert "proved: fixtures/tour/dp2-tp2.plan" in done.stdout
    assert "refuted: fixtures/tour/dp2-tp2-broken.plan" in done.stdout
    tvlint = str(checkout / ".venv" / "bin" / "tvlint")
    listed = run_clean([tvlint, "rules", "-o", "json"], tmp_path)
    assert len(json.loads(listed.stdout)["rules"]) == len(list((checkout / "rules").rglob("*.md")))
