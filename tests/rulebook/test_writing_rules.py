"""The samples of `docs/writing-rules.md` are what it says: pages that follow the schema, and a check that finds its mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from test_rule_pages import SUFFIXES, is_about_names_of_its_message, stands_at

from tests.builders.page_examples import read_examples
from tests.shared import ROOT
from tvlint.analyses.dataflow.facts import Facts
from tvlint.data import data_path
from tvlint.findings import Finding, Severity
from tvlint.readers.read import read
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules, read_front_matter, read_rules

TEXT = (ROOT / "docs" / "writing-rules.md").read_text(encoding="utf-8")
PAGES = re.findall(r"^````markdown\n(.*?)^````$", TEXT, re.MULTILINE | re.DOTALL)
CHECKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SCHEMA = json.loads((data_path("schemas") / "rule.schema.json").read_text(encoding="utf-8"))


def rule_of(page: str, folder: Path) -> Rule:
    title = re.search(r"^# (.*)$", page, re.MULTILINE)
    assert title is not None
    (folder / f"{title[1]}.md").write_text(page, encoding="utf-8")
    (rule,) = read_rules(folder).values()
    return rule


def check_of(rule: Rule) -> ModuleType:
    (source,) = (text for text in CHECKS if text.startswith(f'"""{rule.name}:'))
    module = ModuleType(rule.name)
    exec(source, module.__dict__)
    return module


def found_in(rule: Rule, path: str) -> Iterator[Finding]:
    document = read(path)
    assert document is not None
    for configuration in document.configurations:
        judged = evaluate(configuration, [*load_rules().values(), rule])
        yield from (found for found in judged if isinstance(found, Finding))
    if document.plan is not None:
        yield from check_of(rule).check(Facts(document.plan), rule)


def test_there_is_a_sample_of_a_config_rule_and_of_a_plan_rule(tmp_path: Path) -> None:
    kinds = set()
    for number, page in enumerate(PAGES):
        (tmp_path / str(number)).mkdir()
        kinds.add(rule_of(page, tmp_path / str(number)).kind)
    assert kinds == {RuleKind.CONFIG, RuleKind.PLAN}


@pytest.mark.parametrize("page", PAGES, ids=["config", "plan"])
def test_a_sample_gives_what_it_says(page: str, tmp_path: Path) -> None:
    rule = rule_of(page, tmp_path)
    head = page.split("---\n")[1]
    jsonschema.validate(read_front_matter(head.rstrip("\n"), rule.name), SCHEMA, jsonschema.Draft202012Validator)
    examples = read_examples(rule)
    assert {example.valid for example in examples} == {True, False}
    for example in examples:
        path = tmp_path / f"example.{example.language}"
        path.write_text(example.text, encoding="utf-8")
        found = [*found_in(rule, str(path))]
        assert all(each.rule == rule.name and each.severity is rule.severity is not Severity.WARNING for each in found)
        assert bool(found) is not example.valid
        assert all(stands_at(each, example) for each in found)
        assert rule.kind is RuleKind.CONFIG or all(map(is_about_names_of_its_message, found))


@pytest.mark.heavy
def test_the_sample_of_a_check_passes_the_type_checker(tmp_path: Path) -> None:
    for number, source in enumerate(CHECKS):
        (tmp_path / f"check{number}.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_language_and_key_of_an_example_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)(?:=\w+(?:,\w+)*)?` \|", TEXT.split("## Examples\n")[1], re.MULTILINE))
    keys = {key for rule in load_rules().values() for example in read_examples(rule) for key in example.options}
    assert rows >= keys | SUFFIXES.keys()
