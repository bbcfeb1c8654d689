"""Which settings expressions ask for."""

from __future__ import annotations

from functools import lru_cache

from tvlint.rule import Rule
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.expression import names, parse


def read_by(rule: Rule) -> frozenset[str]:
    """Return the settings that a rule depends on, through derived values too, and these."""
    return read_by_text(rule.when, rule.require)


@lru_cache(maxsize=1024)
def read_by_text(*texts: str) -> frozenset[str]:
    """Return the same of expressions."""
    found: set[str] = set()
    waiting = [name for text in texts if text for name in names(parse(text))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(names(parse(DERIVED[name])) if name in DERIVED else ())
    return frozenset(found)
