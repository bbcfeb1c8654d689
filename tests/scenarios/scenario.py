"""The form of a scenario: one text in which a mistake and its correct twin differ by marked lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """A plan and what rules say of it: one of `rules` speaks of an error, or none does where `rules` is empty."""

    name: str
    text: str
    rules: frozenset[str] = frozenset()


def pair(name: str, rules: str, text: str, over: Sequence[str] = ("",)) -> Iterator[Scenario]:
    """The mistake `name` and its twin, on each mesh of `over`, which takes the place of `$MESH`.

    Lines that start with `-` are the mistake's only, lines that start with `+` the twin's. One of `rules`, which are
    separated by spaces, names the mistake.
    """
    for mesh in over:
        where = f" on {mesh}" if mesh and len(over) > 1 else ""
        yield Scenario(name + where, _side(text, "-").replace("$MESH", mesh), frozenset(rules.split()))
        yield Scenario(f"{name}{where}, twin", _side(text, "+").replace("$MESH", mesh))


def correct(name: str, text: str, over: Sequence[str] = ("",)) -> Iterator[Scenario]:
    """A correct plan."""
    for mesh in over:
        yield Scenario(name + (f" on {mesh}" if mesh and len(over) > 1 else ""), text.replace("$MESH", mesh))


def _side(text: str, mark: str) -> str:
    kept = []
    for line in text.splitlines():
        if line[:1] not in ("-", "+"):
            kept.append(line)
        elif line[0] == mark:
            kept.append(" " + line[1:])
    return "\n".join(kept) + "\n"


Edits = Sequence[tuple[str, str]]
"""What stands in the correct plan, and what in its place."""


def variants(name: str, text: str, *mistakes: tuple[str, str, Edits]) -> Iterator[Scenario]:
    """A correct plan, and what becomes of it by each of `mistakes`: its name, the rules of which one names it, its edits."""
    yield Scenario(f"{name}, correct", text)
    for mistake, rules, edits in mistakes:
        changed = text
        for old, new in edits:
            assert old in changed, (name, mistake, old)
            changed = changed.replace(old, new)
        yield Scenario(f"{name}: {mistake}", changed, frozenset(rules.split()))
