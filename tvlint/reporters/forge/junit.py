"""`junit`: JUnit XML that Jenkins, GitLab and the strict xUnit schema accept.

Suite `tvlint.rules` has a case for everything that a rule says something about in a file, named after the two, one for every
file about which no rule does, and one for the rules of a file that could not be judged, which is skipped. What fails the run
fails its case, other findings are its output. Suite `tvlint.proof` has a case for every proof, and one for each of its proof
stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

from junit_xml import TestCase, TestSuite, to_xml_report_string

from tvlint.findings import Finding, Outcome, Reason, Report, Severity, Verdict
from tvlint.identity import names
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible
from tvlint.reporters.escape.xml import xml
from tvlint.reporters.lanes import proof_stages
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.ranks import describe, meshes
from tvlint.reporters.text.totals import (
    by_place,
    needs,
    published,
    rules_by_need,
    set_aside,
    silenced_text,
    stage_counts,
    unevaluated,
)

_CHILDREN = ("skipped", "error", "failure", "system-out", "system-err")


def write(report: Report, context: Context) -> Escaped:
    """At least one case, each name once a file, and nothing that `junit-10.xsd` does not know."""
    rules = _unique(
        [
            *_problems(report, context),
            *_rules(report, context),
            *_skipped(report, context),
            *_silenced(report, context),
            *_clean(report, context),
        ]
    )
    proofs = _unique(list(_proofs(report, context)))
    if not rules and not proofs:
        rules = [_case("tvlint", "nothing to check")]
        rules[0].add_skipped_info("no file was checked")
    suites = [TestSuite(name, cases) for name, cases in (("tvlint.rules", rules), ("tvlint.proof", proofs)) if cases]
    return _strict(to_xml_report_string(suites, prettyprint=False))


def _case(group: str, name: str, seconds: float = 0.0, output: str | None = None) -> TestCase:
    return TestCase(visible(name), classname=visible(group), elapsed_sec=seconds, stdout=output)


def _problems(report: Report, context: Context) -> Iterator[TestCase]:
    for problem in report.problems:
        case = _case(relative(problem.location.path, context.root), "readable")
        lines = [f"{place(problem.location, context.root)}: {problem.message}", *_help(problem.help)]
        case.add_error_info(visible(problem.message), _text(lines), "problem")
        yield case


def _rules(report: Report, context: Context) -> Iterator[TestCase]:
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in by_place(report.findings):
        about = ", ".join(filter(None, names(finding)))
        grouped.setdefault((finding.location.path, f"{finding.rule}: {about}" if about else finding.rule), []).append(finding)
    for (path, name), findings in grouped.items():
        body = _text([line for finding in findings for line in _finding(finding, report, context)])
        errors = [finding for finding in findings if published(finding.severity, context.fail_on) is Severity.ERROR]
        if not errors:
            yield _case(relative(path, context.root), name, output=body)
            continue
        case = _case(relative(path, context.root), name)
        more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
        case.add_failure_info(visible(f"{errors[0].message}{more}"), body, errors[0].severity.value)
        yield case


def _finding(finding: Finding, report: Report, context: Context) -> Iterator[str]:
    yield f"{place(finding.location, context.root)}: {finding.severity.value}: {finding.message}"
    parts = [
        part for part in (finding.location.pointer, describe(finding.ranks, meshes(report)(finding.location.path))) if part
    ]
    if parts:
        yield f"  at: {', '.join(parts)}"
    for related in finding.related:
        yield f"  {place(related.location, context.root)}: note: {related.message}"
    yield from (f"  {line}" for line in _help(finding.help))


def _skipped(report: Report, context: Context) -> Iterator[TestCase]:
    """Yield the rules that could not be judged: a case for each file with their number, and one for what they would need."""
    for path, reasons in needs(report.not_evaluated).items():
        case = _case(relative(path, context.root), "rules not evaluated")
        rules = {rule for names in reasons.values() for rule in names}
        case.add_skipped_info(f"{counted(len(rules), 'rule')} not evaluated")
        yield case
    if report.not_evaluated:
        case = _case("tvlint", "rules not evaluated")
        case.add_skipped_info(unevaluated(report.not_evaluated), _text(rules_by_need(report.not_evaluated)))
        yield case


def _silenced(report: Report, context: Context) -> Iterator[TestCase]:
    """Yield the findings that are silenced, a skipped case for each file, and one for all that are known."""
    for path in dict.fromkeys(silenced.finding.location.path for silenced in report.silenced):
        this_report = replace(report, silenced=tuple(each for each in report.silenced if each.finding.location.path == path))
        case = _case(relative(path, context.root), "findings silenced")
        body = _text([line for silenced in this_report.silenced for line in _finding(silenced.finding, report, context)])
        case.add_skipped_info(silenced_text(this_report), body)
        yield case
    if report.known:
        case = _case("tvlint", "findings already known")
        case.add_skipped_info(set_aside(replace(report, silenced=()))[0])
        yield case


def _clean(report: Report, context: Context) -> Iterator[TestCase]:
    named = {finding.location.path for finding in report.findings} | {problem.location.path for problem in report.problems}
    for path in dict.fromkeys(report.checked):
        if path not in named:
            yield _case(relative(path, context.root), "no new findings" if report.known else "no findings")


def _proofs(report: Report, context: Context) -> Iterator[TestCase]:
    for verdict in report.verdicts:
        case = _case(
            relative(verdict.parallel, context.root),
            f"{verdict.claim} {relative(verdict.reference, context.root)}",
            verdict.seconds,
            _text(_facts(verdict)),
        )
        body = _text([line for reason in verdict.reasons for line in _reason(reason, verdict, report, context)])
        message = visible(verdict.reasons[0].message if verdict.reasons else f"the proof is {verdict.outcome.value}")
        if verdict.outcome is Outcome.REFUTED:
            case.add_failure_info(message, body, "refuted")
        elif verdict.outcome is Outcome.UNKNOWN:
            case.add_error_info(message, body, "unknown")
        yield case
        yield from _proof_stages(verdict, report, context)


def _proof_stages(verdict: Verdict, report: Report, context: Context) -> Iterator[TestCase]:
    """Yield a case for each proof stage: what one kind of rank computes in one phase of one pipeline stage."""
    for outline in report.outlines if verdict.stages.total else ():
        if outline.path != verdict.parallel:
            continue
        for stage in proof_stages(outline):
            of = f" of pipeline stage {stage.pipeline_stage}" if stage.pipeline_stage >= 0 else ""
            name = f"proof stage: {stage.phase.value}{of} on {describe(stage.ranks, outline.mesh)}"
            case = _case(relative(verdict.parallel, context.root), name)
            reasons = [reason for reason in verdict.reasons if not set(stage.ranks).isdisjoint(reason.ranks)]
            body = _text([line for reason in reasons for line in _reason(reason, verdict, report, context)])
            message = visible(reasons[0].message if reasons else f"the proof stage is {stage.judged}")
            if stage.judged == "refuted":
                case.add_failure_info(message, body, "refuted")
            elif stage.judged == "unknown":
                case.add_error_info(message, body, "unknown")
            yield case


def _facts(verdict: Verdict) -> Iterator[str]:
    yield stage_counts(verdict.stages)
    yield from (f"{name}: {value}" for name, value in verdict.facts)
    yield from (f"assumed: {assumption}" for assumption in verdict.assumptions)


def _reason(reason: Reason, verdict: Verdict, report: Report, context: Context) -> Iterator[str]:
    yield f"{place(reason.location, context.root)}: {reason.message} [{reason.name}]"
    facts = (
        ("source", reason.location.text.strip()),
        ("operator", reason.operator),
        ("at", reason.location.pointer),
        ("on", describe(reason.ranks, meshes(report)(verdict.parallel))),
        ("expected", reason.expected),
        ("actual", reason.actual),
        ("repair", reason.repair),
    )
    yield from (f"  {name}: {value}" for name, value in facts if value)
    for related in reason.related:
        yield f"  {place(related.location, context.root)}: note: {related.message}"


def _help(help: str) -> tuple[str, ...]:
    return (f"help: {help}",) if help else ()


def _text(lines: Iterator[str] | list[str]) -> str:
    return "\n".join(visible(line) for line in lines)


def _unique(cases: list[TestCase]) -> list[TestCase]:
    """Return the cases with ` (2)`, ` (3)`, ... where a name occurs again: GitLab keeps only the first of equal names."""
    seen: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.classname, case.name)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            case.name = f"{case.name} ({seen[key]})"
    return cases


def _strict(text: str) -> Escaped:
    """Return what junit-xml writes, without the attributes that the schema rejects and with the times that it drops."""
    root = ElementTree.fromstring(text)
    for element in (root, *root.iter("testsuite")):
        element.attrib.pop("disabled", None)
        element.set("time", f"{sum(float(case.get('time', '0')) for case in element.iter('testcase')):.3f}")
    for case in root.iter("testcase"):
        case.set("time", f"{float(case.get('time', '0')):.3f}")
        case[:] = sorted(case, key=lambda child: _CHILDREN.index(child.tag))
    return xml(root)
