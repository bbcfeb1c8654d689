"""The table says which types of operands an operator takes, as torch does: in both directions, over all of its cases."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.builders.operator_cases import CASES, Case
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.torch_results import NAMES, TYPES, types_of
from tvlint.findings import Outcome
from tvlint.ops.dtypes import expected_types
from tvlint.ops.spec import Trait
from tvlint.ops.table import spec_of

OF_A_CPU: Mapping[str, str] = {
    **dict.fromkeys(("avg-pool1d", "avg-pool2d", "avg-pool3d", "max-pool1d", "interpolate"), "no kernel of such numbers"),
    **dict.fromkeys(("conv-transpose1d", "conv-transpose2d", "conv-transpose3d"), "no kernel of such whole numbers"),
    "hardtanh": "a number below zero beside numbers that are not",
    "cross-entropy": "indices of 8 bits, for rows without positions",
    **dict.fromkeys(("binary-cross-entropy-with-logits", "kl-div"), "targets of whole numbers, where of other real ones do"),
    "l1-loss": "whole numbers, where their sum does",
}
"""Operators that refuse more than the table says, and what."""
TAKES_MORE: Mapping[str, str] = {"dropout": "what drops nothing takes whatever it is given"}
"""Operators that take more than the table says."""


def refused(case: Case) -> set[str]:
    """The types that the table says the operator of a case does not take."""
    spec = spec_of(case.op)
    assert spec is not None
    letters, bound = {name: letter for letter, name in NAMES.items()}, spec.bind(case.call)
    found = [types for types in types_of(case) if types and expected_types(spec, bound, types, case.attributes)]
    return {"".join(letters[name] for name in types) for types in found}


OF_TORCH = [case for case in CASES if case.op.startswith(("torch.", "nnscaler."))]
"""Others are written for plans: no framework refuses them anything."""


@pytest.mark.parametrize("case", OF_TORCH, ids=lambda case: case.label)
def test_the_table_refuses_what_torch_refuses(case: Case) -> None:
    spec, known = spec_of(case.op), set(json.loads(TYPES.read_text(encoding="utf-8"))[case.label])
    assert spec is not None
    if Trait.MASKING in spec.traits:
        return  # the cases cast their masks: see below
    assert spec.name in OF_A_CPU or not known - refused(case)
    assert spec.name in TAKES_MORE or not refused(case) - known


@pytest.mark.parametrize("name", [*OF_A_CPU, *TAKES_MORE])
def test_no_operator_is_left_out_that_is_as_the_table_says(name: str) -> None:
    known = json.loads(TYPES.read_text(encoding="utf-8"))
    cases = [case for case in OF_TORCH if (spec := spec_of(case.op)) is not None and spec.name == name]
    assert any(refused(case) != set(known[case.label]) for case in cases)


DECLARED = """input i i64[4,8]
input k i32[4,8]
input m bool[4,8]
input u u8[4,8]
input x f32[4,8]
input z f64[4,8]
input c i64[4]
output y
program
"""


@pytest.mark.parametrize(
    "call",
    [
        "y = masked_fill(x, i, 0.0)", "y = masked_fill(x, x, 0.0)", "y = masked_fill(x, u, 0.0)", "y = where(x, x, x)",
        "y = where(k, x, x)", "y = lerp(i, i, 0.5)", "y = mean(k)", "y = softmax(i, dim=1)", "y = F.embedding(x, x)",
        "y = F.linear(i, x)", "a = transpose(z, 0, 1)\ny = matmul(x, a)", "y = F.scaled_dot_product_attention(x, x, z)",
        "a = to(c, \"int32\")\ny = F.cross_entropy(x, a)", "a = eq(i, i)\ny = sub(a, 1)", "a = eq(x, z)\ny = relu(a)",
        "a = add(i, 1)\ny = mean(a)", "a = argmax(x, dim=1)\ny = mean(a)", "a = tanh(x)\ny = gather(x, 1, a)",
        "a: f32[4,8] = mul(i, 2)\ny = F.mse_loss(a, i)", "a: bool[4,8] = add(i, 1)\ny = masked_fill(x, a, 0.0)",
        "y = clamp(x)", "y = clip(x)", "y = torch.clamp_min(x)", "y = F.threshold(x, 0.5)", "y = F.dropout(x, 2.0, False)",
        "y = F.dropout(x, -1.0)", "y = index_add(x, 1, i, x)", "y = scatter_add(x, 0, c, x)", "y = logsumexp(x, dim=[])",
        "y = index_reduce(x, 1, i, x, \"amax\")", "y = F.scaled_dot_product_attention(x, x, x, enable_gqa=True)",
        "a = view(x, 1, 1, 4, 8)\ny = F.adaptive_avg_pool2d(a, [2])", "a = view(x, 1, 1, 4, 8)\ny = F.interpolate(a, [8])",
        "y = F.cross_entropy(x, c, label_smoothing=2.0)",
        "y = pow(m, m)", "a = lt(x, z)\ny = remainder(m, a)", "y = div(m, m, rounding_mode=\"floor\")",
    ],
)  # fmt: skip
def test_a_call_that_torch_refuses_is_not_proved_where_both_plans_have_it(call: str) -> None:
    assert verdict_on(f"mesh tp=2\n{DECLARED}{call}\n", f"{DECLARED}{call}\n").outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    "call",
    [
        "y = masked_fill(x, m, 0.0)", "y = where(m, x, z)", "y = where(u, x, x)", "y = mean(i, dtype=\"float32\")",
        "y = add(x, z)", "y = F.mse_loss(x, i)", "a = eq(i, i)\ny = logical_not(a)", "y = F.cross_entropy(x, c)",
        "y = F.scaled_dot_product_attention(x, x, x, m)", "y = maximum(i, x)",
        "v, a = max(x, dim=1)\ny = F.embedding(a, z)", "a = to(m, \"int64\")\ny = sub(1, a)",
        "y = pow(m, 2)", "y = remainder(m, i)", "y = div(m, m)", "y = clamp(x, min=0.5)", "y = torch.clamp_max(x, 1)",
        "y = F.threshold(x, 0.5, 0.0)", "y = F.dropout(x, 1.0, False)", "y = index_add(x, 0, c, x)",
        "y = scatter_add(x, 0, i, x)", "y = logsumexp(x, dim=[0, 1])", "y = F.cross_entropy(x, c, label_smoothing=1)",
    ],
)  # fmt: skip
def test_a_call_that_torch_runs_is_proved(call: str) -> None:
    declared = DECLARED.replace("m bool[4,8]", "m bool[4,4]") if "attention" in call else DECLARED
    declared = declared.replace("input c i64[4]\n", "") if "(1, a)" in call else declared
    assert verdict_on(f"mesh tp=2\n{declared}{call}\n", f"{declared}{call}\n").outcome is Outcome.PROVED
