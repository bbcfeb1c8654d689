"""The parsed parts of plan text, before they become a plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Group
from tvlint.ir.placement import Placement
from tvlint.ir.plan import Replication, Role, Tensor
from tvlint.readers.plan_text.clauses import Scope
from tvlint.readers.plan_text.lexer import Line
from tvlint.readers.plan_text.operators import Parsed
from tvlint.readers.plan_text.sections import Run, SegmentHeader
from tvlint.readers.plan_text.types import parse_clauses, parse_tensor

Item: TypeAlias = "Parsed | Run | int"
"""An operator, a step, or the micro-batch of the operators that follow."""

MOST_RANKS = 2**20
MOST_AXES = 32


@dataclass(slots=True)
class Section:
    """A segment or a program, with its lines in order."""

    scope: Scope
    line: Line
    header: SegmentHeader | None = None
    ranks: tuple[int, ...] = ()
    items: list[Item] = field(default_factory=list)
    types: dict[str, Tensor] = field(default_factory=dict)
    """Of a program: the names that have another type there than elsewhere."""


class Draft:
    """A plan while it is being read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = ""
        self.mesh = Mesh(())
        self.replication: Replication = Replication()
        self.micro_batches: int | None = None
        self.communicators: dict[str, Group] = {}
        self.groups: list[Group] = []
        self.tensors: dict[str, Tensor] = {}
        self.declared_at: dict[str, int] = {}
        self.declared_in: dict[str, Section | None] = {}
        self.no_gradient: set[str] = set()
        self.open_roles: set[str] = set()
        self.claims: dict[str, tuple[dict[str, Placement], Line]] = {}
        self.outputs: list[str] = []
        self.returned_at: dict[str, Location] = {}
        self.losses: list[str] = []
        self.segments: dict[str, Section] = {}
        self.programs: list[Section] = []
        self.section: Section | None = None
        self.owner: dict[int, int] = {}
        self._rank_lists: dict[str, tuple[int, ...]] = {}
        self._seen: dict[str, int] = {}

    def once(self, line: Line, word: str) -> None:
        """`word` may begin one line only."""
        if word in self._seen:
            line.fail(f"a second `{word}` line; the first is line {self._seen[word]}", index=0)
        self._seen[word] = line.number

    def scope(self) -> Scope:
        """Return what the operators of a new section see."""
        return Scope(self.mesh, self.communicators, self.declare, self._rank_lists)

    def start(self, section: Section) -> None:
        """Everything up to the next section belongs to `section`."""
        self.section = section
        if section.header is not None:
            self.segments[section.header.name] = section
            return
        for rank in section.ranks:
            if rank in self.owner:
                message = f"rank {rank} has a program already, in line {self.owner[rank]}"
                section.line.fail(message, "a rank runs one program", 0)
            self.owner[rank] = section.line.number
        self.programs.append(section)

    def set_mesh(self, line: Line) -> None:
        """`dp=2 tp=2`."""
        if self.tensors or self.section is not None or self.communicators or "replicate" in self._seen:
            line.fail("the mesh comes before everything that uses it", index=0)
        axes: list[Axis] = []
        while line.peek():
            name = line.name("an axis")
            if any(name == axis.name for axis in axes):
                line.fail(f"axis `{name}` is given twice", index=line.index - 1)
            line.expect("=", "and the axis's size")
            axes.append(Axis(name, line.integer("size", 1, MOST_RANKS)))
            line.accept(",")
        if prod(axis.size for axis in axes) > MOST_RANKS or len(axes) > MOST_AXES:
            line.fail(f"a mesh of more than {MOST_RANKS} ranks or {MOST_AXES} axes", index=0)
        self.mesh = Mesh(tuple(axes))

    def set_replication(self, line: Line) -> None:
        """`dp`, `dp count 4 stride 2`."""
        if self.section is not None:
            line.fail("`replicate` comes before the programs", index=0)
        axis = line.name("an axis")
        names = [axis.name for axis in self.mesh.axes]
        if line.accept("count"):
            count = line.integer("count", 1, MOST_RANKS)
            line.expect("stride", "and the distance of replicas in ranks")
            self.replication = Replication(axis, count, line.integer("stride", 0, MOST_RANKS))
            return
        if axis not in names:
            line.fail_unknown("an axis of the mesh", axis, names, line.index - 1)
        position = names.index(axis)
        stride = prod(axis.size for axis in self.mesh.axes[position + 1 :])
        self.replication = Replication(axis, self.mesh.axes[position].size, stride)

    def replicated_axis(self) -> str:
        """Return the axis along which the programs repeat, where it is one of the mesh."""
        axis = self.replication.axis
        return axis if self.replication.count > 1 and any(axis == each_axis.name for each_axis in self.mesh.axes) else ""

    def add_communicator(self, name: str, group: Group) -> None:
        """Make `over name` mean `group`; an empty name is nothing to refer to."""
        self.groups.append(replace(group, name=name))
        if name:
            self.communicators[name] = self.groups[-1]

    def add_tensor(self, line: Line, role: Role) -> None:
        """A tensor's declaration, after its first word."""
        index = line.index
        name = line.name("the tensor's name")
        line.accept(":")
        self.declare(line, index, parse_tensor(line, self.mesh, name, role, False), False)

    def add_output(self, line: Line, loss: bool) -> None:
        """`output y`, `output y f32[8,8] dp:S(0)`, `output y dp:S(0)`."""
        index = line.index
        name = line.name("the output's name")
        if name in (self.losses if loss else self.outputs):
            line.fail(f"{'loss' if loss else 'output'} `{name}` is given twice", index=index)
        if loss:
            self.losses.append(name)
        if name not in self.outputs:
            self.outputs.append(name)
            self.returned_at[name] = line.whole()
        line.accept(":")
        if not line.peek():
            return
        if line.after() != "[":
            self.claims[name] = (parse_clauses(line, self.mesh).placements or {}, line)
            return
        self.declare(line, index, parse_tensor(line, self.mesh, name, Role.ACTIVATION, True), True)

    def declare(self, line: Line, index: int, tensor: Tensor, open_role: bool) -> None:
        """Take the declaration of `tensor`; a second one must say the same of shape and dtype, and may say no more, unless it
        is that of another program."""
        name = tensor.name
        self._note_missing_gradient(line, name)
        first = self.tensors.get(name)
        if first is not None and self._declare_own(line, index, tensor, first, open_role):
            return
        if first is None:
            self.declared_in[name] = self.section
            self.tensors[name] = tensor
            self.declared_at[name] = line.number
            if open_role and tensor.role in (Role.ACTIVATION, Role.GRADIENT):
                self.open_roles.add(name)
            return
        where = f"line {self.declared_at[name]}"
        if (first.shape, first.dtype) != (tensor.shape, tensor.dtype):
            line.fail(
                f"`{name}` is {tensor.dtype}{list(tensor.shape)} on a rank here, {first.dtype}{list(first.shape)} in {where}",
                "a name has one local shape, but in a program that declares it anew", index,
            )  # fmt: skip
        if tensor == first or (open_role and is_bare(tensor)):
            return
        if is_bare(first) and name in self.open_roles:
            self.tensors[name] = tensor
            self.open_roles.discard(name)
            if open_role:
                self.open_roles.add(name)
            return
        line.fail(f"`{name}` is declared twice; the first is in {where}", index=index)

    def _declare_own(self, line: Line, index: int, tensor: Tensor, first: Tensor, open_role: bool) -> bool:
        """Return whether the declaration is that of a program on whose ranks the name has another type than `first`.

        What is declared for all ranks is declared anew in a program by a line of its own; an annotation may differ from those
        in other programs.
        """
        section, other = self.section, self.declared_in.get(tensor.name)
        if section is None or section.header is not None or section is other:
            return False
        this_tensor = section.types.get(tensor.name)
        if this_tensor is not None:
            if (this_tensor.shape, this_tensor.dtype) != (tensor.shape, tensor.dtype):
                line.fail(f"`{tensor.name}` has two types in one program", "give one of the values another name", index)
            return True
        if open_role and (other is None or other.header is not None):
            return False
        if (first.shape, first.dtype) == (tensor.shape, tensor.dtype) and (first.region is None or tensor.region is None):
            if is_bare(tensor):
                section.types[tensor.name] = tensor
            return False
        if not open_role and (tensor == first or tensor.role is not first.role):
            return False
        section.types[tensor.name] = tensor
        return True

    def _note_missing_gradient(self, line: Line, name: str) -> None:
        if "gradient" in line.tokens and ("gradient", "_") in pairwise(line.tokens):
            self.no_gradient.add(name)


def is_bare(tensor: Tensor) -> bool:
    """Return whether nothing but the local shape and dtype is said."""
    return tensor == Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.role)
