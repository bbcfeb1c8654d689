"""A pipeline schedule for the terminal: what it is, and its timeline."""

from __future__ import annotations

from tvlint.analyses.schedule.summary import Summary
from tvlint.analyses.schedule.timing import Timing
from tvlint.ir.schedule import ActionKind
from tvlint.plurals import counted
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import Line, Span, Style, line, terminal

MAXIMAL_RANKS = 64
_COLOUR = {
    ActionKind.FORWARD: Style.PLAIN_BLUE,
    ActionKind.BACKWARD: Style.PLAIN_YELLOW,
    ActionKind.INPUT_GRADIENT: Style.PLAIN_YELLOW,
    ActionKind.WEIGHT_GRADIENT: Style.PLAIN_GREEN,
}


def write(summary: Summary, width: int, color: bool) -> Escaped:
    """Return a few lines of facts, then a line for each rank; what does not fit into `width` columns is cut."""
    lines: list[str | Line] = [f"{summary.path}: {described(summary)}"]
    lines += [f"  {name:<20} {value}" for name, value in facts(summary)]
    if summary.timing is None:
        return terminal([*lines, "  no timeline: ranks wait for each other forever"])
    return terminal([*lines, "", *_timeline(summary, summary.timing, width)], color)


def described(summary: Summary) -> str:
    """One sentence: the family and the sizes."""
    named = "no known family" if summary.family == "unknown" else summary.family
    sizes = (
        _counted(summary.ranks, "rank"),
        _counted(summary.stages, "pipeline stage"),
        _counted(summary.micro_batches, "micro-batch"),
    )
    return f"{named}; {', '.join(sizes)}"


def facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what is measured, name by name."""
    said = [("placement", summary.placement)]
    if summary.timing is not None and summary.ranks:
        idle = summary.timing.idle
        spread = f"{min(idle)}" if len(set(idle)) <= 1 else f"{min(idle)} to {max(idle)}"
        said.append(("bubble", f"{summary.timing.bubble:.1%} of {summary.timing.makespan} units; each rank idles {spread}"))
    shown = ", ".join(f"{peak:g}" for peak in summary.peaks[:32]) + (", …" if len(summary.peaks) > 32 else "")
    said.append(("peak activations", f"{shown} micro-batches, rank by rank"))
    said.append(("units", "F = I = W = 1, B = 2 of one chunk; messages take no time"))
    return said


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def _timeline(summary: Summary, timing: Timing, width: int) -> list[str | Line]:
    several = any(len(chunk) > 1 for chunk in summary.chunks)
    names = {
        id(timed): str(timed.step.action) if several else f"{timed.step.kind.value}{timed.step.micro_batch}"
        for row in timing.ranks
        for timed in row
    }
    unit = max((len(name) for name in names.values()), default=1) + 1
    left = len(f"rank {summary.ranks - 1} ")
    room = max(1, (width - left) // unit)
    lines: list[str | Line] = []
    for rank, row in enumerate(timing.ranks[:MAXIMAL_RANKS]):
        spans: list[str | Span] = [f"{f'rank {rank}':<{left}}"]
        at = 0
        for timed in row:
            if timed.end > room:
                break
            gap = " " if at else ""
            spans.append(gap + "·".ljust(unit) * (timed.start - at))
            text = names[id(timed)].ljust(unit * (timed.end - timed.start) - 1, "─")
            spans.append(Span(text, _COLOUR[timed.step.kind]))
            at = timed.end
        lines.append(line(*spans))
    if timing.makespan > room:
        lines.append(f"the first {room} of {timing.makespan} units; `-o html:FILE` draws all")
    if len(timing.ranks) > MAXIMAL_RANKS:
        lines.append(f"the first {MAXIMAL_RANKS} of {counted(len(timing.ranks), 'rank')}")
    return lines
