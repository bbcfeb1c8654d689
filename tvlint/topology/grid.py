"""The grids of ranks and the process groups in them.

A grid is a `Mesh` whose last axis varies fastest, so Megatron's order `tp-cp-ep-dp-pp` (fastest first) is the mesh
`pp, dp, cp, tp` of the dense layers and `pp, dp, ep, tp` of the experts (megatron/core/parallel_state.py:465, :859, :887).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvlint.ir.mesh import Axis, Mesh

WEIGHT_SHARDS = "gtp"
"""The axis of generalised tensor parallelism, over which weights are sharded and gathered again for use."""


@dataclass(frozen=True, slots=True)
class GroupKind:
    """All process groups of one kind: the ranks that differ only on `axes`.

    `ends` keeps of each group only its first member (`first`) or its first and its last (`first-last`).
    """

    name: str
    mesh: Mesh
    axes: tuple[str, ...]
    ends: str = ""

    @property
    def span(self) -> int:
        """Return how many ranks a group has before its ends are picked."""
        return prod(self.mesh.axis_size(name) for name in self.axes)

    @property
    def size(self) -> int:
        """Return how many ranks each group has."""
        if not self.ends:
            return self.span
        return min(self.span, 2 if self.ends == "first-last" else 1)

    @property
    def count(self) -> int:
        return self.mesh.size // self.span

    def group(self, index: int) -> tuple[int, ...]:
        """Return the members of one group, ascending; groups are counted by their lowest rank."""
        rank, stride = 0, 1
        for axis in reversed(self.mesh.axes):
            if axis.name not in self.axes:
                index, coordinate = divmod(index, axis.size)
                rank += coordinate * stride
            stride *= axis.size
        return self._picked(self.mesh.along(rank, self.axes))

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the members of the group that `rank` is in; empty where it is in none."""
        members = self._picked(self.mesh.along(rank, self.axes))
        return members if rank in members else ()

    def _picked(self, members: tuple[int, ...]) -> tuple[int, ...]:
        if self.ends == "first":
            return members[:1]
        return tuple(dict.fromkeys((members[0], members[-1]))) if self.ends else members


@dataclass(frozen=True, slots=True)
class Grid:
    """Both grids of one world, and Megatron's name for their order; `expert` is None where there are no experts."""

    order: str
    dense: Mesh
    expert: Mesh | None


def grid(order: str, sizes: dict[str, int], expert_sizes: dict[str, int] | None) -> Grid:
    """Return the grids of an order such as `tp-cp-ep-dp-pp`; raises `ValueError` where the two grids do not fit over each
    other.
    """
    dense = _mesh(order, sizes, "tp")
    if expert_sizes is None:
        return Grid(order, dense, None)
    expert = _mesh(order, expert_sizes, "ep")
    if dense.size != expert.size:
        raise ValueError(f"the grid of the experts has {expert.size:,} ranks, that of the other layers {dense.size:,}")
    if not order.endswith("pp") and dense.axis_size("pp") > 1 and dense.axis_size("dp") != expert.axis_size("dp"):
        raise ValueError(f"with the order {order}, data parallelism must be the same for experts and the other layers")
    return Grid(order, dense, expert)


def _mesh(order: str, sizes: dict[str, int], before_shards: str) -> Mesh:
    names = order.split("-")
    if sizes.get(WEIGHT_SHARDS, 1) > 1:
        names.insert(names.index(before_shards) + 1, WEIGHT_SHARDS)
    return Mesh(tuple(Axis(name, sizes[name]) for name in reversed(names) if name in sizes))


def groups_of(grid: Grid) -> tuple[GroupKind, ...]:
    """Every kind of process group that Megatron makes over the grids, but for those that are a second name of another."""
    dense, expert = grid.dense, grid.expert
    kinds = [GroupKind("tp", dense, ("tp",)), GroupKind("cp", dense, ("cp",))]
    if dense.axis_size(WEIGHT_SHARDS) > 1:
        kinds.append(GroupKind(WEIGHT_SHARDS, dense, (WEIGHT_SHARDS,)))
    kinds.append(GroupKind("dp", dense, ("dp",)))
    if dense.axis_size("cp") > 1:
        kinds.append(GroupKind("dp-cp", dense, ("dp", "cp")))
        kinds.append(GroupKind("tp-cp", dense, ("tp", "cp")))
    kinds += [
        GroupKind("pp", dense, ("pp",)),
        GroupKind("tp-pp", dense, ("tp", "pp")),
        GroupKind("embedding", dense, ("pp",), "first-last"),
        GroupKind("position-embedding", dense, ("pp",), "first"),
    ]
    if expert is not None:
        kinds += [
            GroupKind("ep", expert, ("ep",)),
            GroupKind("expert-tp", expert, ("tp",)),
            GroupKind("expert-tp-ep", expert, ("tp", "ep")),
            GroupKind("expert-dp", expert, ("dp",)),
        ]
        if expert.axis_size(WEIGHT_SHARDS) > 1:
            kinds.insert(-1, GroupKind("expert-gtp", expert, (WEIGHT_SHARDS,)))
    return tuple(kinds)
