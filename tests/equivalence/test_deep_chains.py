"""Verdicts on plans in which values are made of values more often than Python calls functions within each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_text_plans import verdict_on
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
