"""The mesh of an nnScaler plan, which names none: pipeline stages are the devices that share work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tvlint.ir.mesh import Axis, Mesh


def mesh_of(
    forward_cells: Mapping[int, Iterable[object]], groups: Mapping[int, Iterable[tuple[int, ...]]], replicas: int
) -> tuple[Mesh, dict[int, int]]:
    """Return the mesh and the pipeline stage of every device; without stages when the devices do not form equal ones.

    `forward_cells` are the forward segments that each device runs, `groups` the ranks of its collectives and reducers.
    """
    devices = sorted(forward_cells)
    stages = _stage_members(forward_cells, groups, devices)
    size = len(devices) // max(1, len(stages))
    if stages != [devices[start : start + size] for start in range(0, len(devices), max(1, size))]:
        return Mesh((Axis("dp", replicas), Axis("device", len(devices)))), {}
    stage_of = {device: stage for stage, members in enumerate(stages) for device in members}
    return Mesh((Axis("dp", replicas), Axis("pp", len(stages)), Axis("tp", size))), stage_of


def _stage_members(
    forward_cells: Mapping[int, Iterable[object]], groups: Mapping[int, Iterable[tuple[int, ...]]], devices: list[int]
) -> list[list[int]]:
    """Return the devices of each pipeline stage: those that run one forward segment, or share a collective or a reducer."""
    leader = {device: device for device in devices}

    def find(device: int) -> int:
        while leader[device] != device:
            leader[device] = device = leader[leader[device]]
        return device

    shared: dict[object, int] = {}
    for device, cells in forward_cells.items():
        for cell in cells:
            leader[find(device)] = find(shared.setdefault(cell, device))
    for group in {group for members in groups.values() for group in members}:
        members = [rank for rank in group if rank in leader]
        for member in members[1:]:
            leader[find(member)] = find(members[0])
    found: dict[int, list[int]] = {}
    for device in devices:
        found.setdefault(find(device), []).append(device)
    return sorted(found.values())
