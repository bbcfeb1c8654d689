"""Parts of a dimension of a view against places of a dimension of their own, with wrong twins, judged by numbers."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.equivalence.verdict.parts_as_places import with_parts_as_places
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

WHOLE = """weight w f32[24,6]
input x f32[5,6]
loss l
program
h = linear(x, w)
{parts}
a = mul(q, k)
b = tanh(a)
c = mul(b, u)
l: f32[] = sum(c)
"""
SHARDED = (
    WHOLE.replace("weight", "mesh tp=2\nweight", 1).replace("[24,6]", "[24,6] tp:S(0)").replace("l: f32[]", "l0: f32[]")
    + "l = all-reduce(l0) over tp\n"
)
REFERENCES = {
    "places": "v = view(h, [5,4,3,2])\nq = select(v, 2, 0)\nk = select(v, 2, 1)\nu = select(v, 2, 2)",
    "parts": "v = view(h, [5,4,6])\nq, k, u = split(v, 2, dim=2)",
}
PLANS = {
    "parts": "v = view(h, [5,2,6])\nq, k, u = split(v, 2, dim=2)",
    "parts of sizes": "v = view(h, [5,2,6])\nq, k, u = split(v, [2,2,2], dim=-1)",
    "as many parts": "v = reshape(h, [5,2,-1])\nq, k, u = torch.chunk(v, 3, dim=2)",
    "places in front": "v = view(h, [5,2,3,2])\np = permute(v, [2,0,1,3])\n"
    "q = select(p, 0, 0)\nk = select(p, 0, 1)\nu = select(p, 0, 2)",
}
WRONG = {
    "parts": (("q, k, u =", "q, u, k ="), ("a = mul(q, k)", "a = mul(q, u)")),
    "parts of sizes": (("q, k, u =", "k, u, q ="),),
    "as many parts": (("q, k, u =", "u, k, q ="),),
    "places in front": (("k = select(p, 0, 1)", "k = select(p, 0, 2)"),),
}
IDIOMS = {
    f"{plan} against {reference}": Idiom(WHOLE.format(parts=known), SHARDED.format(parts=parts), WRONG[plan])
    for reference, known in REFERENCES.items()
    for plan, parts in PLANS.items()
}


@pytest.mark.parametrize("name", IDIOMS)
def test_parts_and_places_are_the_same(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_other_parts_are_not(name: str, before: str, after: str) -> None:
    idiom = IDIOMS[name]
    assert idiom.verdict(before, after).outcome is not Outcome.PROVED
    assert not isinstance(on_numbers_of(*idiom.plans(before, after)), Agreement)


LEFT = {
    "parts of other sizes": "v = view(h, [5,4,6])\nq, k = split(v, [4,2], dim=2)\nu = identity(q)",
    "a view that is read elsewhere": "v = view(h, [5,4,6])\nq, k, u = split(v, 2, dim=2)\nn = exp(v) || none",
    "a call on what nothing makes": "v = view(h, [5,4,6])\nq = scatter_add(v, 1, n, v)\nk = identity(q)\nu = identity(q)",
    "parts of sizes that are declared otherwise": (
        "v = view(h, [5,4,6])\nq: f32[5,4,2], k: f32[5,4,2], u: f32[5,4,2] = split(v, [1,2,3], dim=2)"
    ),
    "a view that is declared to have another shape": (
        "v: f32[5,4,6] = view(h, [4,5,6])\nq: f32[5,4,2], k: f32[5,4,2], u: f32[5,4,2] = split(v, 2, dim=2)"
    ),
    "parts of no view": "v = tanh(h)\nq, k, u = torch.chunk(v, 3, dim=1)",
}


@pytest.mark.parametrize("name", LEFT)
def test_other_parts_are_left_as_they_are(name: str) -> None:
    (plan, _) = Idiom(WHOLE.format(parts=LEFT[name]), WHOLE.format(parts=LEFT[name]), ()).plans()
    assert with_parts_as_places(plan) is plan


def test_parts_become_places_with_their_gradients() -> None:
    plan, reference = IDIOMS["parts against places"].plans()
    changed = with_parts_as_places(plan)
    assert changed is not plan
    assert (changed.tensors["v"].shape, changed.tensors["grad(v)"].shape) == ((5, 2, 3, 2), (5, 2, 3, 2))
    assert isinstance(on_numbers_of(changed, reference), Agreement)


OF_HEADS = """mesh tp=2
weight w f32[24,6] tp:S(0)
input x f32[5,6]
loss l
program
h = linear(x, w)
v: f32[5,2,6] = view(h, {size})
q: f32[5,2,2], k: f32[5,2,2], u: f32[5,2,2] = split(v, 2, dim=2)
a: f32[5,2,2] = mul(q, k)
b: f32[5,2,2] = mul(a, u)
r: f32[5,2] = sum(b, dim=1)
s: f32[5,2] = all-reduce(r) over tp
t: f32[5,2] = tanh(s)
l: f32[] = sum(t)
"""
WHOLE_HEADS = """weight w f32[24,6]
input x f32[5,6]
loss l
program
h = linear(x, w)
v = view(h, [5,4,3,2])
q = select(v, 2, 0)
k = select(v, 2, 1)
u = select(v, 2, 2)
a = mul(q, k)
b = mul(a, u)
r = sum(b, dim=1)
t = tanh(r)
l: f32[] = sum(t)
"""


def test_a_view_of_another_shape_than_is_declared_is_not_proved() -> None:
    found = [
        verdict_on(with_backward(OF_HEADS.format(size=size)), with_backward(WHOLE_HEADS)).outcome
        for size in ("[5,2,6]", "[5,-1,6]", "[2,5,6]", "[5,6,2]")
    ]
    assert found[:2] == [Outcome.PROVED] * 2
    assert Outcome.PROVED not in found[2:]


TAKEN_APART_TWICE = """m = mul(h, 3.0) || none
m2 = view(m, [5,2,6]) || none
v = view(h, [5,2,6])
q, k, u = split(m2, 2, dim=2) || none
a = mul(q, k)
q, k, u = split(v, 2, dim=2)"""


def test_parts_of_one_name_are_those_of_the_view_that_was_split() -> None:
    text = SHARDED.replace("\na = mul(q, k)\n", "\n").replace("{parts}", TAKEN_APART_TWICE)
    backward = "grad(b), grad(u) = backward c (grad(c))\ngrad(a) = backward b (grad(b))\n"
    backward += "grad(q), grad(k) = backward a (grad(a))"
    plan = with_backward(text).replace("_, grad(u) = backward c (grad(c))", backward)
    assert backward in plan
    assert verdict_on(plan, with_backward(WHOLE.format(parts=REFERENCES["places"]))).outcome is not Outcome.PROVED
