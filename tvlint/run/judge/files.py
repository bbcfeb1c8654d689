"""Judge one file: its configurations, plan or schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tvlint.checkout.opening import is_empty
from tvlint.checks import findings_of_plan, load_check
from tvlint.findings import Finding, NotEvaluated, Problem, Related, Severity
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.document import NOTHING, Document, ReadError
from tvlint.rule import Rule, RuleKind
from tvlint.run.judge.found import Found
from tvlint.run.judge.known_settings import as_known
from tvlint.run.project.project_file import Project
from tvlint.run.project.unjudged import unjudged
from tvlint.run.project.world_size import lacks_world_size, stated

if TYPE_CHECKING:
    from tvlint.ir.plan import Plan
    from tvlint.ir.schedule import Schedule


Keep: TypeAlias = Callable[[Sequence[Finding]], object]
"""Takes what has been found in a file so far; some of it may come again."""


def check_file(
    path: str,
    is_named: bool,
    rules: Mapping[str, Rule],
    project: Project,
    found: Found,
    keep: Keep = lambda findings: None,
) -> Plan | None:
    """Add what is found in the file to what was `found`, and return its plan; each part is given to `keep` as it is found."""
    from tvlint.readers.read import read

    try:
        document = read(path, operators=project.operators)
    except ReadError as error:
        found.problems.append(error.problem)
        return None
    except OSError as error:
        found.problems.append(Problem(f"cannot be read: {(error.strerror or 'unknown reason').lower()}", Location(path)))
        return None
    if document is None:
        if is_named and is_empty(path) and not path.endswith(".py"):
            found.problems.append(Problem("the file is empty", Location(path)))
            return None
        problem = _malformed(path, is_named)
        if problem is not None and is_named:
            found.problems.append(problem)
        elif problem is not None:
            found.findings.append(unjudged(path, problem.message, problem.location))
        elif is_named:
            found.skipped.append(path)
            found.findings.append(unjudged(path, "no configuration or plan that tvlint knows"))
        return None
    if document.format == NOTHING:
        found.findings += document.findings
        return None
    found.checked[path] = _kinds(document)
    if document.configurations:
        from tvlint.readers.megatron.invalid_options import still_refused

        comments = stated(path)
        found.problems += comments.problems
        reported = as_known(document, comments, project)
        found.findings += still_refused(document.findings, reported)
        kept = 0
        for configuration in reported:
            _check_configuration(configuration, rules, found)
            keep(found.findings[kept:])
            kept = len(found.findings)
        if not _recognise(reported, found) and not found.findings:
            found.checked.pop(path)
    else:
        found.findings += document.findings
        keep(found.findings)
    if document.plan is not None:
        _check_plan(document.plan, rules, project, found, keep)
    if document.schedule is not None:
        _check_schedule(document.schedule, rules, project, found)
    return document.plan


def _malformed(path: str, is_named: bool) -> Problem | None:
    """Return what keeps the file from being what its name says; None where nothing does."""
    from tvlint.readers.malformed import NAMED, refuse_found, refuse_named
    from tvlint.readers.read import unpacked

    if not path.lower().endswith(NAMED):
        return None
    try:
        (refuse_named if is_named else refuse_found)(path, unpacked(path))
    except ReadError as error:
        return error.problem
    return None


def _kinds(document: Document) -> set[RuleKind]:
    kinds = {RuleKind.INPUT}
    if document.configurations:
        kinds.add(RuleKind.CONFIG)
    if document.plan is not None:
        kinds.add(RuleKind.PLAN)
    if document.schedule is not None:
        kinds.add(RuleKind.SCHEDULE)
    return kinds


@cache
def applicable(framework: str, version: str) -> int:
    """Return how many of all rules about configurations hold for a framework in a version."""
    from tvlint.rulebook.judge import is_applicable
    from tvlint.rulebook.pages import load_rules

    bare = Configuration("", "", framework, {}, version=version)
    return sum(rule.kind is RuleKind.CONFIG and is_applicable(rule, bare) for rule in load_rules().values())


def _recognise(configurations: Sequence[Configuration], found: Found) -> bool:
    """Note which frameworks the configurations of a file are of; return whether a rule holds for one of them."""
    counts = [applicable(configuration.framework, configuration.version) for configuration in configurations]
    for each, count in zip(configurations, counts, strict=True):
        known = found.recognised.get((each.framework, each.path), (count, False))
        found.recognised[each.framework, each.path] = (count, known[1] or lacks_world_size(each))
    return any(counts)


def _check_configuration(configuration: Configuration, rules: Mapping[str, Rule], found: Found) -> None:
    from tvlint.rulebook.evaluate import evaluate

    for result in evaluate(configuration, rules, repairs=found.repairs > 0):
        if isinstance(result, Finding):
            found.findings.append(result)
            found.repairs -= result.severity is Severity.ERROR
        else:
            found.not_evaluated.append(result)


def _check_plan(plan: Plan, rules: Mapping[str, Rule], project: Project, found: Found, keep: Keep) -> None:
    from tvlint.analyses.dataflow.facts import Facts
    from tvlint.analyses.relations.derivation.localisation.coverage import coverage_of
    from tvlint.analyses.relations.findings import OF_RELATIONS, not_derived, relations
    from tvlint.analyses.schedule.from_plan import PLAN_RULES, schedule_of
    from tvlint.ir.outline import outline
    from tvlint.rulebook.pages import load_rules

    facts = Facts(plan)

    def reported(findings: Iterable[Finding]) -> list[Finding]:
        return [_with_origin(finding) for finding in findings if finding.rule in rules]

    by_reader = tuple(found.findings)
    found.findings += reported(findings_of_plan(facts, load_rules(), lambda findings: keep(reported(findings)), by_reader))
    keep(found.findings)
    alone, why = relations(facts), not_derived(facts)
    if why:
        found.not_evaluated += [NotEvaluated(name, Location(plan.path), why) for name in sorted(OF_RELATIONS & {*rules})]
    found.outlines.append(outline(plan, coverage=None if alone is None else coverage_of(alone.plan, alone.derived)))
    schedule = schedule_of(plan)
    if schedule is not None:
        this_said = Found()
        _check_schedule(schedule, {name: rule for name, rule in rules.items() if name in PLAN_RULES}, project, this_said)
        found.findings += [replace(finding, ranks=()) for finding in this_said.findings]


def _with_origin(finding: Finding) -> Finding:
    """Return the finding, with the place that its place was generated from, where it does not have it."""
    if finding.location.origin is None:
        return finding
    origin = Related("generated from this line of the model", finding.location.origin)
    return finding if origin in finding.related else replace(finding, related=(*finding.related, origin))


def _check_schedule(schedule: Schedule, rules: Mapping[str, Rule], project: Project, found: Found) -> None:
    from tvlint.analyses.schedule.facts import ScheduleFacts

    facts = ScheduleFacts(schedule, project.activation_budget)
    for name, rule in rules.items():
        if rule.kind is not RuleKind.SCHEDULE:
            continue
        if schedule.unreadable:
            reason = f"{schedule.unreadable} cells of the schedule are no actions"
            found.not_evaluated.append(NotEvaluated(name, Location(schedule.path), reason))
            continue
        found.findings += load_check(rule)(facts)
