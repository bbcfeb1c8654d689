"""Whether two plans are the same in everything that checks and proofs use."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.plan import Plan


def assert_same_plan(a: Plan, b: Plan) -> None:
    """Fails, naming the first field that differs. Formats, paths and places in the plans' own files may differ."""
    paths = (a.path, b.path)
    for own in fields(Plan):
        if own.name not in ("path", "format", "returned_at"):
            _same(getattr(a, own.name), getattr(b, own.name), own.name, paths)


def _same(a: Any, b: Any, where: str, paths: tuple[str, str]) -> None:
    if a is b:
        return
    if isinstance(a, Location) or isinstance(b, Location) or where.endswith(".source"):
        own = [place is None or place.path == path for place, path in zip((a, b), paths, strict=True)]
        assert own[0] == own[1], f"{where}: {a} and {b}"
        assert own[0] or a == b, f"{where}: {a} and {b}"
        return
    assert type(a) is type(b), f"{where}: {a!r} and {b!r}"
    if is_dataclass(a):
        for field in fields(a):
            _same(getattr(a, field.name), getattr(b, field.name), f"{where}.{field.name}", paths)
    elif isinstance(a, dict):
        assert set(a) == set(b), f"{where}: only in one of them: {sorted(set(a) ^ set(b))[:10]}"
        for key in a:
            _same(a[key], b[key], f"{where}[{key!r}]", paths)
    elif isinstance(a, tuple):
        assert len(a) == len(b), f"{where}: {len(a)} and {len(b)} elements: {a!r} and {b!r}"[:2000]
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            _same(left, right, f"{where}[{index}]", paths)
    else:
        assert isinstance(a, Enum | str | int | float | type(None)), f"{where}: {type(a)} is not compared"
        assert a == b or (a != a and b != b), f"{where}: {a!r} and {b!r}"
