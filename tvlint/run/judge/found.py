"""What is found in files, before it is reported, and the same as values that the cache keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvlint.findings import Finding, NotEvaluated, Problem
from tvlint.ir.values import dataclass, field
from tvlint.rule import RuleKind

if TYPE_CHECKING:
    from tvlint.ir.outline import Outline

MOST_REPAIRED = 20
"""After so many errors of a file no more repairs are looked for: they are not read, and each takes a search."""


@dataclass(slots=True)
class Found:
    """The findings so far, in order."""

    findings: list[Finding] = field(default_factory=list)
    not_evaluated: list[NotEvaluated] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    checked: dict[str, set[RuleKind]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    recognised: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    """Framework and file -> how many of all rules about configurations hold for it, and whether its ranks are not known."""
    repairs: int = MOST_REPAIRED
    """How many more errors of one file have the nearest settings that repair them searched."""

    def add(self, other: Found) -> None:
        """Add what was said of the next file."""
        self.findings += other.findings
        self.not_evaluated += other.not_evaluated
        self.problems += other.problems
        self.outlines += other.outlines
        self.checked |= other.checked
        self.skipped += other.skipped
        self.recognised |= other.recognised


@dataclass(frozen=True, slots=True)
class FoundValues:
    """What was said of one file, as values that are remembered."""

    findings: tuple[Finding, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    problems: tuple[Problem, ...]
    outlines: tuple[Outline, ...]
    checked: tuple[tuple[str, tuple[RuleKind, ...]], ...]
    skipped: tuple[str, ...]
    recognised: tuple[tuple[tuple[str, str], tuple[int, bool]], ...]

    @staticmethod
    def of(said: Found) -> FoundValues:
        """Return what was said."""
        checked = tuple((path, tuple(kind for kind in RuleKind if kind in kinds)) for path, kinds in said.checked.items())
        return FoundValues(
            tuple(said.findings),
            tuple(said.not_evaluated),
            tuple(said.problems),
            tuple(said.outlines),
            checked,
            tuple(said.skipped),
            tuple(said.recognised.items()),
        )

    def said(self) -> Found:
        """Return it again."""
        return Found(
            list(self.findings),
            list(self.not_evaluated),
            list(self.problems),
            list(self.outlines),
            {path: set(rule_kinds) for path, rule_kinds in self.checked},
            list(self.skipped),
            dict(self.recognised),
        )
