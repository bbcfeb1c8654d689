"""Where gradients start: at the loss, at multiples of it, at auxiliary losses; and gradients that nothing makes."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.findings import Outcome, Verdict

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  z = gelu(y)
  l: f32[] = mean(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
  update w, v
"""

TENSOR_PARALLEL = """
mesh tp=2
weight w f32[8,8] tp:S(0)
weight v f32[8,8] tp:S(1)
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  p = linear(a, v)
  y = all-reduce(p) over tp
  z = gelu(y)
  l: f32[] = mean(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  da, grad(v) = backward p (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
  update w, v
"""

MICRO_BATCHES = """
micro-batches 2
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
loss l
segment forward forward (x) -> (h, a, y, z, l, u)
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  z = gelu(y)
  l: f32[] = mean(z)
  u = div(l, 2)
segment backward backward (x, h, a, y, z, l, u) -> ()
  dl = backward u (grad(u))
  dz = backward l (dl)
  dy = backward z (dz)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
segment step optimizer
  update w, v
program
  run forward micro-batch 0
  run backward micro-batch 0
  run forward micro-batch 1
  run backward micro-batch 1
  run step
"""

AUXILIARY = {
    "of the hidden layer": ("k: f32[] = mean(h)", "dh = backward k (grad(k))"),
    "scaled": ("s: f32[] = mean(h)\n  k = mul(s, 0.01)", "ds = backward k (grad(k))\n  dh = backward s (ds)"),
    "of squares": ("q = pow(h, 2)\n  k: f32[] = mean(q)", "dq = backward k (grad(k))\n  dh = backward q (dq)"),
    "given with ones": ("k: f32[] = mean(h)", "o = ones_like(k)\n  dh = backward k (o)"),
}


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after)
    return text


def with_root(text: str, forward: str, backward: str, returned: bool = False) -> str:
    text = changed(text, ("  a = gelu(h)\n", f"  {forward}\n  a = gelu(h)\n"))
    if backward:
        text = changed(text, ("  dh = backward a (da)\n", f"  dh = backward a (da)\n  {backward}\n"))
    return text.replace("loss l\n", "loss l\noutput k\n") if returned else text


def over_tp(forward: str) -> str:
    """The auxiliary loss of a hidden layer that tp shards: each rank has the mean of its half."""
    return changed(forward, ("mean(", "sum("))


def names(verdict: Verdict) -> list[str]:
    return [reason.name for reason in verdict.reasons]


def proved(parallel: str, reference: str) -> None:
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def refuted(parallel: str, reference: str, name: str) -> None:
    verdict = verdict_on(parallel, reference)
    assert (verdict.outcome, name in names(verdict)) == (Outcome.REFUTED, True), names(verdict)


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("kind", AUXILIARY)
def test_an_auxiliary_loss_is_proved_and_told_where_one_plan_lacks_it(kind: str, returned: bool) -> None:
    forward, backward = AUXILIARY[kind]
    reference = with_root(REFERENCE, forward, backward, returned)
    proved(with_root(REFERENCE, forward, backward, returned), reference)
    proved(with_root(TENSOR_PARALLEL, over_tp(forward), backward), with_root(REFERENCE, over_tp(forward), backward))
    refuted(with_root(REFERENCE, forward, "", returned), reference, "missing-root")
    refuted(reference, with_root(REFERENCE, forward, "", returned), "surplus-root")
    twice = with_root(REFERENCE, forward, f"{backward}\n  {backward.rpartition('  ')[2]}", returned)
    refuted(twice, reference, "unequal-addends")


def test_an_auxiliary_loss_that_starts_without_its_factor_is_told() -> None:
    forward, backward = AUXILIARY["scaled"]
    reference = with_root(REFERENCE, forward, backward)
    unscaled = with_root(REFERENCE, forward, "dh = backward s (grad(s))")
    refuted(unscaled, reference, "unequal-roots")
    elsewhere = changed(reference, ("  update", "  grad(w) = mul(grad(w), 3)\n  update"))
    refuted(elsewhere, reference, "wrong-gradient-scale")
    assert "unequal-roots" not in names(verdict_on(elsewhere, reference))


def test_a_sum_without_a_returned_loss_that_is_divided_at_the_end_is_not_refuted() -> None:
    divided = "  grad(w) = div(grad(w), 64)\n  grad(v) = div(grad(v), 64)\n  update"
    at_end = changed(REFERENCE, ("mean(z)", "sum(z)"), ("loss l\n", ""), ("  update", divided))
    verdict = verdict_on(at_end, REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN, names(verdict)
    wrong = changed(at_end, ("grad(w), 64", "grad(w), 32"))
    refuted(wrong, REFERENCE, "other-numbers")
    assert "`w`" in verdict_on(wrong, REFERENCE).reasons[0].message


def test_an_auxiliary_loss_is_named_after_what_its_parts_are_put_together_to() -> None:
    forward = "k0: f32[] = sum(h)\n  k = all-reduce(k0) over tp"
    reference = with_root(REFERENCE, "k: f32[] = sum(h)", "dh = backward k (grad(k))")
    proved(with_root(TENSOR_PARALLEL, forward, "dh = backward k0 (grad(k))"), reference)
    refuted(with_root(TENSOR_PARALLEL, forward, ""), reference, "missing-root")


def test_an_auxiliary_loss_may_be_added_to_the_loss_or_start_alone() -> None:
    reference = with_root(REFERENCE, "k: f32[] = mean(h)", "dh = backward k (grad(k))")
    total = changed(
        with_root(REFERENCE, "k: f32[] = mean(h)", "dh = backward k (dk)"),
        ("  dz = backward l (grad(l))\n", "  t = add(l, k)\n  dl, dk = backward t (grad(t))\n  dz = backward l (dl)\n"),
    )
    proved(total, reference)
    proved(reference, total)
    assert verdict_on(changed(total, ("dl, dk =", "dl, _ ="), ("  dh = backward k (dk)\n", "")), reference).outcome is not (
        Outcome.PROVED
    )


DIVIDED = {
    "divided": ("div(l, 2)", ""),
    "multiplied": ("mul(l, 0.5)", ""),
    "by another number": ("div(l, 4)", "wrong-gradient-scale"),
    "the other way": ("mul(l, 2)", "wrong-gradient-scale"),
    "not at all": ("mul(l, 1)", "wrong-gradient-scale"),
}


@pytest.mark.parametrize("how", DIVIDED)
def test_a_loss_that_is_divided_goes_backward_and_the_undivided_one_is_returned(how: str) -> None:
    call, mistake = DIVIDED[how]
    text = changed(MICRO_BATCHES, ("div(l, 2)", call))
    if mistake:
        refuted(text, REFERENCE, mistake)
    else:
        proved(text, REFERENCE)


def test_each_micro_batch_divides_its_auxiliary_loss_as_well() -> None:
    reference = with_root(REFERENCE, "k: f32[] = mean(h)", "dh = backward k (grad(k))")
    text = changed(MICRO_BATCHES, ("y, z, l, u)", "y, z, l, u, k, j)"))
    root = ("k: f32[] = mean(h)\n  j = div(k, 2)", "dk = backward j (grad(j))\n  dh = backward k (dk)")
    proved(with_root(text, *root), reference)
    refuted(with_root(text, root[0].replace("div(k, 2)", "mul(k, 1)"), root[1]), reference, "unequal-addends")
    refuted(with_root(text, root[0], ""), reference, "missing-root")


def test_the_weight_of_an_auxiliary_loss_may_take_in_the_number_of_micro_batches() -> None:
    def with_weight(text: str, weight: str) -> str:
        text = text.replace("y, z, l, u)", "y, z, l, u, q, k, j)")
        forward = f"q = pow(h, 2)\n  k: f32[] = mean(q)\n  j = mul(k, {weight})"
        return with_root(text, forward, "dk = backward j (grad(j))\n  dq = backward k (dk)\n  dh = backward q (dq)")

    reference = with_weight(REFERENCE, "0.01")
    proved(with_weight(MICRO_BATCHES, "0.005"), reference)
    refuted(with_weight(MICRO_BATCHES, "0.01"), reference, "unequal-addends")
    assert verdict_on(with_weight(MICRO_BATCHES, "0.0025"), reference).outcome is not Outcome.PROVED


SCALED = changed(
    REFERENCE,
    ("  dz = backward l (grad(l))\n", "  u = mul(l, 1024)\n  dl = backward u (grad(u))\n  dz = backward l (dl)\n"),
)
UNSCALED = {
    "by the reducer": ("  update", "  reduce-gradients w, v over self divide 1024\n  update"),
    "by operators": ("  update", "  grad(w) = mul(grad(w), 0.0009765625)\n  grad(v) = div(grad(v), 1024)\n  update"),
    "on the way": ("  dy = backward z (dz)\n", "  du = div(dz, 1024)\n  dy = backward z (du)\n"),
}


@pytest.mark.parametrize("how", UNSCALED)
def test_a_scaled_loss_is_unscaled_again(how: str) -> None:
    refuted(SCALED, REFERENCE, "wrong-gradient-scale")
    proved(changed(SCALED, UNSCALED[how]), REFERENCE)
    refuted(changed(SCALED, UNSCALED[how], ("mul(l, 1024)", "mul(l, 512)")), REFERENCE, "wrong-gradient-scale")


def test_a_gradient_starts_with_the_number_that_it_is_given() -> None:
    start = "  dz = backward l (grad(l))\n"
    proved(changed(REFERENCE, (start, "  s: f32[] = ones([])\n  dz = backward l (s)\n")), REFERENCE)
    two = changed(REFERENCE, (start, "  s: f32[] = full([], 2.0)\n  dz = backward l (s)\n"))
    refuted(two, REFERENCE, "wrong-gradient-scale")
    proved(two, two)


MISSPELT = ("typo", "dzz", "l_scale", "grad(l2)", "grad(h)", "grad(z)")


@pytest.mark.parametrize("name", sampled(MISSPELT, 3))
def test_a_misspelt_gradient_is_no_start_and_is_named(name: str) -> None:
    for text in (
        changed(TENSOR_PARALLEL, ("backward l (grad(l))", f"backward l ({name})")),
        changed(TENSOR_PARALLEL, ("  dh = backward a (da)\n", f"  dh = backward a (da)\n  dh = backward a ({name})\n")),
        changed(TENSOR_PARALLEL, ("  update", f"  unused = backward a ({name})\n  update")),
    ):
        verdict = verdict_on(text, REFERENCE)
        assert verdict.outcome is Outcome.UNKNOWN
        assert any(f"`{name}`" in reason.message for reason in verdict.reasons if reason.name == "absent-gradient")
        assert verdict_on(REFERENCE, text.replace("mesh tp=2\n", "mesh tp=1\n")).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("names", [("da",), ("da", "dz")])
def test_a_gradient_that_nothing_makes_refutes_where_it_is_wrong_as_zero_and_as_a_start(names: tuple[str, ...]) -> None:
    text = TENSOR_PARALLEL
    for name in names:
        made = next(line for line in text.splitlines() if line.strip().startswith(name) and " = backward " in line)
        text = text.replace(made, made.replace(name, "_", 1))
    refuted(text, REFERENCE, "other-numbers")


@pytest.mark.parametrize("kind", ["avg", "max", "sum"])
def test_a_gradient_that_nothing_makes_does_not_come_back_as_a_start(kind: str) -> None:
    text = changed(REFERENCE, ("weight w", "mesh tp=2\nweight w"))
    lines = f"  s = all-reduce {kind}(s) over tp\n  dz = backward l (s)\n"
    assert verdict_on(changed(text, ("  dz = backward l (grad(l))\n", lines)), REFERENCE).outcome is not Outcome.PROVED
    lines = f"  k = mul(l, 3)\n  dl = backward k (grad(k))\n  dl = all-reduce {kind}(dl) over tp\n  dz = backward l (dl)\n"
    refuted(changed(text, ("  dz = backward l (grad(l))\n", lines)), REFERENCE, "wrong-gradient-scale")


def test_a_start_in_the_middle_is_one_more() -> None:
    more = changed(REFERENCE, ("  dh = backward a (da)\n", "  dh = backward a (da)\n  dh = backward a (grad(a))\n"))
    refuted(more, REFERENCE, "surplus-root")
    instead = changed(REFERENCE, ("  dh = backward a (da)\n", "  dh = backward a (grad(a))\n"))
    refuted(instead, REFERENCE, "surplus-root")


CHUNKED = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  p, q = chunk(h, 2, dim=1)
  OTHER
  l: f32[] = sum(p)
  dp = backward l (grad(l))
  dh = backward p (dp, GIVEN)
  _, grad(w) = backward h (dh)
"""


def test_a_result_that_no_gradient_reaches_has_none() -> None:
    for other in ("u = gelu(q)", "u = argmax(q, dim=1)", "print(q)"):
        reference = CHUNKED.replace("OTHER", other).replace("GIVEN", "_")
        proved(reference, reference)
        declared = CHUNKED.replace("loss l", "loss l\ngradient dq f32[8,4] grad-of q").replace("OTHER", other)
        proved(declared.replace("GIVEN", "dq"), reference)
        verdict = verdict_on(CHUNKED.replace("OTHER", other).replace("GIVEN", "dqq"), reference)
        assert (verdict.outcome, "absent-gradient" in names(verdict)) == (Outcome.UNKNOWN, True)


def test_a_result_that_the_loss_depends_on_has_a_gradient() -> None:
    text = CHUNKED.replace("loss l", "loss l\ngradient dq f32[8,4] grad-of q").replace("sum(p)", "sum(m)")
    text = text.replace("OTHER", "m = mul(p, q)").replace(
        "dp = backward l (grad(l))", "dm = backward l (grad(l))\n  dp, _ = backward m (dm)"
    )
    verdict = verdict_on(text.replace("GIVEN", "dq"), text.replace("GIVEN", "_"))
    assert (verdict.outcome, "absent-gradient" in names(verdict)) == (Outcome.UNKNOWN, True)
