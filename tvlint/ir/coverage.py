"""How much of a plan was understood."""

from __future__ import annotations

from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of how many operators of a plan all results are known on all ranks, and how many operators there are."""

    understood: int
    operators: int
