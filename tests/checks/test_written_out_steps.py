"""What a step that is written out puts in the place of weights, states and buffers, and when."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text, rules_of_text

STEP = """mesh dp=2
weight a f32[8,8]
weight b f32[8,8]
state ma f32[8,8] replicated of a
state mb f32[8,8] replicated of b
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, a)
  y = linear(h, b)
  l = sum(y)
  dy = backward l (grad(l))
  dh, gb = backward y (dy)
  _, ga = backward h (dh)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  ta = mul(ra, 0.1)
  tb = mul(rb, 0.1)
"""


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        ("  na = sub(a, ta)\n  nb = sub(b, tb)\n  copy_(a!, na)\n  copy_(b!, nb)", set()),
        ("  na = sub(a, ta)\n  nb = identity(b)\n  copy_(a!, na)\n  copy_(b!, nb)", {"step-without-effect"}),
        ("  na = sub(a, ta)\n  nb = sub(b, tb)\n  copy_(a!, na)\n  copy_(b!, nb)\n  c = identity(b)\n  copy_(b!, c)", set()),
        ("  sub_(a!, ta)\n  sub_(b!, tb)", set()),
        ("  na = add(ma, ta)\n  copy_(ma!, na)\n  nb = add(mb, tb)\n  copy_(mb!, nb)", set()),
        ("  na = add(ma, tb)\n  copy_(ma!, na)", {"state-of-another-shard"}),
        ("  na = add(mb, ta)\n  copy_(ma!, na)", {"state-of-another-shard"}),
        ("  na = add(ma, ta)\n  d = sub(na, mb)\n  copy_(ma!, d)", set()),
    ],
)
def test_a_step_changes_weights_and_the_states_of_each(steps: str, rules: set[str]) -> None:
    assert rules_of_text(STEP + steps) == rules


MASTERS = "  na = sub(ma, ta)\n  nb = sub(mb, tb)\n  copy_(ma!, na)\n  copy_(mb!, nb)\n"
COPIED = "  copy_(a!, ma)\n  copy_(b!, mb)\n"


def test_weights_are_copied_from_masters_before_the_step_or_after_it() -> None:
    assert rules_of_text(STEP.replace("program\n", "program\n" + COPIED) + MASTERS) == set()
    assert rules_of_text(STEP + MASTERS + COPIED) == set()
    assert rules_of_text(STEP + COPIED + MASTERS) == {"step-without-effect"}


def test_a_count_of_steps_is_of_no_weight() -> None:
    counts = STEP.replace("input x", "state ca f32[] replicated of a\nstate cb f32[] replicated of b\ninput x")
    step = "  n = add(ca, 1)\n  copy_(ca!, n)\n  copy_(cb!, n)\n  sub_(a!, ta)\n  sub_(b!, tb)"
    assert rules_of_text(counts + step) == set()


BACKWARD = """mesh dp=2
weight a f32[8,8]
weight b f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, a)
  y = linear(h, b)
  l = sum(y)
  dy = backward l (grad(l))
  _, gb = backward y (dy)
  grad(b) = all-reduce(gb) over dp
{}
  _, ga = backward h (dh)
  grad(a) = all-reduce(ga) over dp
  update a
"""


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        ("  dh = matmul(dy, b)\n  update b", set()),
        ("  old = clone(b)\n  update b\n  dh = matmul(dy, old)", set()),
        ("  update b\n  dh = matmul(dy, b)", {"updated-before-backward"}),
        ("  update b\n  dh, _ = backward (dy) of z = linear(h, b)", {"gradient-left-out", "updated-before-backward"}),
        ("  t = mul(grad(b), 0.1)\n  sub_(b!, t)\n  dh = matmul(dy, b)", {"updated-before-backward"}),
    ],
)
def test_gradients_are_made_with_the_weights_of_the_forward_pass(steps: str, rules: set[str]) -> None:
    assert rules_of_text(BACKWARD.format(steps)) == rules


def test_a_second_forward_pass_takes_the_new_weights() -> None:
    again = "  x1 = linear(x, a)\n  y1 = linear(x1, b)\n  k = sum(y1)\n"
    text = BACKWARD.format("  dh = matmul(dy, b)\n  update b").replace(
        "loss l f32[] dp:P\n", "loss l f32[] dp:P\nloss k f32[] dp:P\n"
    )
    assert rules_of_text(text + again) == set()


NORM = """mesh dp=2
buffer mean f32[8]
input x f32[8,8] dp:S(0)
output y f32[8,8] dp:S(0)
program
  s = sum(x, dim=0)
  S = all-reduce(s) over dp
  m = div(S, 8)
  y = sub(x, m)
  own = mean(x, dim=0)
  old = mul(mean, 0.9)
  new = mul({}, 0.1)
  n = add(old, new)
  copy_(mean!, n)
"""


def test_running_statistics_are_those_that_normalise() -> None:
    assert rules_of_text(NORM.format("m")) == set()
    assert rules_of_text(NORM.format("own")) == {"divergent-replicas"}


def test_a_buffer_of_addends_takes_the_statistics_of_a_rank() -> None:
    added = NORM.format("own").replace("f32[8]\n", "f32[8] dp:P\n").replace("  own = mean(x, dim=0)", "  own = identity(s)")
    assert rules_of_text(added) == set()


def test_ranks_that_normalise_by_their_own_statistics_keep_those() -> None:
    assert rules_of_text(NORM.format("own").replace("S = all-reduce(s) over dp\n  m = div(S, 8)", "m = div(s, 4)")) == set()


FEEDBACK = """mesh dp=2
weight w f32[8,8]
state e f32[8,8] dp:P
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  c = add(g, e)
  k: bf16[8,8] = to(c, "bf16")
  f: f32[8,8] = to(k, "f32")
  r = all-reduce(f) over dp
  n = sub({}, f)
  copy_(e!, n)
  s = mul(r, 0.1)
  v = sub(w, s)
  copy_(w!, v)
"""


def test_what_a_rank_keeps_for_later_is_of_its_own_addend() -> None:
    assert rules_of_text(FEEDBACK.format("c")) == set()
    assert rules_of_text(FEEDBACK.format("r")) == {"missing-allreduce"}


WAYS = (
    "  a = sub(a, ta)\n  b = sub(b, tb)\n",
    "  sub_(a!, ta)\n  sub_(b!, tb)\n",
    "  na = sub(a, ta)\n  b = sub(b, tb)\n  a = identity(na)\n",
)


@pytest.mark.parametrize("steps", WAYS)
def test_a_step_with_a_part_of_a_gradient_is_found_however_it_is_written(steps: str) -> None:
    assert rules_of_text(STEP + steps) == set()
    text = (STEP + steps).replace("  rb = all-reduce(gb) over dp\n", "").replace("mul(rb, 0.1)", "mul(gb, 0.1)")
    (finding,) = findings_of_text(text)
    assert finding.rule == "missing-gradient-reduction"
    assert finding.message == "`b` is updated with `gb`, which is a partial value over `dp`"
    assert finding.location.line is not None
    assert text.splitlines()[finding.location.line - 1] in ("  b = sub(b, tb)", "  sub_(b!, tb)")


SHARDED = """mesh dp=2
weight a f32[8,8] dp:S(0)
weight b f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
program
  fa = all-gather(a, dim=0) over dp
  h = linear(x, fa)
  y = linear(h, b)
  s: f32[] = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dh, gb = backward y (dy)
  _, dfa = backward h (dh)
  ra = reduce-scatter(dfa, dim=0) over dp
  rb = all-reduce(gb) over dp
  ta = mul(ra, 0.1)
  tb = mul(rb, 0.1)
  sub_(a!, ta)
  sub_(b!, tb)
"""


def test_a_weight_that_no_step_changes_is_found_beside_one_that_is_stepped_through_its_shards() -> None:
    assert rules_of_text(SHARDED) == set()
    (finding,) = findings_of_text(SHARDED.replace("  sub_(b!, tb)\n", ""))
    assert finding.rule == "weight-never-updated"
    assert "`b` gets a gradient" in finding.message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("ra = reduce-scatter(dfa, dim=0)", "ra = reduce-scatter(dfa, dim=1)"), ("sub_(a!, ta)", "sub_(a!, tb)")],
)
def test_a_step_in_place_takes_what_has_the_shape_of_the_weight(right: str, wrong: str) -> None:
    assert "shape-mismatch" in rules_of_text(SHARDED.replace(right, wrong))


FITTING = """weight w f32[4,8]
input d f32[8]
input e f32[1,8]
input z f32[]
program
  sub_(w!, d)
  add_(w!, e, alpha=0.1)
  mul_(w!, z)
  div_(w!, 2)
"""


def test_what_is_stretched_to_the_shape_of_the_overwritten_fits() -> None:
    assert "shape-mismatch" not in rules_of_text(FITTING)
    for wrong in ("input d f32[2,4,8]", "input d f32[4]"):
        assert "shape-mismatch" in rules_of_text(FITTING.replace("input d f32[8]", wrong))


TIED = """weight e f32[16,8]
weight head f32[16,8] {tied}
weight w f32[8,8]
input x i64[4]
input t i64[4]
loss l f32[]
program
  a = embedding(x, e)
  b = linear(a, w)
  c = linear(b, head)
  l: f32[] = cross_entropy(c, t)
  dc, _ = backward l (grad(l))
  db, gh = backward c (dc)
  da, gw = backward b (db)
  _, ge = backward a (da)
  g = add(gh, ge)
  de = mul(g, 0.1)
  dw = mul(gw, 0.1)
  w = sub(w, dw)
"""


@pytest.mark.parametrize(
    ("tied", "step", "rules"),
    [
        ("storage e", "sub_(e!, de)", set()),
        ("storage e", "", {"weight-never-updated"}),
        ("of e", "sub_(e!, de)", {"weight-never-updated"}),
        ("of e", "sub_(e!, de)\n  sub_(head!, de)", set()),
    ],
)
def test_a_weight_is_stepped_with_the_one_whose_memory_it_is(tied: str, step: str, rules: set[str]) -> None:
    assert rules_of_text(f"{TIED.format(tied=tied)}  {step}\n") == rules
