"""Every check has its page, and both say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.plan_findings import CHECKS

RULES = Path(__file__).parents[2] / "rules"


@pytest.mark.parametrize("name", CHECKS)
def test_the_page_of_a_check_has_its_severity(name: str) -> None:
    [page] = RULES.rglob(f"{name.replace('_', '-')}.md")
    text = page.read_text(encoding="utf-8")
    front = dict(line.split(": ", 1) for line in text.split("---")[1].strip().splitlines() if not line.startswith(" "))
    assert front["kind"] == "plan"
    assert front["severity"] == CHECKS[name].SEVERITY.value


def test_every_plan_page_has_a_check() -> None:
    pages = {page.stem.replace("-", "_") for page in RULES.rglob("*.md") if "kind: plan\n" in page.read_text(encoding="utf-8")}
    assert pages == set(CHECKS)
