"""Where a remark goes on a site that only knows the files of a repository."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from tvlint.findings import Finding, Reason, Report, Verdict
from tvlint.ir.location import Location
from tvlint.reporters.context import Context
from tvlint.reporters.text.paths import CONFIGURATIONS, below_root, relative, resolved


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line of a repository file. `exact` says that it is the very place, not a stand-in for one outside the repository."""

    path: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    exact: bool = True


def repository(context: Context) -> Path:
    """The folder that a site takes paths from: the checkout of the workflow if the root is inside it, else the root."""
    workspace = context.environment.get("GITHUB_WORKSPACE", "")
    real = resolved(workspace, context.root) if workspace else None
    root = resolved(".", context.root)
    return real if real is not None and root is not None and root.is_relative_to(real) else context.root


def finding_anchor(finding: Finding, report: Report, context: Context) -> Anchor:
    """The place of a finding, of what is related to it, or of the plan that it may be about."""
    return _anchor([finding.location, *(r.location for r in finding.related)], _plans(report), context)


def reason_anchor(reason: Reason, verdict: Verdict, context: Context) -> Anchor:
    """The place of a reason, of what is related to it, or of the parallel plan."""
    return _anchor([reason.location, *(r.location for r in reason.related)], (verdict.parallel, *CONFIGURATIONS), context)


def verdict_anchor(verdict: Verdict, context: Context) -> Anchor:
    """The parallel plan, or the configuration that pairs it."""
    return _anchor([Location(verdict.parallel)], CONFIGURATIONS, context)


def located(location: Location, context: Context) -> Anchor | None:
    """`location` as a line of a repository file; None where there is no such file."""
    path = _in_repository(location.path, context)
    if path is None:
        return None
    line = _positive(location.line)
    column = _positive(location.column)
    if line is None:
        return Anchor(path, 1, exact=not location.pointer)
    end_line = max(line, _positive(location.end_line) or line)
    end_column = _positive(location.end_column)
    if column is None or end_column is None or (end_line == line and end_column < column):
        end_column = None
    return Anchor(path, line, column, end_line, end_column)


def _positive(number: int | None) -> int | None:
    return number if number is not None and 1 <= number < 1 << 31 else None


def _plans(report: Report) -> tuple[str, ...]:
    return (*(outline.path for outline in report.outlines), *CONFIGURATIONS, *report.checked)


def _anchor(places: list[Location], fallbacks: Iterable[str], context: Context) -> Anchor:
    for index, place in enumerate(places):
        found = located(place, context)
        if found is not None:
            return found if index == 0 else _stand_in(found)
    for path in fallbacks:
        found = located(Location(path), context)
        if found is not None:
            return _stand_in(found)
    name = PurePath(relative(places[0].path, repository(context))).name
    return Anchor(name or "unknown", 1, exact=False)


def _stand_in(anchor: Anchor) -> Anchor:
    return Anchor(anchor.path, anchor.line, anchor.column, anchor.end_line, anchor.end_column, exact=False)


def _in_repository(path: str, context: Context) -> str | None:
    real = resolved(path, context.root)
    return None if real is None else below_root(str(real), repository(context))
