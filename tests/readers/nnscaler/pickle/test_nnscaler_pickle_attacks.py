"""Plan pickles whose records say one thing where tvlint reads them and another where nnScaler generates code from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.nnscaler_pickles import (
    Global,
    Object,
    adapter,
    backward,
    dumps,
    module,
    operator,
    prim,
    segment,
    small,
    tensor,
)
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.pickle.reader import read


def _problem(root: object) -> str:
    try:
        read("plan.pkl", dumps(root))
    except ReadError as error:
        return error.problem.message
    return ""


def _with_prim(name: str, **more: Any) -> Object:
    """A plan in which one primitive of an adapter is as nnScaler writes it, but for what `more` says."""
    x, y = tensor(1, (4, 8)), tensor(2, (4, 8))
    given = [x] if name != "MovePrim" else []
    told = prim(name, given, [y], ranks=[0, 1], dim=1, src=1, dst=0, shape=(4, 8), dtype="torch.float32")
    told.state["kwargs"] |= more.pop("kwargs", {})
    told.state |= more
    return module({0: [adapter(8, [told], given, [y])], 1: []}, 2)


PRIMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "another collective": ("AllReducePrim", {"signature": "nnscaler.runtime.adapter.nn.allreduce_identity"}, "runs"),
    "another function": ("ChunkPrim", {"signature": "model.chunk"}, "runs"),
    "nothing": ("ChunkPrim", {"signature": None}, "runs"),
    "what nobody waits for": ("AllReducePrim", {"kwargs": {"async_op": True}}, "`async_op`"),
    "another shape": ("MovePrim", {"kwargs": {"shape": (8, 4)}}, "of the shape"),
    "another type": ("MovePrim", {"kwargs": {"dtype": "torch.float16"}}, "float16"),
    "another shape to all": ("BroadcastPrim", {"kwargs": {"shape": (8, 4)}}, "of the shape"),
}


@pytest.mark.parametrize("name", list(PRIMS))
def test_a_primitive_does_what_the_call_does_that_is_generated_for_it(name: str) -> None:
    kind, more, said = PRIMS[name]
    assert _problem(_with_prim(kind)) == ""
    assert said in _problem(_with_prim(kind, **more))


def _changed(change: Callable[[Object], None]) -> Object:
    """A plan with an operator that reads one parameter through two records, the second one changed."""
    first, second = (
        tensor(2, (6, 8), gradient=tensor(14, (6, 8), is_gradient=True), weight="layer.weight", full=102) for _ in "ab"
    )
    change(second)
    nodes = [operator(20 + n, "torch.sum", [w], [tensor(30 + n, (1,))]) for n, w in enumerate((first, second))]
    return module({0: [segment(9, nodes, [], [])]}, 1)


RECORDS: dict[str, Callable[[Object], Any]] = {
    "nothing": lambda record: None,
    "the whole": lambda record: record.state["_full_tensor"].state.update(_id=103, name="other.weight"),
    "the name of the whole": lambda record: record.state["_full_tensor"].state.update(name="other.weight"),
    "another whole of this name": lambda record: (
        record.state.update(_id=3) or record.state["_full_tensor"].state.update(_id=103)
    ),
    "the shape of the whole": lambda record: record.state["_full_tensor"].state.update(_shape=(12, 8)),
    "the share": lambda record: record.state["_valmap"].state.update(_weight=(0, 2)),
    "being trained": lambda record: record.state.update(_requires_grad=False),
    "being a parameter": lambda record: record.state.update(_requires_grad=False, _grad=None),
    "the name": lambda record: record.state.update(name="other"),
    "a name that is code": lambda record: record.state.update(_id=3, name="x = 0; y"),
}


@pytest.mark.parametrize("name", list(RECORDS))
def test_all_records_of_a_tensor_say_the_same(name: str) -> None:
    assert bool(_problem(_changed(RECORDS[name]))) == (name != "nothing")


def test_a_comment_is_no_code() -> None:
    plan = small()
    assert _problem(plan.root) == ""
    plan.linear.state["_comment"] += "\n        self.weight_2.zero_()"
    assert "several lines" in _problem(plan.root)


@pytest.mark.parametrize("mode", ["no_grad_mode", "inference_mode"])
def test_an_operator_that_autograd_does_not_record_has_no_gradient(mode: str) -> None:
    plan = small()
    context = {"grad_mode": {"grad_mode": True, "no_grad_mode": False, "inference_mode": False}}
    plan.linear.state["_op_context"] = context
    assert _problem(plan.root) == ""
    context["grad_mode"][mode] = True
    assert "no_grad" in _problem(plan.root)


def test_a_segment_without_autograd_is_not_trained() -> None:
    plan = small()
    plan.forward.state["_mirror"] = segment(31, [plan.linear_backward], [], [])
    assert _problem(plan.root) == ""
    plan.tensors["loss"].state |= {"_grad": None, "_requires_grad": False}
    assert "requires a gradient" in _problem(plan.root)


def test_a_segment_whose_result_requires_no_gradient_is_not_trained() -> None:
    plan = small()
    for tensor_ in plan.tensors.values():
        if tensor_.state["_grad"] is not None and not tensor_.state["_is_attr"]:
            tensor_.state["_requires_grad"] = False
    assert "does not require one" in _problem(plan.root)


def test_dtypes_are_told_by_name_or_by_string() -> None:
    assert _problem(_with_prim("MovePrim", kwargs={"dtype": Global("torch.float32")})) == ""


def _rules(signature: str) -> Object:
    return Object("nnscaler.codegen.frontend_mapping.Sign2EmitRule", {"_sign2rule": {signature: None}})


GENERATOR: dict[str, dict[str, Any]] = {
    "constructors": {"model_init_statements": ["import os"]},
    "methods": {"model_methods_bodies": [["pass"]]},
    "first lines": {"init_code": ["import torch", "torch.nn.functional.linear = torch.nn.functional.silu"]},
    "first lines in one": {"init_code": ["import torch\ntorch.nn.functional.linear = torch.nn.functional.silu"]},
    "another name": {"init_code": ["import elsewhere as torch"]},
    "replicas": {"enable_dp": False},
    "operators": {"_emit_rules": _rules("torch.nn.functional.linear")},
}


@pytest.mark.parametrize("name", list(GENERATOR))
def test_the_code_generator_holds_no_code_of_its_own(name: str) -> None:
    usual = {
        "model_init_statements": [],
        "model_methods_bodies": [],
        "init_code": ["\n\n# Model", "from typing import *", "import torch", "import torch.utils.checkpoint as ckpt", ""],
        "enable_dp": True,
        "_emit_rules": _rules("torch.slice"),
    }
    assert _problem(small(**usual).root) == ""
    assert _problem(small(**{**usual, **GENERATOR[name]}).root)


def test_a_segment_runs_backward_the_segment_that_it_mirrors() -> None:
    plan = small()
    back = segment(31, [plan.linear_backward], [], [])
    back.state["_mirror"] = plan.forward
    assert _problem(module({0: [plan.forward, back]}, 1)) == ""
    back.state["_mirror"] = segment(32, [], [], [])
    assert "mirrors" in _problem(module({0: [plan.forward, back]}, 1))


def test_a_segment_that_runs_backward_mirrors_one() -> None:
    plan = small()
    plan.sequence[2].state["_mirror"] = None
    assert "mirrors no segment" in _problem(plan.root)


def _adapted(kind: str, *, exchanged: bool = True, taken: bool = True, **changed: Any) -> Object:
    """A plan that trains a weight through an adapter, which autograd runs backward or, with `exchanged` off, does not.

    With `taken` off the product takes no gradient: all that stands before the adapter needs none.
    """
    w_gradient, y_gradient, z_gradient = (tensor(n, (4, 4), is_gradient=True, full=100 + n) for n in (11, 12, 13))
    w = tensor(1, (4, 4), gradient=w_gradient, weight="layer.weight", full=101)
    x = tensor(2, (4, 4), full=102)
    y, z = tensor(3, (4, 4), gradient=y_gradient, full=103), tensor(4, (4, 4), gradient=z_gradient, full=104)
    loss_gradient = tensor(14, (1,), is_gradient=True, full=114)
    loss = tensor(5, (1,), gradient=loss_gradient, full=105)
    first = operator(20, "torch.matmul", [x, w], [y])
    between = adapter(21, [prim(kind, [y], [z], ranks=[0, 1])], [y], [z])
    between.state |= {"_differentiable": True, "custom": False, **changed}
    last = operator(22, "torch.sum", [z], [loss])
    forward = segment(30, [first, between, last], [x], [loss])
    back_between = adapter(31, between.state["_prims"], [z_gradient], [y_gradient], forward=False)
    back_between.state |= {"_differentiable": True, "custom": False, "_mirror": between}
    nodes = [backward(32, last, [loss_gradient], [z_gradient])]
    nodes += [back_between] if exchanged else []
    nodes += [backward(33, first, [y_gradient], [w_gradient])] if taken else []
    back = segment(34, nodes, [loss_gradient], [])
    back.state["_mirror"] = forward
    return module({0: [forward, back], 1: []}, 2)


def test_an_adapter_keeps_gradients_where_they_are_used() -> None:
    assert _problem(_adapted("AllReducePrim")) == ""
    cut = _problem(_adapted("AllReducePrim", _differentiable=False))
    assert cut == "the gradient `g12` of `t3` is used, and an adapter of it is not differentiable"
    assert _problem(_adapted("AllReducePrim", _differentiable=False, exchanged=False)) == cut
    assert _problem(_adapted("AllReducePrim", _differentiable=False, exchanged=False, taken=False)) == ""


def test_a_gradient_is_exchanged_by_an_adapter_of_the_mirrored_segment() -> None:
    plan = _adapted("AllReducePrim")
    _, back = plan.state["execplan"].state["_seq"][0]
    back.state["_nodes"][1].state["_mirror"] = None
    assert "exchanges gradients" in _problem(plan)


def test_an_adapter_has_one_backward() -> None:
    assert _problem(_adapted("AllReduceIdentityPrim")) == ""
    assert "a backward of its own" in _problem(_adapted("AllReduceIdentityPrim", custom=True))
