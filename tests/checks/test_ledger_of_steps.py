"""Each weight is stepped once with the gradient of what the forward pass applied, with states of its own."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

STEPS = """mesh dp=2
micro-batches 2
weight w f32[8,8]
weight u f32[8,8]
state m f32[8,8]
state n f32[8,8]
state t f32[]
input x f32[8,8] dp:S(0)
segment forth forward (x) -> (h, y)
  h = linear(x, w)
  y = linear(h, u)
segment back backward (x, h, y) -> ()
  dh, grad(u) = backward y (grad(y))
  _, grad(w) = backward h (dh)
segment end reduce () -> ()
  reduce-gradients w, u over dp
segment step optimizer () -> ()
{}
program
  run forth micro-batch 0-1
  run back micro-batch 0-1
  run end
  run step
"""


STATES = """weight w f32[8,8]
weight u f32[8,8]
state mw f32[8,8] of w
state vw f32[8,8] of w
state mu f32[8,8] of u
state vu f32[8,8] of u
input gw f32[8,8]
input gu f32[8,8]
program
"""


def test_moments_of_one_weight_are_different_states() -> None:
    assert not findings_of_text(STATES + "  adam_step(w!, gw, mw!, vw!)\n  adam_step(u!, gu, mu!, vu!)")
    swapped = findings_of_text(
        STATES.replace("program", "program\n  adam_step(w!, gw, vw!, mw!)") + "  adam_step(w!, gu, mw!, vw!)"
    )
    assert "swapped-operands" in {finding.rule for finding in swapped}


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        ("  momentum_step(w!, grad(w), m!)\n  momentum_step(u!, grad(u), n!)", set()),
        ("  momentum_step(w!, grad(w), m!)\n  momentum_step(u!, grad(u), m!)", {"state-of-two-weights"}),
        ("  fused_adam(w!, grad(w), m!, t!)\n  fused_adam(u!, grad(u), n!, t!)", set()),
        ("  momentum_step(w!, grad(w), m!)\n  update w, u", {"weight-updated-twice"}),
        ("  update w, u\n  update u", {"weight-updated-twice"}),
    ],
)
def test_a_weight_is_stepped_once_with_its_own_state(steps: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(STEPS.format(steps))} == rules


ACTIVATED = """weight w f32[8,8]
input x f32[4,8]
input da f32[4,8]
program
  h = linear(x, w)
  {}
  {}
  _, grad(w) = backward h (dh)
  update w
"""


@pytest.mark.parametrize(
    ("forth", "back", "rules"),
    [
        ("a = silu(h)", "dh = aten.silu_backward.default(da, h)", set()),
        ("a = relu(h)", "dh = threshold_backward(da, a, 0)", set()),
        ("a = selu(h)", "dh = elu_backward(da, h, 1.0, 1.0, 1.0)", set()),
        ("a = own_gelu(h)", "dh = gelu_backward(da, h)", set()),
        ("a = silu(h)", "dh = backward (da) of a = silu(h)", set()),
        ("a = silu(h)", "dh = gelu_backward(da, h)", {"gradient-of-another-operator"}),
        ("a = silu(h)", "dh = silu_backward(da, x)", {"gradient-of-another-operator"}),
        ("a = silu(h)", "dh = backward (da) of a = gelu(h)", {"gradient-of-another-operator"}),
    ],
)
def test_gradients_are_those_of_the_activation_that_is_applied(forth: str, back: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(ACTIVATED.format(forth, back))} == rules


def test_a_root_is_named_after_a_value_of_the_plan() -> None:
    plan = "weight w f32[8,8]\ninput x f32[4,8]\nloss l\nprogram\n  h = linear(x, w)\n  l = sum(h)\n  dh = backward l ({})\n"
    assert findings_of_text(plan.format("grad(l)")) == []
    assert [finding.rule for finding in findings_of_text(plan.format("grad(loss)"))] == ["use-before-definition"]


BUCKET = """mesh dp=2
weight w f32[4,8]
weight u f32[4,4]
input x f32[8,8] dp:S(0)
input dz f32[8,4] dp:S(0)
program
  y = linear(x, w)
  z = linear(y, u)
  dy, gu = backward z (dz)
  _, gw = backward y (dy)
  fw = reshape(gw, [32])
  fu = reshape(gu, [16])
  pad = zeros([16])
  b = cat([fw, fu, pad], dim=0)
  r = all-reduce(b) over dp
{}
  sgd_step(w!, sw)
  sgd_step(u!, su)
"""


@pytest.mark.parametrize(
    ("split", "rules"),
    [
        ("  rw, ru, rest = split(r, [32, 16, 16], dim=0)\n", set()),
        ("  h, rest = split(r, [48, 16], dim=0)\n  rw, ru = split(h, [32, 16], dim=0)\n", set()),
        ("  ru, rw, rest = split(r, [16, 32, 16], dim=0)\n", {"gradient-of-another-tensor"}),
        ("  rest, rw, ru = split(r, [16, 32, 16], dim=0)\n", {"gradient-of-another-tensor"}),
    ],
)
def test_ranges_of_a_bucket_step_the_weights_whose_gradients_they_hold(split: str, rules: set[str]) -> None:
    text = BUCKET.format(split + "  sw = reshape(rw, [4,8])\n  su = reshape(ru, [4,4])")
    assert {finding.rule for finding in findings_of_text(text)} == rules


def test_a_sum_that_only_the_step_of_a_weight_writes_ends_in_no_error() -> None:
    plan = """mesh edp=2 ep=2
weight we f32[4,8,8] ep:S(0)
input x f32[4,8,8] ep:S(0) edp:S(1)
loss l
program
  y = bmm(x, we)
  s = sum(y)
  l = all-reduce(s) over edp,ep
  dy = backward s (grad(l))
  _, grad(we) = backward y (dy)
  sgd_step(we!, grad(we))
"""
    assert {finding.rule for finding in findings_of_text(plan)} == {"missing-gradient-reduction"}


DIVIDED = """mesh dp=4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  h = linear(x, w)
  s = mean(h)
  l = all-reduce avg(s) over dp
  dh = backward s (grad(l))
  _, g = backward h (dh)
  r = all-reduce{how}(g) over dp
  u = div(r, {by})
  sgd_step(w!, u)
"""


@pytest.mark.parametrize(
    ("how", "by", "severity"),
    [
        ("", 4, []),
        (" avg", 1, []),
        (" avg", 2, [Severity.WARNING]),
        (" avg", 4, [Severity.ERROR]),
        ("", 2, [Severity.ERROR]),
        ("", 8, [Severity.WARNING]),
    ],
)
def test_a_division_that_no_size_explains_may_be_meant(how: str, by: int, severity: list[Severity]) -> None:
    assert [finding.severity for finding in findings_of_text(DIVIDED.format(how=how, by=by))] == severity


MOMENTS = """mesh dp=2
micro-batches 2
weight w f32[8,8]
state m f32[8,8]
state v f32[8,8]
input x f32[8,8] dp:S(0)
loss l
segment forth forward (x) -> (h, s, l)
  h = linear(x, w)
  s = mean(h)
  l = all-reduce avg(s) over dp
segment back backward (x, h, s, l) -> (g)
  dh = backward s (grad(l))
  _, g = backward h (dh)
segment fold optimizer (g) -> ()
{fold}
segment step optimizer () -> ()
{step}
  r = sqrt(v)
  d = div(m, r)
  w = sub(w, d)
program
  run forth micro-batch 0
  run back micro-batch 0
  run fold micro-batch 0
  run forth micro-batch 1
  run back micro-batch 1
  run fold micro-batch 1
  run step
"""
FOLDED = "  a = mul(g, 0.1)\n  m = add(m, a)\n  q = mul(g, g)\n  v = add(v, q)"
REDUCED = "  m = all-reduce avg(m) over dp\n  v = all-reduce avg(v) over dp"


@pytest.mark.parametrize(
    ("fold", "step", "rules"),
    [
        (FOLDED, REDUCED, set()),
        (FOLDED.replace("  a =", "  g = all-reduce avg(g) over dp\n  a ="), "", set()),
        (FOLDED.replace("mul(g, 0.1)", "own_kernel(g)"), "", set()),
        (FOLDED, "", {"missing-gradient-reduction"}),
    ],
)
def test_moments_that_gradients_are_folded_into_are_reduced(fold: str, step: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(MOMENTS.format(fold=fold, step=step))} == rules


CODES = """weight w f32[16,8]
input x f32[4,8]
buffer s f32[1]
output a
program
  {first}
  u: f32[4,8] = to(q, "f32")
  {then}
"""
QUANTISED = "q: f8e4m3[4,8] = quantize(x, s)"
CAST = 'y = div(x, s)\n  q: f8e4m3[4,8] = to(y, "f8e4m3")'


@pytest.mark.parametrize("first", [QUANTISED, CAST])
@pytest.mark.parametrize(
    ("then", "rules"),
    [
        ("h = linear(u, w)\n  a = gelu(h)", {"scale-never-undone"}),
        ("h = linear(u, w)\n  r = view(h, [64])\n  a = softmax(r, dim=0)", {"scale-never-undone"}),
        ("h = linear(u, w)\n  d = mul(h, s)\n  a = gelu(d)", set()),
        ("d = mul(u, s)\n  h = linear(d, w)\n  a = gelu(h)", set()),
        ("h = linear(u, w)\n  r = relu(h)\n  a = mul(r, s)", set()),
        ("v = mul(w, s)\n  h = linear(u, v)\n  a = gelu(h)", set()),
        ("h = own_linear(u, w)\n  a = gelu(h)", set()),
        ("a = linear(u, w)", set()),
    ],
)
def test_codes_are_taken_back_before_what_is_not_linear(first: str, then: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(CODES.format(first=first, then=then))} == rules


def test_a_gradient_that_segments_add_to_is_there_for_the_step() -> None:
    text = """micro-batches 2
weight w f32[8,8]
input x f32[4,8]
loss l
segment f forward (x) -> (h, l, s)
  h = linear(x, w)
  l: f32[] = sum(h)
  s = mul(l, 1024)
segment b backward (x, h, l, s) -> ()
  dl = backward s (grad(s))
  dh = backward l (dl)
  _, grad(w) = backward h (dh)
segment o optimizer () -> ()
  GRADIENT = div(GRADIENT, 1024)
  update w
program
  run f micro-batch 0-1
  run b micro-batch 0-1
  run o
"""
    assert [finding.rule for finding in findings_of_text(text.replace("GRADIENT", "grad(w)"))] == []
    assert "use-before-definition" in [finding.rule for finding in findings_of_text(text.replace("GRADIENT", "dw"))]


CLIPPED = """mesh dp=2
weight w f32[8,8]
weight u f32[8,8]
state m f32[8,8]
state n f32[8,8]
state s f32[]
input x f32[8,8] dp:S(0)
loss l
program
  h = linear(x, w)
  y = linear(h, u)
  l: f32[] = mean(y)
  ls = mul(l, 4096.0)
  dl = backward ls (grad(ls))
  dy = backward l (dl)
  dh, gu = backward y (dy)
  _, gw = backward h (dh)
  ru = all-reduce avg(gu) over dp
  rw = all-reduce avg(gw) over dp
  {}
  qu = mul(eu, eu)
  qw = mul(ew, ew)
  nu = sum(qu)
  nw = sum(qw)
  q = add(nu, nw)
  norm = sqrt(q)
  c0 = div(1.0, norm)
  c = clamp(c0, max=1.0)
  {}
"""
UNSCALED = "eu = div(ru, 4096.0)\n  ew = div(rw, 4096.0)"
STEPPED = "momentum_step(u!, cu, n!)\n  momentum_step(w!, cw, m!)"


@pytest.mark.parametrize(
    ("unscale", "clip", "rules"),
    [
        (UNSCALED, f"cu = mul(eu, c)\n  cw = mul(ew, c)\n  {STEPPED}", set()),
        (UNSCALED, f"cu = div(eu, norm)\n  cw = div(ew, norm)\n  {STEPPED}", set()),
        ("eu = identity(ru)\n  ew = identity(rw)", f"cu = mul(eu, s)\n  cw = mul(ew, s)\n  {STEPPED}", set()),
        ("eu = identity(ru)\n  ew = identity(rw)", f"cu = mul(eu, c)\n  cw = mul(ew, c)\n  {STEPPED}", set()),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = mul(rw, c)\n  {STEPPED}", {"wrong-gradient-scale"}),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = linear(rw, eu)\n  {STEPPED}", set()),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = linear(rw, w)\n  {STEPPED}", {"wrong-gradient-scale"}),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = linear(ew, w)\n  {STEPPED}", set()),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = softmax(rw, dim=-1)\n  {STEPPED}", set()),
        (
            UNSCALED.replace("rw, 4096.0", "rw, 2048.0"),
            f"cu = mul(eu, c)\n  cw = mul(ew, c)\n  {STEPPED}",
            {"wrong-gradient-scale"},
        ),
        (UNSCALED, f"cu = mul(eu, c)\n  cw = mul(eu, c)\n  {STEPPED}", {"gradient-of-another-tensor"}),
    ],
)
def test_what_a_gradient_is_clipped_with_is_no_scale_of_the_loss(unscale: str, clip: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(CLIPPED.format(unscale, clip))} == rules


ACCUMULATED = """mesh dp=2
micro-batches {}
weight w f32[8,8] dp:S(0)
weight u f32[8,8] dp:S(0)
input x f32[24,8] dp:S(0)
loss l
segment forth forward (x) -> (h, y, l, ls, f, g)
  f = all-gather(w, dim=0) over dp
  g = all-gather(u, dim=0) over dp
  h = linear(x, f)
  y = linear(h, g)
  l: f32[] = mean(y)
  ls = div(l, {})
segment back backward mirror forth (x, h, y, l, ls, f, g) -> ()
  dl = backward ls (grad(ls))
  dy = backward l (dl)
  dh, dg = backward y (dy)
  _, df = backward h (dh)
  grad(u) = reduce-scatter {}(dg, dim=0) over dp
  grad(w) = reduce-scatter {}(df, dim=0) over dp
program
  run forth micro-batch 0-{}
  run back micro-batch 0-{}
  update w, u
"""


@pytest.mark.parametrize(
    ("batches", "by", "one", "other", "times"),
    [
        (2, 2, "avg", "avg", []),
        (3, 3, "avg", "avg", []),
        (3, 1, "avg", "avg", ["3 times", "3 times"]),
        (2, 4, "sum", "sum", []),
        (3, 2, "sum", "sum", []),
        (2, 2, "sum", "sum", ["2 times", "2 times"]),
        (3, 3, "avg", "sum", ["2 times"]),
        (3, 6, "sum", "avg", ["1/2 of"]),
    ],
)  # fmt: skip
def test_gradients_are_divided_for_micro_batches_and_ranks(
    batches: int, by: int, one: str, other: str, times: list[str]
) -> None:
    found = findings_of_text(ACCUMULATED.format(batches, by, one, other, batches - 1, batches - 1))
    assert [finding.rule for finding in found] == ["wrong-gradient-scale"] * len(times)
    assert all(said in finding.message for said, finding in zip(times, found, strict=True))


ZERO1 = """mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
{programs}"""
ONE_OF_ZERO1 = """program dp={rank}
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  s: f32[4,8] = reduce-scatter(g, dim=0) over dp
  o: f32[4,8] = narrow(w, 0, {low}, 4)
  t = mul(s, 0.1)
  n: f32[4,8] = sub(o, t)
  {whole}
  copy_(w!, f)
"""
GATHERED = "f: f32[8,8] = all-gather(n, dim=0) over dp"
STALE = ("f = cat([n, {other}], dim=0)", "f = cat([{other}, n], dim=0)")


@pytest.mark.parametrize("is_gathered", [True, False])
def test_a_step_on_a_shard_is_gathered_before_it_takes_the_place_of_the_weight(is_gathered: bool) -> None:
    programs = ""
    for rank in (0, 1):
        stale = f"r: f32[4,8] = narrow(w, 0, {4 - 4 * rank}, 4)\n  " + STALE[rank].format(other="r")
        programs += ONE_OF_ZERO1.format(rank=rank, low=4 * rank, whole=GATHERED if is_gathered else stale)
    found = findings_of_text(ZERO1.format(programs=programs))
    assert [(finding.rule, finding.about[:1]) for finding in found] == ([] if is_gathered else [("divergent-replicas", ("w",))])


COPIED = """mesh dp=2
weight w f32[8,8]
state s f32[8,8] {placed}
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  {copied}
"""
STEPPED = "t = mul(g, 0.1)\n  n = sub(w, t)\n  copy_(w!, n)"


@pytest.mark.parametrize(
    ("placed", "copied", "names"),
    [
        ("dp:P", "n = add(s, g)\n  copy_(s!, n)", []),
        ("", "n = mul(g, 2.0)\n  copy_(s!, n)", ["s"]),
        ("", "t = mul(g, 0.1)\n  n = sub(w, t)\n  m = mul(n, 0.5)\n  copy_(w!, m)\n  w = all-reduce(w) over dp", []),
        ("", f"{STEPPED}\n  a = all-reduce(w) over dp\n  b = mul(a, 0.5)\n  w = identity(b)", []),
        ("", STEPPED, []),
    ],
)
def test_addends_and_weights_that_are_averaged_after_the_step_may_differ(placed: str, copied: str, names: list[str]) -> None:
    found = findings_of_text(COPIED.format(placed=placed, copied=copied))
    assert [finding.about[0] for finding in found if finding.rule == "divergent-replicas"] == names
    unreduced = [finding for finding in found if finding.rule == "missing-gradient-reduction"]
    assert len(unreduced) == copied.endswith("copy_(w!, n)")


@pytest.mark.parametrize(("weight", "names"), [("", ["adam_step"]), ("of e", [])])
@pytest.mark.parametrize(("state", "stepped"), [("head", "e"), ("e", "head")])
def test_a_state_of_a_tied_weight_is_one_of_the_weight(weight: str, state: str, stepped: str, names: list[str]) -> None:
    tied = f"weight e f32[8,8]\nweight head f32[8,8] {weight}\nstate m f32[8,8] of {state}\nprogram\n"
    found = findings_of_text(f"{tied}  adam_step({stepped}!, grad({stepped}), m!)\n")
    told = [finding.message for finding in found if finding.rule == "state-of-another-shard"]
    assert [message.split("`")[1] for message in told] == names


REDUCED = """mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
{}
  update w
"""


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        ("  grad(w) = all-reduce(g) over dp", set()),
        ("  grad(w) = all-reduce max(g) over dp", {"wrong-reduce-op"}),
        ("  f = reshape(g, [64])\n  r = all-reduce max(f) over dp\n  grad(w) = reshape(r, [8,8])", {"wrong-reduce-op"}),
        ("  grad(w) = identity(g)\n  reduce-gradients w over dp", set()),
        ("  grad(w) = identity(g)\n  reduce-gradients w over dp by max", {"wrong-reduce-op"}),
        ("  s = all-reduce(g) over dp\n  m = amax(s)\n  n = all-reduce max(m) over dp\n  grad(w) = div(s, n)", set()),
    ],
)
def test_gradients_of_ranks_are_added_and_not_compared(steps: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(REDUCED.format(steps))} == rules


SCALED_AND_CLIPPED = """mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[4,8]
loss l f32[] tp:P
program
  h = linear(x, w)
  l = sum(h)
  z = mul(l, 1024.0)
  dz = backward z (grad(z))
  dl = backward l (dz)
  _, g0 = backward h (dl)
  g = mul(g0, {before})
  q = mul(g, g)
  s = sum(q)
  t = all-reduce(s) over tp
  n = sqrt(t)
  c = clamp(n, min={least})
  k = div(g, c)
  grad(w) = mul(k, {after})
  update w
"""


@pytest.mark.parametrize(
    ("before", "least", "after", "rules"),
    [
        ("0.0009765625", "1.0", "1.0", set()),
        ("1.0", "1024.0", "0.0009765625", set()),
        ("1.0", "1.0", "0.0009765625", {"wrong-gradient-scale"}),
    ],
)
def test_gradients_are_clipped_without_the_loss_scale(before: str, least: str, after: str, rules: set[str]) -> None:
    text = SCALED_AND_CLIPPED.format(before=before, least=least, after=after)
    assert {finding.rule for finding in findings_of_text(text)} == rules


PASSED_ON = """weight a f32[8,8]
weight b f32[8,8]
input x f32[4,8]
loss l f32[]
program
  h = linear(x, a)
  p, q = nnscaler.runtime.function.multiref(h, 2)
  u = linear(p, b)
  y = add(u, q)
  l = sum(y)
  dy = backward l (grad(l))
  {outer} = backward y (dy)
  {inner}, grad(b) = backward u (du)
  dh = backward p ({given})
  _, grad(a) = backward h (dh)
  update a, b
"""


@pytest.mark.parametrize(
    ("outer", "inner", "given", "rules"),
    [
        ("du, dq", "dp", "dp, dq", set()),
        ("du, dq", "_", "dp, dq", {"use-before-definition"}),
        ("du, _", "dp", "dp, dq", {"use-before-definition"}),
        ("du, dq", "dp", "_, _", {"use-before-definition"}),
    ],
)
def test_backward_goes_on_with_what_it_is_given(outer: str, inner: str, given: str, rules: set[str]) -> None:
    text = PASSED_ON.format(outer=outer, inner=inner, given=given)
    assert {finding.rule for finding in findings_of_text(text)} == rules


def test_gradients_that_are_added_up_are_reduced_with_the_last_micro_batch() -> None:
    text = STEPS.format("  update w, u").replace("h, y) -> ()", "h, y) -> (grad(u), grad(w))")
    text = text.replace("end reduce () -> ()", "end reduce (grad(u), grad(w)) -> ()").replace(
        "run end", "run end micro-batch 1"
    )
    assert "grad(w)) -> ()" in text
    assert findings_of_text(text) == []


def test_a_shard_whose_gradient_is_made_of_a_part_of_a_sum_is_told_what_to_sum() -> None:
    """Summing the gradients of shards would add up different slices; what they are made of is to be summed."""
    found = findings_of_text(
        """mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
weight v f32[16,8] tp:S(0)
input x f32[8,8]
input dz f32[8,16] tp:S(1)
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  z = linear(y, v)
  dy, grad(v) = backward z (dz)
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  update w1, w2, v
"""
    )
    assert [(each.rule, each.help) for each in found] == [
        ("missing-gradient-reduction", "sum `dy` over `tp` before it goes further back")
    ] * 2


COLUMNS = """
mesh tp=2
weight v f32[8,8]
weight w f32[8,8]
weight a f32[16,8] tp:S(0)
input x f32[4,8]
input du f32[4,16] tp:S(1)
program
  y = linear(x, v)
  z = linear(y, w)
  u = linear(z, a)
  ez, grad(a) = backward u (du)
  dz = all-reduce(ez) over tp
  dy, grad(w) = backward z (dz)
  _, grad(v) = backward y (dy)
  update v, w, a
"""


def test_weights_that_are_updated_with_parts_of_one_sum_are_one_mistake_where_it_starts() -> None:
    assert findings_of_text(COLUMNS) == []
    (found,) = findings_of_text(COLUMNS.replace("all-reduce(ez) over tp", "identity(ez)"))
    assert (found.rule, found.location.line) == ("missing-gradient-reduction", 12)
    assert found.message == "`v` (and 1 more) is updated with a gradient that is made of `ez`, a partial value over `tp`"


AVERAGED_LATER = """mesh dp=2
micro-batches 4
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
segment forth forward (x) -> (h, y, e, l, s)
  h = linear(x, u)
  y = linear(h, w)
  e: f32[] = mean(y)
  l = div(e, 4)
  s = mul(l, 1024.0)
segment back backward (x, h, y, e, l, s) -> ()
  dl = backward s (grad(s))
  de = backward l (dl)
  dy = backward e (de)
  dh, grad(w) = backward y (dy)
  _, grad(u) = backward h (dh)
segment reduced reduce () -> ()
  reduce-gradients u over dp by avg
  reduce-gradients w over dp {}
segment stepped optimizer () -> ()
  grad(w) = div(grad(w), 1024.0)
  grad(u) = div(grad(u), 1024.0)
  update w, u
program
  run forth micro-batch 0-3
  run back micro-batch 0-3
  run reduced
  run stepped
"""


@pytest.mark.parametrize(("how", "times"), [("", "2 times"), ("by avg divide 4", "1/4 of"), ("by avg divide 2", "1/2 of")])
def test_a_gradient_that_is_too_much_is_said_where_the_reduction_makes_it_so(how: str, times: str) -> None:
    (found,) = findings_of_text(AVERAGED_LATER.format(how))
    assert (found.rule, found.location.text.strip()) == ("wrong-gradient-scale", f"reduce-gradients w over dp {how}".strip())
    assert found.message.startswith(f"`w` is updated with {times} the gradient of the mean loss")


def test_gradients_that_add_up_and_are_averaged_over_ranks_are_those_of_the_mean() -> None:
    assert not findings_of_text(AVERAGED_LATER.format("by avg"))


def test_sums_that_the_loop_around_a_plan_may_add_up_are_one_warning_for_each_axis() -> None:
    layers = "".join(f"  h{n + 1} = linear(h{n}, w{n})\n" for n in range(4))
    back = "".join(f"  d{n}, grad(w{n}) = backward h{n + 1} (d{n + 1})\n" for n in reversed(range(4)))
    weights = "".join(f"weight w{n} f32[8,8]\n" for n in range(4))
    text = (
        f"mesh dp=2\n{weights}input h0 f32[4,8] dp:S(0)\nloss l\nprogram\n{layers}  s = sum(h4)\n  l = all-reduce(s) over dp\n"
    )
    (found,) = findings_of_text(f"{text}  d4 = backward s (grad(l))\n{back}".replace("d0, grad(w0)", "_, grad(w0)"))
    assert (found.rule, found.severity) == ("missing-gradient-reduction", Severity.WARNING)
    assert "(and 3 more), is a partial value over `dp` where the plan ends" in found.message


PACKED = """mesh dp=2
weight w f32[8,8]
weight v f32[8,8]
state m f32[128] dp:S(0)
state u f32[128] dp:S(0)
input x f32[8,8] dp:S(0)
loss l f32[]
program
  h = linear(x, w)
  y = linear(h, v)
  s: f32[] = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dh, gv = backward y (dy)
  _, gw = backward h (dh)
  fw = view(gw, [64])
  fv = view(gv, [64])
  b = cat([fw, fv])
  g = reduce-scatter(b, dim=0) over dp
  pw = view(w, [64])
  pv = view(v, [64])
  pb = cat([{}])
  po = chunk(pb, dim=0) over dp
  adam_step(po!, g, m!, u!, lr=0.1)
  pn = all-gather(po, dim=0) over dp
  {} = split(pn, 64)
  w = view(nw, [8,8])
  v = view(nv, [8,8])
"""


@pytest.mark.parametrize(
    ("packed", "taken", "said"),
    [
        ("pw, pv", "nw, nv", set()),
        ("pv, pw", "nw, nv", {"its own gradient and the weight `v`", "its own gradient and the weight `w`"}),
        ("pw, pv", "nv, nw", {"the gradient of `v`", "the gradient of `w`"}),
    ],
)
def test_weights_are_packed_in_the_order_of_their_gradients(packed: str, taken: str, said: set[str]) -> None:
    found = [each.message for each in findings_of_text(PACKED.format(packed, taken))]
    assert {message.partition("what is made of ")[2] for message in found} == said


MASTER = """mesh dp=2
weight w bf16[8,8]
weight u bf16[8,8] frozen
state m f32[8,8]
state v f32[8,8]
input x bf16[4,8] dp:S(0)
output y
program
{}
  h = linear(x, w)
  y = linear(h, u)
  gh, _ = backward y (grad(y))
  _, gw = backward h (gh)
  t: f32[8,8] = to(gw, "f32")
  r = all-reduce(t) over dp
{}
"""
BACK = '  b: bf16[8,8] = to(m, "bf16")\n  copy_(w!, b)\n'
STEPPED = {
    "subtracted": "  s = mul(r, 0.1)\n  sub_(m!, s)\n",
    "with decay": "  s = mul(r, 0.1)\n  k = mul(m, 0.99)\n  m = sub(k, s)\n",
    "added, negated": "  s = mul(r, -0.1)\n  add_(m!, s)\n",
    "by a kernel": "  adam_step(m!, r, v!, v!)\n".replace("v!, v!", "v!, n!"),
    "by Adam": "  v9 = mul(v, 0.9)\n  v = add(v9, r)\n  d = div(v, 4)\n  s = mul(d, 0.1)\n  sub_(m!, s)\n",
}


def spoken_of(steps: str, before: str = "", **changed: str) -> set[str]:
    text = MASTER.replace("state v f32[8,8]", "state v f32[8,8]\nstate n f32[8,8]").format(before, steps)
    for old, new in changed.items():
        text = text.replace(old, new)
    return {finding.rule for finding in findings_of_text(text) if finding.rule == "weight-never-updated"}


@pytest.mark.parametrize("steps", STEPPED.values(), ids=STEPPED)
def test_a_master_copy_that_is_put_nowhere_is_found(steps: str) -> None:
    assert spoken_of(steps) == {"weight-never-updated"}
    assert spoken_of(steps + BACK) == set()
    assert spoken_of(steps, BACK) == set()
    assert spoken_of(steps + "  g = all-gather(m, dim=0) over dp\n  w = all-to-all(m, dim=0) over dp") == set()


@pytest.mark.parametrize(
    ("steps", "changed"),
    [
        ("  m = add(m, r)\n", {}),
        ("  k = mul(m, 0.9)\n  m = add(k, r)\n", {}),
        ("  s = sub(r, m)\n  m = mul(s, 0.5)\n", {}),
        (STEPPED["subtracted"] + "  z = mul(m, 1.0)\n", {"output y": "output y\noutput z"}),
        (STEPPED["subtracted"], {"weight w bf16[8,8]": "weight w bf16[8,8] frozen"}),
        ("  q = pow(r, 2)\n  c: f32[] = sum(q)\n  e = mul(r, c)\n  m = add(m, e)\n", {}),
        ("  sub_(m!, x)\n", {}),
        ("  sub_(m!)\n", {}),
    ],
)
def test_states_that_are_no_master_copies_are_right(steps: str, changed: dict[str, str]) -> None:
    assert spoken_of(steps, **changed) == set()


def test_a_weight_that_is_gathered_from_its_stepped_shard_is_updated() -> None:
    text = """mesh dp=2
weight w f32[8,8]
weight b f32[8]
state m f32[8,8] dp:S(0)
state v f32[8,8] dp:S(0)
input x f32[4,8] dp:S(0)
input dy f32[4,8] dp:S(0)
program
  y = linear(x, w, b)
  _, grad(w), grad(b) = backward y (dy)
  g = reduce-scatter avg(grad(w), dim=0) over dp
  s = chunk(w, dim=0) over dp
  adam_step(s!, g, m!, v!, lr=0.001)
  w = all-gather(s, dim=0) over dp
  reduce-gradients b over dp by avg
  update b
"""
    assert {finding.rule for finding in findings_of_text(text)} == set()
