"""Weights that a plan holds flat or with padding: against references that hold them in their own shape, with wrong twins."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.idiom import Idiom, twins
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.held_weights import as_held
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

IDIOMS = {
    "a table with rows that nothing looks up": Idiom(
        """weight e f32[10,6]
input x i64[4]
loss l
program
y = embedding(x, e)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh tp=2
weight e f32[12,6] tp:S(0)
input x i64[4]
loss l
program tp=0
p = embedding(x, e, start=0, stop=6)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = mean(z)

program tp=1
p = embedding(x, e, start=6, stop=12)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
        (("start=6, stop=12", "start=0, stop=6"), ("y = all-reduce(p) over tp", "y = identity(p)")),
    ),
    "scores of classes that are cut off": Idiom(
        """weight w f32[10,6]
input x f32[4,6]
input t i64[4]
loss l
program
s = linear(x, w)
l: f32[] = cross_entropy(s, t)
""",
        """mesh tp=2
weight w f32[12,6] tp:S(0)
input x f32[4,6]
input t i64[4]
loss l
program
s0 = linear(x, w)
s1 = all-gather(s0, dim=1) over tp || chunk
s = narrow(s1, dim=1, start=0, length=10)
l: f32[] = cross_entropy(s, t)
""",
        (("length=10", "length=12"), ("start=0, length", "start=2, length")),
    ),
    "a table that is used for both": Idiom(
        """weight e f32[10,6]
input x i64[4]
input t i64[4]
loss l
program
y = embedding(x, e)
z = tanh(y)
s = linear(z, e)
l: f32[] = cross_entropy(s, t)
""",
        """mesh tp=2
weight e f32[12,6] tp:S(0)
input x i64[4]
input t i64[4]
loss l
program tp=0
p = embedding(x, e, start=0, stop=6)
y = all-reduce(p) over tp
z = tanh(y)
zc = copy(z) over tp
s0 = linear(zc, e)
s1 = all-gather(s0, dim=1) over tp || chunk
s = narrow(s1, dim=1, start=0, length=10)
l: f32[] = cross_entropy(s, t)
program tp=1
p = embedding(x, e, start=6, stop=12)
y = all-reduce(p) over tp
z = tanh(y)
zc = copy(z) over tp
s0 = linear(zc, e)
s1 = all-gather(s0, dim=1) over tp || chunk
s = narrow(s1, dim=1, start=0, length=10)
l: f32[] = cross_entropy(s, t)
""",
        (("length=10", "length=12"), ("zc = copy(z) over tp", "zc = identity(z)")),
    ),
    "a flat partition": Idiom(
        """weight w f32[4,6]
input x f32[6,6]
loss l
program
y = linear(x, w)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh dp=3
weight w f32[24] dp:S(0)
input x f32[6,6] dp:S(0)
loss l
program
f = all-gather(w, dim=0) over dp
wv = view(f, size=[4,6])
y = linear(x, wv)
z = tanh(y)
l: f32[] = mean(z)
end grad(w) = div(grad(w), 3)
end update w
""",
        (
            ("size=[4,6])", "size=[6,4])\nwt = transpose(wv, dim0=0, dim1=1)\nwv = identity(wt)"),
            ("end grad(w) = div(grad(w), 3)\n", ""),
        ),
    ),
    "a flat partition with padding at its end": Idiom(
        """weight w f32[5,3]
input x f32[4,3]
loss l
program
y = linear(x, w)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh dp=2
weight w f32[16] dp:S(0)
input x f32[4,3] dp:S(0)
loss l
program
f = all-gather(w, dim=0) over dp
fn = narrow(f, dim=0, start=0, length=15)
wv = view(fn, size=[5,3])
y = linear(x, wv)
z = tanh(y)
l: f32[] = mean(z)
end grad(w) = div(grad(w), 2)
end update w
""",
        (("start=0, length=15", "start=1, length=15"), ("end grad(w) = div(grad(w), 2)\n", "")),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_a_weight_that_is_held_otherwise_is_proved(name: str) -> None:
    verdict = IDIOMS[name].verdict()
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert any("elements of the reference's" in text for text in verdict.assumptions)
    assert not isinstance(on_numbers_of(*as_held(*IDIOMS[name].plans())), Difference)


@pytest.mark.parametrize(("name", "before", "after"), twins(IDIOMS))
def test_its_wrong_twins_are_refuted(name: str, before: str, after: str) -> None:
    assert IDIOMS[name].verdict(before, after).outcome is Outcome.REFUTED


@pytest.mark.parametrize("shape", ["f32[12,8]", "f32[8,6]", "f32[59]"])
def test_a_weight_of_another_shape_is_not_proved(shape: str) -> None:
    idiom = IDIOMS["scores of classes that are cut off"]
    plan = with_backward(idiom.plan.replace("f32[12,6] tp:S(0)", shape))
    assert verdict_on(plan, with_backward(idiom.reference)).outcome is not Outcome.PROVED


def test_a_gradient_that_the_reference_reads_is_left_as_it_is() -> None:
    idiom = IDIOMS["a flat partition"]
    reference = with_backward(idiom.reference + "end n = norm(grad(w))\nend grad(w) = div(grad(w), n)\nend update w\n")
    read = plans(with_backward(idiom.plan), reference)
    assert as_held(*read) == read


def test_a_reference_that_has_the_name_of_a_view_is_left_as_it_is() -> None:
    idiom = IDIOMS["a flat partition"]
    named = idiom.reference.replace("program\n", "program\n`w: view` = identity(x)\n", 1)
    read = plans(with_backward(idiom.plan), with_backward(named))
    assert as_held(*read) == read
