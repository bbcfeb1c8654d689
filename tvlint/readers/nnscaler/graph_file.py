"""The file with the traced graph that nnScaler writes beside generated code, saved plans and constraints."""

from __future__ import annotations

GRAPH = "graph.ckp"
