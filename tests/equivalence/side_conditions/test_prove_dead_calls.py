"""Calls whose results nothing uses: those that stop a run keep a plan from being proved all the same."""

from __future__ import annotations

import pytest

from tests.equivalence.attacks.test_micro_batches_and_replicas import BODY, HEAD, REFERENCE, plan
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan


def with_call(call: str) -> Plan:
    body = BODY.replace("  z =", f"  {call}\n  z =")
    return plan(f"mesh tp=2\n{HEAD}input x f32[8,8]\nprogram{body}")


STOPS = {
    "u = broadcast(h, root=9) over tp": ("wrong-root", Outcome.REFUTED),
    "u = all-gather(h, dim=5) over tp": ("wrong-dimension", Outcome.REFUTED),
    "u = chunk(h, dim=7) over tp": ("wrong-dimension", Outcome.REFUTED),
    "u = gelu(nothing)": ("use-before-definition", Outcome.REFUTED),
    "u = view(h, [3,3])": ("wrong-view-size", Outcome.REFUTED),
    "u: f32[8,8] = matmul(h, h, scale_by=3)": ("unsupported-operator", Outcome.UNKNOWN),
    'u: f32[8,8] = gelu(h, approximate="none", normalized_shape=[2])': ("unsupported-operator", Outcome.UNKNOWN),
    "u: f32[8,8] = my_metric(h)": ("unsupported-operator", Outcome.UNKNOWN),
}


@pytest.mark.parametrize("call", STOPS)
def test_a_call_that_fails_is_not_proved_though_nothing_uses_its_result(call: str) -> None:
    reason, outcome = STOPS[call]
    own, reference = with_call(call), plan(REFERENCE)
    verdict = prove(own, reference)
    assert verdict.outcome is outcome
    assert reason in [each.name for each in verdict.reasons]


@pytest.mark.parametrize("call", ["u = gelu(h)", "u = all-reduce max(h) over tp"])
def test_a_call_that_may_run_is_left_alone(call: str) -> None:
    assert prove(with_call(call), plan(REFERENCE)).outcome is Outcome.PROVED
