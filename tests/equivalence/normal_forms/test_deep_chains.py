"""Verdicts on plans in which values are made of values more often than Python calls functions within each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.builders.plan_findings import rules_of_text
from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

HEAD = """
weight w f32[4,4]
input x f32[4,4]
input m bool[4,4]
input n bool[4,4]
loss l
program
  h = linear(x, w)
"""
DOUBLED = "  a = mul(h, 2.0)\n  b = sin(a)\n"
OF_PRODUCTS = "  a = sin(h)\n  c = cos(h)\n  d = mul(a, c)\n  b = mul(d, 2.0)\n"
"""The sine of twice an angle in two ways, which no form tells: each form is asked for."""
FRAMES = 700
"""How many functions may call each other within the test: as many as within the command line."""

CHAINS = ["linear({0}, w)", "softmax({0}, dim=1)"]
MASKS = ["logical_and({0}, n)", "logical_and({0}, {0})", "eq({0}, False)", "logical_not({0})", "bitwise_and(n, {0})"]


@pytest.fixture(autouse=True)
def few_frames() -> Iterator[None]:
    depth, before = 0, sys.getrecursionlimit()
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    sys.setrecursionlimit(depth + FRAMES)
    yield
    sys.setrecursionlimit(before)


def chain(call: str, count: int, first: str) -> tuple[str, str]:
    """A chain of calls, each on what the one before gives, and the last name."""
    lines, last = [], first
    for number in range(count):
        lines.append(f"  y{number} = {call.format(last)}\n")
        last = f"y{number}"
    return "".join(lines), last


@pytest.mark.heavy
@pytest.mark.parametrize("call", CHAINS)
def test_chains_of_operators_come_to_a_verdict_in_any_form(call: str) -> None:
    body, last = chain(call, 200, "h")
    texts = [with_backward(f"{HEAD}{way}{body}  y = mul({last}, b)\n  l = sum(y)\n") for way in (OF_PRODUCTS, DOUBLED)]
    assert verdict_on(*texts).outcome is Outcome.UNKNOWN


@pytest.mark.heavy
@pytest.mark.parametrize("call", MASKS)
def test_masks_of_masks_are_asked_for_once(call: str) -> None:
    body, last = chain(call, 200, "m")
    end = f"  z = where({last}, h, b)\n  y = mul(z, b)\n  l = sum(y)\n"
    texts = [with_backward(f"{HEAD}{way}{body}{end}") for way in (OF_PRODUCTS, DOUBLED)]
    assert verdict_on(*texts).outcome is Outcome.UNKNOWN


def gradients(last: str) -> str:
    """A step in which a gradient is made of itself, again and again."""
    text = f"{HEAD}  l = sum(h)\n  g0 = backward l (grad(l))\n"
    text += "".join(f"  g{number + 1} = {last.format(f'g{number}')}\n" for number in range(200))
    return f"{text}  g = div(g200, 1.6069380442589903e+60)\n  _, grad(w) = backward h (g)\n"


def test_sums_of_gradients_that_are_sums_are_told() -> None:
    verdict = verdict_on(gradients("add({0}, {0})"), gradients("mul({0}, 2.0)"))
    assert verdict.outcome is Outcome.PROVED, verdict.reasons


def test_values_that_are_joined_again_and_again_are_told() -> None:
    text = HEAD
    last = "h"
    for number in range(150):
        text += f"  c{number} = cat([{last}, h], dim=0)\n"
        last = f"c{number}"
    joined = with_backward(f"{text}  l = sum({last})\n")
    assert verdict_on(joined, with_backward(f"{HEAD}  y = mul(h, 151.0)\n  l = sum(y)\n")).outcome is Outcome.UNKNOWN


BLOCKS = """
weight w f32[16,8]{shards}
input x f32[4,8]
loss l
program
  y = linear(x, w)
  e = exp(y)
  s: f32[4] = sum(e, dim=1)
"""


@pytest.mark.parametrize(("length", "joined", "is_proved"), [(800, "sum", True), (20, "sum", True), (20, "mean", False)])
def test_parts_of_parts_become_values_of_their_own(length: int, joined: str, is_proved: bool) -> None:
    body, last = chain("neg({0})", length, "s")
    blocks = f"  u = unsqueeze({last}, 1)\n  a: f32[4,2] = all-gather(u, dim=1) over tp || chunk\n  b = {joined}(a, dim=1)\n"
    plan = f"mesh tp=2\n{BLOCKS.format(shards=' tp:S(0)')}{body}{blocks}  q = pow(b, 2)\n  l = sum(q)\n"
    other = f"{BLOCKS.format(shards='')}{body}  q = pow({last}, 2)\n  l = sum(q)\n"
    assert (verdict_on(*map(with_backward, (plan, other))).outcome is Outcome.PROVED) is is_proved


STEP = """
mesh dp=2
weight w f32[4,8]
input x f32[4,8] dp:S(0)
loss l
program
  y = linear(x, w)
  l0 = mean(y)
  l = all-reduce avg(l0) over dp
  dy = backward l0 (grad(l0))
  _, g = backward y (dy)
"""


def test_rules_follow_multiples_through_sums_of_sums_of_gradients() -> None:
    text, last = STEP, "g"
    for number in range(800):
        text += f"  m{number} = mul({last}, 0.5)\n  g{number} = add(m{number}, m{number})\n"
        last = f"g{number}"
    assert rules_of_text(f"{text}  grad(w) = all-reduce avg({last}) over dp\n  update w\n") == set()


def test_what_is_added_to_parts_far_before_they_are_summed_is_found_to_be() -> None:
    body, last = chain("add({0}, c)", 100, "p")
    text = "mesh tp=2\nweight w f32[4,8] tp:S(1)\nweight b f32[4]\ninput x f32[4,8] tp:S(1)\noutput q f32[4,4]\nprogram\n"
    text += f"  p = linear(x, w)\n  c = div(b, 2)\n{body}  z: f32[4,4] = all-reduce({last}) over tp\n  q = gelu(z)\n"
    assert rules_of_text(text) == set()
    left = rules_of_text(text.replace("all-reduce(", "identity(").replace(") over tp", ")"))
    assert left == {"missing-allreduce", "partial-through-nonlinear"}
