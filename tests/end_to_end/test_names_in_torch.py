"""Functions that the table has under several names compute under each what torch computes under it, by default too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders.operator_cases import CASES, Case, operands_of
from tvlint.ir.operators import Literal
from tvlint.ops.field import Floats
from tvlint.ops.spec import Call, UnsupportedError
from tvlint.ops.table import spec_of

MODULES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.special", "torch.linalg", "torch._C._nn", "aten")
ROUNDED = ("half", "bfloat16")
"""Casts that the table leaves out: its numbers have all digits."""
FEWEST = 1400
"""So many calls are compared; some cases are of one name, or of arguments that a name takes otherwise."""


@pytest.mark.filterwarnings("ignore:reduction")
def test_every_name_computes_what_torch_computes_by_it() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    compared, wrong = 0, list[str]()
    for case in CASES:
        for call in _calls(case):
            ours = _of_table(case, call)
            theirs = None if ours is None else _of_torch(torch, case, call, ours[0])
            if ours is None or theirs is None:
                continue
            compared += 1
            if not all(_is_alike(one, two) for one, two in zip(ours[1], theirs, strict=False)):
                wrong.append(f"{call.op} of {case.label}")
    assert [each for each in wrong if not each.endswith(ROUNDED)] == []
    assert compared >= FEWEST


def _calls(case: Case) -> Iterator[Call]:
    """Yield the call of a case under every name of its function, as it is and without the arguments that it gives by name."""
    spec = spec_of(case.op)
    last = {name.rsplit(".", 1)[-1] for name in spec.signatures} if spec is not None else set[str]()
    for name in sorted(f"{module}.{each}" for module in MODULES for each in last):
        for attributes in (case.call.attributes, {}):
            yield replace(case.call, op=name, attributes=attributes, outputs=())


def _of_table(case: Case, call: Call) -> tuple[list[Any], tuple[Any, ...]] | None:
    """Return operands and what the table makes of them; None where it does not know the call."""
    spec = spec_of(call.op)
    if spec is None or spec.evaluate is None:
        return None
    try:
        bound = spec.bind(call)
        operands = operands_of(case, bound, 1)
        return operands, spec.evaluate(bound, operands, Floats())
    except (UnsupportedError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _of_torch(torch: Any, case: Case, call: Call, operands: list[Any]) -> tuple[Any, ...] | None:
    """Return the results of torch; None where it has no such function, or refuses the call."""
    function = torch.ops if call.op.startswith("aten.") else torch
    for part in call.op.removeprefix("torch.").split("."):
        function = getattr(function, part, None)
    tensors = iter(operands)
    given = [each.value if isinstance(each, Literal) else torch.tensor(np.asarray(next(tensors))) for each in case.call.inputs]
    try:
        found = function(*given, **call.attributes)
    except Exception:
        return None
    return found if isinstance(found, tuple | list) else (found,)


def _is_alike(ours: Any, theirs: Any) -> bool:
    if not hasattr(theirs, "detach"):
        return True
    found = theirs.detach()
    other = (found.double() if found.is_floating_point() else found).numpy()
    if ours.shape != other.shape:
        return False
    return np.allclose(np.asarray(ours, float), other.astype(float), rtol=1e-5, atol=1e-5, equal_nan=True)
