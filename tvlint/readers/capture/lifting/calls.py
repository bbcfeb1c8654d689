"""Calls of lifted programs that several modules look for or write, as captures spell them."""

from __future__ import annotations

VIEW, EXPAND, NARROW, GATHER = "torch.Tensor.view", "torch.Tensor.expand", "torch.narrow", "torch.gather"
ZEROS, SORT, REMAINDER, TAKE, ADD = "torch.zeros", "torch.sort", "torch.remainder", "torch.index_select", "torch.index_add"

SELECT, PUT = "aten.masked_select.default", "aten.masked_scatter.default"
"""What gives and takes as many elements as flags are set."""

REPLACE, COUNT, RUNNING = (
    "aten.index_put.default",
    ("aten.histc.default", "aten.bincount.default"),
    ("torch.cumsum", "aten.cumsum.default"),
)
"""What puts numbers at places, counts equal indices, and adds up what is before."""

GROUPED = "aten._grouped_mm.default"
"""What multiplies each range of rows, or of what is summed over, with a matrix of its own."""

NONZERO, MASKED = "aten.nonzero.default", "aten.index.Tensor"
"""What gives the places of set flags, in columns, and what gives rows where flags are set."""

CHOOSE = "aten.index_select.default"
"""What gives the rows at places, before a rewriting has said what they are."""
