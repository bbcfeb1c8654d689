"""No plan with another call in it is proved: what every constant, keyword, function and group says is looked at.

The pairs lie in `data/calls`: convolutions, normalisations, masks, losses over classes and what moves elements, run on ranks of
a tensor-parallel group, with replicas folded or written out.
"""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants
from oracle.mutate_calls import of_calls

from tests.sampling import sampled
from tests.shared import ROOT
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text.reader import read

FOLDER = ROOT / "tests" / "data" / "calls"
NAMES = sorted({path.name.split(".")[0] for path in FOLDER.glob("*.plan")})


def plans(name: str) -> tuple[Plan, Plan]:
    """The parallel plan and its reference."""
    paths = [FOLDER / f"{name}.{kind}.plan" for kind in ("parallel", "reference")]
    parallel, reference = (read(path.name, path.read_text()).plan for path in paths)
    assert parallel is not None
    assert reference is not None
    return parallel, reference


def wrongly_proved(name: str, taken: slice) -> list[str]:
    """Mutants that are proved and compute something else, of a slice; a sum of losses over replicas is no mistake."""
    parallel, reference = plans(name)
    found = []
    for mutant, judged in proved_and_not_equal(reference, [*of_calls(parallel), *mutants(parallel)][taken]):
        whole = parallel.replication.count > 1 and judged.difference.startswith("loss ")
        if judged.outcome != "undefined" and not whole:
            found.append(f"{name}: {mutant.kind}: {mutant.description}: {judged.outcome} {judged.difference}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_pairs_are_proved_and_equal(name: str) -> None:
    parallel, reference = plans(name)
    assert compare(reference, parallel).outcome == "equal"
    verdict = prove(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("start", sampled(range(0, 40, 10), 4))
@pytest.mark.parametrize("name", sampled(NAMES, 2))
def test_no_other_call_is_proved(name: str, start: int) -> None:
    assert not wrongly_proved(name, slice(start, None, 40))
