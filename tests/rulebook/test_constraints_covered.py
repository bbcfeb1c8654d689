"""Every known constraint of a configuration has a rule page, or a reason why it is not judged."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.shared import ROOT, SHARED, needs_shared
from tvlint.rulebook.pages import load_rules

PAGES: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "constraint_pages.json").read_text(encoding="utf-8")
)
ROWS = re.findall(
    r"^\| ([A-Z-]+\d{3}) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8"), re.M
)
UNJUDGED = [identifier for identifier, _, _ in ROWS]


def test_the_pages_named_exist() -> None:
    rules = load_rules()
    assert {page for pages in PAGES.values() for page in pages} - set(rules) == set()
    assert [identifier for identifier, pages in PAGES.items() if not pages] == []


def test_a_constraint_is_judged_or_not() -> None:
    assert len(UNJUDGED) == len(set(UNJUDGED))
    assert set(UNJUDGED) & set(PAGES) == set()


@needs_shared
@pytest.mark.parametrize("framework", ["megatron", "nnscaler"])
def test_every_constraint_is_covered(framework: str) -> None:
    assert SHARED is not None
    facts = json.loads((SHARED / "facts" / framework / "constraints.json").read_text(encoding="utf-8"))
    assert [fact["id"] for fact in facts if fact["id"] not in PAGES and fact["id"] not in UNJUDGED] == []


@needs_shared
def test_nothing_else_is_listed() -> None:
    assert SHARED is not None
    facts = [json.loads((SHARED / "facts" / each / "constraints.json").read_bytes()) for each in ("megatron", "nnscaler")]
    known = {fact["id"] for file in facts for fact in file}
    assert (set(PAGES) | set(UNJUDGED)) - known == set()
