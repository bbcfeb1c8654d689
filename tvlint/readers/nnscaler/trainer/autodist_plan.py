"""Plans that nnScaler's autodist has saved as JSON: how every operator of every pipeline stage is split."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.plurals import counted
from tvlint.readers.document import Document
from tvlint.readers.nnscaler.trainer.graph_beside import graph_beside, operators_of
from tvlint.readers.sources.json_nodes import NotJson, parse
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence

if TYPE_CHECKING:
    from tvlint.ir.operators import Compute
    from tvlint.ir.plan import Plan

FORMAT = "autodist-plan"
LARGEST = 4 << 20
NAMES = re.compile(rb'"spmd_descs"\s*:')
OUTER = ("desc", "e2e_time", "stage_mems", "stage_all_times", "stage_comp_times")
STAGE = ("partition_descs", "recompute_groups", "mesh_desc", "analysis")
_MISFIT = "saved-plan-split-mismatch"
_MISFIT_HELP = "search the plan again: an edit of the model gives its operators other numbers, and an old plan splits others"
WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of pipeline stages of a saved plan, and of devices that they run on in all."""

    stages: int
    devices: int
    location: Location


@dataclass(frozen=True, slots=True)
class Split:
    """A split of an operator: input, dimension and number of parts, one step after the other; -1 to replicate."""

    operator: int
    steps: tuple[tuple[int, int, int], ...]
    location: Location


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is a JSON object that names the stages of a saved plan."""
    return data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and NAMES.search(data) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return what is wrong with the plan; None where the file is none."""
    stages = _stages(path, data)
    if stages is None:
        return None
    root, listed = stages
    findings = [*_missing(root, OUTER, "the saved plan")]
    for number, stage in enumerate(listed):
        findings += _stage(stage, number)
    findings += _misfits(path, tuple(_splits(listed)))
    return Document(path, FORMAT, findings=tuple(findings))


def shape_of(path: str, data: bytes) -> Shape | None:
    """Return the shape of the saved plan; None where the file is none, or a stage does not say its devices."""
    stages = _stages(path, data)
    if stages is None:
        return None
    _, listed = stages
    devices = [_width(stage) for stage in listed]
    known = [device for device in devices if device is not None]
    if not listed or len(known) != len(devices):
        return None
    return Shape(len(listed), sum(known), listed[0].location)


def _splits(stages: list[YamlMapping]) -> Iterator[Split]:
    """Yield the operators that the stages name and how they are split, as far as they are readable."""
    for stage in stages:
        operators = _table(stage).get("partition_descs")
        for operator in operators.items if isinstance(operators, YamlSequence) else ():
            if isinstance(operator, YamlSequence) and len(operator.items) == 2:
                number, steps = _whole(operator.items[0]), _steps(operator.items[1])
                if number is not None and steps is not None:
                    yield Split(number, tuple(steps), operator.location)


def _stages(path: str, data: bytes) -> tuple[YamlMapping, list[YamlMapping]] | None:
    try:
        root = parse(path, data.decode().removeprefix("\ufeff"))
    except (NotJson, UnicodeDecodeError):
        return None
    if not isinstance(root, YamlMapping) or not {"desc", "e2e_time"} <= set(_table(root)):
        return None
    listed = _table(_table(root)["desc"]).get("spmd_descs")
    if not isinstance(listed, YamlSequence):
        return None
    stages = [item for item in listed.items if isinstance(item, YamlMapping)]
    return (root, stages) if len(stages) == len(listed.items) else None


def _table(node: YamlNode | None) -> dict[str, YamlNode]:
    entries = node.entries if isinstance(node, YamlMapping) else ()
    return {key.text: value for key, value in entries if isinstance(key, YamlScalar)}


def _missing(node: YamlMapping, keys: tuple[str, ...], what: str) -> Iterator[Finding]:
    table = _table(node)
    for key in keys:
        if key not in table:
            message = f"{what} has no `{key}` and cannot be loaded"
            yield Finding("saved-plan-unreadable", Severity.ERROR, message, node.location, "save the plan again")


def _whole(node: YamlNode | None) -> int | None:
    plain = isinstance(node, YamlScalar) and node.plain and WHOLE.fullmatch(node.text)
    return int(node.text) if plain and isinstance(node, YamlScalar) else None


def _width(stage: YamlMapping) -> int | None:
    """Return the devices of a pipeline stage."""
    mesh = _table(stage).get("mesh_desc")
    if not isinstance(mesh, YamlSequence) or len(mesh.items) != 2:
        return None
    rows, columns = (_whole(item) for item in mesh.items)
    return rows * columns if rows is not None and columns is not None else None


def _stage(stage: YamlMapping, number: int) -> Iterator[Finding]:
    yield from _missing(stage, STAGE, f"pipeline stage {number} of the saved plan")
    width = _width(stage)
    operators = _table(stage).get("partition_descs")
    if width is None or not isinstance(operators, YamlSequence):
        return
    mesh = _table(stage)["mesh_desc"].location
    for operator in operators.items:
        if not isinstance(operator, YamlSequence) or len(operator.items) != 2:
            yield _unreadable(operator, number)
            continue
        name, steps = _whole(operator.items[0]), _steps(operator.items[1])
        if name is None or steps is None:
            yield _unreadable(operator, number)
            continue
        parts = 1
        for index, dimension, count in steps:
            parts *= count
            if (index, dimension) != (-1, -1) and min(index, dimension) < 0:
                message = f"operator {name} of pipeline stage {number} is split along dimension {dimension} of input {index}"
                help = "use -1 for both to replicate it"
                yield Finding(_MISFIT, Severity.ERROR, message, operator.location, help)
        if parts != width:
            yield Finding(
                _MISFIT,
                Severity.ERROR,
                f"operator {name} of pipeline stage {number} is in {parts} parts on {width} devices",
                operator.items[1].location,
                "save the plan again",
                (Related("the pipeline stage's devices stand here", mesh),),
            )


def _unreadable(node: YamlNode, number: int) -> Finding:
    message = f"an entry of pipeline stage {number} is not an operator with its splits"
    return Finding(
        "saved-plan-unreadable", Severity.ERROR, message, node.location, "write `[id, [[[input, dimension], parts]]]`"
    )


def _steps(node: YamlNode) -> list[tuple[int, int, int]] | None:
    """Return the splits of an operator: input, dimension, number of parts; None where it is not a list of these."""
    if not isinstance(node, YamlSequence) or not node.items or len(node.items) > 16:
        return None
    found: list[tuple[int, int, int]] = []
    for step in node.items:
        if not isinstance(step, YamlSequence) or len(step.items) != 2:
            return None
        place, parts = step.items[0], _whole(step.items[1])
        if not isinstance(place, YamlSequence) or len(place.items) != 2:
            return None
        index, dimension = (_whole(item) for item in place.items)
        if index is None or dimension is None or parts is None or parts < 1:
            return None
        found.append((index, dimension, parts))
    return found


def _misfits(path: str, splits: tuple[Split, ...]) -> Iterator[Finding]:
    """Yield which splits do not go with the traced graph in its folder; nothing where there is none."""
    found = graph_beside(path)
    if found is None:
        return
    beside, graph = found
    operators = operators_of(graph)
    place = (Related("the traced graph", Location(beside)),)
    wrong = [(split, why) for split in splits if (why := _misfit(graph, operators, split))]
    for split, why in wrong[:1]:
        others = f", as do {len(wrong) - 1} others" if len(wrong) > 1 else ""
        message = f"operator {split.operator} does not fit the traced graph beside the plan{others}: {why}"
        yield Finding(_MISFIT, Severity.ERROR, message, split.location, _MISFIT_HELP, place)
    named = {split.operator for split in splits}
    left = [number for number in operators if number not in named]
    if splits and left and not wrong:
        message = (
            f"the plan says nothing of {counted(len(left), 'operator')} of the traced graph beside it, such as"
            f" {left[0]} (`{operators[left[0]].op}`), and every device runs them whole"
        )
        yield Finding(_MISFIT, Severity.WARNING, message, splits[0].location, _MISFIT_HELP, place)


def _misfit(graph: Plan, operators: dict[int, Compute], split: Split) -> str:
    """Return why the operator cannot be split so; empty where it can, or is only replicated."""
    cut: dict[tuple[int, int], int] = {}
    for index, dimension, parts in split.steps:
        if min(index, dimension) >= 0:
            cut[index, dimension] = cut.get((index, dimension), 1) * parts
    operator = operators.get(split.operator)
    if cut and operator is None:
        return "the graph has no operator of that number"
    for (index, dimension), parts in cut.items() if operator is not None else ():
        given = operator.inputs[index] if operator is not None and index < len(operator.inputs) else None
        name = operator.op if operator is not None else ""
        if not isinstance(given, str):
            return f"it is `{name}` there, whose input {index} is no tensor"
        shape = graph.tensors[given].shape if given in graph.tensors else None
        if shape is None:
            continue
        if dimension >= len(shape) or shape[dimension] % parts:
            return f"it is `{name}` there, whose input {index} of shape {shape} has no dimension {dimension} in {parts} parts"
    return ""
