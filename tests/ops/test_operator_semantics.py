"""What operators compute, by the table, is what NumPy formulas compute, over every kind of number."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders.operator_cases import CASES, Case, operands_of
from tests.builders.residues import Residues
from tests.shared import ROOT
from tvlint.ir.operators import Literal
from tvlint.ops.annotations.registered import SPECS as REGISTERED
from tvlint.ops.field import Floats
from tvlint.ops.spec import Bound, Call, Family, MisfitError, OpSpec, Trait, UnsupportedError
from tvlint.ops.table import SPECS, spec_of

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)


def spec_for(case: Case) -> OpSpec:
    spec = spec_of(case.op)
    assert spec is not None
    return spec


def outputs_of(case: Case, operands: list[Any], field: Any) -> tuple[Any, ...]:
    spec = spec_for(case)
    assert spec.evaluate is not None
    return spec.evaluate(spec.bind(case.call), operands, field)


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def test_every_operator_that_is_interpreted_has_a_case_and_only_registered_ones_views_and_inert_calls_are_not() -> None:
    covered = {spec_for(case).name for case in CASES}
    assert covered == {spec.name for spec in SPECS if spec.evaluate is not None}
    assert {spec.name for spec in SPECS if spec.evaluate is None} == {
        *(spec.name for spec in REGISTERED),
        *(spec.name for spec in SPECS if spec.family in (Family.RESHAPE, Family.INERT)),
    }


def test_the_sample_of_contributing_is_a_case_of_the_table() -> None:
    (sample,) = re.findall(r"^```python\n(.*)\n```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"    {sample}\n" in (ROOT / "tests" / "builders" / "operator_cases.py").read_text(encoding="utf-8")


@every_case
def test_semantics_is_the_numpy_formula(case: Case) -> None:
    operands = operands_of(case, spec_for(case).bind(case.call))
    found, expected = outputs_of(case, operands, Floats()), listed(case.numpy(*operands))
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert own.shape == np.shape(other)
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12)


@every_case
def test_the_declared_shapes_are_the_computed_ones(case: Case) -> None:
    bound = spec_for(case).bind(case.call)
    shapes = [shape for shape in case.inputs if not isinstance(shape, Literal)]
    sizes = {"1": 1, **bound.sizes}
    for names, shape in zip(bound.operands, shapes, strict=False):
        for name, size in zip(names, shape, strict=True):
            assert sizes.setdefault(name, size) == size
    for names, result in zip(bound.outputs, outputs_of(case, operands_of(case, bound), Floats()), strict=True):
        assert tuple(sizes[name] for name in names) == result.shape


def lacks_a_value(case: Case) -> bool:
    """Return whether the operator has no value where one of its operands is zero, or below it."""
    bound = spec_for(case).bind(case.call)
    given = operands_of(case, bound)
    for place in range(len(given)):
        if place in bound.indices or given[place].dtype.kind != "f":
            continue
        for other in (given[place] * 0, -abs(given[place]) - 9):
            with np.errstate(all="ignore"):
                found = outputs_of(case, [*given[:place], other, *given[place + 1 :]], Floats())
            if not all(np.all(np.isfinite(np.asarray(own, dtype=float))) for own in found):
                return True
    return False


def test_operators_that_have_no_value_for_some_numbers_say_so() -> None:
    found = {spec_for(case).name for case in CASES if lacks_a_value(case)}
    assert found == {spec.name for spec in SPECS if Trait.RESTRICTED in spec.traits}


POLYNOMIAL = frozenset(
    {
        "add", "addmm", "bfloat16", "cat", "cumsum", "div", "dropout", "einsum", "embedding", "expand", "float", "gather",
        "half", "identity", "index", "index-select", "linear", "masked-fill", "matmul", "mean", "mul", "multiref", "narrow",
        "neg", "pad", "permute", "repeat-interleave", "select", "slice", "split", "square", "squeeze", "stack", "sub", "sum",
        "to", "transpose", "unsqueeze", "where",
    }
)  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if spec_for(case).name in POLYNOMIAL], ids=lambda case: case.label)
def test_over_whole_numbers_modulo_a_prime_polynomials_are_exact(case: Case) -> None:
    field = Residues()
    bound = spec_for(case).bind(case.call)
    random = np.random.default_rng(3)
    operands = [
        x if i in bound.indices or set(np.unique(x)) <= {0, 1} else random.integers(1, 9, x.shape)
        for i, x in enumerate(operands_of(case, bound))
    ]
    exact = outputs_of(case, [x if i in bound.indices else x.astype(object) for i, x in enumerate(operands)], field)
    floats = outputs_of(case, [x if i in bound.indices else x.astype(float) for i, x in enumerate(operands)], Floats())
    for own, other in zip(exact, floats, strict=True):
        scaled = field.reduced(own * 1680)
        signed = np.where(scaled > field.prime // 2, scaled - field.prime, scaled)
        if spec_for(case).name != "div" or "constant" in case.label:
            np.testing.assert_allclose(signed.astype(float), other * 1680, rtol=1e-6)


def test_over_whole_numbers_other_functions_are_functions() -> None:
    field = Residues()
    exp = field.function("exp", np.array([3, 3 + field.prime, 4], dtype=object))
    assert exp[0] == exp[1] != exp[2]
    assert exp[0] != field.function("log", np.array([3], dtype=object))[0]


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("torch.nn.functional.dropout", ((4, 2),), {"p": 1.0, "training": True}, "share of 1"),
    ("torch.nn.functional.dropout", ((4, 2),), {"training": "self.training"}, "training"),
    ("torch.nn.functional.relu", ((4, 2),), {"inplace": True}, "overwrites"),
    ("torch.nn.functional.scaled_dot_product_attention", ((2, 4, 2),) * 3, {"dropout_p": 1.5}, "share of 1.5"),
    ("attention", ((2, 4, 2),) * 3, {"dropout_p": 0.1}, "random"),
    ("torch.nn.functional.scaled_dot_product_attention", ((4, 4, 2), (2, 4, 2), (2, 4, 2)), {"enable_gqa": True}, "enable_gqa"),
    ("torch.nn.functional.cross_entropy", ((4, 4), (4,)), {"reduction": "mean", "ignore_index": 0.5}, "ignore_index"),
    ("torch.nn.functional.cross_entropy", ((4, 4), (4,), (3,)), {"reduction": "sum"}, "weights of shape"),
    ("torch.nn.functional.cross_entropy", ((2, 4, 2), (2, 4)), {"reduction": "sum"}, "as many targets"),
    ("torch.nn.functional.cross_entropy", ((2, 4, 2), (2, 4, 2)), {"reduction": "sum"}, "shapes"),
    ("torch.addmm", ((4,), (2, 2), (2, 4)), {"beta": None}, "factors"),
    ("torch.max", ((4, 2), (4, 2)), {}, "2 operands"),
    ("torch.einsum", ((4, 2), (4, 2, 2)), {"equation": "ij,jk->ik"}, "equation"),
    ("torch.topk", ((4, 2),), {"k": 3}, "topk"),
    ("moe_dispatch", ((4, 2), (4, 2)), {"experts": 0, "capacity": 1}, "0 experts"),
    ("moe_combine", ((2, 2, 2), (4, 2), (4, 1)), {}, "shapes"),
    ("masked_gather", ((4, 2), (4,)), {}, "without `start`"),
    ("attention", ((2, 4, 2),) * 3, {"is_causal": True, "query_start": 4, "query_stop": 2}, "positions"),
    ("merge_by_log_sum_exp", ((4, 2), (4, 1), (4, 2), (4, 1)), {}, "shapes"),
    ("torch.squeeze", ((4, 2),), {"dim": 1}, "squeeze"),
    ("torch.gather", ((4, 4), (2, 4)), {"dim": 1}, "gather"),
    ("operator.getitem", ((4, 4), Literal(7)), {}, "index 7"),
    ("torch.split", ((4, 4),), {"split_size_or_sections": (1, 2), "dim": 0}, "into"),
    ("torch.split", ((4, 4),), {"split_size_or_sections": 0, "dim": 0}, "split_size"),
    ("torch.nn.functional.pad", ((4, 4),), {"pad": (1, 1), "mode": "reflect"}, "mode"),
    ("torch.sum", ((4, 4), (4,)), {}, "operands"),
    ("torch.kl_div", ((4, 4), (4, 4)), {}, "without `reduction`"),
    ("torch.binary_cross_entropy_with_logits", ((4, 4), (4, 4)), {}, "without `reduction`"),
    ("torch._C._nn.mse_loss", ((4, 4), (4, 4)), {}, "without `reduction`"),
    ("torch.sum", ((4, 4),), {"axis": 1}, "unknown keyword `axis`"),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "reason"), REFUSED, ids=[f"{row[0]} {row[3]}" for row in REFUSED])
def test_uses_that_the_table_cannot_mean_are_refused(
    op: str, inputs: tuple[Any, ...], attributes: dict[str, Any], reason: str
) -> None:
    spec = spec_of(op)
    assert spec is not None
    with pytest.raises(UnsupportedError, match=reason):
        spec.bind(Call(op, inputs, attributes))


def test_an_attribute_that_changes_the_value_changes_what_identifies_it() -> None:
    """Two uses with equal annotations and attributes are one value to the proof, so they must compute the same."""
    seen: dict[Any, tuple[Case, list[Any]]] = {}
    for case in CASES:
        spec, bound = spec_for(case), spec_for(case).bind(case.call)
        key = (spec.name, case_key(bound), tuple(shape for shape in case.inputs if not isinstance(shape, Literal)))
        operands = operands_of(replace(case, positive=True), bound)
        results = list(outputs_of(case, operands, Floats()))
        if key not in seen:
            seen[key] = (case, results)
            continue
        for own, other in zip(results, seen[key][1], strict=True):
            np.testing.assert_allclose(own, other, err_msg=f"{case.label} and {seen[key][0].label}")


def case_key(bound: Bound) -> tuple[Any, ...]:
    sets = tuple(frozenset(names) for names in (bound.reduced, bound.averaged, bound.whole))
    return (bound.operands, bound.outputs, sets, bound.attributes, tuple(bound.sizes.items()))


@pytest.mark.parametrize(
    ("words", "row"), [({}, None), ({"padding_idx": 1}, 3), ({"padding_row": 1}, 1), ({"padding_idx": 1, "padding_row": 1}, "")]
)
def test_the_padding_row_of_a_part_of_a_table_is_known_by_its_place_in_the_whole(words: dict[str, int], row: object) -> None:
    spec = spec_of("nnscaler.runtime.function.embedding")
    assert spec is not None
    call = Call("embedding", ((4,), (2, 8)), {"start": 2, "stop": 4, **words})
    if row == "":
        with pytest.raises(UnsupportedError):
            spec.bind(call)
    else:
        assert spec.bind(call).attributes == (row,)


@pytest.mark.parametrize(("op", "at", "expected"), [("hardshrink", 0.5, 0.0), ("softshrink", 0.5, 0.0), ("hardtanh", 1.0, 1.0)])
def test_a_number_at_a_bound_is_what_torch_makes_of_it(op: str, at: float, expected: float) -> None:
    spec = spec_of(f"torch.nn.functional.{op}")
    assert spec is not None
    assert spec.evaluate is not None
    bound = spec.bind(Call(f"torch.nn.functional.{op}", ((2,),), {}))
    (found,) = spec.evaluate(bound, [np.array([at, -at])], Floats())
    assert [*found] == [expected, -expected]


@pytest.mark.parametrize(
    "call",
    [
        Call("torch.einsum", ((4, 1), (4, 2)), {"equation": "ik,jk->ij"}),
        Call("torch.index_add", ((1,), (), (1,)), {"dim": 0}),
        Call("torch.scatter_add", ((1,), (), (1,)), {"dim": 0}),
    ],
)
def test_what_torch_broadcasts_is_not_understood_and_no_misfit(call: Call) -> None:
    spec = spec_of(call.op)
    assert spec is not None
    with pytest.raises(UnsupportedError) as caught:
        spec.bind(call)
    assert not isinstance(caught.value, MisfitError)
