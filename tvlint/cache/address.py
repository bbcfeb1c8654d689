"""The address of a result: a hash of the program, the question, and every byte that it reads."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvlint
from tvlint.checkout.following import why_not_followed
from tvlint.checkout.opening import stamp
from tvlint.data import data_path

LARGEST = 4 << 30
"""Bytes of the largest file that is hashed; the readers take none that is larger."""
_DEPENDENCIES = ("numpy", "z3", "zstandard")
"""What a verdict is computed with, beside tvlint and Python."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file at one time: the digest of what it held and, to tell whether it was written since, what the system says of it."""

    path: str
    digest: str
    stamp: tuple[int, ...]


def content(path: str) -> Content | None:
    """Return the file as it is now; None where it is no regular file that can be read."""
    try:
        if why_not_followed(path) or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode) or before.st_size > LARGEST:
                return None
            digest = hashlib.sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
            after = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    return Content(path, digest.hexdigest(), stamp(after)) if stamp(before) == stamp(after) else None


def address(kind: str, program: str, asked: object, contents: Iterable[Content]) -> str:
    """Return the address of a result of that kind. Raises TypeError where `asked` holds what has no canonical form."""
    read = [[content.path, content.digest] for content in contents]
    text = json.dumps([kind, program, _canonical(asked), read], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: object) -> Any:
    if isinstance(value, Enum):
        return ["enum", type(value).__name__, value.name]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, tuple | list):
        return ["list", *map(_canonical, value)]
    if isinstance(value, frozenset | set):
        return ["set", *sorted(map(_canonical, value), key=json.dumps)]
    if isinstance(value, Mapping):
        return ["map", *sorted(([_canonical(key), _canonical(item)] for key, item in value.items()), key=json.dumps)]
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [[field.name, _canonical(getattr(value, field.name))] for field in fields(value)]
        return ["value", type(value).__name__, *pairs]
    raise TypeError(f"nothing that an address can tell: {type(value).__name__}")


@cache
def program() -> str | None:
    """Return a digest of tvlint as it is installed here, its rules and schemas, Python, and the libraries that verdicts rest
    on.

    None where the source of tvlint is not to be found, so that nothing would tell one tvlint from another.
    """
    return installed()


def installed() -> str | None:
    """Return the digest that `program` gives, as it is now: another one where tvlint was edited or upgraded since."""
    digest = hashlib.sha256()
    try:
        package = os.path.dirname(tvlint.__file__)
        sources = _files(package, ".py")
        if os.path.abspath(__file__) not in map(os.path.abspath, sources):
            return None
        for file in (*sources, *_files(str(data_path("rules")), ".md"), *_files(str(data_path("schemas")), ".json")):
            with open(file, "rb") as stream:
                data = stream.read()
            digest.update(f"{os.path.relpath(file, package)}\0{len(data)}\0".encode())
            digest.update(data)
        versions = [tvlint.__version__, sys.version, sys.flags.optimize, sys.platform, *map(_version, _DEPENDENCIES)]
    except (OSError, UnicodeError):
        return None
    digest.update(json.dumps(versions).encode("ascii"))
    return digest.hexdigest()


def _files(folder: str, ending: str) -> list[str]:
    found = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(ending))
    return sorted(found)


def _version(module: str) -> list[str]:
    """Return the names of the installed distributions that lie beside a module and are called like it: they carry the version.

    The metadata of Python say the same, and take longer to ask than a small proof.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return []
    beside = os.path.dirname(os.path.dirname(spec.origin))
    names = (name for name in os.listdir(beside) if name.endswith((".dist-info", ".egg-info")))
    return [spec.origin, *sorted(name for name in names if name.lower().startswith(module))]
