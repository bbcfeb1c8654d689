"""A topology for the terminal: facts, groups, the mesh, the pipeline and the memory of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvlint.ir.configuration import Unknown
from tvlint.plurals import counted
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import Line, terminal
from tvlint.reporters.escape.visible import visible
from tvlint.reporters.text.topology_lines import NAME, groups, heading, rows, titled, wrapped
from tvlint.reporters.text.topology_mesh import drawn
from tvlint.reporters.text.topology_plan import plan_block
from tvlint.reporters.text.topology_ranks import members
from tvlint.reporters.text.topology_words import (
    alike,
    batch,
    bubble,
    chunk,
    fitting,
    gibibytes,
    grid,
    large,
    model,
    replicas,
    sources,
    world,
)
from tvlint.topology.footprint import StageMemory
from tvlint.topology.known import VOCABULARIES
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.role import Role
from tvlint.topology.topology import Pipeline, Topology

MAXIMAL_ROWS = 24


def write(topologies: Sequence[Topology | PlanTopology], width: int, color: bool, rank: int | None = None) -> Escaped:
    """One block for each topology; with `rank`, that rank's place and groups instead of the groups of all."""
    lines: list[str | Line] = []
    for found in topologies:
        lines += [""] if lines else []
        lines += plan_block(found, width, rank) if isinstance(found, PlanTopology) else _block(found, width, rank)
    return terminal(lines, color)


def _block(topology: Topology, width: int, rank: int | None) -> Iterator[str | Line]:
    smallest = " in the smallest world" if not isinstance(topology.world, Unknown) and topology.world.minimal else ""
    section = f" ({topology.section})" if topology.section else ""
    yield heading(f"{topology.path}{section}: {topology.framework}")
    if topology.role is Role.SERVES:
        yield from rows([("world size", world(topology)), *replicas(topology), *model(topology)[:-1]], width)
        yield from titled(f"Memory of a rank{smallest}, GiB", _memory(topology, width))
        yield from _said(topology, width)
        return
    yield from rows([("world size", world(topology)), *grid(topology)], width)
    if rank is not None:
        yield from titled(f"Rank {rank:,}", _one(topology, rank))
    else:
        if topology.groups:
            yield from titled(f"Groups{smallest}", groups(topology.groups, width))
        if not isinstance(topology.grid, Unknown):
            yield from titled(f"Mesh{smallest}", drawn(topology.grid, width))
    if topology.role is Role.TRAINS:
        yield from titled(f"Batch{smallest}", rows(batch(topology), width))
    yield from titled("Pipeline", _pipeline(topology, width, rank))
    yield from titled("Model", rows(model(topology), width))
    yield from titled(f"Memory of a rank{smallest}, GiB", _memory(topology, width))
    yield from _said(topology, width)


def _said(topology: Topology, width: int) -> Iterator[str]:
    said = sources(topology)
    if said:
        yield ""
        for text in said:
            yield from wrapped(visible(text), "  ", width)


def _one(topology: Topology, rank: int) -> Iterator[str]:
    """Yield a rank's coordinates, and the members of each of its groups."""
    if isinstance(topology.grid, Unknown):
        yield f"  ? ({topology.grid.reason})"
        return
    meshes = [("coordinates", topology.grid.dense)]
    meshes += [("expert coordinates", topology.grid.expert)] if topology.grid.expert is not None else []
    if rank >= topology.grid.dense.size:
        yield f"  there are {counted(topology.grid.dense.size, 'rank')}, numbered from 0"
        return
    for name, mesh in meshes:
        place = mesh.coordinates(rank)
        yield f"  {name:<{NAME - 2}} {', '.join(f'{axis.name} {place[axis.name]}' for axis in reversed(mesh.axes))}"
    for kind in topology.groups:
        unit = kind.of(rank)
        said = f"{members(unit)}" if unit else "in none"
        place_in = f"  ({unit.index(rank) + 1:,} of {len(unit):,})" if len(unit) > 1 else ""
        yield f"  {kind.name:<{NAME - 2}} {said}{place_in}"


def _pipeline(topology: Topology, width: int, rank: int | None) -> Iterator[str]:
    if topology.role is Role.TRAINS:
        yield from rows([("bubble", bubble(topology))], width)
    found = topology.pipeline
    if isinstance(found, Unknown):
        yield from rows([("layers", f"? ({found.reason})")], width)
        return
    virtual = f" × {found.virtual} virtual" if found.virtual > 1 else ""
    shape = f"{counted(sum(found.layers), 'layer')} on {counted(len(found.stages), 'pipeline stage')}{virtual}"
    yield from rows([("layers", shape)], width)
    only = None
    if rank is not None and not isinstance(topology.grid, Unknown) and rank < topology.grid.dense.size:
        only = topology.grid.dense.coordinates(rank)["pp"]
    yield from _stages(found, width, only)


def _stages(pipeline: Pipeline, width: int, only: int | None) -> Iterator[str]:
    stages = range(len(pipeline.stages)) if only is None else range(only, only + 1)
    lines = [(f"pp {number}", [chunk(held) for held in pipeline.stages[number]]) for number in stages]
    columns = [max(len(cells[place]) for _, cells in lines) for place in range(pipeline.virtual)]
    kept = lines if len(lines) <= MAXIMAL_ROWS else [*lines[: MAXIMAL_ROWS // 2], *lines[-MAXIMAL_ROWS // 2 :]]
    for index, (name, cells) in enumerate(kept):
        if len(kept) < len(lines) and index == MAXIMAL_ROWS // 2:
            yield f"    … {len(lines) - len(kept):,} more"
        text = " │ ".join(f"{cell:<{column}}" for cell, column in zip(cells, columns, strict=True)).rstrip()
        lead = f"    {name:<{NAME - 4}} "
        yield from _cells_wrapped(text, lead, width)


def _cells_wrapped(text: str, lead: str, width: int) -> Iterator[str]:
    """Cells that stay whole where a line breaks."""
    room = max(20, width - len(lead))
    while len(text) > room:
        cut = text.rfind(" │ ", 0, room)
        if cut <= 0:
            break
        yield lead + text[:cut].rstrip()
        lead, text = " " * len(lead), text[cut + 3 :]
    yield lead + text


def _memory(topology: Topology, width: int) -> Iterator[str]:
    found = topology.memory
    if isinstance(found, Unknown):
        yield from rows([("memory", f"? ({found.reason})"), *fitting(topology)], width)
        return
    head = ("parameters", "weights", "gradients", "optimizer", "activations", "total")
    cells = [_cells(stage) for stage in found]
    if topology.between is not None:
        ranges = zip(*(map(_cells, memory) for memory in topology.between), strict=True)
        cells = [tuple(one if one == other else f"{one}-{other}" for one, other in zip(*pair, strict=True)) for pair in ranges]
    longest = max((len(cell) for row in cells for cell in row), default=0) + 1
    wide = width >= NAME + max(13, longest) * len(head)
    lead = NAME if wide else NAME - 2
    rooms = [max(longest, 13) if wide else max(9, longest, len(name) + 1) for name in head]
    yield f"  {'pipeline stage':<{lead - 2}}" + "".join(f"{name:>{room}}" for name, room in zip(head, rooms, strict=True))
    runs = alike(cells)
    for first, last in runs if len(runs) <= MAXIMAL_ROWS else runs[: MAXIMAL_ROWS - 1]:
        name = f"pp {first}" if first == last else f"pp {first}-{last}"
        yield f"  {name:<{lead - 2}}" + "".join(f"{cell:>{room}}" for cell, room in zip(cells[first], rooms, strict=True))
    if len(runs) > MAXIMAL_ROWS:
        yield f"  … {len(cells) - runs[MAXIMAL_ROWS - 1][0]:,} more pipeline stages"
    if topology.between is not None:
        least, most = VOCABULARIES
        yield from rows([("vocabulary", f"not known, and taken to have {least:,} to {most:,} tokens")], width)
    yield from _reasons(found if topology.between is None else topology.between[0], width)
    yield from rows(fitting(topology), width)
    estimate = topology.megatron
    if not isinstance(estimate, Unknown):
        held, kept = gibibytes(estimate.weights_and_optimizer), gibibytes(estimate.activations)
        said = f"weights and optimizer {held}, activations {kept}"
        yield from rows([("Megatron's own", f"{said} (theoretical_memory_usage.py, the most loaded rank)")], width)


def _cells(stage: StageMemory) -> tuple[str, ...]:
    held = "?" if isinstance(stage.parameters, Unknown) else large(stage.parameters)
    values = (stage.weights, stage.gradients, stage.optimizer, stage.activations, stage.total)
    return (held, *map(gibibytes, values))


def _reasons(memory: Sequence[StageMemory], width: int) -> Iterator[str]:
    """Yield why a column is not known, each reason once."""
    said: dict[str, str] = {}
    for stage in memory:
        for name in ("parameters", "weights", "optimizer", "activations"):
            value: int | Unknown = getattr(stage, name)
            if isinstance(value, Unknown):
                said.setdefault(value.reason, name)
    yield from rows([(name, f"? ({reason})") for reason, name in said.items()], width)
