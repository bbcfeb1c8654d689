"""Plans that would end with an error, or leave open what they mean, and once were proved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import Communicate, Group
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text.reader import read

pytestmark = pytest.mark.usefixtures("without_repairs")

ONE_OPERATOR = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  n: f32[SHAPE] = OPERATOR
  q = gelu(n)
  l: f32[1] = sum(q)
  dq = backward l (grad(l))
  dn = backward q (dq)
  dh = backward n (dn)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize(
    ("shape", "right", "wrong", "outcome"),
    [
        ("8,2", "narrow(h, 1, 2, 2)", "narrow(h, 1, 2, 9)", Outcome.REFUTED),
        ("8,4", "identity(h)", "narrow(h, 1, 0, 9)", Outcome.REFUTED),
        ("8,2", "narrow(h, 1, -2, 2)", "narrow(h, 1, -6, 8)", Outcome.REFUTED),
        ("8", "sum(h, dim=1)", "sum(h, dim=[1,1])", Outcome.UNKNOWN),
        ("8", "mean(h, dim=1)", "mean(h, dim=[1,-1])", Outcome.UNKNOWN),
        ("8,4", "layer_norm(h, normalized_shape=[4])", "layer_norm(h, normalized_shape=[5])", Outcome.REFUTED),
        ("8,4", "layer_norm(h, normalized_shape=[8,4])", "layer_norm(h, normalized_shape=[4,8])", Outcome.REFUTED),
        ("8,4", "rms_norm(h, normalized_shape=[4])", "rms_norm(h, normalized_shape=[3])", Outcome.REFUTED),
        ("2,8,4", "expand(h, [2,8,4])", "expand(h, [2,7,4])", Outcome.UNKNOWN),
        ("8,4", "expand(h, [8,4])", "expand(h, [1,4])", Outcome.UNKNOWN),
        ("16,4", "repeat_interleave(h, 2, 0)", "repeat_interleave(h, 2, dim=0, output_size=5)", Outcome.UNKNOWN),
        ("8,4", "flip(h, [1])", "flip(h, [1,-1])", Outcome.UNKNOWN),
    ],
)
def test_a_call_that_fails_is_not_the_one_that_runs(shape: str, right: str, wrong: str, outcome: Outcome) -> None:
    plans = [ONE_OPERATOR.replace("SHAPE", shape).replace("OPERATOR", call) for call in (right, wrong)]
    assert verdict_on(plans[0], plans[0]).outcome is Outcome.PROVED
    assert verdict_on(plans[1], plans[0]).outcome is outcome


SEVERAL = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a, b = nnscaler.runtime.function.multiref(h, times=2)
  q = add(a, b)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  da, db = backward q (dq)
  dh = backward a (da, db)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("times", [3, 4])
def test_more_results_than_are_taken_end_the_run(times: int) -> None:
    assert verdict_on(SEVERAL, SEVERAL).outcome is Outcome.PROVED
    assert verdict_on(SEVERAL.replace("times=2", f"times={times}"), SEVERAL).outcome is Outcome.REFUTED


TWO_INPUTS = """
weight w f32[4,8]
input x f32[8,8] of y[8,8]
input y f32[8,8] of x[8,8]
loss l
program
  h = linear(x, w)
  k = linear(y, w)
  q = gelu(h)
  m = mul(q, k)
  l: f32[1] = sum(m)
  dm = backward l (grad(l))
  dq, dk = backward m (dm)
  dh = backward q (dq)
  _, grad(w) = backward k (dk)
  _, grad(w) = backward h (dh)
"""


def test_inputs_whose_names_are_those_of_others_are_told_apart() -> None:
    assert verdict_on(TWO_INPUTS, TWO_INPUTS).outcome is Outcome.PROVED
    other = TWO_INPUTS.replace("k = linear(y, w)", "k = linear(x, w)")
    assert verdict_on(other, TWO_INPUTS).outcome is not Outcome.PROVED
    named = TWO_INPUTS.replace(" of y[8,8]", "").replace(" of x[8,8]", "")
    crossed = named.replace("input x", "input swap").replace("input y", "input x").replace("input swap", "input y")
    assert verdict_on(crossed, named).outcome is Outcome.PROVED


TIED = """
weight a f32[4,4] of w[4,4]
weight b f32[4,4] of w[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, a)
  g = gelu(h)
  y = linear(g, b)
  q = gelu(y)
  l: f32[1] = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  dg, grad(b) = backward y (dy)
  dh = backward g (dg)
  _, grad(a) = backward h (dh)
"""

ONE_USE = """
weight w f32[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  g = gelu(h)
  y = linear(g, w)
  q = gelu(y)
  l: f32[1] = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  _, grad(w) = backward y (dy)
"""


@pytest.mark.parametrize("last", ["  dh = backward g (dg)\n  _, grad(a) = backward h (dh)\n", ""])
def test_a_reference_with_one_weight_under_two_names_is_not_understood(last: str) -> None:
    reference = TIED if last else TIED[: TIED.index("  dh = ")]
    verdict = verdict_on(ONE_USE, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "reference-gradient" in [reason.name for reason in verdict.reasons]


ROWS = """
mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[8,8]
loss l
program
  a = linear(x, w)
  g = gelu(a)
  l0: f32[1] = sum(g)
  l: f32[1] = all-reduce(l0) over tp
  dg = backward l0 (grad(l))
  da = backward g (dg)
  _, grad(w) = backward a (da)
"""

WHOLE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  a = linear(x, w)
  g = gelu(a)
  l: f32[1] = sum(g)
  dg = backward l (grad(l))
  da = backward g (dg)
  _, grad(w) = backward a (da)
"""


def test_a_reference_of_half_a_weight_is_not_the_whole_one() -> None:
    assert verdict_on(ROWS, WHOLE).outcome is Outcome.PROVED
    half = WHOLE.replace("weight w f32[8,8]", "weight w f32[4,8] region [0:4,0:8] of w[8,8]")
    assert verdict_on(ROWS, half).outcome is Outcome.UNKNOWN


def test_a_gradient_that_is_no_gradient_does_not_hide_that_it_adds_up() -> None:
    twice = WHOLE.replace("  _, grad(w) = backward a (da)\n", "  _, gw = backward a (da)\n  _, gw = backward a (da)\n")
    assert verdict_on("gradient gw f32[8,8] grad-of w\n" + twice, WHOLE).outcome is Outcome.REFUTED
    assert verdict_on("tensor gw f32[8,8] grad-of w\n" + twice, WHOLE).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_what_a_rooted_collective_was_given_in_place_is_open_elsewhere(kind: str) -> None:
    whole = "mesh tp=2" + WHOLE
    given = f"reduce {kind}(a, root=0)"
    plan = whole.replace("  g = gelu(a)", f"  a = {given} over tp\n  g = gelu(a)")
    verdict = verdict_on(plan, WHOLE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "undefined-value" in [reason.name for reason in verdict.reasons]
    assert verdict_on(plan.replace(f"a = {given}", f"b = {given}"), WHOLE).outcome is Outcome.PROVED


def _plan(text: str) -> Plan:
    found = read("a.plan", text).plan
    assert found is not None
    return found


@pytest.mark.parametrize("group", [Group(name="nobody"), Group(axes=("nowhere",))])
def test_a_group_that_the_plan_does_not_have_is_not_the_rank_by_itself(group: Group) -> None:
    plan = _plan("mesh tp=2" + WHOLE.replace("  g = gelu(a)", "  b = all-reduce(a) over tp\n  g = gelu(b)"))
    segments = {
        name: replace(
            segment,
            operators=tuple(replace(own, group=group) if isinstance(own, Communicate) else own for own in segment.operators),
        )
        for name, segment in plan.segments.items()
    }
    verdict = prove(replace(plan, segments=segments), _plan(WHOLE))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "malformed-plan" in [reason.name for reason in verdict.reasons]


GIVEN = """
weight w f32[4,4]
weight v f32[4,4]
ROLE dl f32[8,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  y = linear(h, v)
  q = gelu(h)
  l: f32[1] = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  dh, grad(v) = backward y (dl)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("role", ["input", "buffer", "input dl f32[8,4] grad-of y\ninput"])
def test_a_gradient_that_is_given_is_not_zero(role: str) -> None:
    """What a plan takes for the gradient of one of its results, and does not compute, is a value like others."""
    given = GIVEN.replace("ROLE dl f32[8,4]", role.removesuffix("\ninput") if "\n" in role else f"{role} dl f32[8,4]")
    assert verdict_on(given, given).outcome is Outcome.PROVED
    without = given.replace("  dh, grad(v) = backward y (dl)\n", "")
    assert verdict_on(without, given).outcome is not Outcome.PROVED
    other = given.replace("  y = linear(h, v)\n", "  y = linear(x, v)\n").replace("dh, grad(v) =", "_, grad(v) =")
    assert verdict_on(other, given).outcome is not Outcome.PROVED
    split = (
        "mesh tp=2"
        + given.replace("v f32[4,4]", "v f32[4,4] tp:S(0)").replace("dl f32[8,4]", "dl f32[8,4] tp:S(1)")
        + "  reduce-gradients w over tp\n"
    )
    assert verdict_on(split, given).outcome is not Outcome.PROVED
    summed = split.replace("dh, grad(v) = backward y (dl)", "de, grad(v) = backward y (dl)\n  dh = all-reduce(de) over tp")
    assert verdict_on(summed.replace("  reduce-gradients w over tp\n", ""), given).outcome is Outcome.PROVED


ADDED_NOTHING = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  n = zeros([SHAPE])
  t = transpose(h, 0, 1)
  y = addmm(n, h, t, beta=0.0, alpha=0.5)
  q = gelu(y)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  _, dh, dt = backward y (dy)
  dh = backward t (dt)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize(("shape", "outcome"), [("8,8", Outcome.PROVED), ("1,8", Outcome.PROVED), ("3,8", Outcome.REFUTED)])
def test_what_is_added_no_times_has_to_fit_too(shape: str, outcome: Outcome) -> None:
    assert verdict_on(ADDED_NOTHING.replace("SHAPE", shape), ADDED_NOTHING.replace("SHAPE", "8,8")).outcome is outcome
