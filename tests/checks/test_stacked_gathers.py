"""Pieces that are gathered along another dimension are right where views and cuts put them into order, and wrong elsewhere."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

PLAN = """mesh tp=2
weight w f32[8,8]
input x f32[4,8] tp:S(1)
output y
program
  g = all-gather(x, dim=0) over tp
{}
"""
RIGHT = {
    "split and cat": "  a, b = split(g, 4, dim=0)\n  c = cat([a, b], dim=1)\n  y = linear(c, w)",
    "unbind": "  v = view(g, [2,4,4])\n  a, b = unbind(v, dim=0)\n  c = cat([a, b], dim=-1)\n  y = softmax(c, dim=-1)",
    "transpose": "  v = view(g, [2,4,4])\n  t = transpose(v, 0, 1)\n  c = reshape(t, [4,8])\n  y = linear(c, w)",
    "one piece": "  a = narrow(g, 0, 4, 4)\n  y = gelu(a)",
    "the result of the plan": "  a, b = chunk(g, 2, dim=0)\n  y = cat([a, b], dim=1)",
}
WRONG = {
    "in another order": RIGHT["split and cat"].replace("[a, b]", "[b, a]"),
    "only viewed": "  c = view(g, [4,8])\n  y = linear(c, w)",
    "read before": "  n = softmax(g, dim=0)\n" + RIGHT["transpose"],
    "returned as it is": RIGHT["transpose"].replace("  y = linear(c, w)", "  y = identity(g)"),
}


def spoken(text: str) -> set[str]:
    return {finding.rule for finding in findings_of_text(text) if finding.severity is Severity.ERROR}


@pytest.mark.parametrize("way", RIGHT)
def test_pieces_that_are_put_into_order_are_right(way: str) -> None:
    assert spoken(PLAN.format(RIGHT[way])) == set()


@pytest.mark.parametrize("way", WRONG)
def test_pieces_that_are_read_in_another_order_are_wrong(way: str) -> None:
    assert spoken(PLAN.format(WRONG[way])) == {"wrong-gather-dim"}


def test_mistakes_behind_pieces_in_order_are_found() -> None:
    text = PLAN.replace("weight w f32[8,8]", "weight w f32[8,8] tp:S(1)")
    assert spoken(text.format(RIGHT["split and cat"]))
    assert spoken(PLAN.format(RIGHT["split and cat"] + "\n  z = all-reduce(y) over tp\n  k = gelu(z)")) == {"doubled-allreduce"}


ADDENDS = """mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
output r f32[]
program
  h = linear(x, w)
  q = mul(h, h)
  s = mean(q)
  v = view(s, [1])
  g = all-gather(v, dim=0) over dp
{}
"""


@pytest.mark.parametrize("way", ["  r = sum(g)", "  r = mean(g)", "  k = mul(g, 0.5)\n  r = sum(k)"])
def test_addends_that_are_gathered_may_be_added_up(way: str) -> None:
    assert spoken(ADDENDS.format(way)) == set()


@pytest.mark.parametrize("way", ["  k = sqrt(g)\n  r = sum(k)", "  r = amax(g)", "  r = sum(g)\n  k = sqrt(g)", "  r = sum(s)"])
def test_addends_that_are_used_otherwise_may_not(way: str) -> None:
    assert spoken(ADDENDS.format(way)) == {"gather-of-partial"}


EXCHANGED = """mesh cp=2
input x f32[8,4,4] cp:S(0)
input k f32[4,8,4] cp:S(0)
output y
program
  v = view(x, [4, 2, 2, 4])
  t = transpose(v, 0, 1)
  e: f32[2,4,2,4] = all-to-all(t, dim=0, concat-dim=0) over cp
{}
"""
HEADS = "  r = reshape(e, [8, 2, 4])\n  h = transpose(r, 0, 1)\n  s = softmax(h, dim=1)\n"
BACK = """  u = transpose(s, 0, 1)
  z = reshape(u, [2, 4, 2, 4])
  b: f32[2,4,2,4] = all-to-all(z, dim=0, concat-dim=0) over cp
  f = transpose(b, 0, 1)
  y = reshape(f, [4, 4, 4])"""


@pytest.mark.parametrize("way", ["  y = mul(h, k)", BACK])
def test_exchanges_of_stacked_pieces_that_are_put_into_order_are_right(way: str) -> None:
    assert spoken(EXCHANGED.format(HEADS + way)) == set()


@pytest.mark.parametrize(
    "way",
    [
        "  y = softmax(e, dim=1)",
        "  r = reshape(e, [4, 4, 4])\n  y = softmax(r, dim=0)",
        HEADS + BACK.replace("  f = transpose(b, 0, 1)\n  y = reshape(f", "  y = reshape(b"),
    ],
)
def test_exchanges_of_stacked_pieces_that_are_read_as_they_are_are_wrong(way: str) -> None:
    assert spoken(EXCHANGED.format(way)) == {"wrong-all-to-all-dim"}


def test_what_follows_an_exchange_of_stacked_pieces_is_known() -> None:
    assert spoken(EXCHANGED.format(HEADS + "  y = sum(s, dim=0)\n  q = sqrt(y)")) == {"partial-through-nonlinear"}
