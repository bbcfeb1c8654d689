"""Check a saved autodist plan against the traced graph beside it; the plan knows operators by number only."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tvlint.checkout.following import content_listed
from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Phase, Plan
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.folder import GRAPH
from tvlint.readers.nnscaler.trainer import autodist_plan
from tvlint.readers.nnscaler.trainer.autodist_plan import Split

_RULE = "saved-plan-split-mismatch"
_HELP = "search the plan again: an edit of the model gives its operators other numbers, and an old plan splits others"


def misfits(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what of the saved plan in `data` does not go with the traced graph in its folder; nothing where there is none."""
    found = graph_beside(path)
    if found is None:
        return
    beside, graph = found
    operators = operators_of(graph)
    splits = tuple(autodist_plan.splits_of(path, data))
    place = (Related("the traced graph", Location(beside)),)
    wrong = [(split, why) for split in splits if (why := _misfit(graph, operators, split))]
    for split, why in wrong[:1]:
        others = f", as do {len(wrong) - 1} others" if len(wrong) > 1 else ""
        message = f"operator {split.operator} does not fit the traced graph beside the plan{others}: {why}"
        yield Finding(_RULE, Severity.ERROR, message, split.location, _HELP, place)
    named = {split.operator for split in splits}
    left = [number for number in operators if number not in named]
    if splits and left and not wrong:
        message = (
            f"the plan says nothing of {len(left)} operators of the traced graph beside it, such as"
            f" {left[0]} (`{operators[left[0]].op}`), and every device runs them whole"
        )
        yield Finding(_RULE, Severity.WARNING, message, splits[0].location, _HELP, place)


def graph_beside(path: str) -> tuple[str, Plan] | None:
    """The path of the traced graph in the folder of `path`, and the graph; None where there is none that can be read."""
    from tvlint.readers.nnscaler.gencode.traced_graph import LARGEST, read_graph

    beside = os.path.join(os.path.dirname(path), GRAPH)
    if not os.path.isfile(beside):
        return None
    try:
        return beside, read_graph(beside, content_listed(beside, LARGEST))
    except (OSError, ReadError):
        return None


def operators_of(graph: Plan) -> dict[int, Compute]:
    """The operators of the traced graph by number."""
    found: dict[int, Compute] = {}
    for segment in graph.segments.values():
        for operator in segment.operators if segment.phase is Phase.FORWARD else ():
            if isinstance(operator, Compute) and operator.label.startswith("cell "):
                number = operator.label.removeprefix("cell ")
                if number.isascii() and number.isdigit() and len(number) < 10:
                    found[int(number)] = operator
    return found


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
