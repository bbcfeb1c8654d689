"""Reductions of what every rank has gathered, which are those over ranks: reported losses, counts, norms of norms."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, assert_wrong_mutants_are_not_proved, numbers_of_proved, twins
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.gathered_reductions import with_reductions_over_ranks
from tvlint.findings import Outcome
from tvlint.ir.operators import Collective, Communicate, Compute

pytestmark = pytest.mark.usefixtures("without_repairs")

CLIP = """end d = add(n, 1e-06)
end c0 = div(1.0, d)
end c = clamp(c0, None, 1.0)
end g = mul(grad(w), c)
end sgd_step(w!, g, lr=0.1)
"""
SHARDED = """mesh dp=2
weight w f32[8,4] dp:S(0)
input x f32[6,4] dp:S(0)
loss l
program
f = all-gather(w, dim=0) over dp
h = linear(x, f)
a = gelu(h)
l0: f32[] = sum(a)
l = all-reduce(l0) over dp
end n0 = torch.linalg.vector_norm(grad(w))
end n1 = view(n0, [1])
end n2 = all-gather(n1, dim=0) over dp
"""
WHOLE = """weight w f32[8,4]
input x f32[6,4]
loss l
program
h = linear(x, w)
a = gelu(h)
l: f32[] = sum(a)
end n = torch.linalg.vector_norm(grad(w))
"""
REPORTED = """mesh dp=2
weight w f32[6,4]
input x f32[8,4] dp:S(0)
loss l f32[] dp:P
output r
program
h = linear(x, w)
q = mul(h, h)
l0: f32[] = mean(q)
l = div(l0, 2)
"""
REPORT = """weight w f32[6,4]
input x f32[8,4]
loss l
output r
program
h = linear(x, w)
q = mul(h, h)
l: f32[] = mean(q)
"""

IDIOMS = {
    "the norm of the norms of all ranks": Idiom(
        WHOLE + CLIP,
        SHARDED + "end n = torch.linalg.vector_norm(n2)\n" + CLIP,
        (
            ("n = torch.linalg.vector_norm(n2)", "n = sum(n2)"),
            ("n = torch.linalg.vector_norm(n2)", "n = torch.linalg.vector_norm(n1)"),
            ("d = add(n, 1e-06)", "d = add(n, 1.0)"),
        ),
    ),
    "the root of the squares of all norms": Idiom(
        WHOLE + CLIP,
        SHARDED + "end n3 = pow(n2, 2)\nend n4 = sum(n3)\nend n = sqrt(n4)\n" + CLIP,
        (("n3 = pow(n2, 2)", "n3 = pow(n2, 1)"), ("n4 = sum(n3)", "n4 = mean(n3)"), ("n4 = sum(n3)", "n4 = amax(n3)")),
    ),
    "a mean of the losses of all ranks": Idiom(
        REPORT + "r: f32[] = mean(q) || none\n",
        REPORTED + "l1 = view(l0, [1]) || none\nl2 = all-gather(l1, dim=0) over dp || none\n"
        "r: f32[] = mean(l2) || none\nend reduce-gradients w over dp\n",
        (("r: f32[] = mean(l2)", "r: f32[] = sum(l2)"), ("r: f32[] = mean(l2)", "r: f32[] = amax(l2)")),
    ),
    "the greatest of the greatest": Idiom(
        REPORT + "r: f32[] = amax(q) || none\n",
        REPORTED + "m0: f32[] = amax(q) || none\nm1 = view(m0, [1]) || none\nm2 = all-gather(m1, dim=0) over dp || none\n"
        "r: f32[] = amax(m2) || none\nend reduce-gradients w over dp\n",
        (("r: f32[] = amax(m2)", "r: f32[] = mean(m2)"), ("m0: f32[] = amax(q)", "m0: f32[] = mean(q)")),
    ),
    "tanh of every element that is gathered": Idiom(
        REPORT + "t = tanh(q) || none\nr: f32[] = sum(t) || none\n",
        REPORTED + "g = all-gather(q, dim=0) over dp || none\nt = tanh(g) || none\nr: f32[] = sum(t) || none\n"
        "end reduce-gradients w over dp\n",
        (("r: f32[] = sum(t)", "r: f32[] = mean(t)"), ("t = tanh(g)", "t = sin(g)")),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_what_is_gathered_and_reduced_is_reduced_over_ranks(name: str) -> None:
    numbers_of_proved(IDIOMS[name])


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_not_proved(name: str, before: str, after: str) -> None:
    assert IDIOMS[name].verdict(before, after).outcome is not Outcome.PROVED


@pytest.mark.heavy
@pytest.mark.parametrize("name", IDIOMS)
def test_no_mutant_that_is_wrong_is_proved(name: str) -> None:
    assert_wrong_mutants_are_not_proved(IDIOMS[name])


@pytest.mark.parametrize("joined", ["cat([n1, n3], dim=0)", "cat([n3, n1], dim=0)", "stack([n0, n2], dim=0)"])
def test_norms_that_are_joined_are_no_other_shape(joined: str) -> None:
    head = "weight w f32[8,4]{w}\nweight v f32[8,4]{w}\ninput x f32[6,4]\nloss l\noutput n\nprogram\n"
    head += "h = linear(x, w)\nk = linear(x, v)\n"
    norms = "n0 = norm(w) || none\nn2 = norm(v) || none\nn1 = view(n0, [1]) || none\nn3 = view(n2, [1]) || none\n"
    total = "s = add(h, k)\na = gelu(s)\nl{of}: f32[] = sum(a)\n"
    one = head.format(w="") + total.format(of="") + norms + f"j = {joined} || none\nn: f32[] = norm(j) || none\n"
    ranks = "mesh tp=2\n" + head.format(w=" tp:S(0)") + total.format(of="0") + "l = all-reduce(l0) over tp\n" + norms
    parts = f"j = {joined} || none\nj0: f32[] = norm(j) || none\nj1 = pow(j0, 2) || none\nj2 = all-reduce(j1) over tp || none\n"
    plan = ranks + parts + "n = sqrt(j2) || none\n"
    assert Idiom(one, plan, ()).verdict().outcome is Outcome.PROVED
    assert Idiom(one, plan.replace("all-reduce(j1) over tp", "identity(j1)"), ()).verdict().outcome is Outcome.REFUTED


def test_what_goes_by_places_is_not_that_of_each_piece() -> None:
    idiom = IDIOMS["tanh of every element that is gathered"]
    plan, _ = idiom.plans("t = tanh(g)", "t = tril(g)")
    assert with_reductions_over_ranks(plan) is plan
    pieces = idiom.plan.replace("g = all-gather(q,", "s = tril(q) || none\ng = all-gather(s,").replace(
        "t = tanh(g)", "t = clone(g)"
    )
    assert Idiom(idiom.reference.replace("tanh(q)", "tril(q)"), pieces, ()).verdict().outcome is not Outcome.PROVED


CHANGED = {
    "a piece that is changed in place after it is gathered": ("r: f32[]", "add_(l1!, 1.0) || none\nr: f32[]"),
    "a piece that has another value under its name": ("r: f32[]", "l1 = mul(l1, 2.0) || none\nr: f32[]"),
    "a gather that ends later": ("over dp || none\nr", "over dp async h || none\nwait h\nr"),
    "pieces of unequal sizes": ("dim=0) over dp || none", "dim=0, splits=[1,1]) over dp || none"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_may_not_be_moved_stays_where_it_is(name: str) -> None:
    plan, _ = IDIOMS["a mean of the losses of all ranks"].plans(*CHANGED[name])
    assert with_reductions_over_ranks(plan) is plan


def test_ranks_that_run_other_segments_are_left_as_they_are() -> None:
    """Of ranks of which some reduce what all gather, none may leave the gather out."""
    text = IDIOMS["a mean of the losses of all ranks"].plan.replace("reduce-gradients", "end reduce-gradients")
    body = text.partition("program\n")[2].partition("end ")[0]
    other = body.replace("mean(l2)", "identity(l0)")
    idiom = Idiom(REPORT, text.partition("program\n")[0] + f"program dp=0\n{body}program dp=1\n{other}", ())
    plan, _ = idiom.plans()
    assert with_reductions_over_ranks(plan) is plan


LATER = """state s f32[6,4]{cut}
loss l{part}
output r
program
{gather}h = linear(x, {w})
q = mul(h, h)
l: f32[] = sum(q)
"""
HELD = "mesh dp=2\nweight w f32[6,4] dp:S(0)\ninput x f32[8,4] dp:S(0)\n"
HELD += LATER.format(cut=" dp:S(0)", part=" f32[] dp:P", gather="f = all-gather(w, dim=0) over dp\n", w="f")
ALONE = "weight w f32[6,4]\ninput x f32[8,4]\n" + LATER.format(cut="", part="", gather="", w="w")
STEPS = {
    "w": "end m = mul(grad(w), 0.1)\nend u = sub(w, m)\nend w = identity(u)\n",
    "s": "end s = mul(grad(w), 0.5)\n",
}


@pytest.mark.parametrize("reduction", ["r: f32[] = sum({})", "r: f32[] = amax({})", "t = tanh({})\nend r: f32[] = mean(t)"])
@pytest.mark.parametrize("name", STEPS)
def test_what_was_gathered_before_a_step_is_not_what_the_step_leaves(name: str, reduction: str) -> None:
    gather = f"end g = all-gather({name}, dim=0) over dp\n"
    reduced, alone = (f"end {reduction.format(each)}\n" for each in ("g", name))
    plan = HELD + gather + STEPS[name] + reduced
    assert Idiom(ALONE + alone + STEPS[name], plan, ()).verdict().outcome is Outcome.PROVED
    assert Idiom(ALONE + STEPS[name] + alone, plan, ()).verdict().outcome is not Outcome.PROVED


@pytest.mark.parametrize(("role", "shape", "made"), [
    ("buffer", "[8,6]", "s = all-gather(q, dim=0) over dp || none\nr: f32[] = sum(s) || none"),
    ("state", "[8,6]", "s = all-gather(q, dim=0) over dp || none\nr: f32[] = sum(s) || none"),
    ("buffer", "[]", "s: f32[] = norm(w) || none\nr = pow(s, 2) || none"),
    ("state", "[]", "s: f32[] = norm(w) || none\nr = pow(s, 2) || none"),
])  # fmt: skip
def test_what_stays_behind_the_step_is_not_left_out(role: str, shape: str, made: str) -> None:
    text = f"{role} s f32{shape}\ninput x f32[8,4]{{cut}}\nweight w f32[6,4]\nloss l{{part}}\noutput r\nprogram\n"
    text += "h = linear(x, w)\nq = mul(h, h)\nl: f32[] = sum(q)\n"
    plan = "mesh dp=2\n" + text.format(cut=" dp:S(0)", part=" f32[] dp:P") + made + "\nend reduce-gradients w over dp\n"
    unwritten = made.replace("s = all-gather(q, dim=0) over dp", "t = identity(q)").replace("s: f32[]", "t: f32[]")
    reference = text.format(cut="", part="") + unwritten.replace("(s", "(t")
    assert Idiom(reference, plan, ()).verdict().outcome is not Outcome.PROVED


def test_what_fails_on_what_is_gathered_is_not_run_on_pieces() -> None:
    idiom = IDIOMS["tanh of every element that is gathered"]
    assert idiom.verdict("t = tanh(g)", "t0 = tanh(g) || none\nt = expand(t0, [8,6])").outcome is Outcome.PROVED
    assert idiom.verdict("t = tanh(g)", "t0 = tanh(g) || none\nt = expand(t0, [4,6])").outcome is not Outcome.PROVED


def test_pieces_of_one_row_are_put_into_another_order_as_the_whole_is() -> None:
    text = "weight w f32[3,4]\ninput x f32[2,3,4]{cut}\nloss l\noutput r\nprogram\nq = mul(w, w)\nl: f32[] = sum(q)\n"
    text += 'y = tanh(x) || none\n{gather}r = einsum("abc->cb", {of}) || none\n'
    gather = "g = all-gather(y, dim=0) over dp || none\n"
    plan, _ = Idiom(
        text.format(cut="", gather="", of="y"), "mesh dp=2\n" + text.format(cut=" dp:S(0)", gather=gather, of="g"), ()
    ).plans()
    segment = next(iter(with_reductions_over_ranks(plan).segments.values()))
    assert not any(isinstance(each, Compute) and each.op == "torch.reshape" for each in segment.operators)
    assert any(isinstance(each, Communicate) and each.kind is Collective.ALL_REDUCE for each in segment.operators)
