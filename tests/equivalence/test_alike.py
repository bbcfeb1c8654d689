"""Values that are the same all along a dimension, or of which a rank makes its own part: proved, and wrong twins are not."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_attention import plans
from tests.equivalence.test_idioms import Idiom
from tests.equivalence.test_text_plans import verdict_on
from tvlint.equivalence.verdict.on_numbers import Agreement, Difference
from tvlint.equivalence.verdict.prove import is_proved
from tvlint.findings import Outcome

ALIKE = """
weight w f32[4,6]
input x f32[4]
output q
program
q = mul(x, 2.0) || none
k = narrow(w, 1, {start}, {length})
"""
UPSTREAM = {
    "ones": "l: f32[] = sum(k)\n",
    "one number for each row": "u = unsqueeze(x, 1) || none\nm = mul(k, u)\nl: f32[] = sum(m)\n",
}


@pytest.mark.parametrize("other", [(0, 3), (0, 6), (1, 1), (1, 3)])
@pytest.mark.parametrize("name", UPSTREAM)
def test_what_is_alike_in_a_slice_is_as_long_as_the_slice(name: str, other: tuple[int, int]) -> None:
    one, longer = (
        with_backward(ALIKE.format(start=start, length=length) + UPSTREAM[name]) for start, length in ((0, 1), other)
    )
    for reference, plan in ((one, longer), (longer, one)):
        assert isinstance(on_numbers_of(*plans(plan, reference)), Difference)
        assert not is_proved(*plans(plan, reference))
        assert is_proved(*plans(plan, plan))


IDIOMS = {
    "a flat bucket, with gradients that are one number": Idiom(
        """weight w f32[3,4]
weight b f32[3]
weight c f32[3]
input x f32[8,4]
loss l
program
h = linear(x, w, b)
y = add(h, c)
l: f32[] = mean(y)
end update w, b, c
""",
        """mesh dp=2
weight w f32[3,4]
weight b f32[3]
weight c f32[3]
input x f32[8,4] dp:S(0)
loss l
program
h = linear(x, w, b)
y = add(h, c)
l0: f32[] = mean(y)
l = all-reduce avg(l0) over dp
end gw = reshape(grad(w), [12])
end f = cat([grad(b), gw, grad(c)], dim=0)
end d = div(f, 2)
end r = all-reduce(d) over dp
end rb, rw, rc = split(r, [3, 12, 3], dim=0)
end grad(b) = identity(rb)
end grad(c) = identity(rc)
end grad(w) = view(rw, [3, 4])
end update w, b, c
""",
        (("div(f, 2)", "div(f, 1)"), ("grad(c) = identity(rc)", "grad(c) = mul(rc, 2)")),
    ),
}


TWINS = [(name, *wrong) for name, idiom in IDIOMS.items() for wrong in idiom.wrong]


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_proved(name: str) -> None:
    reference, plan = (with_backward(text) for text in (IDIOMS[name].reference, IDIOMS[name].plan))
    verdict = verdict_on(plan, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert on_numbers_of(*plans(plan, reference)) == Agreement()


@pytest.mark.parametrize(("name", "before", "after"), TWINS)
def test_its_wrong_twins_are_not(name: str, before: str, after: str) -> None:
    assert before in IDIOMS[name].plan
    pair = plans(with_backward(IDIOMS[name].plan.replace(before, after)), with_backward(IDIOMS[name].reference))
    assert isinstance(on_numbers_of(*pair), Difference)
    assert not is_proved(*pair)
