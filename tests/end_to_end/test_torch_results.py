"""The operator table and the oracle compute what torch computes: as recorded in every run, live where torch is installed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.builders.operator_cases import CASES, Case
from tests.oracle import test_oracle_layers_and_losses as layers
from tests.oracle.functions import FailureError, forward
from tests.oracle.gradients import backward
from tests.torch_results import (
    TYPES,
    array,
    computed,
    digest,
    operands_of_table,
    record,
    recorded,
    refused_types,
    seeds_of,
)
from tvlint.ops.derivatives import gradient
from tvlint.ops.field import Floats
from tvlint.ops.table import spec_of

SINGLE = {"hardsigmoid": 1e-7}
"""Gradients that torch itself multiplies with a constant of single precision, a sixth, also in double."""
OUT_OF_DATE = "out of date: with torch installed, `pytest tests/end_to_end/test_torch_results.py --record-torch` records anew"


def test_what_is_recorded_is_what_torch_computes(request: pytest.FixtureRequest) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if request.config.getoption("--record-torch"):
        record(torch)
        recorded.cache_clear()
    assert refused_types(torch) == json.loads(TYPES.read_text(encoding="utf-8"))
    found, known = computed(torch), recorded()
    assert found.keys() == known.keys()
    for name, own in found.items():
        other = known[name]
        assert own.keys() == other.keys(), name
        assert own["operands"] == other["operands"], name
        for which in {"results", "gradients"} & own.keys():
            for one, two in zip(own[which], other[which], strict=True):
                assert (one is None) == (two is None), name
                if one is not None:
                    np.testing.assert_allclose(array(one), array(two), rtol=1e-9, atol=1e-9, err_msg=name)


def test_every_case_is_recorded_and_nothing_else() -> None:
    names = {*(f"table: {case.label}" for case in CASES), *(f"oracle: {name}" for name in layers.IDS)}
    assert recorded().keys() == names, OUT_OF_DATE


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_the_table_computes_what_torch_computes(case: Case) -> None:
    name = f"table: {case.label}"
    assert name in recorded(), OUT_OF_DATE
    spec, known = spec_of(case.op), recorded()[name]
    assert spec is not None
    assert spec.evaluate is not None
    bound = spec.bind(case.call)
    operands, others = operands_of_table(case, 1), operands_of_table(case, 2)
    assert digest([*operands, *others]) == known["operands"], OUT_OF_DATE
    found = spec.evaluate(bound, operands, Floats())
    assert len(found) == len(known["results"])
    for own, other in zip(found, map(array, known["results"]), strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
    seeds = dict(enumerate(seeds_of(known["started"])))
    for i, (operand, other) in enumerate(zip(others, known["gradients"], strict=True)):
        if i in bound.zero_gradient:
            assert other is None or not array(other).any()
        elif operand.dtype == float:
            own = gradient(spec.evaluate, bound, others, i, seeds)
            rounding = SINGLE.get(case.label, 1e-9)
            np.testing.assert_allclose(own, array(other), rtol=rounding, atol=1e-9)


@pytest.mark.parametrize(("name", "case"), list(zip(layers.IDS, layers.CASES, strict=True)), ids=layers.IDS)
def test_the_oracle_computes_what_torch_computes(name: str, case: Any) -> None:
    known = recorded()[f"oracle: {name}"]
    assert digest(case.values) == known["operands"], OUT_OF_DATE
    assert known.get("fails", False) == case.fails
    if case.fails:
        with pytest.raises(FailureError):
            forward(case.name, case.values, case.attributes)
        return
    ours = forward(case.name, case.values, case.attributes)
    theirs = list(map(array, known["results"]))
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.ravel(), other.ravel(), rtol=1e-9, atol=1e-12)
    incoming = [seed.reshape(own.shape) for seed, own in zip(seeds_of(other.shape for other in theirs), ours, strict=True)]
    made = backward(case.name, case.values, ours, incoming, case.attributes)
    for own, other in zip(made, known["gradients"], strict=True):
        if other is not None:
            np.testing.assert_allclose(own, array(other), rtol=1e-9, atol=1e-12)
