"""Topologies on one self-contained page: no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tvlint.ir.configuration import Unknown
from tvlint.reporters import topology_svg as drawing
from tvlint.reporters.html_page import page, rows, sentence, words
from tvlint.reporters.ranks import describe
from tvlint.reporters.tally import counted
from tvlint.reporters.topology_ranks import examples, members
from tvlint.reporters.topology_words import (
    alike,
    batch,
    bubble,
    gibibytes,
    grid,
    large,
    model,
    shown_fact,
    sizes,
    sources,
    world,
)
from tvlint.topology.grid import GroupKind
from tvlint.topology.of_plan import LaneSteps, PlanTopology
from tvlint.topology.topology import StageMemory, Topology

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


def write(topologies: Sequence[Topology | PlanTopology], version: str, rank: int | None = None) -> str:
    """A page with a section for each topology; `rank` is marked in the mesh, and its groups are listed."""
    body = "\n".join(_plan(found) if isinstance(found, PlanTopology) else _topology(found, rank) for found in topologies)
    path = topologies[0].path if topologies else ""
    return page("Topology", path, body, version, f"Topology of {path}", _OWN)


def _topology(found: Topology, rank: int | None) -> str:
    section = f"{found.section}: " if found.section else ""
    parts = [
        f"<h2>{words(section + found.framework)}</h2>",
        _card("", _facts([("world size", world(found)), *grid(found), *batch(found), *model(found)])),
    ]
    if not isinstance(found.grid, Unknown):
        parts.append(_card("Mesh", _inside(found) + drawing.mesh(found.grid, rank)))
        small = drawing.groups(found.grid, found.groups)
        parts.append(_card("Groups", small + (_rank(found, rank) if rank is not None else _groups(found.groups))))
    if isinstance(found.pipeline, Unknown):
        layers = _facts([("layers", f"? ({found.pipeline.reason})")])
    else:
        layers = drawing.pipeline(found.pipeline)
    parts.append(_card("Pipeline", _facts([("bubble", bubble(found))]) + layers))
    parts.append(_card("Memory of a rank", _memory(found)))
    said = "".join(f"<li>{words(text)}</li>" for text in sources(found))
    return "\n".join(parts) + (f'<ul class="soft">{said}</ul>' if said else "")


def _inside(found: Topology) -> str:
    if isinstance(found.grid, Unknown):
        return ""
    dense = found.grid.dense
    inner = [axis for axis in reversed(dense.axes) if axis.name not in ("pp", "dp") and axis.size > 1]
    said = " × ".join(f"{axis.name} {axis.size:,}" for axis in inner)
    each = f"; in each block {said}" if said else ""
    return f'<p class="soft">A row is a pipeline stage, a block one data-parallel copy{words(each)}.</p>'


def _groups(kinds: Iterable[GroupKind]) -> str:
    lines = "".join(
        f'<tr><td class="one-line"><b>{words(kind.name)}</b></td>'
        f'<td class="one-line">{counted(kind.count, "group")} of {kind.size:,}</td>'
        f'<td class="wide"><code>{words(examples(kind, 90))}</code></td></tr>'
        for kind in kinds
    )
    return f'<div class="scroll"><table>{lines}</table></div>'


def _rank(found: Topology, rank: int) -> str:
    if isinstance(found.grid, Unknown) or rank >= found.grid.dense.size:
        return f"<p>There is no rank {rank:,}.</p>"
    place = found.grid.dense.coordinates(rank)
    named = [(kind.name, members(kind.of(rank)) or "in none") for kind in found.groups]
    coordinates = ", ".join(f"{axis.name} {place[axis.name]}" for axis in reversed(found.grid.dense.axes))
    return f"<h4>Rank {rank:,}</h4>{_facts([('coordinates', coordinates), *named])}"


def _memory(found: Topology) -> str:
    stages = found.memory
    if isinstance(stages, Unknown):
        return _facts([("memory", f"? ({stages.reason})")])
    cells = [_cells(stage) for stage in stages]
    head = "".join(
        f'<th class="number">{name}</th>'
        for name in ("parameters", "weights", "gradients", "optimizer", "activations", "total")
    )
    lines = "".join(
        f"<tr><td>pp {first if first == last else f'{first}-{last}'}</td>"
        + "".join(f'<td class="number">{words(cell)}</td>' for cell in cells[first])
        + "</tr>"
        for first, last in alike(cells)
    )
    reasons = {
        value.reason
        for stage in stages
        for value in (stage.parameters, stage.optimizer, stage.activations)
        if isinstance(value, Unknown)
    }
    table = f'<div class="scroll"><table><tr><th>pipeline stage</th>{head}</tr>{lines}</table></div>'
    return drawing.memory(stages) + table + _facts([("not known", reason) for reason in sorted(reasons)])


def _cells(stage: StageMemory) -> tuple[str, ...]:
    held = "?" if isinstance(stage.parameters, Unknown) else large(stage.parameters)
    values = (stage.weights, stage.gradients, stage.optimizer, stage.activations, stage.total)
    return (held, *(f"{gibibytes(value)} GiB" for value in values))


def _plan(found: PlanTopology) -> str:
    mesh = f"? ({found.mesh.reason})" if isinstance(found.mesh, Unknown) else sizes(found.mesh) or "one rank"
    parts = [
        f"<h2>{words(found.format)}</h2>",
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
    return "\n".join([*parts, _card("Schedule", _listed(lanes)) if lanes else ""])


def _steps(lane: LaneSteps) -> str:
    more = " …" if len(lane.steps) > _MOST_STEPS else ""
    return " ".join(lane.steps[:_MOST_STEPS]) + more


def _listed(named: list[tuple[str, str]]) -> str:
    """The first rows, and how many more there are."""
    more = [("…", f"{len(named) - _MOST_ROWS:,} more")] if len(named) > _MOST_ROWS else []
    return _facts([*named[:_MOST_ROWS], *more])


def _card(title: str, content: str) -> str:
    return f"<article>{f'<h3>{escape(title)}</h3>' if title else ''}{content}</article>"


def _facts(named: Iterable[tuple[str, str]]) -> str:
    return rows((words(name), sentence(value)) for name, value in named)
