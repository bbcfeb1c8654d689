"""The traced graph in the folder of a saved plan or of constraints, whose operators they name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tvlint.checkout.following import content_listed
from tvlint.checkout.opening import is_file
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.graph_file import GRAPH

if TYPE_CHECKING:
    from tvlint.ir.operators import Compute
    from tvlint.ir.plan import Plan


def graph_beside(path: str) -> tuple[str, Plan] | None:
    """Return the path of the traced graph in the folder of `path`, and the graph; None where there is none that can be read."""
    from tvlint.readers.nnscaler.gencode.traced_graph import LARGEST, read_graph

    beside = os.path.join(os.path.dirname(path), GRAPH)
    if not is_file(beside):
        return None
    try:
        return beside, read_graph(beside, content_listed(beside, LARGEST))
    except (OSError, ReadError):
        return None


def operators_of(graph: Plan) -> dict[int, Compute]:
    """Return the operators of the traced graph by number."""
    from tvlint.ir.operators import Compute
    from tvlint.ir.plan import Phase

    found: dict[int, Compute] = {}
    for segment in graph.segments.values():
        for operator in segment.operators if segment.phase is Phase.FORWARD else ():
            if isinstance(operator, Compute) and operator.label.startswith("cell "):
                number = operator.label.removeprefix("cell ")
                if number.isascii() and number.isdigit() and len(number) < 10:
                    found[int(number)] = operator
    return found
