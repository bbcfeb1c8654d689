"""Flat buckets of gradients, which zeros fill up so that the ranks divide them, against weights that are updated one by one."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

HEAD = """weight w f32[8,4]
weight v f32[4,8]
input x f32[8,4]{placed}
loss l f32[]
program
h = linear(x, w)
a = gelu(h)
y = linear(a, v)
b = tanh(y)
"""
STEP = "end m = mul(grad(w), 0.5)\nend w = sub(w, m)\nend n = mul(grad(v), 0.5)\nend v = sub(v, n)\n"
ONE = HEAD.format(placed="") + "l: f32[] = sum(b)\n"
RANKS = "mesh dp=2\n" + HEAD.format(placed=" dp:S(0)") + "l0: f32[] = sum(b)\nl = all-reduce(l0) over dp\n"

FLAT = "end f = view(grad(w), [32])\nend g = view(grad(v), [32])\n"
ZEROS = "end z: f32[6] = zeros([6])\n"
JOINED = FLAT + ZEROS + "end u = cat([f, g, z], dim=0)\n"
FILLED = FLAT + "end j = cat([f, g], dim=0)\nend u = F.pad(j, [0, 6])\n"
IN_FRONT = FLAT + ZEROS + "end u = cat([z, f, g], dim=0)\n"
ALL = "end r = all-reduce(u) over dp\n"
PARTS = "end s = reduce-scatter(u, dim=0) over dp\nend r = all-gather(s, dim=0) over dp\n"
CUT = "end f1 = narrow(r, 0, {}, 32)\nend g1 = narrow(r, 0, {}, 32)\n"
SPLIT = "end f1, g1, z1 = split(r, [32, 32, 6])\n"
BACK = "end {} = view(f1, [8,4])\nend {} = view(g1, [4,8])\n"
EACH = BACK.format("grad(w)", "grad(v)")

CUT_INSIDE = """end u = cat([f, g])
end u1, u2, u3 = split(u, [22, 20, 22])
end s1 = all-reduce(u1) over dp
end s2 = all-reduce(u2) over dp
end s3 = all-reduce(u3) over dp
end r = cat([s1, s2, s3])
"""

OWNED = """end p1 = view(w, [32])
end p2 = view(v, [32])
end p3 = cat([p1, p2, z], dim=0)
end p: f32[35] = chunk(p3, dim=0) over dp
end s = reduce-scatter(u, dim=0) over dp
end m = mul(s, 0.5)
end q = sub(p, m)
end r = all-gather(q, dim=0) over dp
"""

STEPPED = OWNED.replace("end m = mul(s, 0.5)\nend q = sub(p, m)\n", "end sgd_step(p!, s, lr=0.5)\n").replace("(q,", "(p,")
COPIED = BACK.format("w1", "v1") + "end copy_(w!, w1)\nend copy_(v!, v1)\n"
BY_SGD = "end sgd_step(w!, grad(w), lr=0.5)\nend sgd_step(v!, grad(v), lr=0.5)\n"

BUCKETS = {
    "reduced": Idiom(
        ONE,
        RANKS + JOINED + ALL + CUT.format(0, 32) + EACH,
        (("f1 = narrow(r, 0, 0", "f1 = narrow(r, 0, 32"), ("r = all-reduce(u) over dp", "r = identity(u)")),
    ),
    "scattered and gathered": Idiom(
        ONE, RANKS + JOINED + PARTS + SPLIT + EACH, (("f1, g1, z1 = split(r", "g1, f1, z1 = split(r"),)
    ),
    "filled up by padding": Idiom(
        ONE, RANKS + FILLED + PARTS + CUT.format(0, 32) + EACH, (("[0, 6]", "[6, 0]"), ("cat([f, g]", "cat([g, f]"))
    ),
    "with zeros in front": Idiom(
        ONE, RANKS + IN_FRONT + ALL + CUT.format(6, 38) + EACH, (("narrow(r, 0, 6", "narrow(r, 0, 0"),)
    ),
    "that are cut inside of weights": Idiom(
        ONE,
        RANKS + FLAT + CUT_INSIDE + CUT.format(0, 32) + EACH,
        (
            ("cat([s1, s2, s3]", "cat([s1, s3, s2]"),
            ("s2 = all-reduce(u2)", "s2 = all-reduce avg(u2)"),
            ("s2 = all-reduce(u2) over dp", "s2 = identity(u2)"),
            ("s3 = all-reduce(u3)", "s3 = all-reduce(u1)"),
        ),
    ),
    "of which each rank updates its part": Idiom(
        ONE + STEP, RANKS + JOINED + OWNED + CUT.format(0, 32) + BACK.format("w", "v"), ()
    ),
    "of which each rank takes the step of an optimizer": Idiom(
        ONE + BY_SGD,
        RANKS + JOINED + STEPPED + CUT.format(0, 32) + COPIED,
        (("lr=0.5", "lr=0.25"), ("copy_(w!, w1)", "copy_(w!, p1)"), ("cat([p1, p2, z]", "cat([z, p1, p2]")),
    ),
}


@pytest.mark.parametrize("name", BUCKETS)
def test_a_bucket_that_is_filled_up_is_the_gradients_in_it(name: str) -> None:
    assert isinstance(numbers_of_proved(BUCKETS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(BUCKETS), 3))
def test_a_bucket_that_is_taken_apart_otherwise_is_not(name: str, before: str, after: str) -> None:
    assert not isinstance(on_numbers_of(*BUCKETS[name].plans(before, after)), Agreement)
    assert BUCKETS[name].verdict(before, after).outcome is not Outcome.PROVED


def test_copies_into_weights_alone_are_a_step() -> None:
    plan = RANKS + JOINED + OWNED + CUT.format(0, 32) + COPIED
    assert Idiom(ONE + STEP, plan, ()).verdict().outcome is Outcome.PROVED
    assert Idiom(ONE + STEP, plan.replace("copy_(v!, v1)", "copy_(v!, v)"), ()).verdict().outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p3 = cat([p1, p2, z]", "p3 = cat([p2, p1, z]"),
        ("f1 = narrow(r, 0, 0", "f1 = narrow(r, 0, 6"),
        ("s = reduce-scatter(u, dim=0) over dp", "s: f32[35] = chunk(u, dim=0) over dp"),
        ("mul(s, 0.5)", "mul(s, 0.25)"),
    ],
)
def test_other_parts_of_the_weights_are_not_updated_so(before: str, after: str) -> None:
    assert BUCKETS["of which each rank updates its part"].verdict(before, after).outcome is not Outcome.PROVED


NUMBERS = "weight w f32[3]\nweight v f32[3]\nloss l\nprogram\n{}e = select(c, -1, {})\n{}t = tanh(d)\nl: f32[] = sum(t)\n"


@pytest.mark.parametrize("joined", ["c = cat([w, v], dim=0)\n", "c = F.pad(w, [1, 2])\n"])
@pytest.mark.parametrize("place", [0, 2, 5])
def test_one_number_of_what_is_joined_is_one(joined: str, place: int) -> None:
    one, twice, added = (
        NUMBERS.format(joined, place, line) for line in ("d = clone(e)\n", "d = mul(e, 2.0)\n", "d = add(e, e)\n")
    )
    assert Idiom(twice, added, ()).verdict().outcome is Outcome.PROVED
    assert Idiom(one, added, ()).verdict().outcome is not Outcome.PROVED
