"""Types of plan text: dtype, shape, placements and what else a tensor claims."""

from __future__ import annotations

from tvlint.analyses.dataflow.local_shapes import floored_shape
from tvlint.ir.mesh import Mesh
from tvlint.ir.placement import Invariant, Partial, Placement, Replicate, Shard
from tvlint.ir.plan import Box, Role, Tensor
from tvlint.plurals import counted
from tvlint.readers.plan_text.lexer import Line

DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
}  # fmt: skip
CLAIMED = (Role.WEIGHT, Role.BUFFER, Role.INPUT)
"""Roles whose placement is replicated unless it is said."""
CLAUSES = [
    "replicated", "local", "region", "of", "part", "gradient", "grad-of", "requires-grad", "frozen", "storage",
]  # fmt: skip
MOST_DIMENSIONS = 64


def parse_dtype(line: Line) -> str:
    """Return the dtype that must be next, by its full name."""
    quoted = line.peek()[:1] == "`"
    word = line.name("a dtype such as `f32`")
    return word if quoted else DTYPES.get(word, word)


def parse_shape(line: Line) -> tuple[int, ...]:
    """`[4,8]`."""
    index = line.index
    shape = line.integers("size")
    if len(shape) > MOST_DIMENSIONS:
        line.fail(f"a shape of {counted(len(shape), 'dimension')}; at most {MOST_DIMENSIONS} are read", index=index)
    return shape


def parse_tensor(line: Line, mesh: Mesh, name: str, role: Role, open_role: bool) -> Tensor:
    """Return the tensor `name` of the type that must be next; with `open_role`, `role` is only what is likely."""
    dtype = parse_dtype(line)
    start = line.index
    shape = parse_shape(line)
    claim = parse_clauses(line, mesh)
    placements = claim.placements
    if placements is None and role in CLAIMED and not claim.local and claim.region is None and claim.part == (0, 1):
        placements = {}
    whole = claim.whole
    local = shape
    if placements is not None:
        whole = shape
        local = claim.local_shape if claim.local_shape is not None else _local_shape(line, mesh, shape, placements, start)
    if claim.grad_of and open_role and role is Role.ACTIVATION:
        role = Role.GRADIENT
    return Tensor(
        name, local, dtype, role, claim.logical, whole, claim.region, claim.part, placements,
        claim.grad_of, claim.gradient or "", (role is Role.WEIGHT) if claim.requires_grad is None else claim.requires_grad,
        claim.storage,
    )  # fmt: skip


class Claim:
    """The clauses of one type."""

    __slots__ = (
        "grad_of", "gradient", "local", "local_shape", "logical", "part", "placements", "region", "requires_grad", "storage",
        "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.placements: dict[str, Placement] | None = None
        self.local = False
        self.local_shape: tuple[int, ...] | None = None
        self.logical = ""
        self.whole: tuple[int, ...] | None = None
        self.region: Box | None = None
        self.part = (0, 1)
        self.gradient: str | None = None
        self.grad_of = ""
        self.requires_grad: bool | None = None
        self.storage = ""


def _local_shape(
    line: Line, mesh: Mesh, whole: tuple[int, ...], placements: dict[str, Placement], index: int
) -> tuple[int, ...]:
    try:
        return floored_shape(mesh, whole, placements)[0]
    except ValueError as error:
        line.fail(str(error), "say the local shape with `local [..]` where the pieces are uneven", index)


def parse_clauses(line: Line, mesh: Mesh) -> Claim:
    """Return the clauses that follow a dtype and shape."""
    claim = Claim()
    while True:
        if line.after() == ":" and line.is_name():
            _placement(line, mesh, claim)
            continue
        word = line.peek()
        if word not in CLAUSES:
            return claim
        line.index += 1
        match word:
            case "replicated":
                claim.placements = claim.placements or {}
            case "local":
                claim.local = True
                if line.peek() == "[":
                    claim.local_shape = parse_shape(line)
            case "region":
                claim.region = _region(line)
                line.expect("of", "and the whole value")
                _logical(line, claim)
            case "of":
                _logical(line, claim)
            case "part":
                index = line.integer("part", 0, 2**62)
                line.expect("/")
                claim.part = (index, line.integer("number of parts", index + 1, 2**62))
            case "gradient":
                claim.gradient = line.optional_name("the gradient's name")
            case "grad-of":
                claim.grad_of = line.name("the name of a tensor")
            case "storage":
                claim.storage = line.name("the buffer's name")
            case _:
                claim.requires_grad = word == "requires-grad"


def _logical(line: Line, claim: Claim) -> None:
    claim.logical = line.string("a name") if line.peek()[:1] == '"' else line.optional_name("the whole value's name")
    claim.whole = parse_shape(line) if line.peek() == "[" else None


def _region(line: Line) -> Box:
    line.expect("[", "before intervals")
    box: list[tuple[int, int]] = []
    while not line.accept("]"):
        low = line.integer("bound", 0, 2**62)
        line.expect(":")
        box.append((low, line.integer("bound", low, 2**62)))
        if line.peek() != "]":
            line.expect(",", "or `]`")
    return tuple(box)


def _placement(line: Line, mesh: Mesh, claim: Claim) -> None:
    axis = line.name()
    if all(axis != known.name for known in mesh.axes):
        line.fail_unknown("an axis of the mesh", axis, [known.name for known in mesh.axes], line.index - 1)
    line.expect(":")
    placements = claim.placements if claim.placements is not None else {}
    if axis in placements:
        line.fail(f"axis `{axis}` has two placements", index=line.index - 2)
    placements[axis] = parse_placement(line)
    claim.placements = placements


def parse_placement(line: Line) -> Placement:
    """`R`, `S(0)`, `P(max)`, `I`."""
    word = line.peek()
    if word not in ("R", "S", "P", "I"):
        known = "`R` replicate, `S(0)` shard dimension 0, `P` partial, `I` invariant"
        line.fail(f"expected a placement, found {line.found()}", known)
    line.index += 1
    if word == "R":
        return Replicate()
    if word == "I":
        return Invariant()
    if word == "P":
        if not line.accept("("):
            return Partial()
        reduce = line.reduction()
        line.expect(")")
        return Partial(reduce)
    line.expect("(", "and the dimension that is sharded")
    dim = line.integer("dimension", -MOST_DIMENSIONS, MOST_DIMENSIONS)
    order: tuple[tuple[int, ...], ...] = ()
    parts: tuple[int, ...] = ()
    while line.accept(","):
        keyword = line.word("`order` or `parts`")
        line.expect("=")
        if keyword == "parts":
            parts = line.integers("length")
        elif keyword == "order":
            order = _order(line)
        else:
            line.fail_unknown("part of a placement", keyword, ["order", "parts"], line.index - 2)
    line.expect(")")
    return Shard(dim, order, parts)


def _order(line: Line) -> tuple[tuple[int, ...], ...]:
    line.expect("[")
    order: list[tuple[int, ...]] = []
    while not line.accept("]"):
        order.append(line.integers("piece"))
        if line.peek() != "]":
            line.expect(",", "or `]`")
    return tuple(order)
