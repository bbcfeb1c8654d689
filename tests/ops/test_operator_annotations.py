"""What the operator table claims is true, and what is true it claims: splits, linearity, dependence, gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.builders.layer_and_loss_cases import FLAGS
from tests.builders.operator_cases import CASES, Case, operands_of
from tests.builders.registered_operators import REPRESENTATIVES
from tvlint.analyses.relations.transfer.operator_uses import gradient_use
from tvlint.equivalence.solver.annotation_proofs import (
    Kind,
    claimed,
    drawn_operands,
    evaluate,
    prove_annotation,
    prove_linear,
    prove_split,
)
from tvlint.equivalence.solver.decide import Decision, Draw, Proved, Refuted, Unknown, decide
from tvlint.ir.operators import Literal
from tvlint.ops.derivatives import gradient
from tvlint.ops.field import Field, Floats
from tvlint.ops.spec import ONE, Bound, Call, OpSpec
from tvlint.ops.table import spec_of

TIMEOUT = 10.0

ALL: tuple[Case, ...] = (*CASES, *(case for case, _ in REPRESENTATIVES))
MEANINGS = {case.op: evaluate for case, evaluate in REPRESENTATIVES}


def spec_for(case: Case) -> OpSpec:
    """The table's row, with the meaning of a representative where the row has none."""
    spec = spec_of(case.op)
    assert spec is not None
    return replace(spec, evaluate=spec.evaluate or MEANINGS[case.op])


def bound_of(case: Case) -> Bound:
    return spec_for(case).bind(case.call)


def names_of(bound: Bound) -> list[str]:
    return list(dict.fromkeys(name for names in bound.operands for name in names if name != "1"))


def prove_independent(spec: OpSpec, call: Call, output: int, kept: frozenset[int]) -> Decision:
    """Return whether output `output` depends on the operands `kept` only."""

    def claim(draw: Draw, field: Field) -> list[tuple[Any, Any]]:
        bound = spec.bind(call).given_draws()
        one, other = drawn_operands(bound, call, draw), drawn_operands(bound, call, draw, "y")
        mixed = [a if i in kept else b for i, (a, b) in enumerate(zip(one, other, strict=True))]
        return [(evaluate(spec, call, one, field)[output], evaluate(spec, call, mixed, field)[output])]

    return decide(claim, TIMEOUT)


def prove_commutative(spec: OpSpec, call: Call) -> Decision:
    """Return whether the first two operands may be exchanged."""

    def claim(draw: Draw, field: Field) -> list[tuple[Any, Any]]:
        one = drawn_operands(spec.bind(call).given_draws(), call, draw)
        exchanged = replace(call, inputs=(*reversed(call.inputs[:2]), *call.inputs[2:]))
        results = evaluate(spec, call, one, field), evaluate(spec, exchanged, [one[1], one[0], *one[2:]], field)
        return list(zip(*results, strict=True))

    return decide(claim, TIMEOUT)


def splits(kinds: frozenset[Kind]) -> Iterator[Any]:
    for case in ALL:
        bound = bound_of(case)
        for name in names_of(bound):
            if claimed(bound, name) in kinds and size_of(case, bound, name) > 1:
                yield pytest.param(case, name, id=f"{case.label} {name}")


def size_of(case: Case, bound: Bound, name: str) -> int:
    shapes = [shape for shape in case.inputs if not isinstance(shape, Literal)]
    found = [
        s for names, shape in zip(bound.operands, shapes, strict=False) for n, s in zip(names, shape, strict=True) if n == name
    ]
    return int(found[0])


@pytest.mark.parametrize(("case", "name"), list(splits(frozenset(Kind) - {Kind.WHOLE})))
def test_a_dimension_that_may_be_split_does_what_the_annotation_says(case: Case, name: str) -> None:
    assert prove_annotation(spec_for(case), case.call, name, 2, TIMEOUT) == Proved()


@pytest.mark.parametrize("name", ["s0", "n", "k"])
def test_more_and_unequal_parts_split_alike(name: str) -> None:
    spec, call = spec_of("torch.nn.functional.linear"), Call("torch.nn.functional.linear", ((7, 5), (6, 5)), {})
    assert spec is not None
    assert prove_annotation(spec, call, name, 3, TIMEOUT) == Proved()


@pytest.mark.parametrize(("case", "name"), list(splits(frozenset({Kind.WHOLE}))))
def test_a_dimension_that_must_be_whole_cannot_be_split(case: Case, name: str) -> None:
    spec, bound = spec_for(case), bound_of(case)
    assert isinstance(prove_annotation(spec, case.call, name, 2, TIMEOUT), Refuted)
    maps = [Kind.MAPS] if all(name in names for names in bound.outputs) else []
    decisions = {kind: prove_split(spec, case.call, name, kind, 2, 0.1) for kind in (Kind.SUMS, Kind.AVERAGES, *maps)}
    if (case.label, name) not in SPLITS_UNCLAIMED:
        assert all(isinstance(decision, Refuted) for decision in decisions.values()), decisions


SPLITS_UNCLAIMED = {("nnscaler_moe_gmm", "k")}
"""A sum over the chosen experts, which the author's annotation does not offer."""


def subsets(case: Case) -> list[frozenset[int]]:
    """Single operands, and those of joint groups, that hold numbers."""
    bound = bound_of(case)
    count = sum(1 for shape in case.inputs if not isinstance(shape, Literal))
    singles = [frozenset({i}) for i in range(count) if i not in bound.indices and i not in bound.shape_only]
    return [*singles, *(group for group in bound.linear if len(group) > 1)]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.label)
def test_linear_operands_are_linear_and_others_are_not(case: Case) -> None:
    spec, bound = spec_for(case), bound_of(case)
    for group in subsets(case):
        decision = prove_linear(spec, case.call, group, TIMEOUT if group in bound.linear else 0.1)
        if group in bound.linear:
            assert decision == Proved(), (group, decision)
        elif (case.label, min(group)) not in LINEAR_UNCLAIMED:
            assert isinstance(decision, Refuted), (group, decision)


LINEAR_UNCLAIMED = {
    *(("nnscaler_moe_gmm", operand) for operand in (1, 4, 5)),
    *(("apply_rotary_emb", operand) for operand in (0, 1)),
    *((f"binary-cross-entropy {reduction}", operand) for reduction in ("none", "sum", "mean") for operand in (0, 1)),
}
"""The scores and two of the weights, which the author's annotation does not offer; one of two that it offers together; chances,
which numbers outside 0 to 1 are none of."""


@pytest.mark.parametrize("case", [case for case in ALL if bound_of(case).row_wise], ids=lambda case: case.label)
def test_outputs_depend_on_the_operands_that_they_list_and_on_each_of_them(case: Case) -> None:
    spec, bound = spec_for(case), bound_of(case)
    for output, kept in bound.row_wise.items():
        assert prove_independent(spec, case.call, output, kept) == Proved()
        for operand in kept:
            assert isinstance(prove_independent(spec, case.call, output, kept - {operand}), Refuted)


def test_results_without_rows_of_their_own_depend_on_every_operand() -> None:
    for case in ALL:
        bound = bound_of(case)
        count = sum(1 for shape in case.inputs if not isinstance(shape, Literal))
        if bound.row_wise or bound.shape_only or case.label in FLAGS or case.most < 1:
            continue
        for operand in range(count):
            decisions = [
                prove_independent(spec_for(case), case.call, output, frozenset(range(count)) - {operand})
                for output in range(len(bound.outputs))
            ]
            assert any(isinstance(decision, Refuted) for decision in decisions), (case.label, operand, decisions)


def test_operators_that_are_commutative_are_and_no_others() -> None:
    for case in CASES:
        shapes = [shape for shape in case.inputs if not isinstance(shape, Literal)]
        if case.most < 1 or len(shapes) != 2 or shapes[0] != shapes[1] or len(case.inputs) != 2:
            continue
        decision: Decision = prove_commutative(spec_for(case), case.call)
        if bound_of(case).commutative:
            assert decision == Proved(), case.label
        else:
            assert isinstance(decision, Refuted), f"{case.label}: its `bind` has to state `commutative`"


def test_a_wrong_annotation_is_refuted_with_numbers() -> None:
    spec, call = spec_of("torch.nn.functional.softmax"), Call("torch.nn.functional.softmax", ((4, 4),), {"dim": 1})
    assert spec is not None
    decision = prove_split(spec, call, "s1", Kind.MAPS, 2, TIMEOUT)
    assert isinstance(decision, Refuted)
    assert "output 0 at (0, 0)" in decision.counterexample


def test_an_operator_without_meaning_is_unknown() -> None:
    spec = spec_of("apply_mask")
    assert spec is not None
    decision = prove_annotation(spec, Call("apply_mask", ((2, 2, 2, 2), (1, 1, 2, 2)), {}), "a", 2, TIMEOUT)
    assert decision == Unknown("`apply_mask` has no meaning, only an annotation")


# Gradients: what `gradient_use` claims of every vector-Jacobian product, in numbers.


@dataclass(frozen=True)
class Product:
    """One vector-Jacobian product: the operands and gradients it is made from, and what is claimed of it."""

    case: Case
    operand: int
    operands: list[Any]
    gradients: Mapping[int, Any]
    use: Any


def products() -> Iterator[Any]:
    for case in ALL:
        bound = bound_of(case)
        count = sum(1 for shape in case.inputs if not isinstance(shape, Literal))
        for operand in range(count):
            if operand not in bound.zero_gradient and operand not in bound.indices:
                yield pytest.param(case, operand, id=f"{case.label} {operand}")


def product_of(case: Case, operand: int, seed: int = 5) -> Product:
    spec, bound = spec_for(case), bound_of(case)
    assert spec.evaluate is not None
    operands = operands_of(case, bound, seed)
    results = spec.evaluate(bound, operands, Floats())
    random = np.random.default_rng(seed + 1)
    gradients = {i: random.uniform(0.5, 1.5, y.shape) for i, y in enumerate(results) if y.dtype == float}
    places: Sequence[Any] = [object() for _ in operands]
    use = gradient_use(spec.name, bound, operand, places, {i: object() for i in gradients})  # type: ignore[misc, arg-type]
    assert use is not None
    used = [i for i in gradients if operand in bound.row_wise.get(i, frozenset(range(len(operands))))]
    return Product(case, operand, operands, {i: gradients[i] for i in used}, use)


def computed(case: Case, call: Call, operand: int, operands: Sequence[Any], gradients: Mapping[int, Any]) -> Any:
    spec = spec_for(case)
    assert spec.evaluate is not None
    return gradient(spec.evaluate, spec.bind(call), operands, operand, gradients)


def cut(array: Any, names: Sequence[str], name: str, low: int, high: int) -> Any:
    return array[tuple(slice(low, high) if own == name else slice(None) for own in names)]


@pytest.mark.parametrize(("case", "operand"), list(products()))
def test_gradients_split_as_their_use_claims(case: Case, operand: int) -> None:
    made = product_of(case, operand)
    bound, spec = bound_of(case), spec_for(case)
    whole = computed(case, case.call, operand, made.operands, made.gradients)
    for name in names_of(bound):
        size = size_of(case, bound, name)
        if name in made.use.whole or size < 2:
            continue
        found = []
        for low, high in ((0, size // 2), (size // 2, size)):
            own = [cut(x, names, name, low, high) for x, names in zip(made.operands, bound.operands, strict=False)]
            shapes = iter([x.shape for x in own])
            inputs = tuple(x if isinstance(x, Literal) else next(shapes) for x in case.inputs)
            attributes = dict(case.attributes)
            if name in bound.ranges:
                attributes.update(zip(spec.range_attributes[name], (low, high), strict=True))
            if name in bound.counts:
                attributes[bound.counts[name]] = high - low
            seeds = {i: cut(g, bound.outputs[i], name, low, high) for i, g in made.gradients.items()}
            factor = (high - low) / size if name in made.use.averaged else 1.0
            found.append(factor * computed(case, Call(case.op, inputs, attributes), operand, own, seeds))
        if name in made.use.result:
            assert name not in made.use.reduced
            together = np.concatenate(found, axis=made.use.result.index(name))
        else:
            assert name in made.use.reduced, f"`{name}` is neither in the gradient nor summed"
            together = found[0] + found[1]
        np.testing.assert_allclose(together, whole, rtol=1e-7, atol=1e-9, err_msg=f"`{name}`")


@pytest.mark.parametrize(("case", "operand"), list(products()))
def test_gradients_depend_on_what_their_use_lists_and_are_linear_in_what_it_says(case: Case, operand: int) -> None:
    made = product_of(case, operand)
    count = len(made.gradients)
    whole = computed(case, case.call, operand, made.operands, made.gradients)
    bound = bound_of(case)
    group = next((g for g in bound.linear if operand in g), frozenset())
    reach = frozenset().union(*(bound.row_wise.get(i, frozenset(range(len(made.operands)))) for i in made.gradients))
    needs = [i for i in sorted(reach) if i not in group and i not in bound.shape_only]
    if bound.commutative and operand == 1 and needs[:2] == [0, 1]:
        needs[:2] = 1, 0
    listed = [names for i, (names, _) in enumerate(made.use.operands) if i not in made.use.shape_only]
    assert listed == [*(bound.outputs[i] for i in made.gradients), *(bound.operands[i] for i in needs)]
    others = operands_of(case, bound, seed=11)
    changed = [x if i in needs else y for i, (x, y) in enumerate(zip(made.operands, others, strict=True))]
    np.testing.assert_allclose(computed(case, case.call, operand, changed, made.gradients), whole, rtol=1e-9, atol=1e-12)
    for linear in made.use.linear:
        twice = dict(made.gradients)
        values, scaled = list(made.operands), list(made.operands)
        for place in linear:
            if place < count:
                output = list(made.gradients)[place]
                twice[output] = 3.0 * made.gradients[output]
            else:
                values[needs[place - count]] = 3.0 * values[needs[place - count]]
        scaled = values
        result = computed(case, case.call, operand, scaled, twice)
        np.testing.assert_allclose(result, 3.0 * whole, rtol=1e-9, atol=1e-12, err_msg=f"{sorted(linear)}")


def test_the_gradient_of_a_mean_is_not_a_sum_over_what_it_has_itself() -> None:
    made = product_of(next(case for case in CASES if case.label == "mean"), 0)
    assert made.use.averaged & set(made.use.result)
    assert not made.use.reduced & set(made.use.result)
    assert ONE in made.use.operands[0][0]
