"""What rules say of many configurations is what they say of each alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.builders.page_examples import read_examples
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.rule import RuleKind
from tvlint.rulebook.judge import judge, judge_all
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.pages import load_rules

SUFFIXES = {"sh": "sh", "yaml": "yaml", "json": "json", "toml": "toml", "python": "py"}
RULES = [rule for rule in load_rules().values() if rule.kind is RuleKind.CONFIG]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> list[Values]:
    """The configurations of all examples of rules about them."""
    folder = tmp_path_factory.mktemp("examples")
    found: list[Values] = []
    for rule in RULES:
        for example in read_examples(rule):
            path = Path(folder, f"{rule.name}-{example.line}.{SUFFIXES[example.language]}")
            path.write_text(example.text)
            with suppress(ReadError):
                document = read(str(path))
                found += map(Values, document.configurations if document is not None else ())
    return found


def test_rules_say_of_each_example_what_they_say_of_it_alone(values: list[Values]) -> None:
    kinds = {each.kind for each in values}
    assert len(values) > 2 * len(kinds)
    for each in values:
        judged = judge_all(RULES, each)
        alone = Values(each.configuration)
        assert judged == [(rule, judge(rule, alone)) for rule in RULES]
