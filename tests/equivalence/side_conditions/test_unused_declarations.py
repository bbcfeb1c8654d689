"""What a plan states and its derivation does not use, or finds otherwise, keeps it from being proved, and is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tvlint.equivalence.verdict.compare_outputs import OWN_MEAN
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as written_json

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """weight e f32[8,8]
weight w f32[16,8]
weight v f32[8,16]
input x f32[8,8]
input t i64[8]
loss l
program
  a = linear(x, e)
  h = linear(a, w)
  g = gelu(h)
  y = linear(g, v)
  r = add(a, y)
  l: f32[] = cross_entropy(r, t)
  dr, _ = backward l (grad(l))
  da, dy = backward r (dr)
  dg, grad(v) = backward y (dy)
  dh = backward g (dg)
  da, grad(w) = backward h (dh)
  _, grad(e) = backward a (da)
  update e, w, v
"""


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after, 1)
    return text


OVER_TP = changed(
    REFERENCE,
    ("weight e", "mesh tp=2\nweight e"),
    ("w f32[16,8]", "w f32[16,8] tp:S(0)"),
    ("v f32[8,16]", "v f32[8,16] tp:S(1)"),
    ("  y = linear(g, v)\n", "  p = linear(g, v)\n  y = all-reduce(p) over tp\n"),
    ("backward y (dy)", "backward p (dy)"),
    ("da, grad(w) = backward h (dh)", "d0, grad(w) = backward h (dh)\n  da = all-reduce(d0) over tp"),
)
OVER_DP = changed(
    REFERENCE,
    ("weight e", "mesh dp=2\nweight e"),
    ("input x f32[8,8]", "input x f32[8,8] dp:S(0)"),
    ("input t i64[8]", "input t i64[8] dp:S(0)"),
    ("  l: f32[] = cross_entropy(r, t)\n", "  k: f32[] = cross_entropy(r, t)\n  l = all-reduce avg(k) over dp\n"),
    ("backward l (grad(l))", "backward k (grad(l))"),
    ("  update", "  reduce-gradients e, w, v over dp by avg\n  update"),
)


def verdict_on(parallel: str, reference: str = REFERENCE) -> Verdict:
    plans = [plan_text.read(path, text).plan for path, text in (("parallel.plan", parallel), ("reference.plan", reference))]
    assert plans[0] is not None
    assert plans[1] is not None
    return prove(plans[0], plans[1])


def proved(parallel: str, reference: str = REFERENCE) -> None:
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def unknown(verdict: Verdict, name: str, words: str) -> None:
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]
    assert any(reason.name == name and words in reason.message for reason in verdict.reasons), verdict.reasons


CLAIM = "wrong-placement-claim"

STATED = {
    "a frozen weight is trained": ((("e f32[8,8]", "e f32[8,8] frozen"),), "frozen-weight-trained", "`e`"),
    "a weight without gradient has one": ((("e f32[8,8]", "e f32[8,8] gradient _"),), "other-gradient-declared", "`e`"),
    "the gradient has another name": ((("e f32[8,8]", "e f32[8,8] gradient ge"),), "other-gradient-declared", "`ge`"),
    "a weight that nothing names": ((("loss l", "weight z f32[3]\nloss l"),), "unused-declaration", "weight `z`"),
    "a buffer that nothing names": ((("loss l", "buffer z f32[3]\nloss l"),), "unused-declaration", "buffer `z`"),
    "a state that nothing names": ((("loss l", "state z f32[3]\nloss l"),), "unused-declaration", "state `z`"),
    "a tensor that nothing makes": ((("loss l", "tensor z f32[3]\nloss l"),), "unused-declaration", "activation `z`"),
    "a second gradient": ((("loss l", "gradient z f32[8,8] grad-of a\nloss l"),), "other-gradient-declared", "`z`"),
    "a communicator for nothing": ((("loss l", "communicator z over tp\nloss l"),), "unused-communicator", "`z`"),
    "a segment that no program runs": (
        (("program", "segment z forward (x) -> (q)\n  q = gelu(x)\nprogram"),), "unused-segment", "`z`",
    ),
    "a whole value as a part": ((("  a = ", "  a: f32[8,8] tp:P = "),), CLAIM, "`a` on every rank is a part"),
    "a part as a whole value": ((("  p = ", "  p: f32[8,8] tp:R = "),), CLAIM, "`p` on every rank is complete"),
    "a sum as a maximum": ((("  p = ", "  p: f32[8,8] tp:P(max) = "),), CLAIM, "`p` on every rank is a part of a max"),
    "another dimension": ((("  h = ", "  h: f32[16,8] tp:S(0) = "),), CLAIM, "`h`"),
    "two values under one name": (
        (("  a = ", "  a: f32[8,8] of Z = "), ("  y = ", "  y: f32[8,8] of Z = ")), CLAIM, "`Z`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STATED)
def test_what_a_plan_states_and_is_not_so_is_named(case: str) -> None:
    pairs, name, words = STATED[case]
    unknown(verdict_on(changed(OVER_TP, *pairs), REFERENCE), name, words)


RIGHT = {
    "a shard": ("  h = ", "  h: f32[8,16] tp:S(1) = "),
    "a part": ("  p = ", "  p: f32[8,8] tp:P = "),
    "a part by number": ("  p = ", "  p: f32[8,8] part 1/2 = "),
    "a gradient": ("loss l", "gradient dh f32[8,8] local grad-of h\nloss l"),
    "a gradient that nobody asks for": ("loss l", "gradient dx f32[8,8] grad-of x\nloss l"),
    "a communicator": ("  y = all-reduce(p) over tp", "  y = all-reduce(p) over tp named c"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_so_is_proved(case: str) -> None:
    proved(changed(OVER_TP, RIGHT[case]))


def test_what_both_plans_declare_and_neither_uses_is_alike() -> None:
    more = ("loss l", "weight z f32[3]\nloss l")
    proved(changed(OVER_TP, more), changed(REFERENCE, more))
    unknown(verdict_on(OVER_TP, changed(REFERENCE, more)), "unused-declaration", "the reference declares the weight `z`")


def test_ranks_that_run_nothing_are_named() -> None:
    idle = changed(REFERENCE, ("weight e", "mesh dp=2\nweight e"), ("program\n", "program dp=0\n"))
    unknown(verdict_on(idle, REFERENCE), "idle-rank", "no program runs on")


def test_a_reference_of_more_micro_batches_than_it_runs_is_none() -> None:
    unknown(verdict_on(OVER_TP, "micro-batches 2\n" + REFERENCE), "other-batch", "the reference says 2 micro-batches")


def test_a_reducer_that_names_a_weight_twice_is_named() -> None:
    proved(OVER_DP)
    twice = changed(OVER_DP, ("reduce-gradients e, w, v", "reduce-gradients e, w, v, e"))
    unknown(verdict_on(twice, REFERENCE), "malformed-plan", "`e` twice")


def test_a_reducer_before_the_gradient_that_a_weight_declares_is_open() -> None:
    made = "  ge = mul(grad(e), 0.5)\n"
    declared = ("weight e f32[8,8]", "weight e f32[8,8] gradient ge")
    reference = changed(REFERENCE, declared, ("  update", made + "  update"))
    late = changed(OVER_DP, declared, ("  reduce-gradients", made + "  reduce-gradients"))
    proved(late, reference)
    early = changed(OVER_DP, declared, ("  update", made + "  update"))
    unknown(verdict_on(early, reference), "nothing-to-reduce", "`grad(e)`")


def test_a_loss_of_each_rank_that_is_the_mean_of_its_part_is_taken_for_what_is_averaged() -> None:
    own = changed(OVER_DP, ("  l = all-reduce avg(k) over dp\n", ""), ("k: f32[]", "l: f32[]"), ("backward k", "backward l"))
    verdict = verdict_on(own, REFERENCE)
    assert verdict.outcome is Outcome.PROVED
    assert OWN_MEAN.format("l", "`dp`") in verdict.assumptions
    proved(changed(own, ("loss l", "loss l f32[] dp:P(avg)")))
    assert verdict_on(changed(own, ("loss l", "loss l f32[] dp:R")), REFERENCE).outcome is Outcome.REFUTED


def in_json(change: Callable[[dict[str, Any]], object]) -> Verdict:
    plan = plan_text.read("parallel.plan", OVER_TP).plan
    reference = plan_text.read("reference.plan", REFERENCE).plan
    assert plan is not None
    assert reference is not None
    document = json.loads(written_json.write(plan))
    change(document)
    found = plan_json.read("parallel.json", json.dumps(document)).plan
    assert found is not None
    return prove(found, reference)


def tensor(name: str, **facts: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["tensors"].setdefault(name, {}).update(facts)


def test_weights_of_plan_json_want_a_gradient_unless_they_are_said_to_want_none() -> None:
    assert in_json(lambda document: document["tensors"]["e"].pop("requires_grad")).outcome is Outcome.PROVED
    unknown(in_json(tensor("e", requires_grad=False)), "frozen-weight-trained", "`e`")


def test_a_weight_of_plan_json_of_which_nothing_says_how_it_lies_is_open() -> None:
    def forget(document: dict[str, Any]) -> None:
        for key in ("placements", "whole"):
            document["tensors"]["e"].pop(key)

    unknown(in_json(forget), "declared-placement", "of `e` no placement is declared")


def test_gradients_of_plan_json_that_stand_beyond_the_results_are_named() -> None:
    def twice(document: dict[str, Any]) -> None:
        own = next(own for segment in document["segments"].values() for own in segment["operators"] if own["outputs"] == ["dh"])
        own["inputs"] = [*own["inputs"], *own["inputs"]]

    unknown(in_json(twice), "surplus-gradients", "more gradients")


def test_a_program_that_no_rank_runs_is_named() -> None:
    def split(document: dict[str, Any]) -> None:
        (program,) = document["programs"]
        document["programs"] = [{"ranks": [], "steps": []}, program]

    unknown(in_json(split), "malformed-plan", "a program of no rank")


def test_the_gradient_that_starts_is_of_the_type_of_its_value() -> None:
    assert in_json(tensor("grad(l)", shape=[], dtype="float32", role="gradient")).outcome is Outcome.PROVED
    unknown(in_json(tensor("grad(l)", shape=[], dtype="int64", role="gradient")), "wrong-dtype", "starts from `grad(l)`")


@pytest.mark.parametrize("argument", ["root=0", "dim=0", "splits=[4,4]", "concat-dim=1"])
def test_an_argument_that_a_collective_does_not_take_is_named(argument: str) -> None:
    assert verdict_on(OVER_TP).outcome is Outcome.PROVED
    verdict = verdict_on(changed(OVER_TP, ("all-reduce(p)", f"all-reduce(p, {argument})")))
    assert verdict.outcome is Outcome.UNKNOWN
    name = argument.partition("=")[0].replace("-", "_")
    assert [(reason.name, f"`{name}`" in reason.message) for reason in verdict.reasons] == [("malformed-plan", True)]


def test_an_event_that_nothing_records_is_named() -> None:
    recorded = changed(OVER_TP, ("  g = gelu", "  record e1 on main\n  await e1 on main\n  g = gelu"))
    assert verdict_on(recorded).outcome is Outcome.PROVED
    verdict = verdict_on(changed(recorded, ("await e1", "await e2")))
    assert verdict.outcome is Outcome.UNKNOWN
    assert ["`e2`" in reason.message for reason in verdict.reasons] == [True]


@pytest.mark.parametrize("tensor", ["weight v f32[8,16]", "input x f32[8,8]"])
def test_a_buffer_that_is_named_after_a_tensor_is_shared_with_it(tensor: str) -> None:
    verdict = verdict_on(changed(REFERENCE, (tensor, f"{tensor} storage e")))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "shared-storage" in [reason.name for reason in verdict.reasons]


IN_SEGMENTS = """micro-batches 2
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
loss l
segment first forward (x) -> (h0, h)
  h0 = linear(x, w)
  h = gelu(h0)
segment last forward (h) -> (y, l)
  y = linear(h, v)
  l: f32[] = sum(y)
segment back backward (h, y, l) -> (dh)
  dy = backward l (grad(l))
  dh, grad(v) = backward y (dy)
segment end backward (x, h0, h, dh) -> ()
  dh0 = backward h (dh)
  _, grad(w) = backward h0 (dh0)
program
  run first micro-batch 0
  run last micro-batch 0
  run back micro-batch 0
  run end micro-batch 0
  run first micro-batch 1
  run last micro-batch 1
  run back micro-batch 1
  run end micro-batch 1
"""
ALONE = """weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  h0 = linear(x, w)
  h = gelu(h0)
  y = linear(h, v)
  l: f32[] = sum(y)
  dy = backward l (grad(l))
  dh, grad(v) = backward y (dy)
  dh0 = backward h (dh)
  _, grad(w) = backward h0 (dh0)
"""


@pytest.mark.parametrize(("taken", "outcome"), [("x", "proved"), ("x, w", "proved"), ("dh", "unknown"), ("x, y", "unknown")])
def test_a_segment_takes_only_what_there_is(taken: str, outcome: str) -> None:
    verdict = verdict_on(changed(IN_SEGMENTS, ("first forward (x)", f"first forward ({taken})")), ALONE)
    assert verdict.outcome.value == outcome
    assert outcome == "proved" or "unused-input" in [reason.name for reason in verdict.reasons]
