"""Exit codes; the same for every output format."""

from __future__ import annotations

from tvlint.findings import Outcome, Report, Severity

CLEAN = 0
FOUND = 1
INPUT = 2
INTERNAL = 3
NOTHING = 4
UNKNOWN = 5
INTERRUPTED = 130


def exit_code(report: Report, fail_on: Severity) -> int:
    """Return the most pressing outcome: an input problem, then a mistake, then an unknown proof, then nothing to check.

    A problem comes first because what could not be read was not judged. An unknown proof comes after a finding because a
    mistake that is known needs mending whatever the proof would say.
    """
    order = list(Severity)
    if report.problems:
        return INPUT
    if any(order.index(finding.severity) <= order.index(fail_on) for finding in report.findings):
        return FOUND
    outcomes = {verdict.outcome for verdict in report.verdicts}
    if Outcome.REFUTED in outcomes:
        return FOUND
    if Outcome.UNKNOWN in outcomes:
        return UNKNOWN
    return CLEAN if report.checked or report.verdicts else NOTHING
