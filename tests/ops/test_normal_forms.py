"""Normal forms of terms are what the terms are: both are computed, on random numbers."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np
import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.normal_forms.test_written_out import LOSS, LOSSES
from tvlint.analyses.relations.terms.constant_factors import TIMES
from tvlint.analyses.relations.terms.normal_form import normal
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.analyses.relations.transfer import apply
from tvlint.equivalence.explain.counterexample import evaluate
from tvlint.equivalence.verdict.prove import prove
from tvlint.ops.spec import UnsupportedError

TEXTS = {
    **{f"loss: {name}": LOSS + text for name, text in LOSSES.items()},
    "log-sum-exp": LOSS
    + "a = logsumexp(s, 1)\np = masked_gather(s, t, dim=1, start=0, stop=8)\nb = sub(a, p)\nl: f32[1] = mean(b)\n",
}


class Numbers:
    """The value of every term of a table."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.random = np.random.default_rng(1)
        self.known: dict[int, Any] = {}

    def of(self, term: int) -> Any:
        if term not in self.known:
            self.known[term] = self._computed(term)
        return self.known[term]

    def _computed(self, term: int) -> Any:
        head, shape = self.terms.keys[term], self.terms.shape[term]
        if not self.terms.operands[term]:
            if head[0] == "one":
                return np.ones(shape)
            if head[2:3] == ("bool",):
                return self.random.integers(0, 2, shape).astype(bool)
            whole = head[0] == "input" and head[2].startswith("int")
            return self.random.integers(0, 8, shape) if whole else self.random.uniform(-1, 1, shape)
        values = [self.of(operand) for operand in self.terms.operands[term]]
        if head[0] == GRADIENT_SUM:
            return sum(values)
        if head[0] == TIMES:
            return values[0] * head[1] * sqrt(head[2])
        if head[0] == "sum gradient":
            source, names = head[3][:2]
            wide = values[0].reshape([shape[names.index(number)] if number in source else 1 for number in names])
            return np.broadcast_to(wide, shape)
        if head[0] in ("sub gradient", "add gradient") and len(values) == 1:
            lost = tuple(i for i, number in enumerate(head[3][0]) if number not in head[3][1])
            return (-1 if head[:2] == ("sub gradient", (1, (0,))) else 1) * values[0].sum(axis=lost).reshape(shape)
        return evaluate(head, values)


@pytest.mark.parametrize("name", TEXTS)
def test_a_normal_form_is_what_the_term_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Terms, int, int]] = []

    def noted(terms: Terms, head: Any, operands: Any, shape: Any, slot: int) -> int:
        told = normal(terms, head, operands, shape, slot)
        found.append((terms, terms.term(head, operands, shape, slot), told))
        return told

    monkeypatch.setattr(apply, "normal", noted)
    divided = "loss: written out and divided"
    other = "loss: one operator" if name == divided else divided
    prove(*plans(with_backward(TEXTS[name]), with_backward(TEXTS[other])))
    numbers: dict[int, Numbers] = {}
    compared = 0
    for terms, term, told in found:
        own = numbers.setdefault(id(terms), Numbers(terms))
        try:
            before, after = own.of(term), own.of(told)
        except (UnsupportedError, ValueError, IndexError, TypeError, StopIteration):
            continue
        if term != told:
            compared += 1
            assert prod(np.shape(before)) == prod(np.shape(after))
            np.testing.assert_allclose(before, after, rtol=1e-9, atol=1e-12, err_msg=f"{terms.keys[term]} {terms.keys[told]}")
    assert compared > 5
