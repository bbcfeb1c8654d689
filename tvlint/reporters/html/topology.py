"""Topologies on one self-contained page: no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvlint.ir.configuration import Unknown
from tvlint.plurals import counted
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.html import topology_svg as drawing
from tvlint.reporters.html.page import code, page, rows, sentence
from tvlint.reporters.text.ranks import describe
from tvlint.reporters.text.topology_ranks import examples, members
from tvlint.reporters.text.topology_words import (
    alike,
    batch,
    bubble,
    fitting,
    gibibytes,
    grid,
    large,
    model,
    replicas,
    shown_fact,
    sizes,
    sources,
    world,
)
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import GroupKind
from tvlint.topology.of_plan import LaneSteps, PlanTopology
from tvlint.topology.role import Role
from tvlint.topology.topology import Topology

_MOST_ROWS = 64
"""Rows of a list that are shown."""
_MOST_STEPS = 200
"""Steps of a rank that are shown."""
_HUES = (210, 30, 140, 280, 0, 180, 55, 320, 100, 240, 15, 160)
_OWN = (
    "".join(f"svg .k{number} {{ fill: hsl({hue} 62% 74%); }} " for number, hue in enumerate(_HUES))
    + "@media (prefers-color-scheme: dark) { "
    + "".join(f"svg .k{number} {{ fill: hsl({hue} 38% 36%); }} " for number, hue in enumerate(_HUES))
    + "}\n"
    + """svg .none { fill: none; stroke: var(--line); } svg .chosen { stroke: var(--ink); stroke-width: 3; }
:root { --weights: #7db4e8; --gradients: #f0b37e; --optimizer: #93cfa2; --activations: #d3b3ea; }
@media (prefers-color-scheme: dark) { :root { --weights: #2f6ea8; --gradients: #a8652a; --optimizer: #2f7a4a;
  --activations: #6f4d93; } }
svg .weights, .key.weights { fill: var(--weights); background: var(--weights); }
svg .gradients, .key.gradients { fill: var(--gradients); background: var(--gradients); }
svg .optimizer, .key.optimizer { fill: var(--optimizer); background: var(--optimizer); }
svg .activations, .key.activations { fill: var(--activations); background: var(--activations); }
.small { display: flex; flex-wrap: wrap; gap: 1rem 1.75rem; align-items: flex-end;
  margin-bottom: 1.25rem; } td code { white-space: pre-wrap; } figure { margin: 0; }
figcaption { font-size: .82rem; color: var(--soft); } figcaption b { color: var(--ink); }
table { border-collapse: collapse; font-size: .9rem; } th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .2rem 1.25rem .2rem 0; vertical-align: top; } td.number, th.number { text-align: right; }
.one-line { white-space: nowrap; } .wide { min-width: 14rem; }
"""
)


def write(topologies: Sequence[Topology | PlanTopology], version: str, rank: int | None = None) -> Escaped:
    """Return a page with a section for each topology; `rank` is marked in the mesh, and its groups are listed."""
    body = [_plan(found) if isinstance(found, PlanTopology) else _topology(found, rank) for found in topologies]
    path = topologies[0].path if topologies else ""
    return page("Topology", path, body, version, f"Topology of {path}", _OWN)


def _topology(found: Topology, rank: int | None) -> Content:
    section = f"{found.section}: " if found.section else ""
    is_served = found.role is Role.SERVES
    facts = [*replicas(found), *model(found)[:-1]] if is_served else [*grid(found), *batch(found), *model(found)]
    parts: list[Content] = [tag("h2", section + found.framework), _card("", _facts([("world size", world(found)), *facts]))]
    if is_served:
        return parts, _card("Memory of a rank", (_facts(fitting(found)), _memory(found))), _said(found)
    if not isinstance(found.grid, Unknown):
        parts.append(_card("Mesh", (_inside(found), drawing.mesh(found.grid, rank))))
        small = drawing.groups(found.grid, found.groups)
        parts.append(_card("Groups", (small, _rank(found, rank) if rank is not None else _groups(found.groups))))
    if isinstance(found.pipeline, Unknown):
        layers = _facts([("layers", f"? ({found.pipeline.reason})")])
    else:
        layers = drawing.pipeline(found.pipeline)
    parts.append(_card("Pipeline", (_facts([("bubble", bubble(found))]), layers)))
    parts.append(_card("Memory of a rank", (_facts(fitting(found)), _memory(found))))
    return parts, _said(found)


def _said(found: Topology) -> Content:
    said = [tag("li", text) for text in sources(found)]
    return tag("ul", said, kind="soft") if said else ()


def _inside(found: Topology) -> Content:
    if isinstance(found.grid, Unknown):
        return ()
    dense = found.grid.dense
    inner = [axis for axis in reversed(dense.axes) if axis.name not in ("pp", "dp") and axis.size > 1]
    said = " × ".join(f"{axis.name} {axis.size:,}" for axis in inner)
    name = f"; in each block {said}" if said else ""
    return tag("p", f"A row is a pipeline stage, a block one data-parallel copy{name}.", kind="soft")


def _groups(kinds: Iterable[GroupKind]) -> Element:
    lines = [
        tag(
            "tr",
            tag("td", tag("b", kind.name), kind="one-line"),
            tag("td", f"{counted(kind.count, 'group')} of {kind.size:,}", kind="one-line"),
            tag("td", code(examples(kind, 90)), kind="wide"),
        )
        for kind in kinds
    ]
    return _scrolled(lines)


def _scrolled(lines: Content) -> Element:
    return tag("div", tag("table", lines), kind="scroll")


def _rank(found: Topology, rank: int) -> Content:
    if isinstance(found.grid, Unknown) or rank >= found.grid.dense.size:
        return tag("p", f"There is no rank {rank:,}.")
    place = found.grid.dense.coordinates(rank)
    named = [(kind.name, members(kind.of(rank)) or "in none") for kind in found.groups]
    coordinates = ", ".join(f"{axis.name} {place[axis.name]}" for axis in reversed(found.grid.dense.axes))
    return tag("h4", f"Rank {rank:,}"), _facts([("coordinates", coordinates), *named])


def _memory(found: Topology) -> Content:
    stages = found.memory
    if isinstance(stages, Unknown):
        return _facts([("memory", f"? ({stages.reason})")])
    cells = [_cells(stage) for stage in stages]
    names = ("parameters", "weights", "gradients", "optimizer", "activations", "total")
    head = tag("tr", tag("th", "pipeline stage"), *(tag("th", name, kind="number") for name in names))
    lines = [
        tag(
            "tr",
            tag("td", f"pp {first if first == last else f'{first}-{last}'}"),
            *(tag("td", cell, kind="number") for cell in cells[first]),
        )
        for first, last in alike(cells)
    ]
    reasons = {
        value.reason
        for stage in stages
        for value in (stage.parameters, stage.optimizer, stage.activations)
        if isinstance(value, Unknown)
    }
    return drawing.memory(stages), _scrolled((head, lines)), _facts([("not known", reason) for reason in sorted(reasons)])


def _cells(stage: StageMemory) -> tuple[str, ...]:
    held = "?" if isinstance(stage.parameters, Unknown) else large(stage.parameters)
    values = (stage.weights, stage.gradients, stage.optimizer, stage.activations, stage.total)
    return (held, *(f"{gibibytes(value)} GiB" for value in values))


def _plan(found: PlanTopology) -> Content:
    mesh = f"? ({found.mesh.reason})" if isinstance(found.mesh, Unknown) else sizes(found.mesh) or "one rank"
    parts: list[Content] = [
        tag("h2", found.format),
        _card("", _facts([("mesh", mesh), *((name, shown_fact(value)) for name, value in found.facts)])),
    ]
    if found.groups:
        parts.append(_card("Groups", _groups(found.groups)))
    if found.used:
        named = [
            (
                "-".join(used.axes) or "other",
                f"{counted(len(used.groups), 'group')} of {used.size:,}: {'  '.join(map(members, used.groups[:16]))}"
                f"{' …' if len(used.groups) > 16 else ''}; {', '.join(f'{count:,} {name}' for name, count in used.operations)}",
            )
            for used in found.used
        ]
        parts.append(_card("Groups that communicate", _facts(named)))
    if found.stages:
        named = [
            (
                f"stage {stage.number}" if stage.number >= 0 else "no stage",
                f"{describe(stage.ranks)}: {counted(len(stage.forward), 'forward segment')}, "
                f"{counted(stage.operators, 'operator')}",
            )
            for stage in found.stages
        ]
        parts.append(_card("Pipeline stages", _listed(named)))
    lanes = [(describe(lane.ranks), _steps(lane)) for lane in found.lanes if lane.steps]
    return [*parts, _card("Schedule", _listed(lanes)) if lanes else ()]


def _steps(lane: LaneSteps) -> str:
    more = " …" if len(lane.steps) > _MOST_STEPS else ""
    return " ".join(lane.steps[:_MOST_STEPS]) + more


def _listed(named: list[tuple[str, str]]) -> Content:
    """Return the first rows, and how many more there are."""
    more = [("…", f"{len(named) - _MOST_ROWS:,} more")] if len(named) > _MOST_ROWS else []
    return _facts([*named[:_MOST_ROWS], *more])


def _card(title: str, content: Content) -> Element:
    return tag("article", tag("h3", title) if title else (), content)


def _facts(named: Iterable[tuple[str, str]]) -> Content:
    return rows((name, sentence(value)) for name, value in named)
