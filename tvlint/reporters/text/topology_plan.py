"""The topology of a plan, or of what nnScaler makes one from, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvlint.ir.configuration import Unknown
from tvlint.plurals import counted
from tvlint.reporters.escape.terminal import Line
from tvlint.reporters.text.ranks import describe
from tvlint.reporters.text.topology_lines import groups, heading, rows, titled
from tvlint.reporters.text.topology_ranks import members
from tvlint.reporters.text.topology_words import shown_fact, sizes
from tvlint.topology.of_plan import LaneSteps, PlanTopology, UsedGroups

MAXIMAL_LINES = 32


def plan_block(found: PlanTopology, width: int, rank: int | None) -> Iterator[str | Line]:
    """Facts, groups, pipeline stages and schedule; with `rank`, only the groups of that rank."""
    section = f" ({found.section})" if found.section else ""
    yield heading(f"{found.path}{section}: {found.format}")
    mesh = f"? ({found.mesh.reason})" if isinstance(found.mesh, Unknown) else sizes(found.mesh) or "one rank"
    yield from rows([("mesh", mesh), *((name, shown_fact(value)) for name, value in found.facts)], width)
    if found.groups:
        said = _own(found, rank, width) if rank is not None else groups(found.groups, width)
        yield from titled("Groups", said)
    if found.used:
        yield from titled("Groups that communicate", _used(found.used, rank, width))
    if found.stages:
        yield from titled("Pipeline stages", _stages(found, width))
    if any(lane.steps for lane in found.lanes):
        yield from titled("Schedule", _lanes(found.lanes, width))


def _own(found: PlanTopology, rank: int, width: int) -> Iterator[str]:
    for kind in found.groups:
        inside = rank < kind.mesh.size
        yield from rows([(kind.name, members(kind.of(rank)) if inside else f"rank {rank:,} does not exist")], width)


def _used(used: Sequence[UsedGroups], rank: int | None, width: int) -> Iterator[str]:
    for kind in used:
        groups = [group for group in kind.groups if rank is None or rank in group]
        if not groups:
            continue
        texts = [members(group) for group in groups]
        listed = "  ".join(texts if len(texts) <= 8 else [*texts[:3], "…", texts[-1]])
        operations = ", ".join(f"{count:,} {name}" for name, count in kind.operations)
        said = f"{counted(len(groups), 'group')} of {kind.size:,}: {listed}"
        yield from rows([("-".join(kind.axes) or "other", said), ("", operations)], width)


def _stages(found: PlanTopology, width: int) -> Iterator[str]:
    for stage in found.stages[:MAXIMAL_LINES]:
        name = f"stage {stage.number}" if stage.number >= 0 else "no stage"
        held = f"{counted(len(stage.forward), 'forward segment')}, {counted(stage.operators, 'operator')}"
        listed = ", ".join([*stage.forward[:4], *(["…"] if len(stage.forward) > 4 else [])])
        yield from rows([(name, f"{describe(stage.ranks)}: {held}{f' ({listed})' if listed else ''}")], width)
    if len(found.stages) > MAXIMAL_LINES:
        yield f"  … {len(found.stages) - MAXIMAL_LINES:,} more"


def _lanes(lanes: Sequence[LaneSteps], width: int) -> Iterator[str]:
    """Ranks that do the same share a line; what does not fit is cut."""
    merged: dict[tuple[str, ...], list[int]] = {}
    for lane in lanes:
        merged.setdefault(lane.steps, []).extend(lane.ranks)
    for steps, ranks in list(merged.items())[:MAXIMAL_LINES]:
        line = f"  {describe(ranks):<18} {' '.join(steps)}"
        yield line if len(line) <= width else f"{line[: width - 2]} …"
    if len(merged) > MAXIMAL_LINES:
        yield f"  … {len(merged) - MAXIMAL_LINES:,} more kinds of ranks"
