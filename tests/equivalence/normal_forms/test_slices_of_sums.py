"""A slice that is taken of a sum is found once, on however many paths the sum is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.equivalence.verdict.attempt import Attempt, attempt_proof
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.findings import Outcome
from tvlint.readers.plan_text.reader import read


def layers(count: int, start: int = 0) -> str:
    """Return a plan of so many layers, each added to what it reads, and a loss over some positions of the last."""
    read = ["x", *(f"h{i}" for i in range(count))]
    forward = [f"  g{i} = gelu({read[i]})\n  h{i} = add({read[i]}, g{i})" for i in range(count)]
    backward = [f"  e{i} = backward g{i} (d{i})\n  d{i - 1} = add(d{i}, e{i})" for i in range(count - 1, 0, -1)]
    return (
        "\n".join(
            [
                "weight w f32[8,4]",
                "input z f32[4,6,4]",
                "loss l f32[]",
                "program",
                "  x = linear(z, w)",
                *forward,
                f"  y = narrow(h{count - 1}, 1, {start}, 5)",
                "  l = mean(y)",
                "  dy = backward l (grad(l))",
                f"  d{count - 1} = backward y (dy)",
                *backward,
                "  e0 = backward g0 (d0)",
                "  dx = add(d0, e0)",
                "  _, grad(w) = backward x (dx)",
            ]
        )
        + "\n"
    )


def test_each_layer_costs_as_much_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for count in (3, 6, 12):
        calls = []
        sliced = Algebra.sliced
        monkeypatch.setattr(Algebra, "sliced", lambda *given, sliced=sliced, calls=calls: (calls.append(1), sliced(*given))[1])
        plan = read("layers.plan", layers(count)).plan
        assert plan is not None
        case = pair(plan, plan)
        assert isinstance(case, Case)
        attempt = attempt_proof(replace(case, telling=Telling.ARITHMETIC), lambda text, share: None)
        assert isinstance(attempt, Attempt)
        assert attempt.is_proved
        monkeypatch.undo()
        counts.append(len(calls))
    assert counts[2] - counts[1] <= 2.5 * (counts[1] - counts[0])


def test_another_slice_of_the_same_sum_is_another() -> None:
    assert verdict_on(layers(3), layers(3)).outcome is Outcome.PROVED
    assert verdict_on(layers(3, start=1), layers(3)).outcome is Outcome.REFUTED
