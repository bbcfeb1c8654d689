"""`json`: the report for programs; `schemas/report.schema.json` is its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvlint.findings import Comparison, Difference, Finding, Fix, NotEvaluated, Problem, Reason, Related, Report, Verdict
from tvlint.identity import fingerprint, reason_fingerprint
from tvlint.ir.location import Location
from tvlint.ir.outline import Outline
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.text.paths import relative
from tvlint.reporters.text.totals import by_place

FORMAT = 1
"""Version of the document's shape; grows when a reader of the former shape would go wrong."""


def write(report: Report, context: Context) -> Escaped:
    """Return the whole report as one JSON document in ASCII."""
    root = context.root
    document = {
        "format": FORMAT,
        "version": context.version,
        "findings": [finding_data(finding, root) for finding in by_place(report.findings)],
        "verdicts": [_verdict(verdict, root) for verdict in report.verdicts],
        "not_evaluated": [_not_evaluated(item, root) for item in report.not_evaluated],
        "silenced": {
            name: [finding_data(silenced.finding, root) for silenced in report.silenced if silenced.by_comment is by_comment]
            for name, by_comment in (("by_comments", True), ("by_project", False))
        },
        "known": report.known,
        "problems": [_problem(problem, root) for problem in report.problems],
        "checked": [relative(path, root) for path in report.checked],
        "judged_by": [{"path": relative(path, root), "files": files} for path, files in report.judged_by],
        "recognised": [
            {"framework": each.framework, "files": each.files, "applicable": each.applicable, "rules": each.rules}
            for each in report.recognised
        ],
        "plans": [_plan(outline, root) for outline in report.outlines],
        "comparisons": [_comparison(comparison, root) for comparison in report.comparisons],
    }
    return data(document)


def _location(location: Location, root: Path) -> dict[str, Any]:
    return {
        "path": relative(location.path, root),
        "line": location.line,
        "column": location.column,
        "end_line": location.end_line,
        "end_column": location.end_column,
        "pointer": location.pointer,
        "text": location.text,
    }


def _related(related: Related, root: Path) -> dict[str, Any]:
    return {"message": related.message, **_location(related.location, root)}


def finding_data(finding: Finding, root: Path) -> dict[str, Any]:
    """Return a finding as the documents for programs have it."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "fingerprint": fingerprint(finding),
        "message": finding.message,
        "help": finding.help,
        **_location(finding.location, root),
        "ranks": list(finding.ranks),
        "related": [_related(related, root) for related in finding.related],
        "fixes": [_fix(fix, root) for fix in finding.fixes],
    }


def _fix(fix: Fix, root: Path) -> dict[str, Any]:
    edits = [{**_span(edit.location, root), "replacement": edit.text} for edit in fix.edits]
    return {"message": fix.message, "safe": fix.is_safe, "edits": edits}


def _span(location: Location, root: Path) -> dict[str, Any]:
    names = ("path", "line", "column", "end_line", "end_column")
    return {name: value for name, value in _location(location, root).items() if name in names}


def _verdict(verdict: Verdict, root: Path) -> dict[str, Any]:
    stages = verdict.stages
    return {
        "reference": relative(verdict.reference, root),
        "parallel": relative(verdict.parallel, root),
        "verdict": verdict.outcome.value,
        "stages": {
            "total": stages.total,
            "classes": stages.classes,
            "proved": stages.proved,
            "refuted": stages.refuted,
            "unknown": stages.unknown,
        },
        "seconds": round(verdict.seconds, 3),
        "peak_bytes": verdict.peak_bytes,
        "assumptions": list(verdict.assumptions),
        "facts": [{"name": name, "value": value} for name, value in verdict.facts],
        "reasons": [_reason(reason, root) for reason in verdict.reasons],
    }


def _reason(reason: Reason, root: Path) -> dict[str, Any]:
    return {
        "name": reason.name,
        "refutes": reason.refutes,
        "fingerprint": reason_fingerprint(reason),
        "message": reason.message,
        **_location(reason.location, root),
        "ranks": list(reason.ranks),
        "operator": reason.operator,
        "expected": reason.expected,
        "actual": reason.actual,
        "repair": reason.repair,
        "related": [_related(related, root) for related in reason.related],
    }


def _not_evaluated(item: NotEvaluated, root: Path) -> dict[str, Any]:
    return {"rule": item.rule, "reason": item.reason, **_location(item.location, root)}


def _problem(problem: Problem, root: Path) -> dict[str, Any]:
    return {"message": problem.message, "help": problem.help, **_location(problem.location, root)}


def _plan(outline: Outline, root: Path) -> dict[str, Any]:
    coverage = outline.coverage
    return {
        "path": relative(outline.path, root),
        "ranks": outline.mesh.size,
        "mesh": [{"axis": axis.name, "size": axis.size} for axis in outline.mesh.axes],
        "micro_batches": outline.micro_batches,
        "understood": None if coverage is None else coverage.understood,
        "operators": None if coverage is None else coverage.operators,
    }


def _comparison(comparison: Comparison, root: Path) -> dict[str, Any]:
    return {
        "path": relative(comparison.path, root),
        "section": comparison.section,
        "written": [_difference(difference) for difference in comparison.written],
        "follows": [_difference(difference) for difference in comparison.follows],
    }


def _difference(difference: Difference) -> dict[str, str]:
    return {"name": difference.name, "before": difference.before, "after": difference.after}
