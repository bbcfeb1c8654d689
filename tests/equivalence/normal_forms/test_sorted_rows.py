"""Ranks that sort the rows that they hold, compute with them one by one and put them back: as if they had not."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, assert_wrong_mutants_are_not_proved, numbers_of_proved, twins
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.equivalence.verdict.sorted_rows import without_sorted_rows
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

HEAD = (
    "weight wg f32[4,6]\nweight w f32[6,6]\ninput x f32[8,6]{cut}\nloss l\nprogram\ng = linear(x, wg)\np = softmax(g, dim=-1)\n"
)
TOP = "m, i = max(p, dim=-1)\nmu = unsqueeze(m, -1)\n"
LOSS = "y = mul({u}, mu)\nq = mul(y, y)\n"
ONE = HEAD.format(cut="") + TOP + "h = linear(x, w)\na = F.silu(h)\n" + LOSS.format(u="a") + "l: f32[] = sum(q)\n"
END = "l0: f32[] = sum(q)\nl = all-reduce(l0) over dp\nend reduce-gradients w, wg over dp\n"
RANKS = "mesh dp=2\n" + HEAD.format(cut=" dp:S(0)") + TOP + "o = argsort(i) || none\n"
BACK = "n = argsort(o) || none\nu = index_select(a, 0, n)\n"

IDIOMS = {
    "rows put back": Idiom(
        ONE,
        RANKS + "xs = index_select(x, 0, o)\nh = linear(xs, w)\na = F.silu(h)\n" + BACK + LOSS.format(u="u") + END,
        (
            ("n = argsort(o)", "n = argsort(i)"),
            ("n = argsort(o)", "n = argsort(o, descending=True)"),
            ("u = index_select(a, 0, n)", "u = index_select(a, 0, o)"),
            ("xs = index_select(x, 0, o)", "xs = index_select(x, 0, i)"),
        ),
    ),
    "rows that are summed as they are sorted": Idiom(
        ONE,
        RANKS + "xs = index_select(x, 0, o)\nh = linear(xs, w)\na = F.silu(h)\nms = index_select(mu, 0, o)\n"
        "y = mul(a, ms)\nq = mul(y, y)\n" + END,
        (("y = mul(a, ms)", "y = mul(a, mu)"), ("ms = index_select(mu, 0, o)", "k = argsort(o)\nms = index_select(mu, 0, k)")),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_sorted_rows_are_rows(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_rows_in_another_order_are_not(name: str, before: str, after: str) -> None:
    assert IDIOMS[name].verdict(before, after).outcome is not Outcome.PROVED


@pytest.mark.heavy
@pytest.mark.parametrize("name", IDIOMS)
def test_no_mutant_that_is_wrong_is_proved(name: str) -> None:
    assert_wrong_mutants_are_not_proved(IDIOMS[name])


OTHERWISE = {
    "summed up row after row": "a = cumsum(h, dim=0)",
    "by the places of the rows": "a = tril(h)",
    "a slice of the rows": "a = narrow(h, 0, 0, 4)",
    "dropped by the places of the rows": "a = dropout(h, p=0.1)",
    "reduced over ranks": "a = all-reduce(h) over dp",
    "with rows as they were": "a = add(h, x)",
    "overwritten": "a = F.silu(h)\nadd_(h!, 1.0)",
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_rows_that_are_used_otherwise_stay_sorted(name: str) -> None:
    plan, _ = IDIOMS["rows put back"].plans("a = F.silu(h)", OTHERWISE[name])
    assert without_sorted_rows(plan) is plan


def test_rows_that_are_returned_stay_sorted() -> None:
    idiom = IDIOMS["rows put back"]
    plan, _ = Idiom(idiom.reference, idiom.plan.replace("loss l\n", "loss l\noutput a\n"), ()).plans()
    assert without_sorted_rows(plan) is plan


STEPPED = """weight w f32[4]
state s f32[4]
input x f32[4]
loss l
program
h = mul(x, w)
q = tanh(h)
l: f32[] = sum(q)
end m = mul(grad(w), 0.5)
end u = sub(w, m)
end w = identity(u)
"""
LEFT = {
    "a weight": ("end w = identity(u)", "end o = argsort(u)\nend w = index_select(u, 0, o)"),
    "a weight that is copied into": (
        "end w = identity(u)",
        "end o = argsort(u)\nend v = index_select(u, 0, o)\nend copy_(w!, v)",
    ),
    "a state": ("end m", "t = mul(x, 2) || none\no = argsort(t) || none\ns = index_select(t, 0, o) || none\nend m"),
    "a state that is read before": ("end m", "end t = mul(s, x)\nend o = argsort(t)\nend s = index_select(t, 0, o)\nend m"),
}


@pytest.mark.parametrize("name", LEFT)
def test_rows_that_stay_after_the_step_stay_sorted(name: str) -> None:
    before, after = LEFT[name]
    unsorted = STEPPED.replace(before, after.replace("index_select(", "mul(").replace(", 0, o", ", 1.0"))
    plan, _ = Idiom(unsorted, STEPPED.replace(before, after), ()).plans()
    assert without_sorted_rows(plan) is plan
    assert Idiom(unsorted, STEPPED.replace(before, after), ()).verdict().outcome is not Outcome.PROVED
