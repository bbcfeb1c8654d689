"""The lines of plan text that open segments and programs and that run segments."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.ir.mesh import Mesh
from tvlint.ir.plan import Phase, Step
from tvlint.readers.plan_text.lexer import Line

PHASES = {phase.value: phase for phase in Phase}


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """A `segment` line; `inputs` and `outputs` are None where the line has no signature."""

    name: str
    phase: Phase
    pipeline_stage: int
    mirror: str
    checkpointed: bool
    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Run:
    """A `run` line's step and its place."""

    step: Step
    line: Line
    index: int


def parse_segment_header(line: Line) -> SegmentHeader:
    """Return what follows the word `segment`."""
    name = line.name("the segment's name")
    word = line.word("a phase")
    if word not in PHASES:
        line.fail_unknown("a phase", word, list(PHASES), line.index - 1)
    stage, mirror, checkpointed = -1, "", False
    while True:
        if line.accept("stage"):
            stage = line.integer("pipeline stage", 0, 2**20)
        elif line.accept("mirror"):
            mirror = line.name("a segment")
        elif line.accept("checkpointed"):
            checkpointed = True
        else:
            break
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    if line.peek() == "(":
        inputs = parse_names(line)
        line.expect("->", "and the outputs")
        outputs = parse_names(line)
    elif line.peek():
        line.fail_unknown("a clause of `segment`", line.peek(), ["stage", "mirror", "checkpointed"])
    return SegmentHeader(name, PHASES[word], stage, mirror, checkpointed, inputs, outputs)


def parse_names(line: Line) -> tuple[str, ...]:
    """`(a, b)`."""
    line.expect("(", "and names")
    found: list[str] = []
    while not line.accept(")"):
        found.append(line.name())
        if line.peek() != ")":
            line.expect(",", "or `)`")
    return tuple(found)


def parse_run(line: Line) -> list[Run]:
    """Return a `run` line: one step, or one for each micro-batch that it lists."""
    line.index += 1
    index = line.index
    name = line.name("a segment")
    micro_batches: tuple[int, ...] = (-1,)
    if line.accept("micro-batch"):
        micro_batches = line.rank_list("micro-batch", 2**16)
    inputs = parse_names(line) if line.peek() == "(" else None
    outputs = parse_names(line) if line.accept("->") else None
    return [Run(Step(name, micro_batch, inputs, outputs), line, index) for micro_batch in micro_batches]


def parse_program_header(line: Line, mesh: Mesh, replicated: str) -> tuple[int, ...]:
    """Return the ranks that `program ranks 0,2` or `program pp=0 tp=1` selects; all of replica 0 without a selection."""
    if line.accept("ranks"):
        if line.accept("none"):
            return ()
        return line.rank_list("rank", max(mesh.size, 1))
    chosen: dict[str, int] = {}
    while line.peek():
        axis = line.name("an axis of the mesh")
        if all(axis != known.name for known in mesh.axes):
            known = ["ranks", *(axis.name for axis in mesh.axes)]
            line.fail_unknown("an axis of the mesh", axis, known, line.index - 1)
        line.expect("=")
        if axis in chosen:
            line.fail(f"axis `{axis}` is given twice", index=line.index - 2)
        chosen[axis] = line.integer(f"coordinate on `{axis}`", 0, mesh.axis_size(axis) - 1)
        line.accept(",")
    if replicated and replicated not in chosen:
        chosen[replicated] = 0
    return mesh.ranks_at(chosen)
