"""`github`: the report for the log of a GitHub workflow, with its worst remarks as annotations."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.findings import Report, Severity
from tvlint.ir.values import replace
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped, joined
from tvlint.reporters.escape.workflow import Annotation, Level, Properties, annotation, folded
from tvlint.reporters.forge.anchor import Anchor
from tvlint.reporters.forge.remarks import Remark, lines, remarks
from tvlint.reporters.text import report as text
from tvlint.reporters.text.totals import summary

SHOWN = 10
"""GitHub shows so many annotations of each kind a step and drops the rest without a word."""

_LEVEL: dict[Severity, Level] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def write(report: Report, context: Context) -> Escaped:
    """Return the text report, folded and with commands switched off, then at most `SHOWN` annotations of each severity."""
    log = text.write(report, replace(context, color=False))
    found = list(remarks(report, context))
    shown = (each for level in Severity for each in _limited([one for one in found if one.level is level], level, context))
    return joined((folded(f"tvlint: {summary(report)}", log), *map(annotation, shown)))


def _limited(found: list[Remark], level: Severity, context: Context) -> Iterator[Annotation]:
    shown = found if len(found) <= SHOWN else found[: SHOWN - 1]
    for remark in shown:
        said = tuple(lines(remark, context))
        yield Annotation(_LEVEL[level], said, (*_where(remark.anchor), ("title", remark.title)))
    rest = found[len(shown) :]
    if rest:
        message = f"{counted(len(rest), f'more {level.value}')}, see the log of this step and its summary"
        yield Annotation(_LEVEL[level], (message,), (("title", "tvlint"),))


def _where(anchor: Anchor) -> Properties:
    """Columns only where the place is on one line, else GitHub drops the annotation; no file that is not in the repository."""
    if anchor.outside:
        return ()
    start: Properties = (("file", anchor.path), ("line", anchor.line))
    if anchor.end_line is not None and anchor.end_line != anchor.line:
        return (*start, ("endLine", anchor.end_line))
    if anchor.column is None:
        return start
    return (*start, ("endLine", anchor.line), ("col", anchor.column), ("endColumn", anchor.end_column))
