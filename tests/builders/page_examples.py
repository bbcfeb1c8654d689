"""The fenced examples of rule pages, which tests run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tvlint.rule import Rule
from tvlint.rulebook.pages import PageError, body_of

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>[a-z0-9]+) (?P<verdict>valid|invalid)(?P<options>[^\n]*)\n", re.MULTILINE)
_OPTION = re.compile(r'(\w+)=("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced example of a rule page; it is executed by the tests."""

    valid: bool
    language: str
    text: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)


def read_examples(rule: Rule) -> tuple[Example, ...]:
    """Return the examples of the rule's page."""
    text = Path(rule.path).read_text(encoding="utf-8")
    body = body_of(rule)
    first_line = text[: len(text) - len(body)].count("\n") + 1
    try:
        return _examples(body, first_line)
    except ValueError as error:
        raise PageError(f"{rule.path}: {error}") from error


def _examples(body: str, first_line: int) -> tuple[Example, ...]:
    found: list[Example] = []
    position = 0
    while opening := _FENCE.search(body, position):
        end = body.find("\n" + opening["fence"], opening.end() - 1)
        if end < 0:
            raise ValueError(f"the fence `{opening[0].strip()}` does not end")
        options = {key: value.strip('"') for key, value in _OPTION.findall(opening["options"])}
        text = body[opening.end() : end + 1]
        line = first_line + body.count("\n", 0, opening.end())
        found.append(Example(opening["verdict"] == "valid", opening["language"], text, line, options))
        position = end + 1
    return tuple(found)
