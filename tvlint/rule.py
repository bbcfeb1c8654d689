"""A rule, as its page in `rules/` states it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field, replace

_FENCE = Pattern(r"^(`{3,})(\w+)[ \t]+[^\n]*$", re.MULTILINE)
_LABELS = {"invalid": "Wrong:", "valid": "Right:"}


def labelled(markdown: str) -> str:
    """Return Markdown with its blocks by their language alone, and what a reader is to know of each in front of it."""
    return _FENCE.sub(_block, markdown)


def _block(match: re.Match[str]) -> str:
    label = next((_LABELS[word] for word in match[0].split()[1:] if word in _LABELS), "")
    return f"{label}\n\n{match[1]}{match[2]}" if label else f"{match[1]}{match[2]}"


class RuleKind(Enum):
    """The source of a rule's answer."""

    CONFIG = "config"
    """From the page's `when:` and `require:` over settings."""
    CHANGE = "change"
    """From the page's `require:` over the settings before and after a change (`tvlint diff`)."""
    PLAN = "plan"
    """From the analysis that a page with a `message:` is about (`tvlint/checks/pages.py`), else from the function `check` in
    `tvlint/checks/<topic>/<rule_name>.py`."""
    SCHEDULE = "schedule"
    """From the analysis of a pipeline schedule that the page's `message:` is about (`tvlint/checks/schedule/pages.py`)."""
    PROOF = "proof"
    """From the proof: a reason why a verdict is not Proved. Plan rules are such reasons too where both can say the same."""
    INPUT = "input"
    """From a reader, while it reads."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A defect where it is seen, and the ranks that have it; `words` are what the page of its rule may name.

    `about` are the names by which a defect of a plan is known again, `case` says which of several texts of the page are its
    own. Where it is not sure, it is reported as a warning.
    """

    location: Location
    ranks: tuple[int, ...]
    words: Mapping[str, object]
    related: tuple[Related, ...] = ()
    about: tuple[str, ...] | None = None
    case: str = ""
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """One mistake that tvlint knows, named after the defect.

    `when` and `require` are expressions over canonical setting names (config rules only); `message` and `help` are templates
    whose `{...}` are such expressions. `frameworks` maps a framework to the version range it holds for (`*`: any). `sources`
    are places in the framework or a bug report that the rule rests on. `path` is its page.
    """

    name: str
    kind: RuleKind
    severity: Severity
    summary: str
    when: str = ""
    require: str = ""
    message: str = ""
    help: str = ""
    related: Mapping[str, str] = field(default_factory=dict)
    """By a field of a defect that is a place in the plan: what is there (plan rules only)."""
    cases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The message and the help by the case of a defect, where one text does not do for all (plan rules only)."""
    unknown: str = ""
    """Template: what can be said all the same where the rule is not evaluated; left out where it holds an unknown value."""
    leaves: Mapping[str, str] = field(default_factory=dict)
    """By a setting that is cut where the rule is violated, an expression for what is left of it: other rules judge that (config
    rules only)."""
    supersedes: tuple[str, ...] = ()
    """Rules of which nothing is reported where this one finds something at the same place about the same (plan rules only)."""
    location: tuple[str, ...] = ()
    """Settings whose place the finding takes: the first that the file sets; the others become related places."""
    once: str = ""
    """`file`: it is said of no more than one configuration of a file, the first; `run`: of one file of a run, with the
    number of others; empty: of each."""
    frameworks: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    path: str = ""
    topic: str = ""
    """The folder of the page below `rules/`."""

    def said_of(self, seen: Sighting) -> Finding:
        """Return the finding of a defect in the words of the page."""
        texts = self.cases[seen.case] if seen.case else (self.message, self.help)
        message, help = (text.format_map(seen.words) for text in texts)
        found = self.finding(message, seen.location, help, seen.related, seen.ranks, seen.about)
        return found if seen.is_sure else replace(found, severity=Severity.WARNING)

    def finding(
        self,
        message: str,
        location: Location,
        help: str = "",
        related: tuple[Related, ...] = (),
        ranks: tuple[int, ...] = (),
        about: tuple[str, ...] | None = None,
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(self.name, self.severity, message, location, help, related, ranks, about=about)
