"""Layouts: values with joined dimensions, in another order, cut and put side by side, and masks written in several ways."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.ops.test_arithmetic_forms import Arithmetic
from tests.sampling import sampled, sampled_tuples
from tvlint.analyses.relations.terms import arithmetic, layouts
from tvlint.analyses.relations.terms.expressions import SPLIT, TooLargeError, finer
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ops.spec import UnsupportedError

pytestmark = pytest.mark.usefixtures("without_repairs")

TOKENS = """
weight w f32[8,8]
weight b f32[8]
weight v f32[4,8]
input x f32[2,4,8]
loss l
program
"""
SQUARE = "s = pow(y, 2)\nl: f32[1] = sum(s)\n"
CUBE = "s = pow(y, 3)\nl: f32[1] = sum(s)\n"
CLASSES = """
weight w f32[8,8]
input x f32[2,4,8]
input t i64[2,4]
loss l
program
"""
HEADS = """
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
buffer m bool[4,4]
input x f32[2,4,8]
loss l
program
"""
PROJECTED = """q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
q1 = view(q0, [2, 4, 4, 2])
k1 = view(k0, [2, 4, 4, 2])
v1 = view(v0, [2, 4, 4, 2])
q = transpose(q1, 1, 2)
k = transpose(k1, 1, 2)
v = transpose(v1, 1, 2)
"""
SCORES = "kt = transpose(k, 2, 3)\nsc = matmul(q, kt)\nsd = div(sc, 1.4142135623730951)\n"
WEIGHTED = "p = softmax(sm, dim=-1)\no = matmul(p, v)\ny = transpose(o, 1, 2)\n" + CUBE

POSITIONS = "c = arange(4)\nr = unsqueeze(c, 1)\nd = sub(r, c)\n"
FILLED = "sm = masked_fill(sd, m, -inf)\n" + WEIGHTED

PLAIN = "h = linear(x, w)\na = {f}(h)\ny = linear(a, v)\n" + SQUARE
FLAT = "f = view(x, [8, 8])\nh = linear(f, w)\na = {f}(h)\nz = linear(a, v)\ny = view(z, [2, 4, 4])\n" + SQUARE
SWAPPED = "f = transpose(x, 0, 1)\nh = linear(f, w)\na = {f}(h)\nz = linear(a, v)\ny = transpose(z, 0, 1)\n" + SQUARE
BOTH = (
    "i = transpose(x, 0, 1)\nf = reshape(i, [8, 8])\nh = linear(f, w)\na = {f}(h)\nz = linear(a, v)\ny = view(z, [4, 2, 4])\n"
    + SQUARE
)


def _of(head: str, **ways: str) -> dict[str, str]:
    return {name: with_backward(head + text) for name, text in ways.items()}


WAYS = {
    "tokens through gelu": _of(
        TOKENS,
        plain=PLAIN.format(f="gelu"),
        flat=FLAT.format(f="gelu"),
        swapped=SWAPPED.format(f="gelu"),
        both=BOTH.format(f="gelu"),
    ),
    "tokens through relu": _of(
        TOKENS,
        plain=PLAIN.format(f="relu"),
        flat=FLAT.format(f="relu"),
        swapped=SWAPPED.format(f="relu"),
        both=BOTH.format(f="relu"),
    ),
    "addmm": _of(
        TOKENS,
        plain="h = linear(x, w, b)\ny = relu(h)\n" + CUBE,
        flat="f = view(x, [8, 8])\ni = t(w)\nh = addmm(b, f, i)\nz = relu(h)\ny = view(z, [2, 4, 8])\n" + CUBE,
    ),
    "classes": _of(
        CLASSES,
        plain="z = linear(x, w)\nf = view(z, [8, 8])\nu = view(t, [8])\nl: f32[1] = cross_entropy(f, u)\n",
        swapped="i = transpose(x, 0, 1)\nz = linear(i, w)\nf = reshape(z, [8, 8])\nj = transpose(t, 0, 1)\n"
        "u = reshape(j, [8])\nl: f32[1] = cross_entropy(f, u)\n",
    ),
    "parts": _of(
        TOKENS,
        chunk="h = linear(x, w)\ng, u = torch.chunk(h, 2, dim=-1)\na = silu(g)\ny = mul(a, u)\n" + SQUARE,
        narrow="h = linear(x, w)\ng = narrow(h, 2, 0, 4)\nu = narrow(h, 2, 4, 4)\na = silu(g)\ny = mul(a, u)\n" + SQUARE,
        split="h = linear(x, w)\ng, u = split(h, [4, 4], dim=2)\na = silu(g)\ny = mul(u, a)\n" + SQUARE,
        joined="i = narrow(w, 0, 0, 4)\nj = narrow(w, 0, 4, 4)\nk = cat([j, i], dim=0)\nh = linear(x, k)\n"
        "u, g = torch.chunk(h, 2, dim=-1)\na = silu(g)\ny = mul(a, u)\n" + SQUARE,
    ),
    "causal attention": _of(
        HEADS.replace("buffer m bool[4,4]\n", ""),
        kernel=PROJECTED + "o = scaled_dot_product_attention(q, k, v, is_causal=True)\ny = transpose(o, 1, 2)\n" + CUBE,
        above=PROJECTED
        + SCORES
        + 'n = ones([4, 4])\ni = triu(n, 1)\nj = to(i, "bool")\nsm = masked_fill(sd, j, -inf)\n'
        + WEIGHTED,
        below=PROJECTED + SCORES + 'n = ones([4, 4], dtype="bool")\ni = tril(n)\nsm = where(i, sd, -inf)\n' + WEIGHTED,
        positions=PROJECTED
        + SCORES
        + "c = arange(4)\nd = arange(4)\nr = unsqueeze(d, 1)\ni = gt(c, r)\nsm = masked_fill(sd, i, -inf)\n"
        + WEIGHTED,
        kept=PROJECTED
        + SCORES
        + "c = arange(4)\nr = unsqueeze(c, 1)\ni = le(c, r)\nj = logical_not(i)\nsm = masked_fill(sd, j, -inf)\n"
        + WEIGHTED,
        sequence_first="""i = transpose(x, 0, 1)
q0 = linear(i, wq)
k0 = linear(i, wk)
v0 = linear(i, wv)
q = view(q0, [4, 2, 4, 2])
k = view(k0, [4, 2, 4, 2])
v = view(v0, [4, 2, 4, 2])
sc = einsum("sbhd,tbhd->bhst", q, k)
sd = mul(sc, 0.7071067811865476)
c = arange(4)
r = unsqueeze(c, 1)
n = lt(r, c)
sm = masked_fill(sd, n, -inf)
p = softmax(sm, dim=-1)
y = einsum("bhst,tbhd->sbhd", p, v)
"""
        + CUBE,
    ),
    "attention with a mask": _of(
        HEADS,
        filled=PROJECTED + SCORES + "sm = masked_fill(sd, m, -inf)\n" + WEIGHTED,
        kernel=PROJECTED + "n = logical_not(m)\no = scaled_dot_product_attention(q, k, v, n)\ny = transpose(o, 1, 2)\n" + CUBE,
        chosen=PROJECTED + SCORES + "n = logical_not(m)\nsm = where(n, sd, -inf)\n" + WEIGHTED,
    ),
    "a window of keys": _of(
        HEADS.replace("buffer m bool[4,4]\n", ""),
        either=PROJECTED + SCORES + POSITIONS + "e = lt(d, 0)\nf = ge(d, 2)\nm = logical_or(e, f)\n" + FILLED,
        both=PROJECTED
        + SCORES
        + POSITIONS
        + "e = ge(r, c)\nf = gt(2, d)\nn = logical_and(f, e)\nm = logical_not(n)\n"
        + FILLED,
        chosen=PROJECTED
        + SCORES
        + POSITIONS
        + "h = sub(c, r)\ne = le(h, 0)\nf = gt(h, -2)\nm = logical_and(e, f)\nsm = where(m, sd, -inf)\n"
        + WEIGHTED,
        triangles=PROJECTED
        + SCORES
        + 'n = ones([4, 4], dtype="bool")\ne = triu(n, 1)\nf = tril(n, -2)\n'
        + "se = masked_fill(sd, e, -inf)\nsm = masked_fill(se, f, -inf)\n"
        + WEIGHTED,
    ),
    "stacked": _of(
        TOKENS,
        unbound="h = linear(x, w)\ni = view(h, [2, 4, 2, 4])\ng, u = unbind(i, 2)\na = silu(g)\ny = mul(a, u)\n" + SQUARE,
        selected="h = linear(x, w)\ni = view(h, [2, 4, 2, 4])\ng = select(i, 2, 0)\nu = select(i, -2, 1)\n"
        "a = silu(g)\ny = mul(a, u)\n" + SQUARE,
    ),
}

WRONG = [
    ("tokens through relu", "swapped", "relu(h)", "silu(h)"),
    ("addmm", "flat", "addmm(b, f, i)", "addmm(b, f, w)"),
    ("classes", "swapped", "j = transpose(t, 0, 1)", "j = view(t, [4, 2])"),
    ("parts", "narrow", "narrow(h, 2, 4, 4)", "narrow(h, 2, 3, 4)"),
    ("parts", "joined", "narrow(w, 0, 4, 4)", "narrow(w, 0, 0, 4)"),
    ("parts", "joined", "cat([j, i], dim=0)", "cat([i, j], dim=0)"),
    ("causal attention", "above", "triu(n, 1)", "triu(n, 2)"),
    ("causal attention", "below", "tril(n)", "tril(n, 1)"),
    ("causal attention", "below", "tril(n)", "triu(n)"),
    ("causal attention", "positions", "gt(c, r)", "ge(c, r)"),
    ("causal attention", "positions", "gt(c, r)", "lt(c, r)"),
    ("causal attention", "kept", "j = logical_not(i)", "j = identity(i)"),
    ("causal attention", "sequence_first", "lt(r, c)", "lt(c, r)"),
    ("causal attention", "sequence_first", "sbhd,tbhd->bhst", "sbhd,tbhd->bhts"),
    ("a window of keys", "both", "gt(2, d)", "gt(3, d)"),
    ("a window of keys", "both", "logical_and(f, e)", "logical_or(f, e)"),
    ("a window of keys", "chosen", "gt(h, -2)", "ge(h, -2)"),
    ("a window of keys", "chosen", "sub(c, r)", "sub(r, c)"),
    ("a window of keys", "triangles", "tril(n, -2)", "tril(n, -1)"),
    ("stacked", "unbound", "g, u = unbind", "u, g = unbind"),
    ("stacked", "selected", "select(i, 2, 0)", "select(i, 2, 1)"),
    ("attention with a mask", "kernel", "n = logical_not(m)", "n = identity(m)"),
    ("attention with a mask", "chosen", "n = logical_not(m)", "n = identity(m)"),
]

PAIRS = [(name, one, other) for name, ways in WAYS.items() for one, other in permutations(ways, 2)]


@pytest.mark.parametrize(("name", "one", "other"), sampled_tuples(PAIRS, 3), ids=[": ".join(pair) for pair in PAIRS])
def test_it_makes_no_difference_in_which_layout_it_is_computed(name: str, one: str, other: str) -> None:
    verdict = verdict_on(WAYS[name][one], WAYS[name][other])
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    reference, plan = plans(WAYS[name][other], WAYS[name][one])
    assert not isinstance(on_numbers_of(plan, reference), Difference)


@pytest.mark.parametrize(
    ("name", "way", "before", "after"), sampled_tuples(WRONG, 3), ids=[f"{own[0]}: {own[3]}" for own in WRONG]
)
def test_what_computes_something_else_is_not_proved(name: str, way: str, before: str, after: str) -> None:
    right = WAYS[name][way]
    assert before in right
    wrong = right.replace(before, after)
    assert verdict_on(wrong, WAYS[name][next(iter(WAYS[name]))]).outcome is not Outcome.PROVED
    reference, plan = plans(WAYS[name][next(iter(WAYS[name]))], wrong)
    assert on_numbers_of(plan, reference) != Agreement()


@pytest.mark.parametrize("name", sampled(WAYS, 3))
def test_a_term_in_one_layout_is_what_the_term_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Terms, Any, int, int]] = []
    tell, view = arithmetic.sum_of_products, layouts.viewed

    def told(terms: Terms, head: Any, operands: Any, shape: Any, slot: int) -> int:
        form = tell(terms, head, operands, shape, slot)
        found.append((terms, None, terms.term(head, tuple(operands), shape, slot), form))
        return form

    def viewed(terms: Terms, term: int, runs: Any, shape: Any, slot: int) -> int | None:
        form = view(terms, term, runs, shape, slot)
        if form is not None:
            found.append((terms, shape, term, form))
        return form

    monkeypatch.setattr(arithmetic, "sum_of_products", told)
    monkeypatch.setattr(layouts, "viewed", viewed)
    ways = list(WAYS[name])
    for way in ways[1:]:
        prove(*plans(WAYS[name][way], WAYS[name][ways[0]]))
    numbers: dict[int, Arithmetic] = {}
    compared = 0
    for terms, shape, term, form in found:
        own = numbers.setdefault(id(terms), Arithmetic(terms))
        try:
            expected, actual = own.of(term), own.of(form)
        except (UnsupportedError, ValueError, IndexError, TypeError, StopIteration):
            continue
        if term != form:
            compared += 1
            assert prod(np.shape(expected)) == prod(np.shape(actual))
            same = np.reshape(expected, np.shape(actual)) if shape is not None else expected
            np.testing.assert_allclose(same, actual, rtol=1e-8, atol=1e-10, err_msg=f"{terms.keys[term]} {terms.keys[form]}")
    assert compared > 5


def test_dimensions_that_are_put_together_in_ways_that_do_not_fit_are_left_as_they_are() -> None:
    assert finer((2, 4), (8,)) == (2, 4)
    assert finer((2, 4), (4, 2)) == (2, 2, 2)
    assert finer((8,), (2, 2, 2)) == (2, 2, 2)
    with pytest.raises(TooLargeError):
        finer((2, 3), (3, 2))


def test_dimensions_that_an_operator_needs_whole_are_not_brought_into_another_order() -> None:
    terms = Terms()
    image = terms.term(("input", 0, "float32"), (), (4, 6), -1)
    algebra = Algebra(terms)
    turned, _ = algebra.as_term(algebra.of_term(image, (1, 0)), (0, 1))
    softmax = ("softmax", 0, (None,), ((0, 1), (0, 1), (), (), (0, 1)), ())
    assert layouts.in_any_layout(terms, softmax, (turned,)) is None
    rows = ("softmax", 0, (None,), ((0, 1), (0, 1), (), (), (1,)), ())
    found = layouts.in_any_layout(terms, rows, (turned,))
    assert found is not None
    assert found[0][3] == ((0, 1), (0, 1), (), (), (0,))


def test_what_a_diagonal_is_where_dimensions_are_joined_is_not_what_all_elements_are() -> None:
    terms = Terms()
    cube = terms.term(("input", 0, "float32"), (), (2, 2, 6), -1)
    other = terms.term(("input", 1, "float32"), (), (2, 2), -1)
    parted = terms.term((SPLIT, (1, 1, 2)), (cube,), (2, 2, 2, 3), -1)
    algebra = Algebra(terms)
    diagonal, _ = algebra.as_term(algebra.of_term(parted, (0, 0, 2, 3)), (0, 2, 3))
    whole = algebra.multiplied(algebra.of_term(parted, (0, 1, 2, 3)), algebra.of_term(other, (0, 1)))
    product, _ = algebra.as_term(whole, range(4))
    patterns = []
    for term, counts in ((diagonal, (1, 2)), (product, (1, 1, 2))):
        ((_, factors),) = terms.keys[Algebra(terms).merged(term, counts)][1]
        patterns.append([pattern for pattern, _ in factors])
    assert patterns == [[(0, 0, 1)], [(0, 1, 2), (0, 1)]]


def test_what_is_filled_with_infinity_does_not_cancel_out() -> None:
    head = HEADS.replace("weight wk f32[8,8]\nweight wv f32[8,8]\nbuffer m bool[4,4]", "buffer m bool[4,8]")
    plain = with_backward(head + "h = linear(x, wq)\ny = mul(h, 2.0)\n" + SQUARE)
    for filled in (
        "a = masked_fill(h, m, -inf)\nk = sub(h, a)\nn = add(k, a)\ny = add(n, h)\n",
        "a = masked_fill(h, m, -inf)\nk = mul(a, 0.0)\nn = add(k, h)\ny = add(n, h)\n",
    ):
        wrong = with_backward(head + "h = linear(x, wq)\n" + filled + SQUARE)
        assert verdict_on(wrong, wrong).outcome is Outcome.PROVED
        assert verdict_on(wrong, plain).outcome is not Outcome.PROVED
