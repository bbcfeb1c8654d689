"""The programming interface for exporters: build a plan, check it, prove it against its reference, render it.

A plan is plan JSON (`schemas/plan.schema.json`, `docs/plan-json.md`). The functions here make its parts with the names of the
schema, so that a type checker sees what a part may hold; what they return is plain data, which you may also write yourself.
Plans stay in memory: no function here writes a file. `docs/exporters.md` exports a small program with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tvlint.checkout.opening import instead
from tvlint.findings import Problem, Report

Part: TypeAlias = Mapping[str, Any]
"""A part of a plan, as JSON holds it."""
Phase: TypeAlias = Literal["data", "forward", "backward", "reduce", "optimizer"]
Kind: TypeAlias = Literal[
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "scatter", "gather", "chunk", "barrier"
]
Ranks: TypeAlias = "str | Sequence[str] | Sequence[int]"
"""A mesh axis, several of them, or ranks by number."""

REPLICATE: Part = {"kind": "replicate"}
"""The placement of a value that every rank of an axis holds whole."""
PARTIAL: Part = {"kind": "partial"}
"""The placement of a value that the ranks of an axis hold addends of."""


class PlanError(ValueError):
    """A plan that the schema or the reader does not allow; `problems` are all that is wrong with it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{problem.message} ({problem.location.pointer or 'plan'})" for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as a document: `name` is what reports call its file, `document` is plan JSON."""

    name: str
    document: Part

    @property
    def text(self) -> str:
        """The plan as JSON, which a file `NAME.plan.json` may hold."""
        return json.dumps(self.document, indent=1, allow_nan=False) + "\n"


def shard(dim: int) -> Part:
    """Return the placement of a value that the ranks of an axis hold in contiguous pieces along `dim`."""
    return {"kind": "shard", "dim": dim}


def source(path: str, line: int, text: str = "") -> Part:
    """Return a place in the model's source, where reports then point."""
    return {"path": path, "line": line, **({"text": text} if text else {})}


def weight(shape: Sequence[int], dtype: str = "float32", placements: Mapping[str, Part] | None = None, **more: Any) -> Part:
    """Return a weight by its local shape; an axis that `placements` leaves out holds it whole."""
    return _tensor("weight", shape, dtype, placements or {}, more)


def input(shape: Sequence[int], dtype: str = "float32", placements: Mapping[str, Part] | None = None, **more: Any) -> Part:
    """Return an input of one micro-batch by its local shape; an axis that `placements` leaves out holds it whole."""
    return _tensor("input", shape, dtype, placements or {}, more)


def _tensor(role: str, shape: Sequence[int], dtype: str, placements: Mapping[str, Part], more: Mapping[str, Any]) -> Part:
    return {"shape": list(shape), "dtype": dtype, "role": role, "placements": dict(placements), **more}


def compute(op: str, inputs: Sequence[Any], outputs: Sequence[str], *, at: Part | None = None, **attributes: Any) -> Part:
    """Return a computation: `op` is the function as it is called (`torch.nn.functional.linear`).

    `inputs` are names of tensors, and numbers for constants; `attributes` are its keyword constants; `at` is its source.
    """
    operands = [each_input if isinstance(each_input, str) else {"constant": each_input} for each_input in inputs]
    options = {"attributes": attributes} if attributes else {}
    return {"kind": "compute", "op": op, "inputs": operands, "outputs": list(outputs), **options, **_at(at)}


def backward(
    segment: str, operator: int, inputs: Sequence[str], outputs: Sequence[str | None], *, at: Part | None = None
) -> Part:
    """Return the gradient of the computation at that place of a segment: gradients of its results to those of its operands."""
    forward = {"segment": segment, "operator": operator}
    return {"kind": "backward", "forward": forward, "inputs": list(inputs), "outputs": list(outputs), **_at(at)}


def collective(
    kind: Kind, inputs: Sequence[str], outputs: Sequence[str], over: Ranks, *, at: Part | None = None, **more: Any
) -> Part:
    """Return a collective over the ranks of an axis, of several, or by number; `more` are further keys of the schema."""
    return {"kind": kind, "inputs": list(inputs), "outputs": list(outputs), "group": _group(over), **more, **_at(at)}


def wait(handle: str, *, at: Part | None = None) -> Part:
    """Return the wait for what was issued with the handle."""
    return {"kind": "wait", "handle": handle, **_at(at)}


def send(tensor: str, to: int | tuple[str, int], *, at: Part | None = None, **more: Any) -> Part:
    """Return the send of a tensor to a rank, or to the one that is so many steps along an axis."""
    return {"kind": "send", "tensor": tensor, "peer": _peer(to), **more, **_at(at)}


def receive(tensor: str, of: int | tuple[str, int], *, at: Part | None = None, **more: Any) -> Part:
    """Return the receive of a tensor from a rank, or from the one that is so many steps along an axis."""
    return {"kind": "receive", "tensor": tensor, "peer": _peer(of), **more, **_at(at)}


def reduce_gradients(weights: Sequence[str], over: Ranks, *, at: Part | None = None, **more: Any) -> Part:
    """Return the reduction of the accumulated gradients of weights."""
    return {"kind": "reduce-gradients", "weights": list(weights), "group": _group(over), **more, **_at(at)}


def update(weights: Sequence[str], *, at: Part | None = None) -> Part:
    """Return the optimizer step of weights."""
    return {"kind": "update", "weights": list(weights), **_at(at)}


def segment(
    phase: Phase, operators: Iterable[Part], inputs: Sequence[str] = (), outputs: Sequence[str] = (), **more: Any
) -> Part:
    """Return operators that a rank runs as a unit; `inputs` come from other segments, `outputs` are for others."""
    return {"phase": phase, "inputs": list(inputs), "outputs": list(outputs), "operators": list(operators), **more}


def step(segment: str, micro_batch: int | None = None) -> Part:
    """Return one run of a segment, for a micro-batch unless it belongs to none."""
    return {"segment": segment, **({} if micro_batch is None else {"micro_batch": micro_batch})}


def program(steps: Iterable[Part], where: Mapping[str, int] | None = None) -> Part:
    """Return what the ranks at these coordinates run, in order; all ranks unless `where` names some."""
    return {"where": dict(where or {}), "steps": list(steps)}


def plan(
    name: str,
    tensors: Mapping[str, Part],
    segments: Mapping[str, Part],
    programs: Sequence[Part],
    *,
    mesh: Mapping[str, int] | None = None,
    outputs: Sequence[str] = (),
    loss: str | Sequence[str] = "",
    **more: Any,
) -> Plan:
    """Return a plan; `mesh` maps axes to sizes, the slowest first, and is empty for one device.

    Raises `PlanError` where the plan is none that tvlint reads.
    """
    document: dict[str, Any] = {
        "tvlint_plan": 1,
        "name": name,
        "mesh": [{"axis": axis, "size": size} for axis, size in (mesh or {}).items()],
        "tensors": dict(tensors),
        "segments": dict(segments),
        "programs": list(programs),
        **({"outputs": list(outputs)} if outputs else {}),
        **({"loss": loss if isinstance(loss, str) else list(loss)} if loss else {}),
        **more,
    }
    return read(Plan(name, document).text, name)


def read(text: str, name: str = "plan") -> Plan:
    """Return the plan that plan JSON states. Raises `PlanError` where it states none."""
    from tvlint.run.project.reading import read_plan

    path = f"{name}.plan.json"
    with instead({path: text.encode("utf-8")}):
        found = read_plan(path)
    if isinstance(found, Problem):
        raise PlanError((found,))
    return Plan(name, json.loads(text))


def check(*plans: Plan) -> Report:
    """Return what the plan rules find in the plans."""
    from tvlint.rulebook.pages import load_rules
    from tvlint.run.judge.check import check as check_files
    from tvlint.run.project.discovery import Candidates
    from tvlint.run.project.project_file import Project

    rules = load_rules()
    with instead(_contents(plans)):
        paths = tuple(_path(plan) for plan in plans)
        return check_files(Candidates(paths, frozenset(paths)), rules, rules, Project(Path.cwd()))[0]


def prove(parallel: Plan, reference: Plan, assume: Iterable[str] = ()) -> Report:
    """Return the report on the proof that the parallel plan trains the same model as its reference: `verdicts` has one verdict.

    `assume` names checks to weaken, as `tvlint prove --assume` does.
    """
    from tvlint.run.proof.pair import Pair
    from tvlint.run.proof.prove import prove_pair

    with instead(_contents((parallel, reference))):
        return prove_pair(Pair(_path(parallel), _path(reference), frozenset(assume)))


def render(report: Report, format: str = "text", *, plans: Iterable[Plan] = (), width: int = 100) -> str:
    """Return the report in a format of `tvlint check -o`; lines of the plans are shown where these are given."""
    from tvlint import __version__
    from tvlint.reporters import FORMATS
    from tvlint.reporters.context import Context
    from tvlint.rulebook.pages import explanation_of, load_rules
    from tvlint.run.output.json_places import with_lines
    from tvlint.run.output.report import render as rendered

    if format not in FORMATS:
        raise ValueError(f"no format `{format}`: one of {', '.join(FORMATS)}")
    given = tuple(plans)
    with instead(_contents(given)):
        named = frozenset(Path(_path(plan)).absolute() for plan in given)
        context = Context(load_rules(), explanation_of, Path.cwd(), __version__, width=width, named=named)
        return rendered(with_lines(replace(report)), format, context).text


def _contents(plans: Iterable[Plan]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for plan in plans:
        if contents.setdefault(_path(plan), plan.text.encode("utf-8")) != plan.text.encode("utf-8"):
            raise ValueError(f"two plans are named `{plan.name}`")
    return contents


def _path(plan: Plan) -> str:
    return f"{plan.name}.plan.json"


def _group(over: Ranks) -> Part:
    if isinstance(over, str):
        return {"axes": [over]}
    return {"ranks": list(over)} if all(isinstance(each, int) for each in over) else {"axes": list(over)}


def _peer(end: int | tuple[str, int]) -> Part:
    return {"rank": end} if isinstance(end, int) else {"axis": end[0], "offset": end[1]}


def _at(at: Part | None) -> Part:
    return {} if at is None else {"source": at}
