"""unfounded-claim: a collective cannot give what the plan claims of its result."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Collectives whose result is claimed to be a region that their operands do not make up."""
    return report(facts, "unfounded-claim", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} of `{defect.name}` over {defect.axis} cannot give region {defect.other} from {defect.has}"


def _help(_: Defect) -> str:
    return "use the collective that leads from the operands to the result, over all ranks that hold a part"
