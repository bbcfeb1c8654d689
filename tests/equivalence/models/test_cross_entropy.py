"""Verdicts on cross-entropy over classes that ranks share: written out, against the same and against one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.terms.loss_identities import CLASSES, summed, term_of
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.equivalence.explain.counterexample import evaluate
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ops.field import Array

pytestmark = pytest.mark.usefixtures("without_repairs")


def reference(loss: str) -> str:
    return f"""
weight h f32[6,4]
weight w f32[4,4]
input t i64[6]
loss l
program
  z = linear(h, w)
{loss}
  grad(h), grad(w) = backward z (dz)
"""


FUSED = """  l: f32[1] = cross_entropy(z, t, reduction="sum")
  dz, _ = backward l (grad(l))"""

MEAN = FUSED.replace('"sum"', '"mean"')

ROWS = """  c = cross_entropy(z, t, reduction="none")
  l: f32[1] = sum(c)
  dc = backward l (grad(l))
  dz, _ = backward c (dc)"""

LIKELIHOOD = """  g = log_softmax(z, dim=1)
  l: f32[1] = nll_loss(g, t, reduction="sum")
  dg, _ = backward l (grad(l))
  dz = backward g (dg)"""


def written(start: int, stop: int, exchange: Callable[[str, str, str], str], total: str = "sum") -> str:
    return f"""  m0 = amax(z, dim=1, keepdim=True)
  {exchange("m", "m0", " max")}
  x = sub(z, m)
  p0 = masked_gather(x, t, dim=1, start={start}, stop={stop})
  {exchange("p", "p0", "")}
  e = exp(x)
  s0 = sum(e, dim=1)
  {exchange("s", "s0", "")}
  g = log(s)
  c = sub(g, p)
  l: f32[1] = {total}(c)
  dc = backward l (grad(l))
  dg, dp = backward c (dc)
  ds = backward g (dg)
  de = backward s0 (ds)
  dx = backward e (de)
  dx, _ = backward p0 (dp)
  dz, _ = backward x (dx)"""


def differentiated(start: int, stop: int, exchange: Callable[[str, str, str], str], total: str = "sum") -> str:
    """Return the loss with its gradient as DTensor's `loss_parallel` writes it: the chances, less one at the target."""
    return f"""  m0 = amax(z, dim=1, keepdim=True)
  {exchange("m", "m0", " max")}
  x = sub(z, m)
  e = exp(x)
  s0 = sum(e, dim=1, keepdim=True)
  {exchange("s", "s0", "")}
  g = log(s)
  q = sub(x, g)
  p0 = masked_gather(q, t, dim=1, start={start}, stop={stop})
  {exchange("p", "p0", "")}
  c = neg(p)
  l: f32[1] = {total}(c)
  o = ones_like(p0)
  k, _ = backward p0 (o)
  n = neg(k)
  y = exp(q)
  u = add(y, n)
  r = div(grad(l), {6 if total == "mean" else 1})
  dz = mul(u, r)"""


ALONE = written(0, 4, lambda result, operand, _: f"{result} = identity({operand})")


def parallel(total: str = "sum", loss: Callable[..., str] = written) -> str:
    text = "mesh tp=2\nweight h f32[6,4]\n"
    text += "".join(f"weight w{rank} f32[2,4] region [{2 * rank}:{2 * rank + 2},0:4] of w[4,4]\n" for rank in (0, 1))
    text += "input t i64[6]\nloss l\n"
    for rank in (0, 1):
        body = loss(2 * rank, 2 * rank + 2, lambda y, x, how: f"{y} = all-reduce{how}({x}) over tp", total)
        text += f"program tp={rank}\n  z = linear(h, w{rank})\n{body}\n"
        text += f"  grad(h), grad(w{rank}) = backward z (dz)\n  reduce-gradients h over tp\n"
    return text


RIGHT = {
    "written out": (parallel(), ALONE),
    "one operator": (parallel(), FUSED),
    "one operator for rows": (parallel(), ROWS),
    "a mean": (parallel("mean"), MEAN),
    "the likelihood": (parallel(), LIKELIHOOD),
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_shared_classes_are_proved_and_compute_the_same(name: str) -> None:
    text, loss = RIGHT[name]
    verdict = verdict_on(text, reference(loss))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert (CLASSES in verdict.assumptions) == (name != "written out")
    made, other = plans(text, reference(loss))
    found = compare(other, made)
    assert (found.outcome, found.claims) == ("equal", ()), found.difference


@pytest.mark.parametrize("total", ["sum", "mean"])
def test_a_gradient_that_is_written_out_is_that_of_the_operator(total: str) -> None:
    other = reference(LIKELIHOOD.replace('"sum"', f'"{total}"'))
    made, expected = plans(parallel(total, differentiated), other)
    verdict = prove(made, expected, replay=True)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert "agrees with the reference on" in dict(verdict.facts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("u = add(y, n)", "u = add(y, k)"),
        ("u = add(y, n)", "u = identity(y)"),
        ("u = add(y, n)", "u = identity(n)"),
        ("y = exp(q)", "y = exp(x)"),
        ("y = exp(q)", "y = exp(g)"),
        ("y = exp(q)", "h2 = mul(q, 2)\n  y = exp(h2)"),
        ("r = div(grad(l), 6)", "r = div(grad(l), 3)"),
        ("o = ones_like(p0)", "o = full_like(p0, 2)"),
        ("s = all-reduce(s0) over tp", "s = identity(s0)"),
        ("p0 = masked_gather(q, t", "p0 = masked_gather(x, t"),
    ],
)
def test_another_gradient_that_is_written_out_is_not(before: str, after: str) -> None:
    text = parallel("mean", differentiated)
    assert before in text
    verdict = verdict_on(text.replace(before, after), reference(LIKELIHOOD.replace('"sum"', '"mean"')))
    assert verdict.outcome is not Outcome.PROVED


@pytest.mark.parametrize("one", [FUSED, ROWS, LIKELIHOOD], ids=["fused", "rows", "likelihood"])
@pytest.mark.parametrize("other", [FUSED, ROWS, LIKELIHOOD], ids=["fused", "rows", "likelihood"])
def test_ways_to_write_one_loss_are_equal_without_assumptions(one: str, other: str) -> None:
    verdict = verdict_on(reference(one), reference(other))
    assert verdict.outcome is Outcome.PROVED
    assert CLASSES not in verdict.assumptions


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "every"), [("written out", 7), ("one operator", 7), ("a mean", 11)])
def test_no_mutant_that_computes_something_else_is_proved(name: str, every: int) -> None:
    text, loss = RIGHT[name]
    made, other = plans(text, reference(loss))
    assert not list(proved_and_not_equal(other, list(mutants(made))[::every]))


WRONG = {
    "a sum of maxima": ("all-reduce max(m0)", "all-reduce(m0)", "wrong-reduce-op"),
    "a maximum of one rank": ("m = all-reduce max(m0) over tp", "m = identity(m0)", "part-used-as-complete"),
    "a maximum of sums": ("s = all-reduce(s0)", "s = all-reduce max(s0)", "wrong-reduce-op"),
    "a sum of one rank": ("s = all-reduce(s0) over tp", "s = identity(s0)", "missing-allreduce"),
    "a target of one rank": ("p = all-reduce(p0) over tp", "p = identity(p0)", "incomplete-output"),
    "the range of another rank": ("start=0, stop=2", "start=2, stop=4", "wrong-range"),
    "classes without their target": ("  dx, _ = backward p0 (dp)\n", "", "missing-gradient-reduction"),
}


@pytest.mark.parametrize("name", list(WRONG))
@pytest.mark.parametrize("loss", ["written out", "one operator"])
def test_a_mistake_is_not_proved_and_told_where_the_reference_is_written_out(name: str, loss: str) -> None:
    before, after, reason = WRONG[name]
    text, other = RIGHT[loss]
    assert before in text
    verdict = verdict_on(text.replace(before, after), reference(other))
    assert verdict.outcome is not Outcome.PROVED
    if loss == "written out" and name not in ("a target of one rank", "classes without their target"):
        assert reason in [found.name for found in verdict.reasons], [found.message for found in verdict.reasons]


OPTIONS = """
weight w f32[8,4]
buffer c f32[8]
input x f32[6,4]{placed}
input t i64[6]{placed}
loss l
program
  z = linear(x, w)
"""
COUNTED = """
  y: f32[] = cross_entropy(z, t, {option}, reduction="sum")
  {count}
  n0: f32[] = sum(k) || none
  n = all-reduce(n0) over dp || none
  r = div(y, n)
  l = all-reduce(r) over dp
  end reduce-gradients w over dp
"""
COUNTS = {
    "a class that is ignored": ("ignore_index=0", 'i = ne(t, 0) || none\n  k = to(i, dtype="f32") || none'),
    "weights of classes": ("weight=c", "k = index_select(c, 0, t) || none"),
}


@pytest.mark.parametrize("shape", ["[]", "[1]"])
@pytest.mark.parametrize("name", COUNTS)
def test_a_mean_is_over_what_counts_on_all_ranks(name: str, shape: str) -> None:
    option, count = COUNTS[name]
    other = with_backward(OPTIONS.format(placed="") + f"  l: f32{shape} = cross_entropy(z, t, {option})\n")
    counted = COUNTED.format(option=option, count=count).replace("f32[]", f"f32{shape}")
    text = "mesh dp=2\n" + OPTIONS.format(placed=" dp:S(0)") + counted
    other, right = (own if option == "weight=c" else own.replace("buffer c f32[8]\n", "") for own in (other, text))
    verdict = verdict_on(with_backward(right), other)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    reference, made = plans(other, with_backward(right))
    assert on_numbers_of(made, reference) == Agreement()
    wrongs = (("all-reduce(n0) over dp", "identity(n0)"), ("div(y, n)", "div(y, 6)"), ("w over dp", "w over dp by avg"))
    for before, after in wrongs:
        assert before in right
        wrong = with_backward(right.replace(before, after))
        assert verdict_on(wrong, other).outcome is not Outcome.PROVED
        assert on_numbers_of(plans(other, wrong)[1], reference) != Agreement()


TOKENS = OPTIONS.replace("buffer c f32[8]\n", "").replace("loss l", "input k f32[6]{placed}\nloss l")
PER_TOKEN = """
  q = cross_entropy(z, t, reduction="none")
  a = mul(q, k)
  s: f32[] = sum(a)
"""
DIVIDED = """
  s1 = all-reduce(s) over dp
  n0: f32[] = sum(k)
  n = all-reduce(n0) over dp
  l = div(s1, n)
  da = backward s (grad(s))
  dq, _ = backward a (da)
  dz, _ = backward q (dq)
  _, w0 = backward z (dz)
  w1 = all-reduce(w0) over dp
  grad(w) = div(w1, n)
  update w
"""


def test_a_gradient_may_be_divided_by_what_counts_at_the_end() -> None:
    other = with_backward(TOKENS.format(placed="") + PER_TOKEN + "n: f32[] = sum(k) || none\nl = div(s, n)\nend update w\n")
    right = "mesh dp=2\n" + TOKENS.format(placed=" dp:S(0)") + PER_TOKEN + DIVIDED
    verdict = verdict_on(right, other)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    for before, after in (("div(w1, n)", "div(w1, n0)"), ("w1 = all-reduce(w0) over dp", "w1 = identity(w0)")):
        assert before in right
        assert verdict_on(right.replace(before, after), other).outcome is Outcome.REFUTED


SHARED = """mesh tp=2
weight h f32[6,4]
weight w f32[4,4] tp:S(0)
input t i64[6]
loss l
"""
EXCHANGED = """program tp={rank}
  a = copy(h) over tp
  z = linear(a, w)
  m0 = amax(z, dim=1, keepdim=True) || none
  m = all-reduce max(m0) over tp || none
  x = sub(z, m)
  e = exp(x)
  s0 = sum(e, dim=1)
  s = all-reduce(s0) over tp
  g = log(s)
  i = arange({first}, {last}) || none
  j = unsqueeze(t, 1) || none
  f = eq(j, i) || none
  k = where(f, x, 0.0)
  p0 = sum(k, dim=1)
  p = all-reduce(p0) over tp
  c = sub(g, p)
  l: f32[1] = mean(c)
"""
FOREIGN = {
    "sums of the other rank": ("s0 = sum(e, dim=1)", "s1 = sum(e, dim=1)\n  s2 = all-reduce(s1) over tp\n  s0 = sub(s2, s1)"),
    "scores of the other rank": ("e = exp(x)", "x1 = all-reduce(x) over tp\n  x2 = sub(x1, x)\n  e = exp(x2)"),
    "the difference of both": ("p0 = sum(k, dim=1)", "k1 = all-reduce(k) over tp\n  k2 = sub(k1, k)\n  p0 = sum(k2, dim=1)"),
    "half of both": ("c = sub(g, p)", "p1 = all-reduce(p0) over tp\n  p2 = mul(p1, 0.5)\n  c = sub(g, p2)"),
    "places of the other rank": (
        "f = eq(j, i)",
        "i1 = all-reduce(i) over tp || none\n  i2 = sub(i1, i) || none\n  f = eq(j, i2)",
    ),
    "the target of one rank": ("p = all-reduce(p0) over tp", "p = identity(p0)"),
}


def exchanged(before: str = "", after: str = "") -> str:
    ranks = [EXCHANGED.format(rank=rank, first=2 * rank, last=2 * rank + 2) for rank in (0, 1)]
    assert before in ranks[0]
    return with_backward(SHARED + "".join(own.replace(before, after) if before else own for own in ranks))


def test_positions_that_ranks_compare_with_are_some_of_all() -> None:
    verdict = verdict_on(exchanged(), reference(MEAN))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    other, made = plans(reference(MEAN), exchanged())
    assert on_numbers_of(made, other) == Agreement()


@pytest.mark.parametrize("name", FOREIGN)
def test_values_of_another_rank_are_not_those_of_this_one(name: str) -> None:
    wrong = exchanged(*FOREIGN[name])
    is_right = isinstance(on_numbers_of(plans(reference(MEAN), wrong)[1], plans(reference(MEAN), wrong)[0]), Agreement)
    assert not is_right
    assert verdict_on(wrong, reference(MEAN)).outcome is not Outcome.PROVED


# The identities, in numbers.


def numbers(terms: Terms, term: int, known: dict[int, Array]) -> Array:
    """The value of a term for given values of its leaves."""
    if term in known:
        return known[term]
    operands = [numbers(terms, operand, known) for operand in terms.operands[term]]
    head = terms.keys[term]
    if head[0] == GRADIENT_SUM:
        return np.asarray(operands[0] + operands[1])
    return np.asarray(_gradient(head, operands) if head[0].endswith(" gradient") else evaluate(head, operands))


def _gradient(head: tuple[Any, ...], operands: list[Array]) -> Array:
    """Gradients by their formulas."""
    given = operands[0]
    if head[0] == "cross-entropy-rows gradient":
        powers = np.exp(operands[1])
        hits = np.arange(powers.shape[1])[None] == operands[2][:, None]
        return np.asarray(given[:, None] * (powers / powers.sum(1, keepdims=True) - hits))
    formulas: dict[str, Callable[[], Any]] = {
        "sub gradient": lambda: -given if head[1][0] else given,
        "log gradient": lambda: given / operands[1],
        "sum gradient": lambda: np.repeat(given[:, None], 4, axis=1),
        "exp gradient": lambda: given * np.exp(operands[1]),
        "masked-gather gradient": lambda: given[:, None] * (np.arange(4)[None] == operands[1][:, None]),
        "nll-rows gradient": lambda: -given[:, None] * (np.arange(4)[None] == operands[1][:, None]),
        "log-softmax gradient": lambda: given - softmax(operands[1]) * given.sum(1, keepdims=True),
    }
    return np.asarray(formulas[head[0]]())


def softmax(x: Array) -> Array:
    powers = np.exp(x)
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.parametrize("name", ["one operator", "likelihood"])
def test_identities_hold_in_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place where an identity puts another term in a term's place, with random numbers for the leaves of both."""
    replaced: list[tuple[Terms, int, int]] = []

    def term(terms: Terms, *arguments: Any) -> int:
        found = term_of(terms, *arguments)
        replaced.append((terms, terms.term(*arguments), found))
        return found

    def sum_of(terms: Terms, one: int) -> int:
        found = summed(terms, one)
        replaced.append((terms, one, found))
        return found

    monkeypatch.setattr("tvlint.analyses.relations.transfer.apply.term_of", term)
    monkeypatch.setattr("tvlint.analyses.relations.transfer.relation.summed", sum_of)
    made, other = (RIGHT["one operator"][0], FUSED) if name == "one operator" else (reference(LIKELIHOOD), FUSED)
    assert verdict_on(made, reference(other)).outcome is Outcome.PROVED
    different = {(id(terms), one, found): terms for terms, one, found in replaced if one != found}
    assert len(different) >= (3 if name == "one operator" else 2)
    for (_, one, found), terms in different.items():
        random = np.random.default_rng(one)
        leaves: dict[int, Array] = {}
        for leaf in [*_leaves(terms, one), *_leaves(terms, found)]:
            shape = terms.shape[leaf]
            whole = terms.keys[leaf][0] == "input"
            leaves.setdefault(leaf, random.integers(0, 4, shape) if whole else random.uniform(-2, 2, shape))
        np.testing.assert_allclose(numbers(terms, one, leaves), numbers(terms, found, leaves), rtol=1e-12)


def _leaves(terms: Terms, term: int) -> list[int]:
    """Terms whose values are drawn: inputs, the linear of the scores, and the gradient that comes from outside."""
    head = terms.keys[term]
    inside = ("sub", "exp", "log", "amax", "masked-gather", "log-softmax", "nll-rows", "cross-entropy-rows", GRADIENT_SUM)
    if head[0] in inside or (head[0] == "sum" and head[3][0] == (0, 1)):
        return [leaf for operand in terms.operands[term] for leaf in _leaves(terms, operand)]
    if head[0].endswith(" gradient") and not (head[0] == "sum gradient" and len(terms.shape[term]) == 1):
        return [leaf for operand in terms.operands[term] for leaf in _leaves(terms, operand)]
    return [term]


BAG = """
mesh dp=2
weight w f32[8,4]
weight d f32[4,8]
input x f32[6,4] dp:S(0)
input t i64[6] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  c: i64[4] = arange(4) || none
  u = unsqueeze(t, 1) || none
  e = eq(u, c) || none
  f: f32[3,4] = to(e, "float32") || none
  m = matmul(f, d)
{counted}
  a = add(z, m)
  g = gelu(a)
  k = sum(g)
  l = all-reduce(k) over dp
  end reduce-gradients w, d over dp
  end update w, d
"""


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ("z = identity(y)", Outcome.PROVED),
        ("s = sum(f, dim=1) || none\nv = unsqueeze(s, 1) || none\nz = mul(y, v) || {x} = mul({y}, v)", Outcome.UNKNOWN),
    ],
    ids=["not counted", "counted"],
)
def test_an_index_that_nothing_is_looked_up_at_may_be_no_place(counted: str, expected: Outcome) -> None:
    """Tokens of other experts, say, are in none of these rows of flags."""
    plan, reference = BAG.replace("{counted}", counted), BAG.replace("{counted}", "z = identity(y)")
    for before, after in (("mesh dp=2\n", ""), (" dp:S(0)", ""), ("f32[3,4]", "f32[6,4]"), ("k = sum", "l = sum")):
        reference = reference.replace(before, after)
    reference = "\n".join(line for line in reference.splitlines() if " over dp" not in line)
    assert verdict_on(with_backward(plan), with_backward(reference)).outcome is expected
