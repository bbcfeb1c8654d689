"""Weights that only one of two plans trains: neither direction is proved."""

from __future__ import annotations

from itertools import product

import pytest

from tests.equivalence.attacks.test_micro_batches_and_replicas import plan
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

MODEL = """
weight w f32[8,8]
weight v f32[8,8]
loss l f32[]
input x f32[8,8]
"""
FORWARD = """
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  z = gelu(y)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
"""
LAST = {True: "  da, grad(v) = backward y (dy)\n", False: "  da, _ = backward y (dy)\n"}
FIRST = {True: "  dh = backward a (da)\n  _, grad(w) = backward h (dh)\n", False: ""}
KINDS = tuple(product((True, False), repeat=2))


def body(kinds: tuple[bool, bool]) -> str:
    return f"{FORWARD}{LAST[kinds[1]]}{FIRST[kinds[0]]}"


def reducers(kinds: tuple[bool, bool]) -> str:
    return "".join(f"  reduce-gradients {name} over dp\n" for name, own in zip("wv", kinds, strict=True) if own)


WAYS = {
    "one rank": (MODEL, ""),
    "folded replicas": (f"mesh dp=2\nreplicate dp{MODEL.replace('x f32[8', 'x f32[4')}", "reduce"),
    "replicas": (f"mesh dp=2{MODEL.replace('x f32[8,8]', 'x f32[8,8] dp:S(0)').replace('l f32[]', 'l f32[] dp:P')}", "reduce"),
    "copies": (f"mesh tp=2{MODEL}", ""),
}


def parallel(way: str, kinds: tuple[bool, bool], reduced: tuple[bool, bool]) -> str:
    head, end = WAYS[way]
    return f"{head}program{body(kinds)}{reducers(reduced) if end else ''}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trained", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_weight_is_trained_by_both_plans_or_by_none(way: str, trained: tuple[bool, bool], other: tuple[bool, bool]) -> None:
    reference, own = plan(f"{MODEL}program{body(other)}"), plan(parallel(way, trained, trained))
    verdict = prove(own, reference)
    if trained == other and any(other):
        assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
        return
    lacks = any(there and not here for here, there in zip(trained, other, strict=True))
    assert verdict.outcome is (Outcome.REFUTED if lacks else Outcome.UNKNOWN), [reason.message for reason in verdict.reasons]


HALF = """mesh tp=2
weight w f32[8,8]
weight v f32[8,8]
loss l f32[]
input x f32[8,8]
program tp=0
{0}
program tp=1
{1}
"""


@pytest.mark.parametrize("reduce", ["", "  reduce-gradients w over tp\n", "  reduce-gradients w over tp by avg\n"])
@pytest.mark.parametrize("first", [True, False])
def test_copies_of_which_only_one_is_trained(reduce: str, first: bool) -> None:
    both, last = (f"{body(kinds)}{reduce}" for kinds in ((True, True), (False, True)))
    own = plan(HALF.format(*((both, last) if first else (last, both))))
    reference = plan(f"{MODEL}program{body((True, True))}")
    right = "over" in reduce and "avg" not in reduce
    verdict = prove(own, reference)
    assert verdict.outcome is (Outcome.PROVED if right else Outcome.REFUTED), [reason.message for reason in verdict.reasons]


def test_an_update_of_a_weight_that_the_reference_does_not_update_is_not_proved() -> None:
    reference = plan(f"{MODEL}program{body((False, True))}  update v\n")
    for names in ("v, w", "w, v"):
        own = plan(f"{MODEL}program{body((False, True))}  update {names}\n")
        verdict = prove(own, reference)
        assert verdict.outcome is Outcome.UNKNOWN
        assert [reason.name for reason in verdict.reasons] == ["updates-frozen-weight"]
    assert prove(reference, reference).outcome is Outcome.PROVED
    without = plan(f"{MODEL}program{body((False, True))}")
    assert prove(reference, without).outcome is Outcome.PROVED


TIED = """
weight a f32[8,8] of w[8,8]
weight b f32[8,8] of w[8,8]
loss l f32[]
input x f32[8,8]
program
  h = linear(x, a)
  g = gelu(h)
  y = linear(g, b)
  z = gelu(y)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  dg, _ = backward y (dy)
  dh = backward g (dg)
  _, grad(a) = backward h (dh)
"""


def test_a_reference_that_trains_one_name_of_a_weight_and_not_the_other_is_no_reference() -> None:
    reference = plan(TIED)
    one = TIED.replace("weight b f32[8,8] of w[8,8]\n", "").replace("weight a f32[8,8] of w[8,8]", "weight w f32[8,8]")
    own = plan(one.replace("x, a", "x, w").replace("g, b", "g, w").replace("grad(a)", "grad(w)"))
    verdict = prove(own, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["reference-gradient"]
    assert prove(reference, own).outcome is not Outcome.PROVED
