"""Every rule page follows the format, and every example on it says what it claims."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.builders.checkout import commit_all
from tests.builders.expression_language import verify
from tests.builders.page_examples import Example, read_examples
from tvlint.analyses.relations.grounds import REFUTING
from tvlint.checks import load_check
from tvlint.checks.pages import SOURCES, shown
from tvlint.data import data_path
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Finding, Outcome, Severity
from tvlint.frameworks.deepspeed import DEEPSPEED, NEOX
from tvlint.frameworks.megatron import names as option_names
from tvlint.frameworks.nnscaler import DEFAULTS as NNSCALER
from tvlint.frameworks.torchtitan import SECTIONS
from tvlint.frameworks.verl import PLACES
from tvlint.readers.plan_text.statements import read_plan
from tvlint.rule import Rule, RuleKind, Sighting
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.expression import Expression, names, parse
from tvlint.rulebook.language.functions import FUNCTIONS
from tvlint.rulebook.language.template import expressions
from tvlint.rulebook.language.values import GPUS
from tvlint.rulebook.language.version import bounds
from tvlint.rulebook.pages import UNDECIDED, body_of, explanation_of, load_rules, read_front_matter
from tvlint.run.change.diff import FilePair, diff
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.policy import changed_policy, load_policy
from tvlint.run.project.project_file import Project

RULES = load_rules()
SCHEMA = json.loads((data_path("schemas") / "rule.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.name}:{example.line}") for rule in RULES.values() for example in read_examples(rule)
]
TORCHTITAN = frozenset[str]().union(*SECTIONS.values())
SETTINGS = {
    "nnscaler": NNSCALER,
    "deepspeed": DEEPSPEED | NEOX,
    "gpt-neox": NEOX,
    "torchtitan": TORCHTITAN,
    "verl": PLACES.keys(),
    "megatron-deepspeed": {*option_names(), "num_key_value_heads"},
    "slime": {*option_names(), "rollout_batch_size", "n_samples_per_prompt", "num_steps_per_rollout"},
}
"""What the settings of frameworks are called that do not use Megatron's options alone."""
WITHOUT_EXAMPLE = frozenset(
    {
        "annotation-refuted", "gradient-of-two-names", "mispaired-collective", "mispaired-message", "miswired-step",
        "partial-times-scaled", "surplus-gradients", "uncovered-state",
        "unknown-input",
    }
)  # fmt: skip
"""Reasons of verdicts that no pair of plans in plan text has shown, beside those of captures; the list only gets shorter."""
PARALLEL_LAUNCH = frozenset({"world_size", "nnodes", "nproc_per_node"})
JUDGED = (RuleKind.CONFIG, RuleKind.CHANGE)
CHECKED = (RuleKind.PLAN, RuleKind.SCHEDULE)
SAME = ("sh", "yaml", "plan", "json", "csv", "toml")
SUFFIXES = {**{language: language for language in SAME}, "base64": "pkl", "python": "py", "diff": "sh"}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_front_matter_is_yaml_and_follows_its_schema(rule: Rule) -> None:
    head = Path(rule.path).read_text(encoding="utf-8").split("---\n")[1]
    entries = read_front_matter(head.rstrip("\n"), rule.name)
    assert yaml.safe_load(head) == entries
    VALIDATOR.validate(entries)
    for version_range in rule.frameworks.values():
        bounds(version_range)


@pytest.mark.parametrize(
    ("source", "is_valid"),
    [
        ("core_v0.19.0:megatron/training/arguments.py:570", True),
        ("d98e8a64:megatron/training/arguments.py:941", True),
        ("NVIDIA/Megatron-LM#7452", True),
        ("megatron/training/arguments.py:570", False),
        ("core_v0.19.0:megatron/training/arguments.py", False),
        ("megatron/training/arguments.py", False),
        (":megatron/training/arguments.py:570", False),
    ],
)
def test_a_source_names_version_file_and_line_or_a_bug(source: str, is_valid: bool) -> None:
    schema = SCHEMA["properties"]["sources"]
    assert jsonschema.Draft202012Validator(schema).is_valid([source]) is is_valid


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_page_says_what_why_and_shows_twins(rule: Rule) -> None:
    assert UNDECIDED not in body_of(rule), "every page of its kind shows this"
    headings = re.findall(r"^## (.*)$", explanation_of(rule), re.MULTILINE)
    assert headings[:3] == ["What it does", "Why is this bad", "Example"]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    if rule.name not in WITHOUT_EXAMPLE and Path(rule.path).parent.name != "captures":
        assert {example.valid for example in read_examples(rule)} == {True, False}
    lines = Path(rule.path).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 128 and " " in line] == []


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.kind in JUDGED], ids=lambda rule: rule.name)
def test_a_config_rule_reads_only_settings_that_exist(rule: Rule) -> None:
    known = {*DERIVED, "world_size", GPUS}
    for framework in rule.frameworks:
        known |= {*SETTINGS.get(framework, (*option_names(), *PARALLEL_LAUNCH))}
    parts = [parse(text) for text in (rule.when, rule.require, *rule.leaves.values()) if text]
    parts += [*expressions(rule.message), *expressions(rule.help), *expressions(rule.unknown)]
    sides = re.compile(r"^(before|after)\." if rule.kind is RuleKind.CHANGE else r"^$")
    used = {*rule.location, *rule.leaves, *(sides.sub("", name) for part in parts for name in names(part))}
    assert {name for name in used if name not in known and not name.startswith("env.")} == set()
    for part in parts:
        verify(part)
    assert {ast.unparse(call.func) for part in parts for call in calls(part)} <= {*FUNCTIONS, "set", "known"}


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.kind in CHECKED], ids=lambda rule: rule.name)
def test_a_plan_or_schedule_rule_has_a_check(rule: Rule) -> None:
    assert callable(load_check(rule))
    if rule.kind is RuleKind.PLAN and (rule.name not in SOURCES or SOURCES[rule.name].type is not Sighting):
        templates = [rule.message, rule.help, *rule.related.values()]
        assert set(re.findall(r"{(\w*)}", "".join(templates))) | rule.related.keys() <= set(shown(rule) if rule.message else ())
    if rule.kind is RuleKind.PLAN:
        assert bool(rule.message) == (rule.name in SOURCES)
    assert rule.name.startswith("schedule-") == (rule.kind is RuleKind.SCHEDULE)


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.kind is RuleKind.PROOF], ids=lambda rule: rule.name)
def test_the_reason_of_a_proof_is_an_error_where_it_refutes(rule: Rule) -> None:
    assert (rule.severity is Severity.ERROR) == (rule.name in REFUTING)
    assert rule.topic.startswith("proof/")


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_gives_what_its_page_says(rule: Rule, example: Example, tmp_path: Path) -> None:
    assert example.language in SUFFIXES
    found = findings(example, tmp_path)
    if example.valid:
        assert [finding for finding in found if finding.rule == rule.name or finding.severity is Severity.ERROR] == []
        return
    own = [finding for finding in found if finding.rule == rule.name]
    if rule.kind is not RuleKind.CHANGE:
        assert {finding.rule for finding in found} == {rule.name, *filter(None, example.options.get("also", "").split(","))}
    if rule.kind is not RuleKind.PROOF:
        assert all(finding.severity is rule.severity or "taken as given" in (finding.help or "") for finding in own)
    places = [f"line={each.location.line} column={each.location.column} {each.location.pointer}".rstrip() for each in own]
    assert any(stands_at(finding, example) for finding in own), f"the example states another place than {places}"
    if rule.kind is RuleKind.PLAN:
        assert [finding.message for finding in own if not is_about_names_of_its_message(finding)] == [], "state `about`"
    assert all("?" not in finding.message for finding in own)
    if rule.kind in (RuleKind.CONFIG, RuleKind.INPUT, RuleKind.PLAN, RuleKind.SCHEDULE):
        assert [each.message for each in own if each.severity is Severity.ERROR and not _says_what_to_do(each)] == []


def _says_what_to_do(finding: Finding) -> bool:
    """Whether the help of the finding is more than what the rule holds for."""
    return re.sub(r"\((?:holds for|judged as) .*\)|(?:holds for|judged as) .*", "", finding.help or "").strip() != ""


def is_about_names_of_its_message(finding: Finding) -> bool:
    return finding.about is not None and all(f"`{name}`" in finding.message for name in finding.about)


def stands_at(finding: Finding, example: Example) -> bool:
    """Whether the finding is at the place that the example's info string states."""
    place = finding.location
    actual = {"line": str(place.line), "column": str(place.column), "pointer": place.pointer}
    stated = {key: value for key, value in example.options.items() if key in actual}
    whole = example.language in ("base64", "json") or "# file: reference.plan" in example.text
    assert stated or whole or "policy" in example.options, "an invalid example states where its finding stands"
    return all(actual[key] == value for key, value in stated.items())


def change(example: Example, folder: Path) -> tuple[Finding, ...]:
    """All that a run of tvlint has to say of a change."""
    pair = FilePair(str(folder / "before.sh"), str(folder / "example.sh"))
    for path, marks in ((pair.before, " -"), (pair.after, " +")):
        lines = example.text.splitlines(keepends=True)
        Path(path).write_text("".join(line[1:] for line in lines if line[0] in marks), encoding="utf-8")
    report, notes = diff((pair,), RULES, RULES, Project(folder))
    assert report.problems == ()
    assert notes == ()
    return report.findings


def proof(example: Example) -> tuple[Finding, ...]:
    """The reasons of the verdict on an example, a plan and its reference; none for one that is proved."""
    texts = re.split(r"^# file: reference\.plan\n", example.text, flags=re.MULTILINE)
    parallel, reference = (read_plan(name, text) for name, text in zip(("example.plan", "reference.plan"), texts, strict=True))
    verdict = prove(parallel, reference)
    assert (verdict.outcome is Outcome.PROVED) == example.valid
    severities = {True: Severity.ERROR, False: Severity.WARNING}
    return tuple(Finding(each.name, severities[each.refutes], each.message, each.location) for each in verdict.reasons)


def findings(example: Example, folder: Path) -> tuple[Finding, ...]:
    """All that a run of tvlint has to say of an example."""
    if "# file: reference.plan" in example.text:
        return proof(example)
    if example.language == "diff":
        return change(example, folder)
    if "policy" in example.options:
        return policy(example, folder)
    path = folder / example.options.get("file", f"example.{SUFFIXES[example.language]}")
    if example.language == "python":
        path = folder
        for name, text in generated(example.text):
            (folder / name).write_text(text, encoding="utf-8")
    else:
        first, *others = re.split(r"^# file: (\S+)\n", example.text, flags=re.MULTILINE)
        for name, content in zip(others[::2], others[1::2], strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        path.write_bytes(base64.b64decode(first) if example.language == "base64" else first.encode())
    budget = int(example.options["budget"]) if "budget" in example.options else None
    project = Project(folder, activation_budget=budget, version=example.options.get("version", ""))
    report, skipped = check(Candidates((str(path),), frozenset({str(path)})), RULES, RULES, project)
    assert [problem.message for problem in report.problems] == []
    assert skipped == () or example.options.get("recognised") == "no", "the example is not recognised"
    return report.findings


def policy(example: Example, folder: Path) -> tuple[Finding, ...]:
    """Return what is said of a change that makes the example the project file, which was another one or the same."""
    (folder / "tvlint.toml").write_text('paths = ["."]\n', encoding="utf-8")
    commit_all(folder)
    (folder / "tvlint.toml").write_text(example.text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return tuple(changed_policy("HEAD", load_policy("HEAD")))


def generated(text: str) -> Iterator[tuple[str, str]]:
    """The files of a folder of generated code: each after a line with its name, or one alone."""
    parts = re.split(r"^# (gencode\d+\.py)\n", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True) if len(parts) > 1 else [("gencode0.py", text)]


def calls(expression: Expression) -> Iterator[ast.Call]:
    """The calls in `expression`, nested ones too."""
    yield from (node for node in ast.walk(expression) if isinstance(node, ast.Call))
