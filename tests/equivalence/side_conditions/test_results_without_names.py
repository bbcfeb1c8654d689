"""Operators that name no result where they have one: they are unknown to the proof, and no rule trips over them."""

from __future__ import annotations

import pytest

from tests.equivalence.references import ONE_LAYER
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint import api
from tvlint.findings import Outcome


@pytest.mark.parametrize(
    "collective",
    [
        "all-gather(g, dim=1) over tp",
        "all-reduce(g) over tp",
        "reduce-scatter(g, dim=0) over tp",
        "all-to-all(g, dim=0, concat-dim=1) over tp",
        "chunk(g, dim=1) over tp",
    ],
)
def test_a_collective_without_a_name_for_its_result_is_unknown(collective: str) -> None:
    text = "mesh tp=2" + ONE_LAYER.replace("  l = sum", f"  {collective}\n  l = sum")
    verdict = verdict_on(text, ONE_LAYER)
    assert verdict.outcome is Outcome.UNKNOWN
    reasons = {reason.name: reason.message for reason in verdict.reasons}
    assert "gives its result no name, and may overwrite what it reads" in reasons["unsupported-collective"]


def test_the_backward_of_a_computation_without_a_name_for_its_result_is_checked() -> None:
    forward = [api.compute("linear", ["x", "w"], []), api.compute("sum", ["x"], ["l"])]
    backward = [api.backward("forward", 0, ["dy"], [None, "grad(w)"])]
    plan = api.plan(
        "no name",
        {"w": api.weight([8, 8]), "x": api.input([4, 8])},
        {
            "forward": api.segment("forward", forward, inputs=["x"], outputs=["l"]),
            "backward": api.segment("backward", backward, inputs=["x", "l"], mirror="forward"),
        },
        [api.program([api.step("forward", 0), api.step("backward", 0)])],
        outputs=["l"],
        loss="l",
    )
    report = api.check(plan)
    assert not report.problems
    assert report.checked
