"""Powers of scores from which something is subtracted that all ranks have in common: what it is makes no difference."""

from __future__ import annotations

import re

import pytest
from oracle.compare import compare

from tests.builders.plan_tapes import with_backward
from tests.equivalence.attacks.test_micro_batches_and_replicas import plan
from tests.sampling import sampled
from tests.shared import ROOT
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

SHARED_CLASSES = (ROOT / "fixtures/clean/vocabulary-parallel-cross-entropy/parallel.plan").read_text()
ALONE = SHARED_CLASSES.split("program tp=0\n")[1].split("program")[0].replace("  reduce-gradients h over tp\n", "")
for _before, _after in (
    ("w0", "w"),
    ("all-reduce max(m0) over tp", "identity(m0)"),
    ("all-reduce(p0) over tp", "identity(p0)"),
    ("all-reduce(s0) over tp", "identity(s0)"),
    ("stop=2", "stop=4"),
):
    ALONE = ALONE.replace(_before, _after)
REFERENCE = f"weight h f32[6,4]\nweight w f32[4,4]\ninput t i64[6]\nloss l\nprogram\n{ALONE}"
WAYS = {"amax": "all-reduce max", "sum": "all-reduce", "mean": "all-reduce avg"}


@pytest.mark.parametrize("statistic", sampled(WAYS, 3))
@pytest.mark.parametrize("way", [*WAYS.values(), "all-reduce min"])
def test_a_shift_of_another_statistic_is_not_refuted(statistic: str, way: str) -> None:
    own = plan(SHARED_CLASSES.replace("amax", statistic).replace("all-reduce max", way))
    reference = plan(REFERENCE.replace("amax", statistic))
    assert compare(reference, own).outcome == "equal"
    verdict = prove(own, reference)
    right = WAYS[statistic] == way or {statistic, way} in ({"mean", "all-reduce"}, {"sum", "all-reduce avg"})
    assert verdict.outcome is (Outcome.PROVED if right else Outcome.UNKNOWN), [own.message for own in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("all-reduce max(m0) over tp", "identity(m0)"),
        ("s = all-reduce(s0)", "s = all-reduce max(s0)"),
        ("p = all-reduce(p0)", "p = all-reduce max(p0)"),
        ("s = all-reduce(s0)", "s = all-reduce avg(s0)"),
    ],
)
def test_what_is_no_shift_is_refuted(before: str, after: str) -> None:
    wrong, reference = plan(SHARED_CLASSES.replace(before, after)), plan(REFERENCE)
    assert compare(reference, wrong).outcome != "equal"
    assert prove(wrong, reference).outcome is Outcome.REFUTED


def test_a_statistic_of_which_more_is_made_is_refuted() -> None:
    more = "c = sub(g, p)", "c0 = sub(g, p)\n  k = sum(m, dim=1)\n  c = add(c0, k)"
    wrong = plan(SHARED_CLASSES.replace("all-reduce max", "all-reduce").replace(*more).replace("dg, dp = backward c (dc)", ""))
    reference = plan(REFERENCE.replace(*more))
    assert prove(wrong, reference).outcome is not Outcome.PROVED


CAUSAL = """weight h f32[6,4]
{weights}
input t i64[6]
loss l
{programs}"""
BEHIND_ATTENTION = """program{rank}
  a = scaled_dot_product_attention(h, h, h, is_causal=True)
  b = scaled_dot_product_attention(a, a, a, is_causal=True)
  z = linear(b, {w})
  m0 = amax(z, dim=1, keepdim=True) || none
  m = all-reduce max(m0) over tp || none
  x = sub(z, m)
  p0 = masked_gather(x, t, dim=1, start={start}, stop={stop})
  p = all-reduce(p0) over tp
  e = exp(x)
  s0 = sum(e, dim=1)
  s = all-reduce(s0) over tp
  g = log(s)
  c = sub(g, p)
  l: f32[1] = sum(c)
{end}
"""


def behind_attention() -> tuple[str, str]:
    """Return a plan whose ranks share the classes of a loss behind two layers of causal attention, and its reference."""
    weights = "\n".join(f"weight w{rank} f32[2,4] region [{2 * rank}:{2 * rank + 2},0:4] of w[4,4]" for rank in (0, 1))
    programs = "".join(
        BEHIND_ATTENTION.format(
            rank=f" tp={rank}", w=f"w{rank}", start=2 * rank, stop=2 * rank + 2, end="  end reduce-gradients h over tp"
        )
        for rank in (0, 1)
    )
    alone = BEHIND_ATTENTION.format(rank="", w="w", start=0, stop=4, end="")
    alone = re.sub(r"([mps])0\b", r"\1", re.sub(r"  . = all-reduce.*\n", "", alone))
    parallel = "mesh tp=2\n" + CAUSAL.format(weights=weights, programs=programs)
    return parallel, CAUSAL.format(weights="weight w f32[4,4]", programs=alone)


def test_a_shift_behind_causal_attention_is_none() -> None:
    parallel, reference = (plan(with_backward(text)) for text in behind_attention())
    assert compare(reference, parallel).outcome == "equal"
    verdict = prove(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m = all-reduce max(m0) over tp", "m = clone(m0)"),
        ("s = all-reduce(s0) over tp", "s = all-reduce max(s0) over tp"),
        ("b = scaled_dot_product_attention(a, a, a, is_causal=True)", "b = scaled_dot_product_attention(a, a, a)"),
        ("e = exp(x)", "e = exp(z)"),
    ],
)
def test_another_loss_behind_causal_attention_is_not_proved(before: str, after: str) -> None:
    parallel, reference = behind_attention()
    assert before in parallel
    wrong = plan(with_backward(parallel.replace(before, after)))
    assert compare(plan(with_backward(reference)), wrong).outcome != "equal"
    assert prove(wrong, plan(with_backward(reference))).outcome is not Outcome.PROVED
