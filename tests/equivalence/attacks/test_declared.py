"""Plans in JSON whose declarations leave open whose gradient a tensor is, or whether it adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.plan_json.reader import read


def _of(segment: str, operator: int, given: list[str], made: list[str | None]) -> dict[str, Any]:
    return {"kind": "backward", "forward": {"segment": segment, "operator": operator}, "inputs": given, "outputs": made}


def _call(op: str, given: list[str], made: str) -> dict[str, Any]:
    return {"kind": "compute", "op": op, "inputs": given, "outputs": [made]}


def _tensor(role: str, **declared: str) -> dict[str, Any]:
    return {"shape": [8, 8], "dtype": "float32", "role": role, **declared}


def planned(declared: dict[str, dict[str, Any]] | None = None, again: bool = False, names: str = "wv") -> Plan:
    """Two layers; with `again` the gradient of the first is made twice. `names` says whose gradient each layer stores."""
    linear, gelu = "torch.nn.functional.linear", "torch.nn.functional.gelu"
    first, last = (f"g{name}" for name in names)
    back = [
        _of("f", 4, ["grad(l)"], ["dq"]),
        _of("f", 3, ["dq"], ["dz"]),
        _of("f", 2, ["dz"], ["dg", last]),
        _of("f", 1, ["dg"], ["dy"]),
        *[_of("f", 0, ["dy"], [None, first])] * (2 if again else 1),
    ]
    forth = [
        _call(linear, ["x", "w"], "y"),
        _call(gelu, ["y"], "g"),
        _call(linear, ["g", "v"], "z"),
        _call(gelu, ["z"], "q"),
        _call("torch.sum", ["q"], "l"),
    ]
    document = {
        "tvlint_plan": 1,
        "mesh": [],
        "tensors": {"w": _tensor("weight"), "v": _tensor("weight"), "x": _tensor("input"), **(declared or {})},
        "segments": {
            "f": {"phase": "forward", "inputs": [], "outputs": ["l"], "operators": forth},
            "b": {"phase": "backward", "inputs": [], "outputs": [], "operators": back},
        },
        "programs": [{"ranks": [0], "steps": [{"segment": "f"}, {"segment": "b"}]}],
        "outputs": ["l"],
        "loss": "l",
    }
    plan = read("own.json", json.dumps(document)).plan
    assert plan is not None
    return plan


def not_proved(plan: Plan) -> None:
    assert prove(plan, planned()).outcome is not Outcome.PROVED


def test_gradients_that_are_declared_like_this_are_proved() -> None:
    declared = {
        "w": _tensor("weight", gradient="gw"),
        "v": _tensor("weight", gradient="gv"),
        "gw": _tensor("gradient", gradient_of="w"),
        "gv": _tensor("gradient", gradient_of="v"),
    }
    assert prove(planned(declared), planned()).outcome is Outcome.PROVED


@pytest.mark.parametrize("names", ["wv", "vw"])
def test_a_gradient_is_that_of_one_weight(names: str) -> None:
    declared = {"w": _tensor("weight", gradient="gw"), "v": _tensor("weight", gradient="gw"), "gv": _tensor("gradient")}
    not_proved(planned({**declared, "gw": _tensor("gradient", gradient_of="w")}, names=names))
    not_proved(planned({"w": _tensor("weight", gradient="gw"), "gw": _tensor("gradient", gradient_of="v")}, names=names))


def test_a_gradient_of_a_weight_that_is_made_twice_does_not_replace_itself() -> None:
    declared = {"w": _tensor("weight", gradient="gw"), "v": _tensor("weight", gradient="gv")}
    not_proved(planned({**declared, "gw": _tensor("activation"), "gv": _tensor("activation")}, again=True))
