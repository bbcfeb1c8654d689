"""Reasons of verdicts that comments and the project file silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.findings import Finding, Outcome, Reason, Report, Severity, Silenced, Verdict
from tvlint.run.project.discovery import matches
from tvlint.run.project.nested import judging
from tvlint.run.project.project_file import Project
from tvlint.run.silence.ignores import silence


def without_silenced_reasons(report: Report, project: Project) -> Report:
    """Return the report with the reasons that are silenced among what is silenced, and not in their verdicts.

    A verdict of which all reasons are silenced is left out, and its plans count as checked. One that keeps gaps only is
    unknown. Nothing makes a verdict Proved.
    """
    silenced: list[Silenced] = []
    verdicts: list[Verdict] = []
    left_out: list[str] = []
    for verdict in report.verdicts:
        hidden = dict(_hidden(verdict, project))
        silenced += hidden.values()
        kept = tuple(reason for place, reason in enumerate(verdict.reasons) if place not in hidden)
        if hidden and not kept:
            left_out += [verdict.parallel, verdict.reference]
            continue
        open_ = hidden and not any(reason.refutes for reason in kept)
        verdicts.append(replace(verdict, reasons=kept, outcome=Outcome.UNKNOWN if open_ else verdict.outcome))
    return replace(
        report,
        verdicts=tuple(verdicts),
        silenced=(*report.silenced, *silenced),
        checked=tuple(dict.fromkeys((*report.checked, *filter(None, left_out)))),
    )


def _hidden(verdict: Verdict, project: Project) -> Iterator[tuple[int, Silenced]]:
    """Yield the reasons that are silenced, by their places in the verdict."""
    found = [_finding(reason) for reason in verdict.reasons]
    commented = silence(found, (), lambda path, rule: False, ())[1] if project.heeds_comments else ()
    for place, finding in enumerate(found):
        this_project = judging(finding.location.path, project)
        patterns = [pattern for pattern, ignored in this_project.per_file_ignores.items() if finding.rule in ignored]
        if finding in commented:
            yield place, Silenced(finding, by_comment=True)
        elif finding.rule in this_project.ignore or matches(finding.location.path, this_project, patterns):
            yield place, Silenced(finding, by_comment=False)


def _finding(reason: Reason) -> Finding:
    severity = Severity.ERROR if reason.refutes else Severity.WARNING
    return Finding(reason.name, severity, reason.message, reason.location, related=reason.related, ranks=reason.ranks)
