"""`rdjson`: what reviewdog reads, to comment on the lines of a change."""

from __future__ import annotations

from typing import Any

from tvlint.findings import Edit, Report, Severity
from tvlint.home import HOME, page_of
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.forge.anchor import Anchor, located
from tvlint.reporters.forge.remarks import Remark, lines, remarks, silenced
from tvlint.reporters.forge.repository_lines import RepositoryLines

_SEVERITY = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.NOTE: "INFO"}


def write(report: Report, context: Context) -> Escaped:
    """One result; columns count the bytes of UTF-8, as reviewdog does."""
    source = RepositoryLines(report, context)
    listed = [*remarks(report, context), *silenced(report, context)]
    return data(
        {
            "source": {"name": "tvlint", "url": HOME},
            "diagnostics": [_diagnostic(remark, source, context) for remark in listed],
        }
    )


def _diagnostic(remark: Remark, source: RepositoryLines, context: Context) -> dict[str, Any]:
    rule = context.rules.get(remark.rule)
    url = page_of(rule, context.version) if rule is not None else ""
    place = _range(remark.anchor, source)
    edits = (edit for fix in remark.fixes for edit in fix.edits if len(fix.edits) == 1)
    suggested = (_suggestion(edit, remark, source, context) for edit in edits)
    suggestions = [each for each in suggested if each is not None and _lines(each["range"]) == _lines(place)]
    return {
        "message": "\n".join(lines(remark, context)),
        "location": {"path": remark.anchor.path, "range": place},
        "severity": _SEVERITY[remark.level],
        "code": {"value": remark.rule, **({"url": url} if url else {})},
        **({"suggestions": suggestions} if suggestions else {}),
    }


def _suggestion(edit: Edit, remark: Remark, source: RepositoryLines, context: Context) -> dict[str, Any] | None:
    """Return the edit as a suggestion, one of whole lines as such; None where it is of another file.

    A comment shows only what replaces its own lines, and an error in the place of any other suggestion.
    """
    anchor = located(edit.location, context)
    if anchor is None or anchor.outside or anchor.path != remark.anchor.path:
        return None
    found, text = _range(anchor, source), edit.text
    if "column" not in found["start"]:
        return None
    start, end = found["start"], found["end"]
    if start["column"] == end["column"] == 1 and end["line"] > start["line"] and (not text or text.endswith("\n")):
        found = {"start": {"line": start["line"]}, "end": {"line": end["line"] - 1}}
        text = text.removesuffix("\n")
    return {"range": found, "text": text}


def _lines(place: dict[str, Any]) -> tuple[int, int]:
    return place["start"]["line"], place["end"]["line"]


def _range(anchor: Anchor, source: RepositoryLines) -> dict[str, Any]:
    """The span, or whole lines where the columns of both ends are not known."""
    end_line = anchor.end_line or anchor.line
    start, end = (_byte_column(anchor, source, *at) for at in ((anchor.line, anchor.column), (end_line, anchor.end_column)))
    if start is None or end is None:
        return {"start": {"line": anchor.line}, "end": {"line": end_line}}
    return {"start": {"line": anchor.line, "column": start}, "end": {"line": end_line, "column": end}}


def _byte_column(anchor: Anchor, source: RepositoryLines, line: int, column: int | None) -> int | None:
    text = "" if anchor.outside else source.line(anchor.path, line)
    if column is None or column > len(text) + 1:
        return None
    return len(text[: column - 1].encode("utf-8", "surrogatepass")) + 1
