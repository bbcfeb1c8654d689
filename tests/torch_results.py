"""What torch computes of the cases of the operator table and of the oracle, recorded, so that every run is held to it.

`tests/data/torch_results.json`, and `torch_types.json` of the types of operands that it refuses, are made anew, with torch
installed, by

    python -m pytest tests/end_to_end/test_torch_results.py --record-torch

A record holds a digest of its operands: where cases or their operands change, the tests say that it is out of date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.builders.operator_cases import CASES, Case, operands_of
from tests.oracle import test_oracle_layers_and_losses as layers
from tests.oracle.layers_and_losses import OF_NO_GRADIENT
from tvlint.ops.table import spec_of

RECORDED = Path(__file__).parent / "data" / "torch_results.json"
TYPES = RECORDED.with_name("torch_types.json")
_DIGITS = 13
"""So many significant digits are kept: results are compared to nine."""


@cache
def recorded() -> Mapping[str, Any]:
    """Return what is recorded, by the name of the case."""
    found: Mapping[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def seeds_of(shapes: Iterable[Sequence[int]]) -> list[Any]:
    """Return what autograd starts from, for results of these shapes."""
    return [np.random.default_rng(i).uniform(-1, 1, tuple(shape)) for i, shape in enumerate(shapes)]


def digest(values: Iterable[Any]) -> str:
    """Return what tells operands apart."""
    texts = [json.dumps([value.shape, _numbers(value)]) if isinstance(value, np.ndarray) else repr(value) for value in values]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def array(record: Any) -> Any:
    """Return a recorded array."""
    shape, values = record
    return np.array(values, dtype=float).reshape(shape)


def operands_of_table(case: Case, seed: int) -> list[Any]:
    """Return the operands of a case of the operator table."""
    spec = spec_of(case.op)
    assert spec is not None
    return operands_of(case, spec.bind(case.call), seed=seed)


def computed(torch: Any) -> dict[str, Any]:
    """Return what torch computes of all cases, as it is recorded."""
    found = {f"table: {case.label}": _of_table(torch, case) for case in CASES}
    for name, case in zip(layers.IDS, layers.CASES, strict=True):
        found[f"oracle: {name}"] = _of_oracle(torch, case)
    return found


def record(torch: Any) -> None:
    """Write what torch computes, and which types it refuses."""
    for path, found in ((RECORDED, computed(torch)), (TYPES, refused_types(torch))):
        lines = [f"{json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(found.items())]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def types_of(case: Case) -> list[tuple[str, ...]]:
    """Return types of the operands of a case: all of one type, the real ones, or one of them among what it has."""
    own = ["float32" if operand.dtype.kind == "f" else "int64" for operand in operands_of_table(case, 1)]
    found: dict[tuple[str, ...], None] = {}
    for dtype in NAMES.values():
        found[(dtype,) * len(own)] = None
        found[tuple(dtype if known == "float32" else known for known in own)] = None
        found |= {(*own[:position], dtype, *own[position + 1 :]): None for position in range(len(own))}
    return list(found)


NAMES = {
    "d": "float64", "f": "float32", "h": "float16", "l": "int64", "i": "int32", "u": "uint8", "b": "bool",
}  # fmt: skip
"""Types by the letters that stand for them in the record."""


def refused_types(torch: Any) -> dict[str, list[str]]:
    """Return the types of operands that torch does not run each case of the table on, a letter an operand."""
    letters = {name: letter for letter, name in NAMES.items()}
    found: dict[str, list[str]] = {}
    for case in CASES:
        given = [torch.tensor(operand) for operand in operands_of_table(case, 1)]
        refused = [types for types in types_of(case) if given and not _runs(torch, case, given, types)]
        found[case.label] = ["".join(letters[name] for name in types) for types in refused]
    return found


def _runs(torch: Any, case: Case, given: Sequence[Any], types: Sequence[str]) -> bool:
    try:
        case.torch(torch, *(tensor.to(getattr(torch, name)) for tensor, name in zip(given, types, strict=True)))
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return "ZeroDivision" in str(error) or "without overflow" in str(error)
    return True


def _of_table(torch: Any, case: Case) -> dict[str, Any]:
    operands = operands_of_table(case, 1)
    results = _listed(case.torch(torch, *map(torch.tensor, operands)))
    others = operands_of_table(case, 2)
    tensors = [torch.tensor(x, requires_grad=x.dtype == float) for x in others]
    made = [y for y in _listed(case.torch(torch, *tensors)) if y.dtype == torch.float64 and y.requires_grad]
    if made:
        torch.autograd.backward(made, [torch.tensor(seed) for seed in seeds_of(y.shape for y in made)])
    return {
        "operands": digest([*operands, *others]),
        "results": [_written(y) for y in results],
        "started": [list(y.shape) for y in made],
        "gradients": [None if x.grad is None else _written(x.grad) for x in tensors],
    }


def _of_oracle(torch: Any, case: Any) -> dict[str, Any]:
    function = _function(torch, case.name)
    values: list[Any] = []
    for position, value in enumerate(case.values):
        if not isinstance(value, np.ndarray):
            values.append(value)
        elif position in OF_NO_GRADIENT.get(case.name, ()) and case.name != "batch_norm":
            masks = case.name in ("where", "masked_fill")
            values.append(torch.tensor(value, dtype=torch.bool if masks else torch.int64))
        else:
            values.append(torch.tensor(value, dtype=torch.float64, requires_grad=case.name != "batch_norm" or position > 2))
    attributes = dict(case.attributes)
    if case.name == "rms_norm" and "eps" not in attributes:
        attributes["eps"] = float(np.finfo(np.float32).eps)
    given = [values] if case.name in ("cat", "stack") else values
    try:
        made = function(*given, **attributes)
    except (RuntimeError, ValueError, TypeError):
        return {"operands": digest(case.values), "fails": True}
    results = list(made) if isinstance(made, tuple | list) else [made]
    torch.autograd.backward(results, [torch.tensor(seed) for seed in seeds_of(y.shape for y in results)])
    gradients = [getattr(leaf, "grad", None) for leaf in values]
    return {
        "operands": digest(case.values),
        "results": [_written(y) for y in results],
        "gradients": [None if own is None else _written(own) for own in gradients],
    }


def _function(torch: Any, name: str) -> Callable[..., Any]:
    if name == "expand":
        return lambda x, size: x.expand(size)
    found: Callable[..., Any] | None = getattr(torch.nn.functional, name, None)
    return getattr(torch, name) if found is None else found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _written(tensor: Any) -> list[Any]:
    own = tensor.detach().to("cpu").numpy()
    return [list(own.shape), _numbers(own)]


def _numbers(own: Any) -> list[Any]:
    if own.dtype.kind in "biu":
        return [int(value) for value in own.ravel()]
    return [float(f"{value:.{_DIGITS}g}") for value in own.ravel()]
