"""Look for the change of generated code after which it is proved, among those that `edits/generated_code.py` proposes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from tvlint.analyses.relations.defect import Defect
from tvlint.checkout.opening import instead
from tvlint.edits.generated_code.code import Code, Proposal
from tvlint.edits.generated_code.proposals import proposals
from tvlint.equivalence.explain.repair import SHOWS, Candidate, first_proved, with_repair
from tvlint.findings import Finding, Outcome, Reason, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan
from tvlint.readers.document import ReadError
from tvlint.readers.sources.python_syntax import parsing_once
from tvlint.run.proof.pair import Pair, Plans, read_pair

_MOST_LINES = 100_000
"""So many lines of code are read again at most in all trials of one folder."""
_FEWEST = 4
"""So many changes are tried of code of however many lines."""
_LARGEST = 50_000
"""Code of more lines is not changed."""


def with_code_repair(pair: Pair, plans: Plans, verdict: Verdict) -> Verdict:
    """Return the verdict on generated code that is not proved with the change that makes it prove, at the line to change.

    Of all proposals the first that leaves no error of the reader and is proved, out of as many as the pair allows and no
    more than a bounded number of lines.
    """
    if verdict.outcome is Outcome.PROVED or not pair.trials or not verdict.reasons:
        return verdict
    if verdict.reasons[0].repair and any(related.message == SHOWS for related in verdict.reasons[0].related):
        return verdict
    code = _opened(pair)
    if code is None or code.size > _LARGEST:
        return verdict
    trials = max(min(pair.trials, _MOST_LINES // max(code.size, 1)), min(_FEWEST, pair.trials))
    found = islice(proposals(code, list(_places(code, verdict, plans.findings))), trials)
    with parsing_once():
        change = first_proved((_candidate(proposal) for proposal in found), partial(_proves, pair, _may_agree(pair, plans)))
    return verdict if change is None else replace(verdict, reasons=with_repair(verdict.reasons, change))


def _candidate(proposal: Proposal) -> Candidate[Mapping[str, str]]:
    """Return the change with the first place of each file."""
    rows: dict[str, int] = {}
    for path, number in proposal.places:
        rows.setdefault(path, number)
    return Candidate(proposal.message, proposal.contents, tuple(Location(*row) for row in rows.items()))


def _opened(pair: Pair) -> Code | None:
    """Return the code of the pair's folder; None where the plan is in none."""
    from tvlint.readers.nnscaler.gencode.folder import is_folder, texts_of, traced_in

    if not is_folder(pair.parallel):
        return None
    try:
        traced = traced_in(pair.parallel)
        return Code(texts_of(pair.parallel), traced.calls if traced is not None else {})
    except ReadError:
        return None


def _places(code: Code, verdict: Verdict, findings: tuple[Finding, ...]) -> Iterator[tuple[str, int]]:
    """Yield where the verdict and the errors of the reader stand, or where the names that they are about are made: what refutes
    first.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    named: list[Reason | Finding] = [*sorted(verdict.reasons, key=lambda reason: not reason.refutes), *errors]
    for place in named:
        for location in (place.location, *(other.location for other in place.related)):
            if location.line is not None:
                yield location.path, location.line
        if place.location.line is None:
            yield from code.makers(re.findall(r"`(\w+)`", place.message))


def _may_agree(pair: Pair, plans: Plans) -> Callable[[Plan], bool]:
    """Return what says of a plan whether a run of it may give the gradients of the reference; a proof takes far longer."""
    from tvlint.equivalence.verdict.numbers.repair import MOST_OPERATORS
    from tvlint.equivalence.verdict.numbers.run_both import gradients_may_agree
    from tvlint.equivalence.verdict.pairing import pair as paired

    found = paired(plans.kinds[0], plans.reference, pair.assume)
    if isinstance(found, Defect) or sum(len(each.operators) for each in found.parallel.segments.values()) > MOST_OPERATORS:
        return lambda changed: True
    case, agree = found, gradients_may_agree(found)

    def may_agree(changed: Plan) -> bool:
        changed_case = paired(changed, case.reference, pair.assume)
        return not isinstance(changed_case, Defect) and agree(changed_case)

    return may_agree


def _proves(pair: Pair, may_agree: Callable[[Plan], bool], contents: Mapping[str, str]) -> bool:
    """Return whether the code is proved with these files, in all kinds of replicas, and has no error."""
    from tvlint.equivalence.verdict.prove import is_proved

    with instead({path: text.encode() for path, text in contents.items()}):
        plans = read_pair(pair)
    if not isinstance(plans, Plans) or any(finding.severity is Severity.ERROR for finding in plans.findings):
        return False
    kinds: tuple[Plan, ...] = plans.kinds
    return all(map(may_agree, kinds)) and all(is_proved(kind, plans.reference, pair.assume) for kind in kinds)
