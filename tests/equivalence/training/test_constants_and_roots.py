"""Verdicts on sums of copies, constants that cancel, the scale of the loss, collectives with a root, and gradients not made."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import PARALLEL, REFERENCE, verdict_on
from tvlint.findings import Outcome, Verdict

pytestmark = pytest.mark.usefixtures("without_repairs")

ONE = (
    PARALLEL.replace("mesh dp=2 tp=2", "mesh tp=2")
    .replace("  dp:S(0)", "")
    .replace("l = all-reduce(l0) over dp", "l = identity(l0)")
)
ONE = ONE.replace("  reduce-gradients w1, b1, w2 over dp\n", "")
"""The plan on two ranks of one tensor-parallel group."""


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after)
    return text


def reasons(verdict: Verdict) -> list[str]:
    return [reason.name for reason in verdict.reasons]


def after_the_sum(forward: str, backward: str) -> str:
    """The plan with something between the sum over `tp` and what uses it."""
    return changed(
        PARALLEL,
        ("  s = softmax(y, dim=1)", f"  {forward}\n  s = softmax(u, dim=1)"),
        ("  dy = backward s (ds)", f"  {backward}"),
    )


RIGHT = {
    "copies divided by their number": after_the_sum(
        "v = all-reduce(y) over tp\n  u = div(v, 2)",
        "du = backward s (ds)\n  dv = backward u (du)\n  dy = all-reduce(dv) over tp",
    ),
    "copies divided first": after_the_sum(
        "v = mul(y, 0.5)\n  u = all-reduce(v) over tp",
        "du = backward s (ds)\n  dv = all-reduce(du) over tp\n  dy = backward v (dv)",
    ),
    "copies divided in two steps": after_the_sum(
        "v = div(y, 4)\n  t = all-reduce(v) over tp\n  u = mul(t, 2.0)",
        "du = backward s (ds)\n  dt = backward u (du)\n  dv = all-reduce(dt) over tp\n  dy = backward v (dv)",
    ),
}

WRONG = {
    "copies divided by another number": (changed(RIGHT["copies divided by their number"], ("div(v, 2)", "div(v, 4)"))),
    "copies divided twice": changed(
        RIGHT["copies divided first"], ("u = all-reduce(v) over tp", "t = all-reduce(v) over tp\n  u = div(t, 2)")
    ),
    "gradients of copies not summed": changed(
        RIGHT["copies divided by their number"], ("dy = all-reduce(dv) over tp", "dy = identity(dv)")
    ),
    "gradients of copies summed twice": changed(
        RIGHT["copies divided first"], ("dv = all-reduce(du) over tp", "dv = all-reduce(du) over tp,dp")
    ),
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_constants_that_cancel_the_number_of_copies_are_proved(name: str) -> None:
    verdict = verdict_on(RIGHT[name])
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def with_numbers(text: str) -> str:
    """The plan with a loss whose gradients are not zero, in the shape that the oracle gives it."""
    text = text.replace("softmax(y, dim=1)", "tanh(y)").replace("softmax(u, dim=1)", "tanh(u)")
    text = text.replace("l = ", "l: f32[1] = ").replace("l0 = ", "l0: f32[1] = ")
    return text.replace("gradient gl f32[]", "gradient gl f32[1]")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["copies", "scaled", "rooted"])
def test_no_mutant_that_computes_something_else_is_proved(name: str) -> None:
    text = {
        "copies": RIGHT["copies divided in two steps"],
        "scaled": SCALED,
        "rooted": changed(ONE, ("y = all-reduce(p) over tp", ROOTED["reduce and scatter"])),
    }[name]
    made, other = plans(with_numbers(text), with_numbers(REFERENCE))
    assert compare(other, made).outcome == "equal"
    assert not list(proved_and_not_equal(other, list(mutants(made))[::5]))


@pytest.mark.parametrize("name", list(WRONG))
def test_constants_that_do_not_cancel_are_not_proved(name: str) -> None:
    assert verdict_on(WRONG[name]).outcome is not Outcome.PROVED


def test_a_factor_that_the_reference_has_too_is_left_as_it_is() -> None:
    """The mean makes gradients twice too large on each of two replicas; a division by two that belongs to the model stays."""
    pairs = (
        ("a = gelu(h)", "k = div(h, 2)\n  a = gelu(k)"),
        ("dh = backward a (da)", "dk = backward a (da)\n  dh = backward k (dk)"),
    )
    mean = ("sum(s)", "mean(s)")
    parallel = changed(PARALLEL, *pairs, mean, ("all-reduce(l0)", "all-reduce avg(l0)"), ("w2 over dp", "w2 over dp by avg"))
    verdict = verdict_on(parallel, changed(REFERENCE, *pairs, mean))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


SCALED = changed(
    PARALLEL,
    ("loss l\n", "loss l\ngradient gl f32[] grad-of l\n"),
    ("ds = backward l0 (grad(l))", "scaled = mul(gl, 1024.0)\n  ds = backward l0 (scaled)"),
    ("_, grad(w1), grad(b1) = backward h (dh)", "dh1 = div(dh, 1024.0)\n  _, grad(w1), grad(b1) = backward h (dh1)"),
    (
        "da, grad(w2) = backward p (dy)",
        "da, _ = backward p (dy)\n  dy1 = mul(dy, 0.0009765625)\n  _, grad(w2) = backward p (dy1)",
    ),
)


def test_a_loss_that_is_scaled_and_gradients_that_are_scaled_back_are_proved() -> None:
    verdict = verdict_on(SCALED)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ("div(dh, 1024.0)", "identity(dh)", "1024"),
        ("div(dh, 1024.0)", "div(dh, 512.0)", "2"),
        ("mul(gl, 1024.0)", "mul(gl, 1.0)", "1/1024"),
    ],
)
def test_gradients_that_keep_a_scale_are_refuted_with_it(before: str, after: str, factor: str) -> None:
    verdict = verdict_on(changed(SCALED, (before, after)))
    assert verdict.outcome is Outcome.REFUTED
    assert f"is {factor} times the reference's" in verdict.reasons[0].message


ROOTED = {
    "reduce and broadcast": "y1: f32[8,8] = reduce(p, root=0) over tp\n  y: f32[8,8] = broadcast(y1, root=0) over tp",
    "gather and broadcast": "y2: f32[4,8] = reduce-scatter(p, dim=0) over tp\n"
    "  y1: f32[8,8] = gather(y2, dim=0, root=1) over tp\n  y: f32[8,8] = broadcast(y1, root=1) over tp",
    "reduce and scatter": "y1: f32[8,8] = reduce(p, root=0) over tp\n  y2: f32[4,8] = scatter(y1, dim=0, root=0) over tp\n"
    "  y: f32[8,8] = all-gather(y2, dim=0) over tp",
}


@pytest.mark.parametrize("name", list(ROOTED))
def test_collectives_with_a_root_are_proved(name: str) -> None:
    verdict = verdict_on(changed(ONE, ("y = all-reduce(p) over tp", ROOTED[name])))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("reduce and broadcast", "broadcast(y1, root=0)", "broadcast(y1, root=1)"),
        ("reduce and broadcast", "y: f32[8,8] = broadcast(y1, root=0) over tp", "y = identity(y1)"),
        ("reduce and broadcast", "reduce(p, root=0)", "reduce(p, root=2)"),
        ("reduce and broadcast", "reduce(p, root=0)", "reduce max(p, root=0)"),
        ("gather and broadcast", "gather(y2, dim=0", "gather(y2, dim=1"),
        ("gather and broadcast", "reduce-scatter(p, dim=0)", "chunk(p, dim=0)"),
        ("reduce and scatter", "scatter(y1, dim=0, root=0)", "scatter(y1, dim=0, root=1)"),
    ],
)
def test_collectives_with_another_root_or_way_are_not_proved(name: str, before: str, after: str) -> None:
    rooted = changed(ROOTED[name], (before, after))
    assert verdict_on(changed(ONE, ("y = all-reduce(p) over tp", rooted))).outcome is not Outcome.PROVED


SHARED = """
weight w f32[4,4]
weight v f32[4,4]
input x f32[4,4]
loss l
program
  y = linear(x, w)
  z = linear(y, v)
  l: f32[1] = sum(z)
  dz = backward l (grad(l))
  dy, dv = backward z (dz)
  _, dw = backward y (dy)
"""


def test_a_gradient_that_one_rank_never_makes_counts_as_zero_in_a_sum() -> None:
    """The second rank holds the weight and does nothing with it, until its gradients are summed."""
    first = SHARED[SHARED.index("  y =") :].replace("dw =", "grad(w) =").replace("dv =", "grad(v) =")
    text = SHARED[: SHARED.index("program")].replace("weight w", "mesh tp=2\nweight w").replace("dw", "grad(w)")
    total = "  grad(w) = all-reduce(grad(w)) over tp\n  grad(v) = all-reduce(grad(v)) over tp\n"
    wait = "  send l to 1\n"
    parallel = f"{text}program tp=0\n{first}{wait}{total}program tp=1\n  recv l: f32[1] from 0\n{total}"
    reference = SHARED.replace("dw =", "grad(w) =").replace("dv =", "grad(v) =")
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    made, other = plans(parallel, reference)
    assert compare(other, made).outcome == "equal"
    averaged = verdict_on(parallel.replace("all-reduce(", "all-reduce avg("), reference)
    assert averaged.outcome is not Outcome.PROVED
