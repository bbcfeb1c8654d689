"""The context of a report: what a reporter may use besides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tvlint.findings import Severity
from tvlint.ir.values import dataclass, field
from tvlint.rule import Rule


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of one report.

    `explanation` returns the Markdown that explains a rule; only `sarif` asks. `root` is the folder that relative paths
    start from and that published paths are relative to (the repository). `color`, `links` (whether it follows them) and
    `width` describe the terminal; only `text` reads them. `show_unknown` lists the rules that could not be judged.
    `fail_on` is the mildest severity that fails the run; formats for services, which know no such choice, call all that is
    as bad an error. `named` are the real paths of what a person asked for by name, whose lines may be shown; `read` are the
    paths of what was checked or could not be. `environment` is the process environment as far as a format depends on it
    (`GITHUB_ACTIONS`, `GITHUB_SHA`). `statistics` counts findings instead of listing them; only `text` reads it. `quiet`
    leaves out totals and what was not judged; `text` and `concise` read it.
    """

    rules: Mapping[str, Rule]
    explanation: Callable[[Rule], str]
    root: Path
    version: str
    color: bool = False
    links: bool = False
    width: int = 100
    environment: Mapping[str, str] = field(default_factory=dict)
    show_unknown: bool = False
    named: frozenset[Path] = frozenset()
    read: frozenset[str] = frozenset()
    fail_on: Severity = Severity.ERROR
    statistics: bool = False
    quiet: bool = False
