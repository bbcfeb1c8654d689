"""Attention, softmax, losses and products that one plan writes out and the other has as one operator, both ways."""

from __future__ import annotations

from itertools import permutations

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

HEAD = """
weight q f32[2,8,4]
weight k f32[2,8,4]
weight v f32[2,8,4]
input x f32[2,8,4]
loss l
program
"""
TAIL = "r = mul(o, x)\nl: f32[1] = sum(r)\n"
TURNED = "kt = transpose(k, dim0=1, dim1=2)\n"
SHIFTED = "m = amax(s, dim=2, keepdim=True) || none\nd = sub(s, m)\ne = exp(d)\nt = sum(e, dim=2, keepdim=True)\n"

ATTENTION = {
    "one operator": "o = scaled_dot_product_attention(q, k, v)\n",
    "scores that are scaled": TURNED + "z = matmul(q, kt)\ns = mul(z, 0.5)\np = softmax(s, dim=2)\no = matmul(p, v)\n",
    "scores that are divided": TURNED + "z = matmul(q, kt)\ns = div(z, 2)\np = softmax(s, dim=-1)\no = matmul(p, v)\n",
    "queries that are scaled": TURNED + "a = mul(q, 0.5)\ns = matmul(a, kt)\np = softmax(s, dim=2)\no = matmul(p, v)\n",
    "keys that are scaled": "b = div(k, 2)\nkt = transpose(b, dim0=1, dim1=2)\ns = matmul(q, kt)\n"
    "p = softmax(s, dim=2)\no = matmul(p, v)\n",
    "einsum": 'z = einsum(q, k, equation="bld,bsd->bls")\ns = mul(z, 0.5)\np = softmax(s, dim=2)\n'
    'o = einsum(p, v, equation="bls,bsd->bld")\n',
    "a softmax that is written out": TURNED
    + "z = matmul(q, kt)\ns = div(z, 2)\n"
    + SHIFTED
    + "p = div(e, t)\no = matmul(p, v)\n",
    "a division behind": TURNED + "z = matmul(q, kt)\ns = div(z, 2)\n" + SHIFTED + "n = matmul(e, v)\no = div(n, t)\n",
}

LOSS = """
weight w f32[8,4]
input x f32[6,4]
input t i64[6]
loss l
program
  s = linear(x, w)
"""
LOSSES = {
    "one operator": "l: f32[1] = cross_entropy(s, t)\n",
    "a sum": 'y: f32[1] = cross_entropy(s, t, reduction="sum")\nl = div(y, 6)\n',
    "log-softmax": "p = log_softmax(s, dim=1)\nl: f32[1] = nll_loss(p, t)\n",
    "the logarithm of a softmax": "c = softmax(s, dim=1)\np = log(c)\nl: f32[1] = nll_loss(p, t)\n",
    "written out": "m = amax(s, dim=1) || none\nu = unsqueeze(m, dim=1) || none\nd = sub(s, u)\ne = exp(d)\nz = sum(e, dim=1)\n"
    "a = log(z)\np = masked_gather(d, t, dim=1, start=0, stop=8)\nb = sub(a, p)\nl: f32[1] = mean(b)\n",
    "written out and divided": "e = exp(s)\nz = sum(e, dim=1)\na = log(z)\np = masked_gather(s, t, dim=1, start=0, stop=8)\n"
    "b = sub(a, p)\ny: f32[1] = sum(b)\nl = div(y, 6)\n",
}


def attention(name: str) -> str:
    return with_backward(HEAD + ATTENTION[name] + TAIL)


def loss(name: str) -> str:
    return with_backward(LOSS + LOSSES[name])


PAIRS = [(attention(one), attention(other)) for one, other in permutations(ATTENTION, 2)]
PAIRS += [(loss(one), loss(other)) for one, other in permutations(LOSSES, 2)]
NAMES = [f"attention: {one}, {other}" for one, other in permutations(ATTENTION, 2)]
NAMES += [f"loss: {one}, {other}" for one, other in permutations(LOSSES, 2)]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=NAMES)
def test_it_makes_no_difference_how_it_is_written(one: str, other: str) -> None:
    verdict = verdict_on(one, other)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("text", [*map(attention, ATTENTION), *map(loss, LOSSES)])
def test_all_ways_to_write_it_compute_the_same(text: str) -> None:
    reference = attention("one operator") if "weight q" in text else loss("one operator")
    assert compare(*plans(reference, text)).outcome == "equal"


@pytest.mark.parametrize("name", list(ATTENTION))
def test_heads_may_be_split(name: str) -> None:
    text = "mesh tp=2\n" + (HEAD + ATTENTION[name] + TAIL).replace("[2,8,4]", "[2,8,4] tp:S(0)")
    text = text.replace("l: f32[1] = sum(r)", "y: f32[1] = sum(r)\nl = all-reduce(y) over tp")
    for other in ("one operator", "einsum", "a division behind"):
        verdict = verdict_on(with_backward(text), attention(other))
        assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


SPLIT = {
    "k f32[2,8,4]": "k f32[2,8,4] cp:S(1)",
    "v f32[2,8,4]": "v f32[2,8,4] cp:S(1)",
    "matmul(q, kt)": "matmul(qq, kt)",
    "m = amax(s, dim=2, keepdim=True)": "m0 = amax(s, dim=2, keepdim=True) || none\nm = all-reduce max(m0) over cp",
    "t = sum(e, dim=2, keepdim=True)": "t0 = sum(e, dim=2, keepdim=True)\nt = all-reduce(t0) over cp",
    "n = matmul(e, v)": "n0 = matmul(e, v)\nn = all-reduce(n0) over cp",
}
KEYS = "mesh cp=2\n" + HEAD + "qq = copy(q) over cp\n" + ATTENTION["a division behind"] + TAIL
for before, after in SPLIT.items():
    KEYS = KEYS.replace(before, after)


def test_keys_may_be_split_where_the_sums_are_added_up() -> None:
    text = with_backward(KEYS)
    assert compare(*plans(attention("one operator"), text)).outcome == "equal"
    verdict = verdict_on(text, attention("one operator"))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


WRONG = {
    "another scale": ("div(z, 2)", "div(z, 4)"),
    "no scale": ("div(z, 2)", "div(z, 1)"),
    "the softmax of another dimension": ("dim=2, keepdim=True)\nn", "dim=1, keepdim=True)\nn"),
    "a shift of single scores": ("sub(s, m)", "sub(s, s)"),
    "a shift along another dimension": ("amax(s, dim=2", "amax(s, dim=1"),
    "values for keys": ("matmul(e, v)", "matmul(e, k)"),
    "keys for queries": ("matmul(q, kt)", "matmul(k, kt)"),
    "a sum of scores": ("t = sum(e", "t = sum(s"),
    "a product instead of a division": ("o = div(n, t)", "o = mul(n, t)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_written_out_with_a_mistake_is_not_proved(name: str) -> None:
    before, after = WRONG[name]
    text = HEAD + ATTENTION["a division behind"] + TAIL
    assert before in text
    assert verdict_on(with_backward(text.replace(before, after)), attention("one operator")).outcome is not Outcome.PROVED


MUTATED = [
    (with_backward(KEYS), attention("one operator"), 7),
    (attention("a softmax that is written out"), attention("one operator"), 7),
    (attention("one operator"), attention("a division behind"), 5),
    (loss("written out and divided"), loss("one operator"), 7),
    (loss("the logarithm of a softmax"), loss("written out"), 7),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("text", "other", "every"), MUTATED, ids=range(len(MUTATED)))
def test_no_mutant_that_computes_something_else_is_proved(text: str, other: str, every: int) -> None:
    parallel, reference = plans(text, other)
    assert not list(proved_and_not_equal(reference, list(mutants(parallel))[::every]))


def test_a_mask_that_is_doubled_many_times_is_looked_at_once() -> None:
    doubled = "buffer m0 f32[2,8,8]\nprogram\n" + "".join(f"m{n + 1} = add(m{n}, m{n})\n" for n in range(64))
    fused = "o = scaled_dot_product_attention(q, k, v, m64)\n"
    written = TURNED + "z = matmul(q, kt)\ns = div(z, 2)\nb = add(s, m64)\np = softmax(b, dim=2)\no = matmul(p, v)\n"
    one, other = (with_backward(HEAD.replace("program\n", doubled) + way + TAIL) for way in (fused, written))
    assert verdict_on(one, other).outcome is Outcome.PROVED


def test_a_shift_that_is_viewed_in_circles_is_looked_at_once() -> None:
    shifted = KEYS.replace("all-reduce max(m0) over cp", "all-reduce(m0) over cp\nm2 = identity(m)\nm = identity(m2)")
    assert shifted.count("identity") == 2
    assert verdict_on(with_backward(shifted), attention("a division behind")).outcome is not Outcome.PROVED
