"""`rdjson`: what reviewdog reads, to comment on the lines of a change."""

from __future__ import annotations

from typing import Any

from tvlint.findings import Edit, Report, Severity
from tvlint.home import HOME
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.forge.anchor import Anchor, located
from tvlint.reporters.forge.remarks import Remark, lines, remarks, silenced
from tvlint.reporters.forge.repository_lines import RepositoryLines
from tvlint.reporters.sarif.rules import address

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
    url = address(rule, context.version) if rule is not None else ""
    suggestions = [
        {"range": found, "text": edit.text}
        for fix in remark.fixes
        for edit in fix.edits
        if len(fix.edits) == 1 and (found := _suggested(edit, remark, source, context)) is not None
    ]
    return {
        "message": "\n".join(lines(remark, context)),
        "location": {"path": remark.anchor.path, "range": _range(remark.anchor, source)},
        "severity": _SEVERITY[remark.level],
        "code": {"value": remark.rule, **({"url": url} if url else {})},
        **({"suggestions": suggestions} if suggestions else {}),
    }


def _suggested(edit: Edit, remark: Remark, source: RepositoryLines, context: Context) -> dict[str, Any] | None:
    """Return the span of an edit of the same file; None of another one, for which a diagnostic has no suggestion."""
    anchor = located(edit.location, context)
    if anchor is None or anchor.outside or anchor.path != remark.anchor.path:
        return None
    found = _range(anchor, source)
    return found if "column" in found["start"] else None


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
