"""Right plans that only numbers can tell from wrong ones, or that nothing can: never refuted, and their wrong twins are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import LAYERS
from tvlint.equivalence.verdict.numbers import run_sizes
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ops.annotations.declared import Declared
from tvlint.ops.declaring import with_declared

pytestmark = pytest.mark.usefixtures("without_repairs")

SPLIT = "mesh tp=2\n" + LAYERS.replace("w f32[8,4]", "w f32[8,4] tp:S(0)").replace("v f32[4,8]", "v f32[4,8] tp:S(1)").replace(
    "y = linear(a, v)", "p = linear(a, v)\n  y = all-reduce(p) over tp"
)
CLIP = "end n = sqrt(q)\nend d = add(n, 1e-06)\nend c = div(1.0, d)\n"
CLIP += "end grad(w) = mul(grad(w), c)\nend grad(v) = mul(grad(v), c)\n"
NORMS = "end n1 = norm(grad(w))\nend n2 = norm(grad(v))\n"
WHOLE = NORMS + "end q1 = pow(n1, 2)\nend q2 = pow(n2, 2)\nend q = add(q1, q2)\n" + CLIP
SQUARES = NORMS + "end q1 = pow(n1, 2)\nend q2 = pow(n2, 2)\nend qq = add(q1, q2)\nend q = all-reduce(qq) over tp\n"
WAYS = {
    "each summed": NORMS
    + "end p1 = pow(n1, 2)\nend p2 = pow(n2, 2)\nend q1 = all-reduce(p1) over tp\nend q2 = all-reduce(p2) over tp\n"
    "end q = add(q1, q2)\n",
    "by keyword": SQUARES.replace("pow(n1, 2)", "torch.pow(n1, exponent=2)"),
    "a sum of squares of a stack": NORMS
    + "end st = stack([n1, n2])\nend sq = pow(st, 2)\nend qq = sum(sq)\nend q = all-reduce(qq) over tp\n",
    "norms of all ranks": NORMS
    + "end st = stack([n1, n2])\nend ga = all-gather(st, dim=0) over tp\nend m = norm(ga)\nend q = mul(m, m)\n",
}
UNKNOWN = {
    "a function of torch that the table lacks": SQUARES.replace("pow(n1, 2)", "torch.float_power(n1, 2)"),
    "in place": NORMS + "end pow_(n1!, 2)\nend pow_(n2!, 2)\nend qq = add(n1, n2)\nend q = all-reduce(qq) over tp\n",
}


def _verdict(plan: str, reference: str, *declared: Declared) -> Verdict:
    return prove(*(with_declared(each, declared) for each in reversed(plans(with_backward(reference), with_backward(plan)))))


@pytest.mark.parametrize("model", ["gelu(h)", "my.fn(h)"])
@pytest.mark.parametrize("way", [*WAYS, *UNKNOWN])
def test_norms_of_parts_that_are_squared_and_added_up_are_not_refuted(way: str, model: str) -> None:
    plan, reference = (text.replace("gelu(h)", model) for text in (SPLIT + {**WAYS, **UNKNOWN}[way] + CLIP, LAYERS + WHOLE))
    verdict = _verdict(plan, reference, Declared("my.fn", annotation="* -> *"))
    assert verdict.outcome is not Outcome.REFUTED, [reason.message for reason in verdict.reasons]
    assert way in UNKNOWN or way not in ("each summed", "by keyword") or verdict.outcome is Outcome.PROVED


@pytest.mark.parametrize("way", WAYS)
def test_nor_are_they_in_plans_that_are_too_large_to_be_run(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sizes, "_MOST_NUMBERS", 0)
    verdict = _verdict(SPLIT + WAYS[way] + CLIP, LAYERS + WHOLE)
    assert verdict.outcome is not Outcome.REFUTED, [reason.message for reason in verdict.reasons]
    wrong = SPLIT + SQUARES.replace("all-reduce(qq) over tp", "identity(qq)") + CLIP
    assert _verdict(wrong, LAYERS + WHOLE).outcome is Outcome.REFUTED


@pytest.mark.parametrize("power", ["pow(n1, exponent=3)", "identity(n1)", "mul(n1, n2)"])
@pytest.mark.parametrize("way", ["each summed", "by keyword"])
def test_other_powers_are_refuted(power: str, way: str) -> None:
    text = WAYS[way].replace("torch.pow(n1, exponent=2)", "pow(n1, 2)")
    verdict = _verdict(SPLIT + text.replace("pow(n1, 2)", power) + CLIP, LAYERS + WHOLE)
    assert verdict.outcome is Outcome.REFUTED


GREATEST = "end a1 = abs(grad(w))\nend a2 = abs(grad(v))\nend n1 = amax(a1)\nend n2 = amax(a2)\nend n = maximum(n1, n2)\n"
OF_PARTS = GREATEST.replace("end n = maximum", "end nn = maximum") + "end n = all-reduce max(nn) over tp\n"


@pytest.mark.parametrize("most", [0, 1 << 20], ids=["too large", "run"])
def test_the_greatest_of_greatest_elements_is_not_refuted(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sizes, "_MOST_NUMBERS", most)
    clip = CLIP.removeprefix("end n = sqrt(q)\n")
    assert _verdict(SPLIT + OF_PARTS + clip, LAYERS + GREATEST + clip).outcome is not Outcome.REFUTED
    for wrong in ("all-reduce(nn) over tp", "identity(nn)"):
        text = OF_PARTS.replace("all-reduce max(nn) over tp", wrong)
        assert _verdict(SPLIT + text + clip, LAYERS + GREATEST + clip).outcome is Outcome.REFUTED


ACT = LAYERS.replace("s = pow(y, 2)", "z = my.act(y)\n  s = pow(z, 2)")
LATE = SPLIT.replace("y = all-reduce(p) over tp", "q = my.act(p)\n  z = all-reduce(q) over tp").replace(
    "pow(y, 2)", "pow(z, 2)"
)


@pytest.mark.parametrize(
    ("linear", "outcome"), [((), Outcome.UNKNOWN), (((0,),), Outcome.PROVED)], ids=["not said", "declared"]
)
def test_a_function_of_parts_may_be_linear_where_nobody_says_so(linear: tuple[tuple[int, ...], ...], outcome: Outcome) -> None:
    assert _verdict(LATE, ACT, Declared("my.act", annotation="* -> *", linear=linear)).outcome is outcome


def test_a_function_that_is_known_not_to_be_linear_is_refuted() -> None:
    assert _verdict(LATE, ACT, Declared("my.act", same_as="torch.relu")).outcome is Outcome.REFUTED


def test_what_is_wrong_and_reaches_the_loss_past_a_function_is_refuted() -> None:
    reference = LAYERS.replace("s = pow(y, 2)", "z = my.act(y)\n  u = tanh(y)\n  t = add(z, u)\n  s = pow(t, 2)")
    plan = SPLIT.replace("y = all-reduce(p) over tp", "y = identity(p)")
    plan = plan.replace("s = pow(y, 2)", "z = my.act(y)\n  u = tanh(y)\n  t = add(z, u)\n  s = pow(t, 2)")
    assert _verdict(plan, reference, Declared("my.act", annotation="* -> *")).outcome is Outcome.REFUTED


ATTENTION = """weight q f32[4,4]
weight k f32[4,4]
buffer m f32[8,8]
input x f32[8,4]
loss l
program
  a = linear(x, q)
  b = linear(x, k)
  t = transpose(b, 0, 1)
  s = matmul(a, t)
  z = add(s, m)
  p = softmax(z, dim=1)
  o = matmul(p, x)
  r = pow(o, 2)
  l: f32[] = sum(r)
"""
DOCUMENTS = (
    "mesh cp=2\n"
    + ATTENTION.replace("buffer m f32[8,8]", "buffer m f32[8,8] cp:S(0)")
    .replace("input x f32[8,4]", "input x f32[8,4] cp:S(0)")
    .replace("loss l", "loss l f32[] cp:P")
    .replace("z = add(s, m)", "i = chunk(m, dim=1) over cp || none\n  z = add(s, i)")
    + "  end reduce-gradients q, k over cp\n"
)
FLAGS = ("m f32", "m bool"), ("add(s, i)", "masked_fill(s, i, -inf)"), ("add(s, m)", "masked_fill(s, m, -inf)")


def _with_flags(text: str) -> str:
    for before, after in FLAGS:
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("flags", [False, True])
def test_keys_that_a_mask_hides_may_be_left_out(flags: bool) -> None:
    plan, reference = map(_with_flags, (DOCUMENTS, ATTENTION)) if flags else (DOCUMENTS, ATTENTION)
    verdict = _verdict(plan, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert any("masks hide keys of other documents" in reason.message for reason in verdict.reasons)
    for before, after in (
        ("end reduce-gradients q, k over cp", "end reduce-gradients q over cp"),
        ("r = pow(o, 2)", "r = pow(o, 3)"),
        ("softmax(z, dim=1)", "softmax(z, dim=0)"),
    ):
        assert before in plan
        assert _verdict(plan.replace(before, after), reference).outcome is Outcome.REFUTED


def test_a_generator_leaves_no_keys_out_for_a_mask_that_it_does_not_know() -> None:
    both = plans(with_backward(DOCUMENTS), with_backward(ATTENTION))
    assert prove(*(replace(plan, format="nnscaler-pickle") for plan in both)).outcome is Outcome.REFUTED


DECAY = """weight w f32[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  s = pow(h, 2)
  l: f32[] = sum(s)
  end dec = mul(w, 0.01)
  end g = add(grad(w), dec)
  end st = mul(g, 0.1)
  end w = sub(w, st)
"""
SHARED = "mesh dp=2\n" + DECAY.replace("x f32[8,4]", "x f32[8,4] dp:S(0)").replace("loss l", "loss l f32[] dp:P").replace(
    "0.01", "0.005"
).replace("end g = add(grad(w), dec)", "end g0 = add(grad(w), dec)\n  end g = all-reduce(g0) over dp")


def test_a_decay_that_ranks_share_is_not_refuted() -> None:
    assert _verdict(SHARED, DECAY).outcome is not Outcome.REFUTED
    assert _verdict(SHARED.replace("0.005", "0.01"), DECAY).outcome is Outcome.REFUTED


STEP = """weight w f32[4,4]
state m f32[4,4]
state v f32[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  s = pow(h, 2)
  l: f32[] = sum(s)
  end adamw_step(w!, grad(w), m!, v!, lr=0.1)
"""
SHARDED = (
    "mesh dp=2\n"
    + STEP.replace("state m f32[4,4]", "state m f32[4,4] dp:S(0)")
    .replace("state v f32[4,4]", "state v f32[4,4] dp:S(0)")
    .replace("x f32[8,4]", "x f32[8,4] dp:S(0)")
    .replace("loss l", "loss l f32[] dp:P")
    .replace(
        "end adamw_step(w!, grad(w), m!, v!, lr=0.1)",
        "end g = reduce-scatter(grad(w), dim=0) over dp\n  end own = chunk(w, dim=0) over dp",
    )
    + "  end adamw_step(own!, g, m!, v!, lr=0.1)\n  end w = all-gather(own, dim=0) over dp\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("reduce-scatter(", "reduce-scatter avg("),
        ("reduce-scatter(grad(w)", "chunk(grad(w)"),
        ("own = chunk(w, dim=0)", "own = chunk(w, dim=1)"),
    ],
)
def test_a_step_of_an_optimizer_is_no_unknown_function(before: str, after: str) -> None:
    assert before in SHARDED
    assert _verdict(SHARDED, STEP).outcome is Outcome.PROVED
    assert _verdict(SHARDED.replace(before, after), STEP).outcome is Outcome.REFUTED
