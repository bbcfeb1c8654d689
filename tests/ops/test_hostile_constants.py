"""Constants that no operator takes, among the operands and attributes of calls: refused, without any other exception."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.builders.operator_cases import CASES
from tvlint.ir.operators import Literal, Value
from tvlint.ops.spec import Call, UnsupportedError
from tvlint.ops.table import spec_of

HOSTILE: tuple[Value, ...] = (
    0, -1, 10**20, -(10**20), 0.0, 0.5, float("inf"), float("nan"), 1e300, None, True, "x", (), (0,), (-1,), (float("inf"),),
    ("x",),
)  # fmt: skip
CALLS = (
    Call("torch.nn.functional.interpolate", ((2, 2, 4),), {"size": 2}),
    Call("torch.nn.functional.interpolate", ((2, 2, 4),), {"scale_factor": 2}),
    Call("torch.arange", (Literal(0), Literal(4)), {}),
)


def hurt(call: Call, value: Value) -> Iterator[Call]:
    """Yield the call with the value in the place of each of its constants."""
    for name, known in call.attributes.items():
        yield replace(call, attributes={**call.attributes, name: value})
        if isinstance(known, tuple) and known:
            yield replace(call, attributes={**call.attributes, name: (value, *known[1:])})
    for place, operand in enumerate(call.inputs):
        if isinstance(operand, Literal):
            yield replace(call, inputs=(*call.inputs[:place], Literal(value), *call.inputs[place + 1 :]))


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_no_constant_ends_in_another_exception(value: Value) -> None:
    tried = 0
    for call in (*CALLS, *(case.call for case in CASES)):
        spec = spec_of(call.op)
        assert spec is not None
        for each in hurt(call, value):
            tried += 1
            try:
                bound = spec.bind(each)
            except UnsupportedError:
                continue
            assert all(size >= 0 for size in bound.sizes.values()), each
    assert tried > 100
