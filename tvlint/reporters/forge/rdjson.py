"""`rdjson`: what reviewdog reads, to comment on the lines of a change."""

from __future__ import annotations

from typing import Any

from tvlint.findings import Report, Severity
from tvlint.home import HOME
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.forge.anchor import Anchor
from tvlint.reporters.forge.remarks import Remark, lines, remarks
from tvlint.reporters.forge.repository_lines import RepositoryLines
from tvlint.reporters.sarif.rules import address

_SEVERITY = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.NOTE: "INFO"}


def write(report: Report, context: Context) -> Escaped:
    """One result; columns count the bytes of UTF-8, as reviewdog does."""
    source = RepositoryLines(report, context)
    return data(
        {
            "source": {"name": "tvlint", "url": HOME},
            "diagnostics": [_diagnostic(remark, source, context) for remark in remarks(report, context)],
        }
    )


def _diagnostic(remark: Remark, source: RepositoryLines, context: Context) -> dict[str, Any]:
    rule = context.rules.get(remark.rule)
    url = address(rule, context.version) if rule is not None else ""
    return {
        "message": "\n".join(lines(remark, context)),
        "location": {"path": remark.anchor.path, "range": _range(remark.anchor, source)},
        "severity": _SEVERITY[remark.level],
        "code": {"value": remark.rule, **({"url": url} if url else {})},
    }


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
