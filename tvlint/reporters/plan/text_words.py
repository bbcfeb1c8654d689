"""Names, constants, types, groups and places as plan text writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tvlint.analyses.dataflow.local_shapes import local_shape
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Collective, Group, Peer, Value
from tvlint.ir.placement import Invariant, Partial, Placement, Replicate
from tvlint.ir.plan import Role, Tensor
from tvlint.ir.ranks import in_runs
from tvlint.reporters.escape.data import dumped
from tvlint.reporters.escape.visible import visible

_WORD = r"[^\W\d][\w.]*(?:-[^\W\d][\w.]*)*"
_BARE = re.compile(rf"{_WORD}|grad\({_WORD}\)")
_CONSTANTS = frozenset({"None", "True", "False", "inf", "nan"})
_OPERATOR_WORDS = frozenset({*(kind.value for kind in Collective), "backward"})
_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
}  # fmt: skip
_SHORT = frozenset(_DTYPES.values())
CLAIMED = (Role.WEIGHT, Role.BUFFER, Role.INPUT)
ROLE_WORDS = {
    Role.WEIGHT: "weight", Role.BUFFER: "buffer", Role.INPUT: "input", Role.ACTIVATION: "tensor",
    Role.GRADIENT: "gradient", Role.STATE: "state",
}  # fmt: skip


@lru_cache(65536)
def name(text: str) -> str:
    """Return a name, in backticks where it is not a plain word."""
    if _BARE.fullmatch(text) and text not in _CONSTANTS and text != "_" and visible(text) == text:
        return text
    return _backticks(text)


def _backticks(text: str) -> str:
    body = string(text)[1:-1].replace('\\"', '"').replace("`", "\\`")
    return f"`{body}`"


def optional_name(text: str) -> str:
    """Return a name, `_` for none."""
    return name(text) if text else "_"


def names(texts: Iterable[str]) -> str:
    """Names, separated by commas."""
    return ", ".join(map(name, texts))


def operator_name(text: str) -> str:
    """Return the name of a computation, kept apart from collectives of the same name."""
    return _backticks(text) if text in _OPERATOR_WORDS else name(text)


def string(text: str) -> str:
    """Return a string in double quotes."""
    return dumped(text) if visible(text) != text or not text.isprintable() else json.dumps(text, ensure_ascii=False)


def word_or_string(text: str) -> str:
    """Return a reduction: a plain word or a string."""
    return text if _BARE.fullmatch(text) and text not in (*_CONSTANTS, "over", "_") else string(text)


def value(constant: Value) -> str:
    """Return a constant."""
    if isinstance(constant, tuple):
        return f"[{', '.join(map(value, constant))}]"
    if isinstance(constant, str):
        return string(constant)
    return repr(constant)


def dtype(text: str) -> str:
    """Return a dtype by its short name."""
    if text in _SHORT:
        return _backticks(text)
    return _DTYPES.get(text) or name(text)


def integers(numbers: Iterable[int]) -> str:
    """`[1,2]`."""
    return f"[{','.join(map(str, numbers))}]"


def placement(claim: Placement) -> str:
    """`R`, `S(0)`, `P(max)`, `I`."""
    if isinstance(claim, Replicate):
        return "R"
    if isinstance(claim, Invariant):
        return "I"
    if isinstance(claim, Partial):
        return "P" if claim.reduce == "sum" else f"P({word_or_string(claim.reduce)})"
    order = f", order=[{','.join(map(integers, claim.order))}]" if claim.order else ""
    parts = f", parts={integers(claim.parts)}" if claim.parts else ""
    return f"S({claim.dim}{order}{parts})"


def tensor_type(tensor: Tensor, mesh: Mesh, linked: Mapping[str, str], undecided: Iterable[str]) -> str:
    """Return the type of a tensor; `linked` and `undecided` are what the tensors themselves say of their gradients."""
    claimed = tensor.role in CLAIMED and tensor.region is None and tensor.part == (0, 1)
    whole = tensor.shape if tensor.placements is None or tensor.whole is None else tensor.whole
    clauses = [f"{dtype(tensor.dtype)}{integers(whole)}"]
    if tensor.placements is None:
        clauses += ["local"] if claimed else []
    else:
        clauses += [f"{name(axis)}:{placement(each_placement)}" for axis, each_placement in tensor.placements.items()]
        local = _local(tensor, whole, mesh)
        clauses += ["replicated"] if not tensor.placements and (local or not claimed) else []
        clauses += local
    clauses += _logical(tensor)
    if tensor.part != (0, 1):
        clauses.append(f"part {tensor.part[0]}/{tensor.part[1]}")
    if tensor.gradient and tensor.gradient != linked.get(tensor.name):
        clauses.append(f"gradient {name(tensor.gradient)}")
    if not tensor.gradient and (tensor.name in linked or tensor.name in undecided):
        clauses.append("gradient _")
    if tensor.gradient_of:
        clauses.append(f"grad-of {name(tensor.gradient_of)}")
    if tensor.requires_grad is not (tensor.role is Role.WEIGHT):
        clauses.append("requires-grad" if tensor.requires_grad else "frozen")
    if tensor.storage:
        clauses.append(f"storage {name(tensor.storage)}")
    return " ".join(clauses)


def _local(tensor: Tensor, whole: tuple[int, ...], mesh: Mesh) -> list[str]:
    try:
        same = local_shape(mesh, whole, tensor.placements or {}) == tensor.shape
    except ValueError:
        same = False
    return [] if same else [f"local {integers(tensor.shape)}"]


def _logical(tensor: Tensor) -> list[str]:
    sizes = integers(tensor.whole) if tensor.whole is not None and tensor.placements is None else ""
    if tensor.region is None and not tensor.logical and not sizes:
        return []
    of = f"of {string(tensor.logical) if tensor.logical else '_'}{sizes}"
    if tensor.region is None:
        return [of]
    return [f"region [{','.join(f'{low}:{high}' for low, high in tensor.region)}] {of}"]


def group(members: Group, mesh: Mesh, communicators: Mapping[str, Group]) -> str:
    """Return the ranks of a communication."""
    axes = tuple(axis.name for axis in mesh.axes)
    if members.name and members.name not in axes and communicators.get(members.name) == members:
        return name(members.name) if members.name not in ("ranks", "world", "self") else _backticks(members.name)
    named = f" named {name(members.name)}" if members.name else ""
    if members.ranks:
        return f"ranks {in_runs(members.ranks)}{named}"
    if not members.axes:
        return f"self{named}"
    if members.axes == axes and len(axes) > 1:
        return f"world{named}"
    written = [_backticks(axis) if axis in ("ranks", "world", "self") else name(axis) for axis in members.axes]
    return f"{','.join(written)}{named}"


def peer(other: Peer) -> str:
    """The other end of a send or receive."""
    if other.rank is not None:
        return str(other.rank)
    return f"{name(other.axis)}{other.offset:+d}{' ring' if other.wrap else ''}"


def place(source: Location | None, name: str) -> str:
    """Return the `at` clause; nothing for a place in the plan's own file, since what is written has places of its own."""
    if source is None or source.path == name:
        return ""
    written = f" at {string(source.path)}"
    if source.line is not None:
        written += f":{source.line}" + (f":{source.column}" if source.column is not None else "")
    if source.end_line is not None:
        written += f" to {source.end_line}" + (f":{source.end_column}" if source.end_column is not None else "")
    if source.pointer:
        written += f" pointer {string(source.pointer)}"
    return written + (f" {string(source.text)}" if source.text else "")
