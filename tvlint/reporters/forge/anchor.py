"""Anchor findings on files of the repository, for sites that know no others.

A remark whose file is not in the repository goes to a related place, to the place of the project that names its plan, or to
that plan; never to a file that has nothing to do with it. Where there is none of these, it keeps its own place outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tvlint.checkout.following import may_be_shown
from tvlint.findings import Finding, Problem, Reason, Report, Verdict
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, replace
from tvlint.reporters.context import Context
from tvlint.reporters.text.paths import below_root, resolved


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line of a file, by its path in the repository, or by its whole path where it is `outside`.

    `exact` says that it is the very place of the remark, not a stand-in.
    """

    path: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    exact: bool = True
    outside: bool = False


def repository(context: Context) -> Path:
    """The folder that a site takes paths from: the checkout of the workflow if the root is inside it, else the root."""
    workspace = context.environment.get("GITHUB_WORKSPACE", "")
    real = resolved(workspace, context.root) if workspace else None
    root = resolved(".", context.root)
    return real if real is not None and root is not None and root.is_relative_to(real) else context.root


def finding_anchor(finding: Finding, report: Report, context: Context) -> Anchor:
    """Return the place of a finding."""
    places = (finding.location, *(related.location for related in finding.related))
    return _anchor((*places, *_plan(finding.found_in, report)), context)


def reason_anchor(reason: Reason, verdict: Verdict, report: Report, context: Context) -> Anchor:
    """Return the place of a reason."""
    places = (reason.location, *(related.location for related in reason.related))
    return _anchor((*places, *_plan(verdict.parallel, report)), context)


def verdict_anchor(verdict: Verdict, report: Report, context: Context) -> Anchor:
    """Return the place that names the plan of a verdict, or the plan."""
    return replace(_anchor((*_plan(verdict.parallel, report), Location(verdict.parallel)), context), exact=False)


def problem_anchor(problem: Problem, context: Context) -> Anchor:
    """Return the place of a problem."""
    return _anchor((problem.location,), context)


def _plan(path: str, report: Report) -> Iterator[Location]:
    """The places that stand for a plan: where the project names it, and itself."""
    if path:
        yield from (pairing.location for pairing in report.pairings if pairing.path == path)
        yield Location(path)


def located(location: Location, context: Context) -> Anchor | None:
    """`location` as a line of a repository file; None where there is no such file.

    A plan may name any file, so one that git does not track is none, unless it is what was checked.
    """
    path = _in_repository(location.path, context)
    return None if path is None else _line(path, location)


def _line(path: str, location: Location) -> Anchor:
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


def _anchor(places: tuple[Location, ...], context: Context) -> Anchor:
    """Return the first of the places that has a line of a repository file, else the first in one, else the first outside."""
    found = [(located(place, context), place) for place in places]
    for wants_line in (True, False):
        for index, (anchor, place) in enumerate(found):
            if anchor is not None and (place.line is not None or not wants_line or index == 0):
                return anchor if index == 0 else replace(anchor, exact=False)
    return outside(places[0], context)


def outside(location: Location, context: Context) -> Anchor:
    """Return the place of a file that is not in the repository: by its path there where it would lie in it, else by its whole
    path.
    """
    top = os.path.normpath(repository(context).absolute())
    path = os.path.normpath(os.path.join(context.root.absolute(), location.path))
    inside = path.startswith(top + os.sep)
    shown = os.path.relpath(path, top) if inside else path
    return replace(_line(shown.replace(os.sep, "/"), location), outside=not inside)


def _in_repository(path: str, context: Context) -> str | None:
    real = resolved(path, context.root)
    if real is None or not (path in context.read or real in context.named or may_be_shown(path, context.root)):
        return None
    return below_root(str(real), repository(context))
