"""Operators and gradients as sums of products: both ways to write one are proved, are what they were on numbers, and what
differs is not proved.
"""

from __future__ import annotations

import math
from itertools import pairwise, permutations, product
from math import pi, prod, sqrt
from typing import Any

import numpy as np
import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.normal_forms.test_written_out import ATTENTION as WRITTEN
from tests.equivalence.normal_forms.test_written_out import attention
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.ops.test_normal_forms import Numbers
from tests.sampling import sampled, sampled_tuples
from tvlint.analyses.relations.terms import arithmetic
from tvlint.analyses.relations.terms.arithmetic import ATTENTION
from tvlint.analyses.relations.terms.expressions import (
    CIRCLE,
    FLAG,
    FUNCTION,
    MERGE,
    PAD,
    PLACE,
    SLICE,
    SPLIT,
    SUM_OF_PRODUCTS,
    TOTAL,
)
from tvlint.analyses.relations.terms.flags import is_of_flags
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ops.spec import UnsupportedError

pytestmark = pytest.mark.usefixtures("without_repairs")

HEAD = """
weight w f32[8,8]
weight g f32[8]
weight b f32[8]
input x f32[4,8]
input z f32[4,8]
loss l
program
  h = linear(x, w)
"""
TAIL = "q = pow(y, 2)\nl: f32[1] = sum(q)\n"
ROOT = "m = mean(s, dim=-1, keepdim=True)\ne = add(m, 1e-06)\n"
LAST = "y = mul(n, g)\n"
CENTRED = "m = mean(h, dim=-1, keepdim=True)\nc = sub(h, m)\n"
SCALED = "k = mul(n, g)\ny = add(k, b)\n"
LOG_SUM = "e = exp({0})\ns = sum(e, dim=-1)\nj = log(s)\n"
PICKED = "u = unsqueeze(t, 1) || none\np1 = gather({0}, 1, u)\np = squeeze(p1, 1)\n"
SHIFTED = "m = amax(h, dim=-1, keepdim=True) || none\nd = sub(h, m)\n"
COMPARED = "v = arange(8) || none\nu = unsqueeze(t, 1) || none\nf = eq(u, v) || none\n"

WAYS = {
    "rms_norm": {
        "one operator": "y = rms_norm(h, [8], g, 1e-06)\n",
        "a product": "s = mul(h, h)\n" + ROOT + "r = rsqrt(e)\nn = mul(h, r)\n" + LAST,
        "a power": "s = pow(h, 2)\n" + ROOT + "r = pow(e, -0.5)\nn = mul(h, r)\n" + LAST,
        "a division": "s = pow(h, 2)\n" + ROOT + "r = sqrt(e)\nn = div(h, r)\n" + LAST,
        "a sum": "s = mul(h, h)\nk = sum(s, dim=-1, keepdim=True)\nm = div(k, 8)\ne = add(m, 1e-06)\nr = sqrt(e)\n"
        "v = reciprocal(r)\nn = mul(v, h)\ny = mul(g, n)\n",
    },
    "layer_norm": {
        "one operator": "y = layer_norm(h, [8], g, b, 1e-05)\n",
        "a variance": CENTRED + "a = var(h, dim=-1, keepdim=True, unbiased=False)\ne = add(a, 1e-05)\nr = sqrt(e)\n"
        "n = div(c, r)\n" + SCALED,
        "a product": CENTRED + "s = mul(c, c)\na = mean(s, dim=-1, keepdim=True)\ne = add(a, 1e-05)\nr = rsqrt(e)\n"
        "n = mul(c, r)\n" + SCALED,
    },
    "silu": {"one operator": "y = silu(h)\n", "written out": "s = sigmoid(h)\ny = mul(h, s)\n"},
    "mish": {
        "one operator": "y = mish(h)\n",
        "written out": "e = exp(h)\np = add(e, 1.0)\ns = log(p)\nk = tanh(s)\ny = mul(h, k)\n",
    },
    "tanhshrink": {"one operator": "y = tanhshrink(h)\n", "written out": "k = tanh(h)\ny = sub(h, k)\n"},
    "gelu": {
        "one operator": "y = gelu(h)\n",
        "written out": "k = div(h, 1.4142135623730951)\ne = erf(k)\np = add(e, 1.0)\na = mul(h, 0.5)\ny = mul(a, p)\n",
        "another order": "k = mul(h, 0.7071067811865476)\ne = erf(k)\np = add(1.0, e)\na = mul(h, p)\ny = div(a, 2)\n",
    },
    "approximate gelu": {
        "one operator": 'y = gelu(h, approximate="tanh")\n',
        "written out": "u = pow(h, 3)\nc = mul(u, 0.044715)\ns = add(h, c)\nk = mul(s, 0.7978845608028654)\ne = tanh(k)\n"
        "p = add(e, 1.0)\na = mul(h, 0.5)\ny = mul(a, p)\n",
    },
    "softmax": {
        "one operator": "y = softmax(h, dim=-1)\n",
        "written out": "e = exp(h)\nt = sum(e, dim=-1, keepdim=True)\ny = div(e, t)\n",
        "in another order": "e = exp(h)\nt = sum(e, dim=-1, keepdim=True)\nr = reciprocal(t)\ny = mul(r, e)\n",
    },
    "log_softmax": {
        "one operator": "y = log_softmax(h, dim=-1)\n",
        "written out": "e = exp(h)\nt = sum(e, dim=-1, keepdim=True)\nd = log(t)\ny = sub(h, d)\n",
    },
    "squared error": {
        "one operator": "y = mse_loss(h, z)\n",
        "a product": "d = sub(h, z)\nk = mul(d, d)\ny = mean(k)\n",
        "a sum": "d = sub(h, z)\nk = pow(d, 2)\nt = sum(k)\ny = div(t, 32)\n",
    },
    "cross_entropy": {
        "one operator": 'y = cross_entropy(h, t, reduction="none")\n',
        "written out": LOG_SUM.format("h") + PICKED.format("h") + "y = sub(j, p)\n",
        "shifted": SHIFTED + LOG_SUM.format("d") + PICKED.format("d") + "y = sub(j, p)\n",
        "logarithms of chances": "c = log_softmax(h, dim=-1)\n" + PICKED.format("c") + "y = neg(p)\n",
        "compared with positions": LOG_SUM.format("h") + COMPARED + "k = where(f, h, 0.0)\np = sum(k, dim=-1)\ny = sub(j, p)\n",
        "flags as numbers": LOG_SUM.format("h")
        + COMPARED
        + 'i = to(f, dtype="f32") || none\nk = mul(h, i)\np = sum(k, dim=-1)\ny = sub(j, p)\n',
    },
    "label smoothing": {
        "one operator": 'y = cross_entropy(h, t, reduction="none", label_smoothing=0.1)\n',
        "written out": "c = log_softmax(h, dim=-1)\n"
        + PICKED.format("c")
        + "k = mean(c, dim=-1)\na = mul(p, -0.9)\no = mul(k, 0.1)\ny = sub(a, o)\n",
        "two losses": LOG_SUM.format("h")
        + PICKED.format("h")
        + "n = sub(j, p)\nk = mean(h, dim=-1)\no = sub(j, k)\na = mul(n, 0.9)\nr = mul(o, 0.1)\ny = add(a, r)\n",
    },
    "norm": {
        "one operator": "n = norm(h, dim=-1, keepdim=True)\na = add(n, 0.1)\ny = div(h, a)\n",
        "written out": "s = mul(h, h)\nk = sum(s, dim=-1, keepdim=True)\nn = sqrt(k)\na = add(n, 0.1)\ny = div(h, a)\n",
    },
    "std": {
        "one operator": "n = std(h, dim=-1, keepdim=True)\ny = mul(h, n)\n",
        "written out": CENTRED + "s = mul(c, c)\nk = sum(s, dim=-1, keepdim=True)\nv = div(k, 7)\nn = sqrt(v)\ny = mul(h, n)\n",
    },
    "swiglu": {
        "one operator": "e = tanh(h)\ny = swiglu(h, e)\n",
        "written out": "e = tanh(h)\ns = sigmoid(h)\na = mul(h, s)\ny = mul(a, e)\n",
    },
    "log1p": {"one operator": "e = exp(h)\ny = log1p(e)\n", "written out": "e = exp(h)\na = add(e, 1)\ny = log(a)\n"},
    "erfc": {"one operator": "y = erfc(h)\n", "written out": "e = erf(h)\ny = sub(1.0, e)\n"},
    "expm1": {"one operator": "y = expm1(h)\n", "written out": "e = exp(h)\ny = sub(e, 1)\n"},
    "sigmoid": {
        "one operator": "y = sigmoid(h)\n",
        "written out": "e = exp(h)\na = add(e, 1)\ny = div(e, a)\n",
        "of the negative": "n = neg(h)\ne = exp(n)\na = add(e, 1)\ny = reciprocal(a)\n",
        "what the negative leaves": "n = neg(h)\ns = sigmoid(n)\ny = sub(1.0, s)\n",
    },
    "logsigmoid": {
        "one operator": "y = logsigmoid(h)\n",
        "written out": "s = sigmoid(h)\ny = log(s)\n",
        "a sum of powers": "n = neg(h)\ne = exp(n)\na = add(e, 1)\nj = log(a)\ny = neg(j)\n",
    },
    "a division of both": {
        "one operator": "e = exp(h)\na = add(e, 1)\ns = add(h, g)\ny = div(s, a)\n",
        "written out": "e = exp(h)\na = add(e, 1)\ns = div(h, a)\nk = div(g, a)\ny = add(k, s)\n",
    },
    "sinh": {
        "one operator": "y = sinh(h)\n",
        "written out": "n = neg(h)\ne = exp(n)\na = exp(h)\nk = sub(a, e)\ny = mul(k, 0.5)\n",
    },
    "cosh": {
        "one operator": "y = cosh(h)\n",
        "written out": "n = neg(h)\ne = exp(n)\na = exp(h)\nk = add(a, e)\ny = div(k, 2)\n",
    },
    "kl_div": {
        "one operator": 'k = softmax(z, dim=-1) || none\nc = log_softmax(h, dim=-1)\ny = kl_div(c, k, reduction="batchmean")\n',
        "written out": "k = softmax(z, dim=-1) || none\nc = log_softmax(h, dim=-1)\nj = log(k) || none\nd = sub(j, c)\n"
        "u = mul(k, d) || _, grad(d) = backward u ({y})\nm = sum(u)\ny = div(m, 4)\n",
    },
    "chances of scores": {
        "one operator": "y = binary_cross_entropy_with_logits(h, z)\n",
        "written out": "e = exp(h)\na = add(e, 1)\nj = log(a)\nu = mul(h, z)\nd = sub(j, u)\nm = sum(d)\ny = div(m, 32)\n",
    },
    "a transpose": {
        "before": "i = transpose(h, 0, 1)\nj = gelu(i)\ny = transpose(j, 0, 1)\n",
        "none": "y = gelu(h)\n",
    },
}

WRONG = {
    "mish": ("written out", [("1.0", "2.0"), ("tanh(s)", "sigmoid(s)")]),
    "tanhshrink": ("written out", [("tanh(h)", "sigmoid(h)")]),
    "rms_norm": ("a product", [("1e-06", "1e-05"), ("mul(h, r)", "add(h, r)"), ("mul(h, h)", "mul(x, x)")]),
    "layer_norm": ("a product", [("1e-05", "1e-06"), ("mul(c, r)", "mul(h, r)"), ("sub(h, m)", "add(h, m)")]),
    "silu": ("written out", [("mul(h, s)", "mul(x, s)"), ("mul(h, s)", "mul(s, s)")]),
    "gelu": ("written out", [("1.4142135623730951", "1.41"), ("add(e, 1.0)", "add(e, 2.0)"), ("0.5", "0.25")]),
    "approximate gelu": ("written out", [("0.044715", "0.0447"), ("pow(h, 3)", "pow(h, 2)")]),
    "softmax": ("written out", [("dim=-1", "dim=0"), ("div(e, t)", "div(h, t)")]),
    "log_softmax": ("written out", [("sub(h, d)", "add(h, d)"), ("sub(h, d)", "sub(e, d)")]),
    "squared error": ("a product", [("sub(h, z)", "add(h, z)"), ("mean(k)", "sum(k)")]),
    "cross_entropy": ("shifted", [("sub(j, p)", "add(j, p)"), ("gather(d", "gather(h"), ("exp(d)", "exp(h)")]),
    "label smoothing": ("written out", [("-0.9", "-0.8"), ("mean(c", "sum(c"), ("mean(c", "mean(h")]),
    "norm": ("written out", [("sqrt(k)", "exp(k)")]),
    "std": ("written out", [("div(k, 7)", "div(k, 8)"), ("sqrt(v)", "exp(v)")]),
    "swiglu": ("written out", [("mul(h, s)", "mul(e, s)")]),
    "log1p": ("written out", [("add(e, 1)", "add(e, 2)")]),
    "erfc": ("written out", [("sub(1.0", "sub(2.0")]),
    "expm1": ("written out", [("sub(e, 1)", "sub(e, 2)")]),
    "sigmoid": ("what the negative leaves", [("sub(1.0, s)", "sub(2.0, s)")]),
    "logsigmoid": ("written out", [("log(s)", "exp(s)")]),
    "a division of both": ("written out", [("div(h, a)", "div(h, e)")]),
    "sinh": ("written out", [("mul(k, 0.5)", "mul(k, 0.25)")]),
    "cosh": ("written out", [("div(k, 2)", "div(k, 3)")]),
    "kl_div": ("written out", [("sub(j, c)", "add(j, c)"), ("div(m, 4)", "div(m, 32)")]),
    "chances of scores": ("written out", [("sub(j, u)", "add(j, u)"), ("add(e, 1)", "add(e, 2)")]),
    "a transpose": ("before", [("gelu(i)", "relu(i)")]),
}


TARGETS = {name: HEAD.replace("loss l", "input t i64[4]\nloss l") for name in ("cross_entropy", "label smoothing")}


def program(name: str, way: str) -> str:
    return with_backward(TARGETS.get(name, HEAD) + WAYS[name][way] + TAIL)


UNBOUND = list(product(("shifted", "logarithms of chances"), ("compared with positions", "flags as numbers")))
"""Ways to write `cross_entropy` that are one only where targets are classes, which the second of each pair leaves open."""

PAIRS = [
    (name, one, other)
    for name, ways in WAYS.items()
    for one, other in permutations(ways, 2)
    if name != "cross_entropy" or (one, other) not in UNBOUND
]


@pytest.mark.parametrize(("name", "one", "other"), sampled_tuples(PAIRS, 3), ids=[": ".join(pair) for pair in PAIRS])
def test_it_makes_no_difference_how_it_is_written(name: str, one: str, other: str) -> None:
    verdict = verdict_on(program(name, one), program(name, other))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    reference, plan = plans(program(name, other), program(name, one))
    assert on_numbers_of(plan, reference) == Agreement()


@pytest.mark.parametrize(("one", "other"), UNBOUND, ids=[": ".join(pair) for pair in UNBOUND])
def test_what_no_index_need_be_is_not_taken_for_a_place(one: str, other: str) -> None:
    verdict = verdict_on(program("cross_entropy", one), program("cross_entropy", other))
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]


TWINS = [(name, way, *change) for name, (way, changes) in WRONG.items() for change in changes]


@pytest.mark.parametrize(
    ("name", "way", "before", "after"), sampled_tuples(TWINS, 3), ids=[f"{name}: {after}" for name, _, _, after in TWINS]
)
def test_what_differs_is_refuted(name: str, way: str, before: str, after: str) -> None:
    assert before in WAYS[name][way]
    wrong = with_backward(TARGETS.get(name, HEAD) + WAYS[name][way].replace(before, after, 1) + TAIL)
    verdict = verdict_on(wrong, program(name, next(iter(WAYS[name]))))
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]
    reference, plan = plans(program(name, next(iter(WAYS[name]))), wrong)
    assert isinstance(on_numbers_of(plan, reference), Difference)


PLAIN = "y = mul(h, 1.0)\n"
RESTRICTED = {
    "the square of a root": ("r = sqrt(h)\ny = pow(r, 2)\n", PLAIN),
    "a product of roots": ("r = sqrt(h)\ny = mul(r, r)\n", PLAIN),
    "the square of a broken power": ("r = pow(h, 1.5)\ny = pow(r, 2)\n", "y = pow(h, 3)\n"),
    "the inverse of an inverse": ("a = relu(h)\nr = reciprocal(a)\ny = reciprocal(r)\n", "y = relu(h)\n"),
    "nothing times a logarithm": ("r = log(h)\nk = mul(r, 0.0)\ny = add(h, k)\n", PLAIN),
    "nothing times a logarithm that is no arithmetic": ("r = log2(h)\nk = mul(r, 0.0)\ny = add(h, k)\n", PLAIN),
    "a logarithm less itself": ("r = log(h)\nk = sub(h, r)\ny = add(k, r)\n", PLAIN),
    "a power of nothing": ("a = relu(h)\nr = reciprocal(a)\no = pow(r, 0)\ny = mul(h, o)\n", PLAIN),
    "a divergence from what may be nothing": (
        "a = relu(h)\nj = log(a)\nd = sub(j, h)\nk = mul(a, d)\nu = sum(k)\ny = mul(h, u)\n",
        'a = relu(h)\nu = kl_div(h, a, reduction="sum")\ny = mul(h, u)\n',
    ),
    "a softmax that is shifted by a logarithm": (
        "s = sum(h, dim=1, keepdim=True)\nm = log(s)\nk = sub(h, m)\ny = softmax(k, dim=1)\n",
        "y = softmax(h, dim=1)\n",
    ),
}
"""By what lacks a value for some numbers, and would have one in a normal form: a plan with it, and one without."""


@pytest.mark.parametrize("name", RESTRICTED)
def test_what_lacks_a_value_is_not_what_has_one(name: str) -> None:
    lacking, other = (with_backward(HEAD + body + TAIL) for body in RESTRICTED[name])
    assert verdict_on(other, other).outcome is Outcome.PROVED
    assert verdict_on(lacking, lacking).outcome is Outcome.PROVED
    assert verdict_on(lacking, other).outcome is Outcome.UNKNOWN


def test_what_the_reference_lacks_as_well_takes_nothing_from_a_proof() -> None:
    body = "r = sqrt(h)\nt = mul(h, 2.0)\ny = mul(r, t)\n"
    reference = with_backward(HEAD + body + TAIL)
    verdict = verdict_on(with_backward(HEAD + body.replace("r = sqrt(h)", "r = pow(h, 0.5)") + TAIL), reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


ATTRIBUTES = {
    "rounded quotients": ('y = div(h, 2.0, rounding_mode="floor")\n', "y = div(h, 2.0)\n"),
    "rounded quotients of two": ('e = exp(h)\ny = div(h, e, rounding_mode="trunc")\n', "e = exp(h)\ny = div(h, e)\n"),
    "roundings": ('y = div(h, 2.0, rounding_mode="floor")\n', 'y = div(h, 2.0, rounding_mode="trunc")\n'),
    "a product of three for one with a bias": (
        'u = einsum(z, z, z, equation="ij,ij,ij->ij")\ny = detach(u)\n',
        'p = einsum(z, z, equation="ij,ij->ij")\nu = add(p, z)\ny = detach(u)\n',
    ),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_calls_of_another_form_are_no_arithmetic(name: str) -> None:
    plan, other = (with_backward(HEAD + body + "v = tanh(h)\nq = mul(v, y)\nl: f32[1] = sum(q)\n") for body in ATTRIBUTES[name])
    assert verdict_on(plan, other).outcome is not Outcome.PROVED


_TOLD = (SUM_OF_PRODUCTS, TOTAL, FUNCTION, CIRCLE, MERGE, SPLIT, SLICE, PAD, FLAG)


class Arithmetic(Numbers):
    """The value of every term, of sums of products as well."""

    @np.errstate(divide="ignore")  # the logarithm of a flag
    def of(self, term: int) -> Any:
        head, operands, shape = self.terms.keys[term], self.terms.operands[term], self.terms.shape[term]
        if head[0] == "arange":
            return np.arange(head[2][0], head[2][0] + shape[0])
        if head[0] == "logical-not":
            return np.logical_not(self.of(operands[0]))
        if str(head[0]).startswith(ATTENTION) and is_of_flags(self.terms, operands[-1]):
            raise UnsupportedError("a mask of flags, which is not told from one of numbers")
        if term in self.known or head[0] not in _TOLD:
            return super().of(term)
        values = iter([self.of(operand) for operand in operands])
        if head[0] == CIRCLE:
            found: Any = np.array(pi)
        elif head[0] in (MERGE, SPLIT):
            found = np.reshape(next(values), shape)
        elif head[0] == SLICE:
            found = np.take(next(values), range(head[2], head[3]), axis=head[1])
        elif head[0] == PAD:
            own = next(values)
            after = head[3] - head[2] - own.shape[head[1]]
            found = np.pad(own, [(head[2], after) if dim == head[1] else (0, 0) for dim in range(own.ndim)])
        elif head == PLACE:
            found = np.equal(next(values)[..., None], np.arange(shape[-1])).astype(float)
        elif head[0] == FLAG:
            rows, columns = np.ogrid[: shape[0], : shape[1]]
            flags = next(values, None) if operands else columns - rows >= head[3]
            found = np.not_equal(flags, bool(head[1])).astype(float)
        elif head[0] == FUNCTION:
            apply = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": np.vectorize(math.erf)}
            found = apply.get(head[1], lambda x: 1 / (1 + np.exp(-x)))(next(values))
        elif head[0] == TOTAL:
            found = _summed(head[1], list(values), range(len(shape)))
        else:
            found = np.zeros(shape)
            for (sign, square), factors in head[1]:
                made = np.array(sign * sqrt(square))
                for places, power in factors:
                    value = next(values) ** float(power)
                    wide = [dim for dim, place in enumerate(places) if place >= 0]
                    value = value.transpose([*sorted(wide, key=lambda dim: places[dim]), *set(range(value.ndim)) - {*wide}])
                    made = made * value.reshape([shape[i] if i in places else 1 for i in range(len(shape))])
                found = found + made
        self.known[term] = found
        return found


def _summed(factors: Any, values: list[Any], result: range) -> Any:
    used = sorted({place for places, _ in factors for place in places if place != -1})
    letters = {place: chr(ord("a") + at) for at, place in enumerate(used)}
    arrays, names = [], []
    for (places, power), value in zip(factors, values, strict=True):
        kept = [dim for dim, place in enumerate(places) if place != -1]
        arrays.append((value ** float(power)).reshape([value.shape[dim] for dim in kept]))
        names.append("".join(letters[places[dim]] for dim in kept))
    return np.einsum(f"{','.join(names)}->{''.join(letters[place] for place in result)}", *arrays)


@pytest.mark.parametrize("name", sampled(WAYS, 3))
def test_a_sum_of_products_is_what_the_term_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = (program(name, way) for way in WAYS[name])
    assert _compared([(other, first) for other in others], monkeypatch) > 5


@pytest.mark.parametrize("name", WRITTEN)
def test_attention_as_a_sum_of_products_is_what_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "a division behind" if name == "one operator" else "one operator"
    assert _compared([(attention(name), attention(other))], monkeypatch) > 5


def _compared(pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many terms of plans were computed as they are and as sums of products; both are the same."""
    found: list[tuple[Terms, int, int]] = []
    before = arithmetic.sum_of_products

    def noted(terms: Terms, head: Any, operands: Any, shape: Any, slot: int) -> int:
        form = before(terms, head, operands, shape, slot)
        found.append((terms, terms.term(head, tuple(operands), shape, slot), form))
        return form

    monkeypatch.setattr(arithmetic, "sum_of_products", noted)
    for plan, reference in pairs:
        prove(*plans(plan, reference))
    numbers: dict[int, Arithmetic] = {}
    compared = 0
    for terms, term, form in found:
        own = numbers.setdefault(id(terms), Arithmetic(terms))
        try:
            expected, actual = own.of(term), own.of(form)
        except (UnsupportedError, ValueError, IndexError, TypeError, StopIteration):
            continue
        if term != form:
            compared += 1
            assert prod(np.shape(expected)) == prod(np.shape(actual))
            np.testing.assert_allclose(expected, actual, rtol=1e-8, atol=1e-10, err_msg=f"{terms.keys[term]}")
    return compared


CHAINS = [("sqrt({})", "pow({}, 0.5)"), ("add({}, 1.0)", "sub({}, -1.0)"), ("exp({})", "exp({})")]


@pytest.mark.heavy
@pytest.mark.parametrize(("one", "other"), CHAINS)
def test_chains_of_any_length_are_told(one: str, other: str) -> None:
    """No form of a term goes into itself as deep as the term is."""
    names = ["h", *(f"y{i}" for i in range(1500)), "y"]
    texts = []
    for call in (one, other):
        body = "".join(f"{name} = {call.format(before)}\n" for before, name in pairwise(names))
        texts.append(with_backward(HEAD + body + TAIL))
    assert verdict_on(*texts).outcome is not Outcome.REFUTED
