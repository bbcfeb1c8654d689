"""Certificates of attention and maxima over parts, shared classes, draws, shared heads, constants that cancel and roots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracle.compare import compare
from oracle.mutate import mutants

from tests import test_prove_attention as attention
from tests import test_prove_constants_and_roots as roots
from tests import test_prove_cross_entropy as losses
from tests import test_prove_dropout as draws
from tests import test_prove_grouped_heads as heads
from tests.certificates import certified, forged, objection
from tests.shared import ROOT
from tests.test_prove_attention import plans
from tests.test_prove_text_plans import REFERENCE as BASE
from tvlint.certificate import equal, operators, sums
from tvlint.certificate.tables import SUM, Tables
from tvlint.ir.plan import Plan

CLEAN = ROOT / "fixtures/clean"

ROOTED = {name: roots.changed(roots.ONE, ("y = all-reduce(p) over tp", text)) for name, text in roots.ROOTED.items()}

RIGHT: dict[str, tuple[str, str]] = {
    **{f"classes, {name}": (text, losses.reference(loss)) for name, (text, loss) in losses.RIGHT.items()},
    "classes, fused and by rows": (losses.reference(losses.FUSED), losses.reference(losses.ROWS)),
    "classes, likelihood and fused": (losses.reference(losses.LIKELIHOOD), losses.reference(losses.FUSED)),
    **{name: (text, attention.reference(causal)) for name, (text, causal) in attention.RIGHT.items()},
    **{name: (text, BASE) for name, text in (roots.RIGHT | ROOTED | {"scaled": roots.SCALED}).items()},
    **{f"dropout, {name}": (text, draws.REFERENCE) for name, text in draws.GOOD.items()},
    "dropout in attention": (draws.heads(draws.ATTENTION), draws.ATTENTION),
    "heads in halves": (heads.HALVES, heads.ALONE),
    "heads in halves, written out": (heads.HALVES, heads.WRITTEN),
    "heads that share keys": (heads.SHARED, heads.ALONE),
    "heads that share keys, written out": (heads.SHARED, heads.WRITTEN),
    **{
        name: tuple((CLEAN / name / f"{one}.plan").read_text("utf-8") for one in ("parallel", "reference"))  # type: ignore[misc]
        for name in ("context-parallel-attention", "vocabulary-parallel-cross-entropy", "expert-parallel")
    },
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_a_proof_verifies(name: str) -> None:
    parallel, reference = plans(*RIGHT[name])
    own = certified(parallel, reference)
    assert own is not None
    assert objection(own, parallel, reference) == ""


def test_a_loss_that_is_written_out_rests_on_targets_that_are_classes() -> None:
    parallel, reference = plans(*RIGHT["classes, one operator"])
    own = certified(parallel, reference)
    assert own is not None
    assert equal.CLASSES in own.assumptions
    fewer = replace(own, assumptions=tuple(text for text in own.assumptions if text != equal.CLASSES))
    assert "other assumptions" in objection(fewer, parallel, reference)


def test_a_gradient_that_one_rank_never_makes_is_zero() -> None:
    first = roots.SHARED[roots.SHARED.index("  y =") :].replace("dw =", "grad(w) =").replace("dv =", "grad(v) =")
    head = roots.SHARED[: roots.SHARED.index("program")].replace("weight w", "mesh tp=2\nweight w", 1)
    total = "  grad(w) = all-reduce(grad(w)) over tp\n  grad(v) = all-reduce(grad(v)) over tp\n"
    text = f"{head}program tp=0\n{first}  send l to 1\n{total}program tp=1\n  recv l: f32[1] from 0\n{total}"
    single = roots.SHARED.replace("dw =", "grad(w) =").replace("dv =", "grad(v) =")
    parallel, reference = plans(text, single)
    own = certified(parallel, reference)
    assert own is not None
    assert objection(own, parallel, reference) == ""
    wrong, _ = plans(text.replace("all-reduce(", "all-reduce avg("), single)
    best = forged(wrong, reference)
    assert objection(own, wrong, reference)
    assert best is None or objection(best, wrong, reference)


MUTATED = {
    "classes, one operator": 5,
    "classes, a mean": 11,
    "ring of 2": 7,
    "ring of 2 causal": 11,
    "gathered causal": 7,
    "scaled": 11,
    "copies divided in two steps": 11,
    "reduce and scatter": 7,
    "dropout, tensor": 3,
    "dropout, sequence": 5,
    "heads in halves": 7,
    "heads that share keys": 7,
}
"""Pairs, and which of their mutants are tried: every N-th."""


def with_numbers(name: str) -> tuple[Plan, Plan]:
    """The pair in the form that can be run."""
    parallel, reference = RIGHT[name]
    plain = (*roots.RIGHT, *ROOTED, "scaled")
    return plans(*(roots.with_numbers(text) if name in plain else text for text in (parallel, reference)))


@pytest.mark.parametrize("name", list(MUTATED))
def test_no_mutant_that_computes_something_else_verifies(name: str) -> None:
    parallel, reference = with_numbers(name)
    right = certified(parallel, reference)
    assert right is not None
    tried = 0
    for number, mutant in enumerate(mutants(parallel)):
        if number % MUTATED[name]:
            continue
        own = forged(mutant.plan, reference)
        tried += own is not None
        best = [each for each in (right, own) if each is not None]
        if all(objection(each, mutant.plan, reference) for each in best):
            continue
        found = compare(reference, mutant.plan)
        if found.outcome == "deadlocks":
            found = compare(reference, mutant.plan, buffered=True)
        assert found.outcome == "equal", (number, mutant.kind, mutant.description, found)
    assert tried > 0


BY_HAND = {
    **{
        f"classes, {name}": (*RIGHT["classes, one operator"], before, after)
        for name, (before, after, _) in losses.WRONG.items()
    },
    **{f"ring, {name}": (*RIGHT["ring of 2"], before, after) for name, (before, after, _) in attention.BY_HAND.items()},
}


@pytest.mark.parametrize("name", list(BY_HAND))
def test_a_mistake_does_not_verify(name: str) -> None:
    parallel, reference, before, after = BY_HAND[name]
    assert before in parallel
    wrong, other = plans(parallel.replace(before, after), reference)
    right, own = certified(*plans(parallel, reference)), forged(wrong, other)
    assert right is not None
    assert all(objection(each, wrong, other) for each in (right, own) if each is not None)


@pytest.mark.parametrize("name", list(roots.WRONG))
def test_constants_that_do_not_cancel_do_not_verify(name: str) -> None:
    wrong, reference = plans(roots.WRONG[name], BASE)
    own = forged(wrong, reference)
    assert own is None or objection(own, wrong, reference)


# Provers that err in one place, and what the checker says to what they prove.

LAX: dict[str, tuple[str, str, str, str, Callable[..., Any], str]] = {
    "keys merged twice": (
        "ring of 2",
        "attention(a, b1, c1)",
        "attention(a, b, c)",
        "tvlint.proof.merging.overlapping",
        lambda one, other: False,
        "its own keys",
    ),
    "a maximum of one rank": (
        "classes, written out",
        "m = all-reduce max(m0) over tp",
        "m = identity(m0)",
        "tvlint.proof.extents._folded",
        lambda use, indices, numbers: None,
        "is not what the certificate says",
    ),
    "attention to some keys": (
        "ring of 2",
        "mul(m1, xs)",
        "mul(o0, xs)",
        "tvlint.proof.extents._folded",
        lambda use, indices, numbers: None,
        "is not what the certificate says",
    ),
    "a log-sum-exp over other keys": (
        "ring of 2",
        "merge_by_log_sum_exp(o0, e0, o1, e1)",
        "merge_by_log_sum_exp(o0, e1, o1, e0)",
        "tvlint.proof.merging._seen",
        lambda value, size: ((0, 4),) if value.box[1] == (0, 4) else ((4, 8),),
        "log-sum-exp over others",
    ),
}


@pytest.mark.parametrize("name", list(LAX))
def test_what_a_prover_with_a_mistake_proves_does_not_verify(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, before, after, place, instead, reason = LAX[name]
    parallel, reference = RIGHT[pair]
    assert before in parallel
    monkeypatch.setattr(place, instead)
    wrong, other = plans(parallel.replace(before, after), reference)
    own = forged(wrong, other)
    assert own is not None
    assert reason in objection(own, wrong, other)


# The theorems, in numbers.


class _Numbered:
    """The tables of the checker in the form of the prover's, so that the same formulas evaluate both."""

    def __init__(self, tables: Tables) -> None:
        self.keys = [("gradient-sum",) if own.head == SUM else own.head for own in tables.terms]
        self.operands = [own.operands for own in tables.terms]
        self.shape = [own.shape for own in tables.terms]


@pytest.mark.parametrize("name", ["classes, one operator", "classes, likelihood and fused"])
def test_terms_that_are_told_as_others_are_equal_in_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: set[tuple[int, int]] = set()
    seen: list[Tables] = []
    told, sum_told = equal.told, equal.sum_told

    def other(tables: Tables, *content: Any) -> int:
        found = told(tables, *content)
        seen.append(tables)
        replaced.add((tables.term(*content), found))
        return found

    def other_sum(tables: Tables, term: int) -> int:
        found = sum_told(tables, term)
        replaced.add((term, found))
        return found

    monkeypatch.setattr(operators, "told", other)
    monkeypatch.setattr(sums, "sum_told", other_sum)
    parallel, reference = plans(*RIGHT[name])
    own = certified(parallel, reference)
    assert own is not None
    assert objection(own, parallel, reference) == ""
    different = sorted((one, found) for one, found in replaced if one != found)
    assert len(different) >= 2
    terms: Any = _Numbered(seen[-1])
    for one, found in different:
        random = np.random.default_rng(one)
        values: dict[int, Any] = {}
        for leaf in [*losses._leaves(terms, one), *losses._leaves(terms, found)]:
            whole = terms.keys[leaf][0] == "input"
            shape = terms.shape[leaf]
            values.setdefault(leaf, random.integers(0, 4, shape) if whole else random.uniform(-2, 2, shape))
        np.testing.assert_allclose(losses.numbers(terms, one, values), losses.numbers(terms, found, values), rtol=1e-12)
