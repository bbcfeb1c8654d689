"""Addresses of the project, stated once."""

from __future__ import annotations

from tvlint.rule import Rule

HOME = "https://github.com/tvlint/tvlint"


def page(path: str, version: str) -> str:
    """Return the address of a file of the project as it was in that version."""
    return f"{HOME}/blob/v{version}/{path}"


def page_of(rule: Rule, version: str) -> str:
    """Return where the page of the rule is; empty where it has none."""
    return page(f"rules/{rule.path.rpartition('rules/')[2]}", version) if rule.path else ""
