"""Plan and schedule rules: `check` in `<topic>/<rule_name>.py` checks what the page of that topic and name says."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any

from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.rule import Rule, RuleKind

if TYPE_CHECKING:
    from tvlint.analyses.dataflow.facts import Facts


def findings_of_plan(
    facts: Facts,
    rules: Mapping[str, Rule],
    keep: Callable[[Sequence[Finding]], object] = lambda findings: None,
    by_reader: Sequence[Finding] = (),
) -> Iterator[Finding]:
    """Yield what the plan rules among `rules` find, and then what only the relations of the plan show.

    What was found `by_reader` as the plan was read is not found again.
    Give all rules, also where some do not apply: what one of them finds explains what follows from it. The garbage collector
    leaves alone what exists by now: the plan lives on, and walking its millions of objects again and again would take
    longer than all checks. What each rule finds is given to `keep` before the next one is asked.
    """
    from tvlint.analyses.relations.findings import derived_findings

    gc.freeze()
    found: list[Finding] = []
    for rule in rules.values():
        if rule.kind is RuleKind.PLAN:
            new = list(load_check(rule)(facts))
            keep(new)
            found += new
    found = [finding for finding in without_consequences([*by_reader, *found], rules) if finding not in by_reader]
    yield from found
    yield from derived_findings(facts, rules, [*by_reader, *found])


def without_consequences(found: Sequence[Finding], rules: Mapping[str, Rule]) -> Iterator[Finding]:
    """Yield what is found but for what another rule says better, by its page, at the same place and about the same name; a
    warning is no better than an error.
    """
    better: dict[tuple[Location, str, Severity], set[str]] = {}
    severities = [*Severity]
    for finding in found:
        for name, severity in product(rules[finding.rule].supersedes, severities[severities.index(finding.severity) :]):
            better.setdefault((finding.location, name, severity), set()).update(finding.about or ())
    for finding in found:
        names = better.get((finding.location, finding.rule, finding.severity))
        if names is None or (names and finding.about and names.isdisjoint(finding.about)):
            yield finding


def load_check(rule: Rule) -> Callable[[Any], Iterator[Finding]]:
    """Return the function that checks a plan rule or a schedule rule; it takes the facts of a plan or of a schedule.

    A page with a message of its own says how the defects of its name are reported that an analysis finds. One with a help
    alone is about what the relations of a plan show. One with cases has a check that yields each defect with its case.
    """
    if rule.kind is RuleKind.SCHEDULE:
        from tvlint.checks.schedule.pages import findings_of_schedule

        return partial(findings_of_schedule, rule=rule)
    if rule.message:
        from tvlint.checks.pages import findings_as_page_says

        return partial(findings_as_page_says, rule=rule)
    if rule.help:
        return lambda _: iter(())
    module = ".".join((__name__, *rule.topic.split("/"), rule.name)).replace("-", "_")
    check = import_module(module).check
    return (lambda facts: map(rule.said_of, check(facts))) if rule.cases else partial(check, rule=rule)
