"""A finding about a wrong value tells by which operators it comes from its cause."""

from __future__ import annotations

import pytest
from shared import ROOT

from tests.builders.plan_findings import findings_of_text
from tvlint.equivalence.verdict.prove import prove
from tvlint.readers.plan_text.statements import read_plan

PLAN = """
mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8] dp:S(0)
output b f32[8,4]
program
  h = linear(x, w1)
  y = linear(h, w2)
  q = transpose(y, dim0=0, dim1=1)
  u = relu(x)
  s = mul(q, 2.0)
  b = gelu(s)
"""


def way(text: str, rule: str) -> list[tuple[int | None, str]]:
    (finding,) = (each for each in findings_of_text(text) if each.rule == rule)
    return [(led.location.line, led.message) for led in finding.related if led.leads]


def test_a_partial_value_is_followed_from_its_sum_to_its_use() -> None:
    assert way(PLAN, "partial-through-nonlinear") == [
        (9, "`y` is a part of a sum from here on"),
        (10, "`q` is made of `y`"),
        (12, "`s` is made of `q`"),
    ]


@pytest.mark.parametrize("name", ["y", "q"])
def test_a_name_that_is_written_again_is_followed_by_its_last_value(name: str) -> None:
    text = PLAN.replace("  s = mul(q, 2.0)", f"  {name} = neg({name})\n  s = mul({name}, 2.0)")
    assert way(text, "partial-through-nonlinear")[-2:] == [
        (12, f"`{name}` is made of `{name}`"),
        (13, f"`s` is made of `{name}`"),
    ]


def test_a_value_in_flight_comes_from_its_collective() -> None:
    text = PLAN.replace("  q =", "  y = all-reduce(y) over tp async k\n  q =").replace("  b =", "  wait k\n  b =")
    assert way(text, "missing-wait") == [(10, "`k` is issued here")]


def test_a_reason_of_a_proof_tells_where_its_value_became_wrong() -> None:
    names = ("dp2-tp2-broken.plan", "single.plan")
    parallel, reference = (read_plan(name, (ROOT / "fixtures" / "tour" / name).read_text(encoding="utf-8")) for name in names)
    (reason,) = prove(parallel, reference).reasons
    assert [(led.location.line, led.message) for led in reason.related if led.leads] == [
        (11, "`linear` gives `y` (partial sum over 0:8 of 16)")
    ]
