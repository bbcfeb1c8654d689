"""The names by which functions take their arguments, against torch where it is installed."""

from __future__ import annotations

import inspect

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome
from tvlint.ops.keywords import is_refused, usual_keyword
from tvlint.ops.table import SPECS

PLAN = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  q = CALL
  l: f32[1] = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  _, grad(w) = backward h (dh)
"""


CALLS = ("torch.tanh(h, scale_by=2)", "torch.exp(h, dim=1)", "torch.nn.functional.silu(h, approximate=1)")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_with_an_argument_that_its_function_does_not_take_fails(call: str) -> None:
    verdict = verdict_on(PLAN.replace("CALL", call), PLAN.replace("CALL", "tanh(h)"))
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name == "shape-mismatch"


@pytest.mark.parametrize(
    ("op", "keyword"),
    [
        ("torch.sum", "axis"),
        ("torch.Tensor.mean", "keepdims"),
        ("torch.zeros", "requires_grad"),
        ("torch.nn.functional.silu", "inplace"),
        ("torch.add", "x1"),
        ("torch.sum", "a"),
        ("torch.topk", "out"),
        ("torch.nn.functional.max_pool2d", "return_indices"),
    ],
)
def test_names_that_torch_takes_for_others_are_none_that_it_refuses(op: str, keyword: str) -> None:
    assert not is_refused(op, keyword)


@pytest.mark.parametrize(
    ("op", "name"),
    [("torch.sum", "dim"), ("torch.unflatten", "dim"), ("torch.norm", "axis"), ("torch.Tensor.unflatten", "axis")],
)
def test_functions_that_torch_writes_in_python_know_no_names_of_numpy(op: str, name: str) -> None:
    assert usual_keyword(op, "axis") == name


@pytest.mark.parametrize("op", ["tanh", "a.tanh", "torch.ops.mine.tanh", "torch.no_such_function"])
def test_of_other_functions_nothing_is_known(op: str) -> None:
    assert not is_refused(op, "scale_by")


def test_the_names_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    signatures = sorted({name for spec in SPECS for name in spec.signatures if name.startswith("torch.")})
    for signature in signatures:
        function = torch
        for part in signature.split(".")[1:]:
            function = getattr(function, part, None)
        for keyword in _keywords(torch, function, signature.rsplit(".", 1)[-1]):
            assert not is_refused(signature, "input" if keyword == "self" else keyword), (signature, keyword)


def _keywords(torch: object, function: object, name: str) -> set[str]:
    found: set[str] = set()
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        found.update(each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))
    except (TypeError, ValueError):
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")  # type: ignore[attr-defined]
        found.update(each.name for schema in schemas for each in schema.arguments)
    return found - {"a", "b", "l", "n", "list", "idx", "separator", "string"}
