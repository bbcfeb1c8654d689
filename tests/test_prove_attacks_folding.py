"""Plans that go wrong where a derivation of one micro-batch, one replica and one name for a value does not look."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.certificates import certified, forged, objection
from tests.test_prove_attention import plans
from tests.test_prove_text_plans import verdict_on
from tvlint.findings import Outcome


def not_proved(text: str, reference: str) -> None:
    """The plan is neither proved nor certified, whoever writes the certificate."""
    assert verdict_on(text, reference).outcome is not Outcome.PROVED
    parallel, alone = plans(text, reference)
    own = forged(parallel, alone)
    assert own is None or objection(own, parallel, alone)


def proved(text: str, reference: str) -> None:
    """The plan is proved and certified."""
    assert verdict_on(text, reference).outcome is Outcome.PROVED
    parallel, alone = plans(text, reference)
    own = certified(parallel, alone)
    assert own is not None
    assert objection(own, parallel, alone) == ""


TWO_LAYERS = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

IN_SEGMENTS = """
micro-batches 2
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
input x0 f32[4,8] of x
input x1 f32[4,8] of x
tensor g f32[4,8]
tensor g0 f32[4,8]
tensor g1 f32[4,8]
tensor p f32[4,8]
tensor l f32[]
output l0 f32[]
output l1 f32[]
segment load data () -> (x)
  x = load()
segment one forward (x) -> (g)
  y = linear(x, w)
  g = gelu(y)
segment two forward (g) -> (l)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment pass optimizer (g) -> (g)
  record e
segment back backward () -> ()
  dq = backward l (grad(l0))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run load micro-batch 0 () -> (x0)
  run load micro-batch 1 () -> (x1)
  run one micro-batch 0 (x0) -> (g0)
  run one micro-batch 1 (x1) -> (g1)
  run two micro-batch 0 (g0) -> (l0)
  run two micro-batch 1 (g1) -> (l1)
  run back micro-batch 0 () -> ()
  run back micro-batch 1 () -> ()
"""


def test_micro_batches_under_names_of_their_own_are_proved() -> None:
    proved(IN_SEGMENTS, TWO_LAYERS)


@pytest.mark.parametrize("batch", ["", "micro-batch 0 "])
def test_a_value_of_one_micro_batch_does_not_reach_others_through_a_run_of_none(batch: str) -> None:
    text = IN_SEGMENTS.replace("(g0) -> (l0)", "(p) -> (l0)").replace("(g1) -> (l1)", "(p) -> (l1)")
    text = text.replace("  run two micro-batch 0", f"  run pass {batch}(g0) -> (p)\n  run two micro-batch 0")
    assert compare(*plans(TWO_LAYERS, text)).outcome == "different"
    not_proved(text, TWO_LAYERS)


def test_a_weight_is_not_bound_to_what_nothing_makes() -> None:
    text = IN_SEGMENTS.replace("one forward (x) ->", "one forward (x, w) ->").replace("(x0) -> (g0)", "(x0, w) -> (g0)")
    proved(text.replace("(x1) -> (g1)", "(x1, w) -> (g1)"), TWO_LAYERS)
    not_proved(text.replace("(x1) -> (g1)", "(x1, nothing) -> (g1)"), TWO_LAYERS)


def test_a_gradient_is_not_given_the_name_of_that_of_another_weight() -> None:
    text = IN_SEGMENTS.replace("back backward () -> ()", "back backward () -> (grad(v), grad(w))")
    right = text.replace("run back micro-batch 0 () -> ()", "run back micro-batch 0 () -> (grad(v), grad(w))")
    not_proved(right.replace("run back micro-batch 1 () -> ()", "run back micro-batch 1 () -> (grad(w), grad(v))"), TWO_LAYERS)


SCALED = """
weight w f32[8,8]
input x f32[8,8]
input t f32[8,8]
loss l
program
  y = linear(x, w)
  s = mul(t, 2.0)
  q = mul(y, s)
  l = sum(q)
  dq = backward l (grad(l))
  dy, _ = backward q (dq)
  _, grad(w) = backward y (dy)
"""

MADE_TWICE = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
input t f32[4,8]
tensor s f32[4,8]
loss l
segment other forward () -> (s)
  s = mul(t, 3.0)
segment right forward () -> (s)
  s = mul(t, 2.0)
segment two forward (s) -> (l)
  y = linear(x, w)
  q = mul(y, s)
  l = sum(q)
segment back backward () -> ()
  dq = backward l (grad(l))
  dy, _ = backward q (dq)
  _, grad(w) = backward y (dy)
program
  run other micro-batch 0
  run right micro-batch 0
  run two micro-batch 0
  run back micro-batch 0
"""


@pytest.mark.parametrize(("order", "right"), [(("other", "right"), True), (("right", "other"), False)])
def test_what_is_made_last_is_what_is_read(order: tuple[str, str], right: bool) -> None:
    text = MADE_TWICE + "".join(f"  run {name} micro-batch 1\n" for name in (*order, "two", "back"))
    assert (compare(*plans(SCALED, text)).outcome == "equal") == right
    assert (verdict_on(text, SCALED).outcome is Outcome.PROVED) == right
    if not right:
        not_proved(text, SCALED)


KEPT = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  u = gelu(x)
  y = linear(u, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""

REPLACED = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8]
tensor u f32[8,8]
tensor v f32[8,8]
tensor y f32[8,8]
tensor u0 f32[8,8]
tensor p f32[8,8]
loss l f32[]
segment f forward () -> (u, l)
  u = gelu(x)
  y = linear(u, w)
  l = sum(y)
segment g forward (NAME) -> (NAME)
  NAME = all-reduce(NAME) over tp
segment pass forward (u) -> (u)
  record e
segment b backward () -> ()
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
program
  run f () -> (u0, l)
"""


@pytest.mark.parametrize("name", ["u", "v"])
@pytest.mark.parametrize("runs", ["  run g (u0) -> (u0)\n", "  run pass (u0) -> (p)\n  run g (p) -> (p)\n"])
def test_an_operand_is_not_replaced_under_another_name(name: str, runs: str) -> None:
    """The gradient of `w` needs `u` as it was, and the all-reduce puts twice of it there."""
    not_proved(REPLACED.replace("NAME", name) + runs + "  run b () -> ()\n", KEPT)


def test_what_is_replaced_and_not_given_is_not_read_as_it_was() -> None:
    """The all-reduce writes where its operand is, which a run before it holds too."""
    text = REPLACED.replace("(NAME) -> (NAME)", "(v) -> ()").replace("NAME", "v").replace("-> (u, l)\n", "-> (u)\n", 1)
    text = text.replace("  y = linear(u, w)\n  l = sum(y)\n", "", 1).replace("() -> (u0, l)", "() -> (u0)")
    text = text.replace("segment pass", "segment h forward (u) -> (l)\n  y = linear(u, w)\n  l = sum(y)\nsegment pass")
    proved(text + "  run h (u0) -> (l)\n  run b () -> ()\n", KEPT)
    not_proved(text + "  run g (u0) -> ()\n  run h (u0) -> (l)\n  run b () -> ()\n", KEPT)


STAGES = """
mesh pp=2
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
tensor g f32[8,8]
tensor g0 f32[8,8]
tensor p f32[8,8]
loss l f32[]
segment f0 forward () -> (g)
  y = linear(x, w)
  g = gelu(y)
  send g to pp+1
segment b0 backward () -> ()
  recv dg: f32[8,8] from pp+1
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
segment r forward () -> (g)
  recv g from pp-1 async h
segment pass forward (g) -> (g)
  record e
segment f1 forward (g) -> (l)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment done forward () -> ()
  wait h
segment b1 backward () -> ()
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  send dg to pp-1
program pp=0
  run f0
  run b0
program pp=1
  run r () -> (g0)
"""


def test_what_is_under_way_is_not_read_under_another_name() -> None:
    proved(STAGES + "  run done\n  run f1 (g0) -> (l)\n  run b1\n", TWO_LAYERS)
    not_proved(STAGES + "  run f1 (g0) -> (l)\n  run done\n  run b1\n", TWO_LAYERS)
    not_proved(STAGES + "  run pass (g0) -> (p)\n  run f1 (p) -> (l)\n  run done\n  run b1\n", TWO_LAYERS)


ASIDE = (
    STAGES[: STAGES.index("segment r ")]
    + """
segment s forward (NAME) -> ()
  await event on side
  send NAME to pp+1 async k on side
segment done forward () -> ()
  wait k
segment ready forward () -> ()
  record event on main
segment f1 forward () -> (l)
  recv g: f32[8,8] from pp-1
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment b1 backward () -> ()
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  send dg to pp-1
program pp=1
  run f1
  run b1
program pp=0
"""
)


@pytest.mark.parametrize("name", ["g", "p"])
def test_what_another_stream_sends_is_there_under_whatever_name(name: str) -> None:
    text = ASIDE.replace("  send g to pp+1\n", "").replace("NAME", name)
    proved(text + "  run f0 () -> (g0)\n  run ready\n  run s (g0) -> ()\n  run done\n  run b0\n", TWO_LAYERS)
    not_proved(text + "  run ready\n  run f0 () -> (g0)\n  run s (g0) -> ()\n  run done\n  run b0\n", TWO_LAYERS)


USED_TWICE = """
weight w f32[8,8]
input x f32[8,8]
input c f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  k = linear(c, w)
  a = sum(k)
  b = sum(g)
  l = add(a, b)
  da, db = backward l (grad(l))
  dg = backward b (db)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  dk = backward a (da)
  _, grad(w) = backward k (dk)
"""

REDUCED_BETWEEN = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8] tp:S(0)
input c f32[8,8]
loss l f32[]
segment forth forward () -> (l, a, b, b0)
  y = linear(x, w)
  g = gelu(y)
  k = linear(c, w)
  a = sum(k)
  b0 = sum(g)
  b = all-reduce(b0) over tp
  l = add(a, b)
segment back backward (l) -> (da, grad(w))
  da, db = backward l (grad(l))
  dg = backward b0 (db)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
segment whole reduce (grad(w)) -> (grad(w))
  grad(w) = all-reduce(grad(w)) over tp async h
segment more backward (da) -> (grad(w))
  dk = backward a (da)
  _, grad(w) = backward k (dk)
segment done reduce () -> ()
  wait h
program
"""


@pytest.mark.parametrize("batch", ["", " micro-batch 0"])
def test_nothing_is_added_to_a_gradient_under_way_however_its_one_micro_batch_is_called(batch: str) -> None:
    text = REDUCED_BETWEEN + f"  run forth{batch}\n  run back{batch}\n  run whole\n"
    proved(text + f"  run done\n  run more{batch}\n", USED_TWICE)
    not_proved(text + f"  run more{batch}\n  run done\n", USED_TWICE)


ONE_LAYER = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

SHARDED = "mesh dp=2 q=2" + ONE_LAYER.replace("x f32[8,8]", "x f32[8,8] dp:S(0)").replace("  l = sum", "  l0 = sum")
SHARDED = SHARDED.replace("  dg = backward l (", "  l = all-reduce(l0) over dp\n  dg = backward l0 (")
SHARDED += "  reduce-gradients w over dp scatter\n"


@pytest.mark.parametrize(
    ("second", "right"),
    [
        ("", True),
        ("w over q by avg", True),
        ("w over q by avg scatter", True),
        ("w over dp by avg", False),
        ("w over dp by avg scatter", False),
        ("w over dp,q by avg", False),
    ],
)
@pytest.mark.parametrize("folded", [False, True])
def test_shards_of_a_gradient_are_not_added_up_with_other_shards(second: str, right: bool, folded: bool) -> None:
    text = SHARDED + (f"  reduce-gradients {second}\n" if second else "")
    if folded:
        text = text.replace("q=2", "q=2\nreplicate dp").replace("f32[8,8] dp:S(0)", "f32[4,8]")
    (proved if right else not_proved)(text, ONE_LAYER)


@pytest.mark.parametrize("scattered", ["dp", "ranks {pair}"])
def test_shards_of_other_ranks_are_other_shards(scattered: str) -> None:
    """Ranks 0 and 3 have the first and the second shard."""
    head, body = SHARDED.split("program\n")
    for mates, right in (({0: 1, 1: 0, 2: 3, 3: 2}, True), ({0: 3, 3: 0, 1: 2, 2: 1}, False)):
        text = head
        for rank, mate in mates.items():
            own = scattered.format(pair=f"{rank % 2},{rank % 2 + 2}")
            text += f"program ranks {rank}\n" + body.replace("w over dp scatter", f"w over {own} scatter")
            text += f"  reduce-gradients w over ranks {min(rank, mate)},{max(rank, mate)} by avg\n"
        (proved if right else not_proved)(text, ONE_LAYER)


COPIED = ONE_LAYER.replace("  l = sum(g)\n", "  s = sum(g)\n  l = identity(s)\n").replace(
    "  dg = backward l (grad(l))\n", "  ds = backward l (grad(l))\n  dg = backward s (ds)\n"
)


def test_a_gradient_that_is_made_later_is_not_where_gradients_start() -> None:
    text = COPIED.replace(
        "  ds = backward l (grad(l))\n  dg = backward s (ds)\n", "  dg = backward s (ds)\n  ds = backward l (grad(l))\n"
    )
    proved(COPIED, COPIED)
    assert compare(*plans(COPIED, text)).outcome == "different"
    not_proved(text, COPIED)


@pytest.mark.parametrize("call", ["_, grad(w) = backward y (dy)", "dy = all-reduce(dy) over t"])
def test_a_gradient_that_is_made_later_is_not_zero_before(call: str) -> None:
    not_proved("mesh t=1" + ONE_LAYER.replace("  dg = ", f"  {call}\n  dg = "), ONE_LAYER)


def test_a_gradient_that_a_later_run_makes_is_not_where_gradients_start() -> None:
    head, body = COPIED.split("program\n")
    forth, back = body.split("  ds = ")
    first, rest = back.split("\n", 1)
    text = f"{head}tensor y f32[8,8]\ntensor g f32[8,8]\nsegment forth forward () -> (s, l)\n{forth}"
    text += (
        f"segment top backward (l) -> (ds)\n  ds = {first}\nsegment back backward (s, ds) -> ()\n{rest}program\n  run forth\n"
    )
    proved(text + "  run top\n  run back\n", COPIED)
    not_proved(text + "  run back\n  run top\n", COPIED)


PRODUCT = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  a = gelu(y)
  b = tanh(y)
  m = mul(a, b)
  l = sum(m)
  dm = backward l (grad(l))
  da, db = backward m (dm)
  dy = backward a (da)
  dy = backward b (db)
  _, grad(w) = backward y (dy)
"""


def bound(there: str, back: str) -> str:
    """The product in two segments, whose runs bind `a` and `b` to other names."""
    head, body = PRODUCT.split("program\n")
    forth, rest = body.split("  dm = ")
    names = "".join(f"tensor {name} f32[8,8]\n" for name in ("y", "a", "b", "p", "q"))
    text = f"{head}{names}segment forth forward (x) -> (a, b, l)\n{forth}segment back backward (a, b, l) -> ()\n  dm = {rest}"
    return f"{text}program\n  run forth (x) -> ({there}, l)\n  run back ({back}, l) -> ()\n"


@pytest.mark.parametrize(("there", "back"), [("p, q", "q, p"), ("p, p", "p, p"), ("p, q", "p, p")])
def test_a_gradient_gets_the_operands_that_its_forward_operator_had(there: str, back: str) -> None:
    proved(bound("p, q", "p, q"), PRODUCT)
    assert compare(*plans(PRODUCT, bound(there, back))).outcome == "different"
    not_proved(bound(there, back), PRODUCT)


def test_gradients_that_only_one_plan_returns_are_no_results() -> None:
    not_proved(ONE_LAYER.replace("loss l", "loss l\noutput grad(w)"), ONE_LAYER)


LOOKED_UP = """
weight w f32[16,8]
weight v f32[4,8]
input x i64[8]
loss l
program
  h = embedding(x, w)
  y = linear(h, v)
  q = gelu(y)
  l = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  dh, grad(v) = backward y (dy)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("name", ["dy", "grad(v)", "dx"])
def test_whole_numbers_give_no_gradient_to_anything(name: str) -> None:
    text = LOOKED_UP.replace("_, grad(w)", f"{name}, grad(w)")
    assert compare(*plans(LOOKED_UP, text)).outcome == "fails"
    not_proved(text, LOOKED_UP)


MEAN = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  l: f32[1] = mean(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""

MEANS = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
tensor k f32[1]
tensor l f32[1]
output l0 f32[1]
output l1 f32[1]
segment f forward (x) -> (l)
  y = linear(x, w)
  k: f32[1] = mean(y)
  l = div(k, 2)
segment b backward GIVEN -> ()
  dk = backward l (grad(l))
  dy = backward k (dk)
  _, grad(w) = backward y (dy)
program
  run f micro-batch 0 (x) -> (l0)
  run f micro-batch 1 (x) -> (l1)
"""


@pytest.mark.parametrize(("given", "names"), [("()", ("()", "()")), ("(l)", ("(l0)", "(l1)"))])
def test_gradients_start_from_the_loss_by_the_name_that_it_has_inside(given: str, names: tuple[str, str]) -> None:
    text = MEANS.replace("GIVEN", given)
    text += "".join(f"  run b micro-batch {batch} {own} -> ()\n" for batch, own in enumerate(names))
    proved(text, MEAN)
    not_proved(text.replace("div(k, 2)", "div(k, 4)"), MEAN)


def test_a_handle_is_of_one_communication_at_a_time() -> None:
    """What `done` waits for is what was started last, and the first message may still be on its way."""
    text = ASIDE.replace("NAME", "g").replace("  send g to pp+1\n", "").replace(" on side", "").replace("  await event\n", "")
    text = text.replace("segment done", "segment again forward () -> ()\n  HANDLE\nsegment done")
    runs = "  run f0 () -> (g0)\n  run s (g0) -> ()\n  run again\n  run done\n  run b0\n"
    summed = "tensor c f32[8,8]\nbuffer k f32[8,8]\nloss l"
    text = text.replace("loss l", summed, 1).replace("program pp=1\n", "program pp=1\n  run ask\n")
    text = text.replace("segment b1 ", "segment ask forward () -> ()\n  c = all-reduce(k) over pp\nsegment b1 ")
    right = text.replace("HANDLE", "c = all-reduce(k) over pp") + runs
    reference = TWO_LAYERS.replace("loss l", "buffer k f32[8,8]\nloss l")
    not_proved(text.replace("HANDLE", "c = all-reduce(k) over pp async k") + runs, reference)
    proved(right.replace("  run s (g0) -> ()\n  run again\n", "  run again\n  run s (g0) -> ()\n"), reference)
