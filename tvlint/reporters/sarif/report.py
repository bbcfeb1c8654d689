"""`sarif`: SARIF 2.1.0 with the properties that GitHub code scanning reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvlint.findings import Fix, Problem, Related, Report, Severity
from tvlint.home import HOME
from tvlint.identity import numbered
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible
from tvlint.reporters.forge.anchor import (
    Anchor,
    located,
    outside,
)
from tvlint.reporters.forge.fingerprint import line_hashes, semantic
from tvlint.reporters.forge.remarks import Remark, lines, pair_of, prints_of_files, remarks
from tvlint.reporters.forge.repository_lines import RepositoryLines
from tvlint.reporters.sarif.escape import link_text, message_text
from tvlint.reporters.sarif.rules import rule_object
from tvlint.reporters.text.paths import below_root, place, uri
from tvlint.reporters.text.ranks import intervals
from tvlint.reporters.text.totals import assumed, rules_by_need, set_aside

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAXIMAL_RESULTS = 25_000
"""GitHub rejects a run with more results."""
MAXIMAL_RELATED = 100
MAXIMAL_NOTIFICATIONS = 1_000
HASHED_BYTES = 1 << 20
"""Larger files are not hashed line by line; their results keep the fingerprint of what they say."""


def write(report: Report, context: Context) -> Escaped:
    """One run; every result has a line of a file that exists in the repository, as GitHub demands."""
    found = list(remarks(report, context))
    reported = len(found)
    found += [remark for kind in (True, False) for remark in remarks(_silenced(report, kind), context)]
    by_comment = sum(silenced.by_comment for silenced in report.silenced)
    kinds = [None] * reported + ["inSource"] * by_comment + ["external"] * (len(report.silenced) - by_comment)
    left_out = max(0, len(found) - MAXIMAL_RESULTS)
    found = found[:MAXIMAL_RESULTS]
    rules = {name: index for index, name in enumerate(dict.fromkeys(remark.rule for remark in found))}
    prints = _fingerprints(found, RepositoryLines(report, context))
    run = {
        "tool": {
            "driver": {
                "name": "tvlint",
                "version": context.version,
                "semanticVersion": context.version,
                "informationUri": HOME,
                "rules": [rule_object(name, context.rules.get(name), context.version, context.explanation) for name in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, context, left_out)],
        "results": [
            {**_result(remark, rules[remark.rule], each_print, context), **({"suppressions": [{"kind": kind}]} if kind else {})}
            for remark, each_print, kind in zip(found, prints, kinds[:MAXIMAL_RESULTS], strict=True)
        ],
    }
    return data({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _silenced(report: Report, by_comment: bool) -> Report:
    """Return the report with nothing to say but what comments, or the project file, silence."""
    findings = tuple(silenced.finding for silenced in report.silenced if silenced.by_comment is by_comment)
    return replace(report, findings=findings, verdicts=(), problems=())


def _result(remark: Remark, index: int, fingerprints: dict[str, str], context: Context) -> dict[str, Any]:
    related = [
        (other, where) for other in remark.related[:MAXIMAL_RELATED] if (where := located(other.location, context)) is not None
    ]
    links = [f"see [{link_text(other.message)}]({number})" for number, (other, _) in enumerate(related, 1)]
    said = [*map(message_text, lines(remark, context)), *links]
    said += [
        message_text(f"{other.message}: {place(other.location, context.root)}")
        for other in remark.related[:MAXIMAL_RELATED]
        if located(other.location, context) is None
    ]
    if remark.ranks:
        said.append(f"ranks: {intervals(remark.ranks)}")
    result: dict[str, Any] = {
        "ruleId": remark.rule,
        "ruleIndex": index,
        "level": remark.level.value,
        "message": {"text": "\n".join(said)},
        "locations": [{**_physical(remark.anchor), **_logical(remark.location)}],
        "partialFingerprints": fingerprints,
    }
    if related:
        result["relatedLocations"] = [
            {"id": number, **_physical(where), "message": {"text": message_text(other.message)}}
            for number, (other, where) in enumerate(related, 1)
        ]
    if remark.flow:
        steps = [_step(step, remark, context) for step in remark.flow]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    fixes = [fix for each_fix in remark.fixes if (fix := _fix(each_fix, context)) is not None]
    if fixes:
        result["fixes"] = fixes
    properties = _properties(remark)
    if properties:
        result["properties"] = properties
    return result


def _fix(fix: Fix, context: Context) -> dict[str, Any] | None:
    """Return the fix, a change for each file; None where one of them is not in the repository."""
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        anchor = located(edit.location, context)
        if anchor is None:
            return None
        deleted = _physical(anchor)["physicalLocation"]["region"]
        changes.setdefault(uri(anchor.path), []).append({"deletedRegion": deleted, "insertedContent": {"text": edit.text}})
    return {
        "description": {"text": message_text(fix.message)},
        "artifactChanges": [
            {"artifactLocation": {"uri": address}, "replacements": replacements} for address, replacements in changes.items()
        ],
    }


def _physical(anchor: Anchor) -> dict[str, Any]:
    region = {
        "startLine": anchor.line,
        "startColumn": anchor.column,
        "endLine": anchor.end_line,
        "endColumn": anchor.end_column,
    }
    known = {name: number for name, number in region.items() if number is not None}
    address = f"file://{uri(anchor.path)}" if anchor.outside else uri(anchor.path)
    return {"physicalLocation": {"artifactLocation": {"uri": address}, "region": known}}


def _logical(location: Location) -> dict[str, Any]:
    if not location.pointer:
        return {}
    pointer = visible(location.pointer)
    return {"logicalLocations": [{"name": pointer.rsplit("/", 1)[-1], "fullyQualifiedName": pointer, "kind": "element"}]}


def _step(step: Related, remark: Remark, context: Context) -> dict[str, Any]:
    """Return the step at its place; at that of the result, where its file is in the folder and not of the repository."""
    anchor, text = located(step.location, context), step.message
    if anchor is None:
        anchor = outside(step.location, context)
        if not anchor.outside and below_root(step.location.path, context.root):
            anchor, text = remark.anchor, f"{text}: {place(step.location, context.root)}"
    return {"location": {**_physical(anchor), **_logical(step.location), "message": {"text": message_text(text)}}}


def _properties(remark: Remark) -> dict[str, Any]:
    properties = {
        "severity": remark.severity.value,
        "ranks": intervals(remark.ranks),
        "sourceLine": visible(remark.location.text.strip()),
    }
    return {name: value for name, value in properties.items() if value}


def _fingerprints(found: Sequence[Remark], source: RepositoryLines) -> list[dict[str, str]]:
    """Return the prints of each result: GitHub's hash of the line, where it can be read, and what the result is, by three
    measures.

    `tvlint/v2` is the rule and what it is about, for each file; `tvlint/v1`, for those who kept it, the rule with the file and
    the text of the line.
    """
    wanted: dict[str, set[int]] = {}
    for remark in found:
        if not remark.anchor.outside:
            wanted.setdefault(remark.anchor.path, set()).add(remark.anchor.line)
    hashes: dict[str, dict[int, str]] = {}
    for path, numbers in wanted.items():
        text = source.text(path)
        hashes[path] = line_hashes(text, numbers) if text is not None and len(text) <= HASHED_BYTES else {}
    first = numbered(
        semantic(remark.rule, remark.anchor.path, remark.location.pointer, _source_line(remark, source), remark.message)
        for remark in found
    )
    prints = []
    for remark, v1, v2 in zip(found, first, prints_of_files(found), strict=True):
        line_hash = hashes.get(remark.anchor.path, {}).get(remark.anchor.line)
        fingerprints = {"tvlint/v1": v1, "tvlint/v2": v2}
        prints.append({"primaryLocationLineHash": line_hash, **fingerprints} if line_hash is not None else fingerprints)
    return prints


def _source_line(remark: Remark, source: RepositoryLines) -> str:
    if remark.location.text:
        return remark.location.text
    return source.line(remark.anchor.path, remark.anchor.line) if remark.anchor.exact else ""


def _invocation(report: Report, context: Context, left_out: int) -> dict[str, Any]:
    notes = [_problem(problem, context) for problem in report.problems]
    notes += [
        _note(
            "assumptions",
            f"{pair_of(verdict, context)}: {verdict.outcome.value}; {assumed(verdict)}",
            Location(verdict.parallel),
            context,
        )
        for verdict in report.verdicts
        if verdict.assumptions
    ]
    notes += [_note("not-evaluated", f"not evaluated: {line}", None, context) for line in rules_by_need(report.not_evaluated)]
    notes = [
        *({"level": "note", "message": {"text": text}} for text in set_aside(replace(report, silenced=()))),
        *notes,
    ]
    if left_out:
        notes.insert(0, {"level": "warning", "message": {"text": f"{left_out} more results were left out"}})
    return {"executionSuccessful": not report.problems, "toolExecutionNotifications": notes[:MAXIMAL_NOTIFICATIONS]}


def _note(name: str, text: str, location: Location | None, context: Context) -> dict[str, Any]:
    reported = {"level": "note", "message": {"text": message_text(text)}, "descriptor": {"id": name}}
    return {**reported, **(_notified(located(location, context)) if location is not None else {})}


def _problem(problem: Problem, context: Context) -> dict[str, Any]:
    text = f"{problem.message}\nhelp: {problem.help}" if problem.help else problem.message
    return {
        "level": Severity.ERROR.value,
        "message": {"text": "\n".join(message_text(line) for line in text.split("\n"))},
        "descriptor": {"id": "unreadable-input"},
        **_notified(located(problem.location, context)),
    }


def _notified(anchor: Anchor | None) -> dict[str, Any]:
    return {} if anchor is None else {"locations": [_physical(anchor)]}
