"""Plans whose gradients start, or are reduced, returned or made, where or of what they are not."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.attacks.test_folding import not_proved, proved
from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import LOOKED_UP, ONE_LAYER
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

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


def test_what_no_run_gives_is_not_returned() -> None:
    assert verdict_on(ONE_LAYER.replace("loss l", "loss l\noutput more f32[8,8]"), ONE_LAYER).outcome is Outcome.UNKNOWN


UNKNOWN_SHAPES = """mesh dp=2
weight w f32[4,2] dp:S(0)
loss l
program
  s = square(w)
  t = my_op(s)
  l0 = sum(t)
  l = all-reduce(l0) over dp
  g = clone(grad(l))
  dt = backward l0 (g)
  ds = backward t (dt)
  grad(w) = backward s (ds)
"""


@pytest.mark.parametrize(
    ("start", "outcome", "reason"),
    [("grad(l)", Outcome.UNKNOWN, "unsupported-operator"), ("grad(q)", Outcome.REFUTED, "use-before-definition")],
)
@pytest.mark.parametrize("read", ["g = clone({})", "g = all-reduce avg({}) over dp"])
def test_gradients_start_at_values_of_which_no_shape_is_known(start: str, outcome: Outcome, reason: str, read: str) -> None:
    parallel = UNKNOWN_SHAPES.replace("g = clone(grad(l))", read.format(start))
    reference = UNKNOWN_SHAPES.replace("mesh dp=2\n", "").replace(" dp:S(0)", "").replace("my_op", "identity")
    reference = reference.replace("  l = all-reduce(l0) over dp\n", "  l = clone(l0)\n")
    found = verdict_on(parallel, reference)
    assert (found.outcome, found.reasons[0].name) == (outcome, reason)
