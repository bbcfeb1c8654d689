"""Correct plans that look wrong: what runs as the reference does is proved or unknown, never refuted."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

ROWS = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  y = mul(w, x)
  z = tanh(y)
  s = sum(z, dim=0)
  t = tanh(s)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  ds = backward t (dt)
  dz = backward s (ds)
  dy = backward z (dz)
  grad(w), _ = backward y (dy)
"""


def pieces(boxes: list[tuple[tuple[int, int], tuple[int, int]]], program: str) -> str:
    """Each rank holds a box of `w` and `x`; `NUMBER` in its program is its rank."""
    text = f"mesh tp={len(boxes)}\n"
    for rank, ((top, bottom), (left, right)) in enumerate(boxes):
        for role, name in (("weight", "w"), ("input", "x")):
            shape = f"f32[{bottom - top},{right - left}]"
            text += f"{role} {name}{rank} {shape} region [{top}:{bottom},{left}:{right}] of {name}[4,4]\n"
    return text + "loss l\n" + "".join(f"program tp={i}\n" + program.replace("NUMBER", str(i)) for i in range(len(boxes)))


GATHERED = pieces(
    [((2, 4), (0, 4)), ((0, 2), (0, 4))],
    """  yNUMBER = mul(wNUMBER, xNUMBER)
  y: f32[4,4] = all-gather(yNUMBER, dim=0) over tp
  z = tanh(y)
  s = sum(z, dim=0)
  t = tanh(s)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  ds = backward t (dt)
  dz = backward s (ds)
  dy = backward z (dz)
  dyNUMBER: f32[2,4] = chunk(dy, dim=0) over tp
  grad(wNUMBER), _ = backward yNUMBER (dyNUMBER)
""",
)


def test_pieces_that_are_gathered_in_another_order_and_then_summed_are_proved() -> None:
    assert compare(*plans(ROWS, GATHERED)).outcome == "equal"
    verdict = verdict_on(GATHERED, ROWS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_pieces_that_are_gathered_in_another_order_and_meet_others_are_refuted() -> None:
    reference = ROWS.replace("weight w ", "buffer b f32[4,4]\nweight w ").replace("tanh(y)", "mul(y, b)")
    reference = reference.replace("dy = backward z", "dy, _ = backward z")
    wrong = GATHERED.replace("weight w0 ", "buffer b f32[4,4]\nweight w0 ").replace("tanh(y)", "mul(y, b)")
    wrong = wrong.replace("dy = backward z", "dy, _ = backward z")
    assert compare(*plans(reference, wrong)).outcome == "different"
    verdict = verdict_on(wrong, reference)
    assert verdict.outcome is Outcome.REFUTED
    assert "pieces-not-in-rank-order" in [reason.name for reason in verdict.reasons]


TOTAL = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  y = mul(w, x)
  s: f32[1] = sum(y)
  t = tanh(s)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  ds = backward t (dt)
  dy = backward s (ds)
  grad(w), _ = backward y (dy)
"""

SUMMED = """  yNUMBER = mul(wNUMBER, xNUMBER)
  s0: f32[1] = sum(yNUMBER)
  s: f32[1] = all-reduce(s0) over tp
  t = tanh(s)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  ds = backward t (dt)
  dyNUMBER = backward s0 (ds)
  grad(wNUMBER), _ = backward yNUMBER (dyNUMBER)
"""

UNEVEN = {
    "a column and rows": [((0, 4), (0, 1)), ((0, 2), (1, 4)), ((2, 3), (1, 4)), ((3, 4), (1, 4))],
    "a pinwheel": [((0, 1), (0, 3)), ((0, 3), (3, 4)), ((3, 4), (1, 4)), ((1, 4), (0, 1)), ((1, 3), (1, 3))],
}


@pytest.mark.parametrize("boxes", UNEVEN.values(), ids=UNEVEN)
def test_pieces_of_two_dimensions_that_tile_unevenly_add_up(boxes: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    text = pieces(boxes, SUMMED)
    verdict = verdict_on(text, TOTAL)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(TOTAL, text)).outcome == "equal"


@pytest.mark.parametrize("boxes", UNEVEN.values(), ids=UNEVEN)
def test_pieces_that_overlap_or_leave_a_gap_do_not(boxes: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    for again in (0, 1):
        text = pieces([*boxes[:-1], boxes[again]], SUMMED)
        assert compare(*plans(TOTAL, text)).outcome != "equal"
        assert verdict_on(text, TOTAL).outcome is Outcome.REFUTED


SLICED = ROWS.replace("z = tanh(y)", "z = narrow(y, dim=0, start=0, length=4)")


def sliced(length: int) -> str:
    text = SLICED.replace("weight w f32[4,4]", "mesh tp=2\nweight w f32[4,4] tp:S(0)").replace(
        "x f32[4,4]", "x f32[4,4] tp:S(0)"
    )
    text = (
        text.replace("length=4", f"length={length}").replace("s = sum(z", "s0 = sum(z").replace("backward s (", "backward s0 (")
    )
    return text.replace("  t = tanh", "  s = all-reduce(s0) over tp\n  t = tanh")


def test_a_slice_that_is_all_of_a_part_is_that_part() -> None:
    assert verdict_on(sliced(2), SLICED).outcome is Outcome.PROVED
    assert verdict_on(sliced(2), ROWS.replace("z = tanh(y)", "z = identity(y)")).outcome is Outcome.PROVED
    assert verdict_on(sliced(1), SLICED).outcome is not Outcome.PROVED


def test_a_slice_of_a_part_is_not_refuted() -> None:
    """What the first rank takes of its part is what the reference takes of all, as the last one takes nothing."""
    reference = ROWS.replace("z = tanh(y)", "z = narrow(y, dim=0, start=0, length=1)")
    first = pieces(
        [((0, 2), (0, 4)), ((2, 4), (0, 4))],
        """  yNUMBER = mul(wNUMBER, xNUMBER)
  z = narrow(yNUMBER, dim=0, start=0, length=1)
  s0 = sum(z, dim=0)
  sNUMBER = mul(s0, TIMES)
  s = all-reduce(sNUMBER) over tp
  t = tanh(s)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  ds = backward t (dt)
  ds0 = backward sNUMBER (ds)
  dz = backward s0 (ds0)
  dyNUMBER = backward z (dz)
  grad(wNUMBER), _ = backward yNUMBER (dyNUMBER)
""",
    )
    head, zero, one = first.split("program ")
    text = "program ".join((head, zero.replace("TIMES", "1.0"), one.replace("TIMES", "0.0")))
    assert verdict_on(text, reference).outcome is Outcome.UNKNOWN


def test_a_forward_segment_that_runs_twice_makes_the_same_values_again() -> None:
    reference = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  a = linear(x, w)
  l: f32[1] = sum(a)
  da = backward l (grad(l))
  _, grad(w) = backward a (da)
"""
    twice = """
weight w f32[4,4]
input x f32[4,4]
loss l
segment f forward (x) -> (a)
  a = linear(x, w)
segment g forward (a) -> (l)
  l: f32[1] = sum(a)
segment r backward () -> ()
  da = backward l (grad(l))
  _, grad(w) = backward a (da)
program
  run f micro-batch 0
  run f micro-batch 0
  run g micro-batch 0
  run r micro-batch 0
"""
    assert compare(*plans(reference, twice)).outcome == "equal"
    assert verdict_on(twice, reference).outcome is Outcome.PROVED
    doubled = twice.replace("  run r micro-batch 0\n", "  run r micro-batch 0\n" * 2)
    assert verdict_on(doubled, reference).outcome is Outcome.REFUTED


SCORES = """
weight q f32[2,8,2]
weight k f32[2,8,2]
weight v f32[2,8,2]
input x f32[2,8,2]
loss l
program
kt = transpose(k, dim0=1, dim1=2)
s = matmul(q, kt)
p = softmax(s, dim=-1)
o = matmul(p, v)
r = mul(o, x)
l: f32[1] = sum(r)
"""

BLOCKS = """
mesh cp=2
weight q f32[2,8,2]
weight k f32[2,8,2] cp:S(1)
weight v f32[2,8,2] cp:S(1)
input x f32[2,8,2]
loss l
program
a = copy(q) over cp
kt = transpose(k, dim0=1, dim1=2)
s = matmul(a, kt)
p = softmax(s, dim=-1)
e = exp(s)
d = sum(e, dim=2, keepdim=True)
t = all-reduce(d) over cp || {x} = all-reduce({y}) over cp
w = div(d, t)
c = mul(p, w)
b = matmul(c, v)
o = all-reduce(b) over cp
r = mul(o, x)
l: f32[1] = sum(r)
"""

RESCALED = {
    "with the sum of the powers": BLOCKS,
    "with their logarithm": BLOCKS.replace(
        "e = exp(s)\nd = sum(e, dim=2, keepdim=True)", "g = logsumexp(s, 2, True)\nd = exp(g)"
    ),
}


@pytest.mark.parametrize("name", RESCALED)
def test_a_softmax_of_some_of_the_keys_that_is_rescaled_is_not_refuted(name: str) -> None:
    reference, text = with_backward(SCORES), with_backward(RESCALED[name])
    assert compare(*plans(reference, text)).outcome == "equal"
    assert verdict_on(text, reference).outcome is not Outcome.REFUTED


def test_a_softmax_of_some_of_the_keys_that_is_not_rescaled_is_refuted() -> None:
    kept = [line for line in BLOCKS.splitlines() if line[:2] not in ("e ", "d ", "t ", "w ", "c ")]
    text = with_backward("\n".join(kept).replace("matmul(c, v)", "matmul(p, v)"))
    assert compare(*plans(with_backward(SCORES), text)).outcome == "different"
    verdict = verdict_on(text, with_backward(SCORES))
    assert verdict.outcome is Outcome.REFUTED
    assert "split-dimension" in [reason.name for reason in verdict.reasons]


NORM = """
weight w f32[8,8]
input x f32[4,8]
loss l
program
y = linear(x, w)
n = torch.norm(y, dim=1)
l: f32[1] = sum(n)
"""


def test_a_norm_of_norms_is_not_refuted_and_a_sum_of_norms_is() -> None:
    split = "mesh tp=2\n" + NORM.replace("w f32[8,8]", "w f32[8,8] tp:S(0)").replace("n = torch", "m = torch")
    right = split.replace("l:", "a = pow(m, 2)\nb = all-reduce(a) over tp\nn = sqrt(b)\nl:")
    assert verdict_on(with_backward(right), with_backward(NORM)).outcome is Outcome.UNKNOWN
    wrong = split.replace("l:", "n = all-reduce(m) over tp\nl:")
    assert verdict_on(with_backward(wrong), with_backward(NORM)).outcome is Outcome.REFUTED


ZIGZAG_ALONE = """
weight wk f32[4,4]
input x f32[2,8,4]
loss l
program
  k = linear(x, wk)
  o = scaled_dot_product_attention(k, k, k, is_causal=True)
  l: f32[1] = sum(o)
  do = backward l (grad(l))
  dk, dk, dk = backward o (do)
  _, grad(wk) = backward k (dk)
"""


def zigzag(rank: int) -> str:
    """Rank r holds pieces r and 3 - r of four, so that those of the second kind are gathered in reverse."""
    lines = [f"program cp={rank}"]
    for name, piece in (("a", rank), ("b", 3 - rank)):
        lines.append(f"input x{name} f32[2,2,4] region [0:2,{2 * piece}:{2 * piece + 2},0:4] of x[2,8,4]")
        lines += [f"k{name} = linear(x{name}, wk)", f"g{name} = all-gather(k{name}, dim=1) over cp"]
    lines += ["b1: f32[2,2,4], b0: f32[2,2,4] = split(gb, 2, dim=1)", "kf = cat([ga, b0, b1], dim=1)"]
    for name, piece in (("a", rank), ("b", 3 - rank)):
        place = f"query_start={2 * piece}, query_stop={2 * piece + 2}, key_start=0, key_stop=8"
        lines.append(f"o{name} = scaled_dot_product_attention(k{name}, kf, kf, is_causal=True, {place})")
        lines.append(f"s{name}: f32[1] = sum(o{name})")
    return "\n  ".join([*lines, "s = add(sa, sb)", "l: f32[1] = all-reduce(s) over cp"]) + "\n"


def test_pieces_that_are_gathered_in_reverse_and_then_put_in_order_are_not_told_to_be_out_of_order() -> None:
    text = "mesh cp=2\nweight wk f32[4,4]\nloss l\n" + zigzag(0) + zigzag(1)
    told = {reason.name: reason.refutes for reason in verdict_on(text, ZIGZAG_ALONE).reasons}
    assert told["pieces-not-in-rank-order"] is False


LOSS_LATE = """
mesh t=2
weight w f32[8,8]
input x f32[8,8] t:S(0)
loss l f32[]
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  l = all-reduce(l0) over t
  reduce-gradients w over t
"""

LOSS_ALONE = """
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""


def test_a_loss_may_be_summed_after_its_gradients() -> None:
    verdict = verdict_on(LOSS_LATE, LOSS_ALONE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    reference, plan = plans(LOSS_ALONE, LOSS_LATE)
    assert compare(reference, plan).outcome == "equal"


SCATTERED = """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over dp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, gw = backward y (dy)
  gs = reduce-scatter(gw, dim=0) over dp
  grad(w) = all-gather(gs, dim=0) over dp
"""


def test_what_is_made_of_a_gradient_may_have_names_of_its_own() -> None:
    verdict = verdict_on(SCATTERED, LOSS_ALONE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    reference, plan = plans(LOSS_ALONE, SCATTERED)
    assert compare(reference, plan).outcome == "equal"


def test_of_a_segment_that_runs_twice_the_second_result_alone_may_be_returned() -> None:
    reference = """
weight w f32[4,4]
input x f32[8,4]
loss l
program
  y = linear(x, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""
    twice = """

weight w f32[4,4]
input x f32[4,4]
plan "p"
micro-batches 2
output l.0
output l.1
segment f forward (x) -> (y)
  y: f32[4,4] = linear(x, w)
segment s forward (y) -> (l)
  l: f32[] = sum(y)
segment b backward () -> ()
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
program
  run f micro-batch 0 (x) -> (y.0)
  run s micro-batch 0 (y.0) -> (first.0)
  run s micro-batch 0 (y.0) -> (l.0)
  run b micro-batch 0 () -> ()
  run f micro-batch 1 (x) -> (y.1)
  run s micro-batch 1 (y.1) -> (first.1)
  run s micro-batch 1 (y.1) -> (l.1)
  run b micro-batch 1 () -> ()
"""
    assert compare(*plans(reference, twice)).outcome == "equal"
    assert verdict_on(twice, reference).outcome is Outcome.PROVED
    once = twice.replace("output l.1\n", "")
    assert verdict_on(once, reference).outcome is Outcome.REFUTED


RECTIFIED = "weight w f32[8,8]\ninput x f32[4,8]\nloss l\nprogram\nh = linear(x, w)\n{0}l: f32[1] = sum(y)\n"
FLAGS = {
    "multiplied": "o = gt(h, 0.0) || none\nf: f32[4,8] = float(o) || none\ny = mul(h, f) || {x}, _ = backward y ({y})\n",
    "chosen by": "o = gt(h, 0.0) || none\nz = zeros_like(h) || none\ny = where(o, h, z) || _, grad(h), _ = backward y ({y})\n",
    "masked with": "o = le(h, 0.0) || none\ny = masked_fill(h, o, 0.0) || {x}, _ = backward y ({y})\n",
}


@pytest.mark.parametrize("way", FLAGS)
def test_flags_that_stand_where_the_reference_has_a_real_number_are_not_taken_for_it(way: str) -> None:
    reference = with_backward(RECTIFIED.format("y = relu(h)\n"))
    verdict = verdict_on(with_backward(RECTIFIED.format(FLAGS[way])), reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "wrong-dtype" not in {reason.name for reason in verdict.reasons}
    assert ("agrees with the reference on", "3 runs on random numbers") in verdict.facts
