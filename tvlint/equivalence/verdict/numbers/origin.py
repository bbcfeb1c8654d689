"""Pairs of which a generator made the plan from a traced graph, without knowing what buffers and inputs hold."""

from __future__ import annotations

from tvlint.ir.plan import Plan

GENERATED = ("nnscaler-gencode", "nnscaler-graph")
"""The formats of code that a generator made, and of what it made the code of."""

_FROM_A_GRAPH = (GENERATED, ("nnscaler-pickle", "nnscaler-pickle"))
"""The formats of pairs of which a generator made the plan from a traced graph: as code, or as it exports plan and graph."""


def is_generated(parallel: Plan, reference: Plan) -> bool:
    """Return whether a generator made the plan of the reference, without knowing what buffers and inputs hold."""
    return (parallel.format, reference.format) in _FROM_A_GRAPH
