"""What a segment computes counts in whatever phase the plan says that it is."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.attacks.test_batches import BACK, DRAWING, DRAWN, FORTH, LOADS, REFERENCE, SEGMENTS
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

PHASES = ("forward", "reduce", "optimizer")


@pytest.mark.parametrize("phase", PHASES)
def test_a_gradient_is_not_taken_before_its_forward_run_of_whatever_phase(phase: str) -> None:
    segments = SEGMENTS.replace("segment forth forward", f"segment forth {phase}")

    def text(*steps: str) -> str:
        return segments + "".join(f"  run {step}\n" for step in steps)

    assert verdict_on(text(*LOADS, *FORTH, *BACK), REFERENCE).outcome is Outcome.PROVED
    wrong = text(*LOADS, FORTH[0], *BACK, FORTH[1])
    assert verdict_on(wrong, REFERENCE).outcome is Outcome.REFUTED
    assert compare(*plans(REFERENCE, wrong)).outcome == "fails"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("draws", "outcome"), [(("one", "two"), Outcome.PROVED), (("two", "one"), Outcome.UNKNOWN)])
def test_draws_of_whatever_phase_come_in_one_order(phase: str, draws: tuple[str, str], outcome: Outcome) -> None:
    steps = [(number, name) for number in (0, 1) for name in ("first", *(draws if number else ("one", "two")), "last", "back")]
    text = DRAWING.replace("segment one forward", f"segment one {phase}").replace("segment two forward", f"segment two {phase}")
    text += "".join(f"  run {name} micro-batch {number}\n" for number, name in steps)
    assert verdict_on(text, DRAWN).outcome is outcome


def test_nothing_trains_in_a_segment_that_loads_data() -> None:
    right = SEGMENTS + "".join(f"  run {step}\n" for step in (*LOADS, *FORTH, *BACK))
    assert "segment back backward" in right
    assert verdict_on(right, REFERENCE).outcome is Outcome.PROVED
    found = verdict_on(right.replace("segment back backward", "segment back data"), REFERENCE)
    assert found.outcome is Outcome.UNKNOWN
    assert "computes-while-loading" in [reason.name for reason in found.reasons]
