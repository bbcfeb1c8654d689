"""`sarif`: SARIF 2.1.0 with the properties that GitHub code scanning reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvlint.findings import Finding, Outcome, Problem, Reason, Related, Report, SceneStep, Severity, Verdict
from tvlint.home import HOME
from tvlint.identity import fingerprint, numbered, reason_fingerprint
from tvlint.ir.location import Location
from tvlint.reporters.context import Context
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible
from tvlint.reporters.forge.anchor import (
    Anchor,
    finding_anchor,
    located,
    outside,
    problem_anchor,
    reason_anchor,
    repository,
    verdict_anchor,
)
from tvlint.reporters.forge.fingerprint import line_hashes, semantic
from tvlint.reporters.sarif.escape import link_text, message_text
from tvlint.reporters.sarif.rules import rule_object
from tvlint.reporters.text.excerpt import source_text, split_lines
from tvlint.reporters.text.paths import place, relative, uri
from tvlint.reporters.text.ranks import intervals
from tvlint.reporters.text.totals import assumed, by_severity, published

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAXIMAL_RESULTS = 25_000
"""GitHub rejects a run with more results."""
MAXIMAL_RELATED = 100
MAXIMAL_NOTIFICATIONS = 1_000
HASHED_BYTES = 1 << 20
"""Larger files are not hashed line by line; their results keep the fingerprint of what they say."""


@dataclass(frozen=True, slots=True)
class _Remark:
    """One result to be: a finding, or a reason of a verdict."""

    rule: str
    severity: Severity
    message: str
    location: Location
    anchor: Anchor
    identity: str
    details: tuple[str, ...] = ()
    related: tuple[Related, ...] = ()
    ranks: tuple[int, ...] = ()
    flow: tuple[Related, ...] = ()
    """How the wrong value came about, from its cause to its use."""


def write(report: Report, context: Context) -> Escaped:
    """One run; every result has a line of a file that exists in the repository, as GitHub demands."""
    remarks = list(_remarks(report, context))
    left_out = max(0, len(remarks) - MAXIMAL_RESULTS)
    remarks = remarks[:MAXIMAL_RESULTS]
    rules = {name: index for index, name in enumerate(dict.fromkeys(remark.rule for remark in remarks))}
    lines = _Lines(report, context)
    fingerprints = _fingerprints(remarks, lines)
    run = {
        "tool": {
            "driver": {
                "name": "tvlint",
                "version": context.version,
                "semanticVersion": context.version,
                "informationUri": HOME,
                "rules": [rule_object(name, context.rules.get(name), context.version) for name in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, context, left_out)],
        "results": [
            _result(remark, rules[remark.rule], own, context) for remark, own in zip(remarks, fingerprints, strict=True)
        ],
    }
    return data({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _remarks(report: Report, context: Context) -> Iterator[_Remark]:
    """What could not be read, then refuted proofs, then findings from the worst on, then proofs that are not decided."""
    for problem in report.problems:
        identity = fingerprint(Finding("unreadable-input", Severity.ERROR, "", problem.location))
        help = (f"help: {problem.help}",) if problem.help else ()
        at = problem_anchor(problem, context)
        yield _Remark("unreadable-input", Severity.ERROR, problem.message, problem.location, at, identity, help)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.REFUTED:
            yield from _verdict_remarks(verdict, report, context)
    for finding in by_severity(report.findings):
        yield _finding_remark(finding, report, context)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.UNKNOWN:
            yield from _verdict_remarks(verdict, report, context)


def _finding_remark(finding: Finding, report: Report, context: Context) -> _Remark:
    return _Remark(
        finding.rule,
        finding.severity,
        finding.message,
        finding.location,
        finding_anchor(finding, report, context),
        fingerprint(finding),
        (f"help: {finding.help}",) if finding.help else (),
        finding.related,
        finding.ranks,
    )


def _verdict_remarks(verdict: Verdict, report: Report, context: Context) -> Iterator[_Remark]:
    pair = _pair(verdict, context)
    if not verdict.reasons:
        refuted = verdict.outcome is Outcome.REFUTED
        yield _Remark(
            *_proof_rule(refuted),
            f"{pair}: the proof is {verdict.outcome.value}",
            Location(verdict.parallel),
            verdict_anchor(verdict, report, context),
            reason_fingerprint(Reason(verdict.outcome.value, refuted, "", Location(verdict.parallel))),
        )
    for reason in verdict.reasons:
        facts = (
            ("proof", pair),
            ("operator", reason.operator),
            ("expected", reason.expected),
            ("actual", reason.actual),
            ("repair", reason.repair),
        )
        yield _Remark(
            *_proof_rule(reason.refutes),
            f"{reason.message} ({reason.name})",
            reason.location,
            reason_anchor(reason, verdict, report, context),
            reason_fingerprint(reason),
            tuple(f"{name}: {value}" for name, value in facts if value),
            reason.related,
            reason.ranks,
            tuple(_flow(reason)),
        )


def _flow(reason: Reason) -> Iterator[Related]:
    """The operators that lead to the wrong value and the one that uses it, on the first kind of rank concerned."""
    for scene in reason.scenes[:1]:
        for step in scene.steps:
            if step.location is not None:
                yield Related(_step_words(step), step.location)


def _step_words(step: SceneStep) -> str:
    reads = ", ".join(f"`{piece.tensor}`{f' ({piece.lacks})' if piece.lacks else ''}" for piece in step.reads)
    gives = ", ".join(f"`{piece.tensor}`{f' ({piece.lacks})' if piece.lacks else ''}" for piece in step.gives)
    return f"`{step.operator}` reads {reads or 'nothing'} and gives {gives or 'nothing'}"


def _pair(verdict: Verdict, context: Context) -> str:
    root = repository(context)
    return f"{relative(verdict.parallel, root)} against {relative(verdict.reference, root)}"


def _proof_rule(refuted: bool) -> tuple[str, Severity]:
    return ("refuted-proof", Severity.ERROR) if refuted else ("unknown-proof", Severity.WARNING)


def _result(remark: _Remark, index: int, fingerprints: dict[str, str], context: Context) -> dict[str, Any]:
    related = [
        (other, where) for other in remark.related[:MAXIMAL_RELATED] if (where := located(other.location, context)) is not None
    ]
    links = [f"see [{link_text(other.message)}]({number})" for number, (other, _) in enumerate(related, 1)]
    lines = [message_text(remark.message), *(message_text(detail) for detail in remark.details), *links]
    lines += [
        message_text(f"{other.message}: {place(other.location, context.root)}")
        for other in remark.related[:MAXIMAL_RELATED]
        if located(other.location, context) is None
    ]
    if not remark.anchor.exact or remark.anchor.outside:
        lines.append(message_text(f"at {place(remark.location, context.root)} {remark.location.pointer}".rstrip()))
    if remark.ranks:
        lines.append(f"ranks: {intervals(remark.ranks)}")
    result: dict[str, Any] = {
        "ruleId": remark.rule,
        "ruleIndex": index,
        "level": published(remark.severity, context.fail_on).value,
        "message": {"text": "\n".join(lines)},
        "locations": [{**_physical(remark.anchor), **_logical(remark.location)}],
        "partialFingerprints": fingerprints,
    }
    if related:
        result["relatedLocations"] = [
            {"id": number, **_physical(where), "message": {"text": message_text(other.message)}}
            for number, (other, where) in enumerate(related, 1)
        ]
    if remark.flow:
        steps = [_step(step, context) for step in remark.flow]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    properties = _properties(remark)
    if properties:
        result["properties"] = properties
    return result


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


def _step(step: Related, context: Context) -> dict[str, Any]:
    anchor = located(step.location, context) or outside(step.location, context)
    return {"location": {**_physical(anchor), **_logical(step.location), "message": {"text": message_text(step.message)}}}


def _properties(remark: _Remark) -> dict[str, Any]:
    properties = {
        "severity": remark.severity.value,
        "ranks": intervals(remark.ranks),
        "sourceLine": visible(remark.location.text.strip()),
    }
    return {name: value for name, value in properties.items() if value}


class _Lines:
    """The text and the lines of repository files, each read once."""

    def __init__(self, report: Report, context: Context) -> None:
        self._report, self._context = report, context
        self._texts: dict[str, str | None] = {}
        self._lines: dict[str, tuple[str, ...]] = {}

    def text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = source_text(str(repository(self._context) / path), self._report, self._context)
        return self._texts[path]

    def line(self, path: str, number: int) -> str:
        """One line; empty where there is none."""
        if path not in self._lines:
            text = self.text(path)
            self._lines[path] = () if text is None else split_lines(text)
        lines = self._lines[path]
        return lines[number - 1] if number <= len(lines) else ""


def _fingerprints(remarks: Sequence[_Remark], lines: _Lines) -> list[dict[str, str]]:
    """The prints of each result: GitHub's hash of the line, where it can be read, and what the result is, by three measures.

    `tvlint/v2` is the rule and what it is about, for each file; `tvlint/v1`, for those who kept it, the rule with the file and
    the text of the line.
    """
    wanted: dict[str, set[int]] = {}
    for remark in remarks:
        if not remark.anchor.outside:
            wanted.setdefault(remark.anchor.path, set()).add(remark.anchor.line)
    hashes: dict[str, dict[int, str]] = {}
    for path, numbers in wanted.items():
        text = lines.text(path)
        hashes[path] = line_hashes(text, numbers) if text is not None and len(text) <= HASHED_BYTES else {}
    first = numbered(
        semantic(remark.rule, remark.anchor.path, remark.location.pointer, _source_line(remark, lines), remark.message)
        for remark in remarks
    )
    of_file = numbered(f"{remark.anchor.path}\0{remark.identity}" for remark in remarks)
    found = []
    for remark, v1, v2 in zip(remarks, first, of_file, strict=True):
        line_hash = hashes.get(remark.anchor.path, {}).get(remark.anchor.line)
        own = {"tvlint/v1": v1, "tvlint/v2": v2.rpartition("\0")[2]}
        found.append({"primaryLocationLineHash": line_hash, **own} if line_hash is not None else own)
    return found


def _source_line(remark: _Remark, lines: _Lines) -> str:
    if remark.location.text:
        return remark.location.text
    return lines.line(remark.anchor.path, remark.anchor.line) if remark.anchor.exact else ""


def _invocation(report: Report, context: Context, left_out: int) -> dict[str, Any]:
    notes = [_problem(problem, context) for problem in report.problems]
    notes += [
        _note(
            "assumptions",
            f"{_pair(verdict, context)}: {verdict.outcome.value}; {assumed(verdict)}",
            Location(verdict.parallel),
            context,
        )
        for verdict in report.verdicts
        if verdict.assumptions
    ]
    notes += [
        _note("not-evaluated", f"{item.rule} was not evaluated: {item.reason}", item.location, context)
        for item in report.not_evaluated
    ]
    if left_out:
        notes.insert(0, {"level": "warning", "message": {"text": f"{left_out} more results were left out"}})
    return {"executionSuccessful": not report.problems, "toolExecutionNotifications": notes[:MAXIMAL_NOTIFICATIONS]}


def _note(name: str, text: str, location: Location, context: Context) -> dict[str, Any]:
    told = {"level": "note", "message": {"text": message_text(text)}, "descriptor": {"id": name}}
    return {**told, **_notified(located(location, context))}


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
