"""One segment that a rank runs twice for one micro-batch, with other values each time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle.compare import compare

from tests.equivalence.attacks.test_micro_batches_and_replicas import plan
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan

REFERENCE = """
weight w f32[8,8]
input x f32[{0},8]
loss l f32[]
program
  h = linear(x, w)
  a = gelu(h)
  k = linear(a, w)
  b = gelu(k)
  l = sum(b)
  db = backward l (grad(l))
  dk = backward b (db)
  da, grad(w) = backward k (dk)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""

HEAD = """micro-batches {0}
weight w f32[8,8]
input x f32[8,8]
tensor c f32[8,8]
tensor i f32[8,8]
tensor o f32[8,8]
tensor b f32[8,8]
loss l f32[]
gradient do f32[8,8] grad-of o
gradient di f32[8,8] grad-of i
gradient db f32[8,8] grad-of b
"""

NAMES = """
tensor c{0} f32[8,8]
tensor a{0} f32[8,8]
tensor b{0} f32[8,8]
output l{0} f32[]
gradient dc{0} f32[8,8] grad-of c{0}
gradient da{0} f32[8,8] grad-of a{0}
gradient db{0} f32[8,8] grad-of b{0}
"""

SEGMENTS = """
segment enter forward (x) -> (c)
  c = identity(x)
segment layer forward (i) -> (o)
  h = linear(i, w)
  o = gelu(h)
segment last forward (b) -> (l, db)
  l = sum(b)
  db = backward l (grad(l))
segment layer-backward backward mirror layer (do) -> (di)
  dh = backward o (do)
  di, grad(w) = backward h (dh)
program
"""

ENDS = ("run layer-backward {0} (db{1}) -> (da{1})", "run layer-backward {0} (da{1}) -> (dc{1})")
STEPS = (
    "run enter {0} (x) -> (c{1})",
    "run layer {0} (c{1}) -> (a{1})",
    "run layer {0} (a{1}) -> (b{1})",
    "run last {0} (b{1}) -> (l{1}, db{1})",
    *ENDS,
)
AGAIN = (*STEPS[:-1], STEPS[1], STEPS[-1])


def twice(steps: tuple[str, ...], micro_batches: int) -> str:
    numbers = range(micro_batches)
    runs = (step.format(f"micro-batch {number}", number) for number in numbers for step in steps)
    head = HEAD.format(micro_batches) + "".join(NAMES.format(number) for number in numbers)
    return head.replace("output l0", "loss l0", 1).replace("loss l f32[]\n", "tensor l f32[]\n") + SEGMENTS + "\n".join(runs)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_layer_that_is_run_again_before_its_second_backward_is_proved(micro_batches: int) -> None:
    own, reference = plan(twice(AGAIN, micro_batches)), plan(REFERENCE.format(8 * micro_batches))
    verdict = prove(own, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(reference, own).outcome == "equal"


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_backward_that_may_belong_to_either_run_is_left_open(micro_batches: int) -> None:
    own, reference = plan(twice(STEPS, micro_batches)), plan(REFERENCE.format(8 * micro_batches))
    verdict = prove(own, reference)
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]
    assert "crossed-micro-batches" in [reason.name for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(a1) -> (b1)", "(c1) -> (b1)"),
        ("(a1) -> (b1)", "(a0) -> (b1)"),
        ("(c1) -> (a1)", "(c0) -> (a1)"),
        ("(da1) -> (dc1)", "(db1) -> (dc1)"),
        ("(da1) -> (dc1)", "(da0) -> (dc1)"),
    ],
)
def test_a_later_micro_batch_that_is_wired_otherwise_is_not_proved(before: str, after: str) -> None:
    text = twice(AGAIN, 2)
    assert before in text
    own, reference = plan(text.replace(before, after)), plan(REFERENCE.format(16))
    assert compare(reference, own).outcome != "equal"
    assert prove(own, reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_run_that_is_wrongly_left_out_is_no_proof(micro_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text, reference = twice(AGAIN, micro_batches), plan(REFERENCE.format(8 * micro_batches))
    right, wrong = plan(text), plan(text.replace("(a0) -> (b0)", "(c0) -> (b0)"))
    monkeypatch.setattr("tvlint.equivalence.verdict.prove.without_repeated_runs", lambda each: right)
    verdict = prove(wrong, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["other-numbers"]


TWO_RANKS = """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l f32[]
segment enter forward (x) -> (h)
  h: f32[4,8] = linear(x, w)
segment last backward (x, h) -> (l)
  a: f32[4,8] = gelu(h)
  s: f32[] = sum(a)
  l: f32[] = all-reduce(s) over dp
  da: f32[4,8] = backward s (grad(l))
  dh: f32[4,8] = backward a (da)
  _, grad(w) = backward (dh) of h = linear(x, w)
segment reduce reduce () -> ()
  reduce-gradients w over dp
program dp=0
  run enter micro-batch 0
  AGAIN
  run last micro-batch 0
  run reduce
program dp=1
  run enter micro-batch 0
  run last micro-batch 0
  run reduce
"""
ONE_RANK = """
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
program
  h = linear(x, w)
  a = gelu(h)
  l = sum(a)
  da = backward l (grad(l))
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""
IN_PLACE = "segment turn forward (h) -> (h)\n  h = neg(h!)\nsegment last"


def _with_segments_of_its_own(found: Plan) -> Plan:
    """The plan whose second rank runs other segments than the first, which make values of the same names."""
    first, second = found.programs
    segments = {f"other {name}": replace(segment, name=f"other {name}") for name, segment in found.segments.items()}
    steps = tuple(replace(step, segment=f"other {step.segment}") for step in second.steps)
    return replace(found, segments={**found.segments, **segments}, programs=(first, replace(second, steps=steps)))


@pytest.mark.parametrize(
    ("again", "outcome"),
    [
        ("run enter micro-batch 0", Outcome.PROVED),
        ("run last micro-batch 0", Outcome.REFUTED),
        ("run turn micro-batch 0", Outcome.UNKNOWN),
        ("run turn micro-batch 0\n  run enter micro-batch 0", Outcome.UNKNOWN),
    ],
)
def test_what_one_rank_makes_again_is_the_same_whatever_others_call_theirs(again: str, outcome: Outcome) -> None:
    text = TWO_RANKS.replace("segment last", IN_PLACE) if "turn" in again else TWO_RANKS
    verdict = prove(_with_segments_of_its_own(plan(text.replace("AGAIN", again))), plan(ONE_RANK))
    assert verdict.outcome is outcome, [reason.message for reason in verdict.reasons]
