"""Budgets of time and memory for a run and for each file."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.values import dataclass, replace

MOST = 10**7


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds of processor (`cpu`) and of the clock (`wall`) for each file and for the run, and MiB of memory.

    The largest plans that are known, of a model of 405 billion parameters over 8,192 ranks, are proved in a sixth of what a
    file may take.
    """

    file_cpu: float = 120
    file_wall: float = 600
    run_cpu: float = 900
    run_wall: float = 1800
    memory: float = 8192

    def with_limits(self, limits: Mapping[str, float]) -> Budget:
        """Return the budget with some of its parts as they are set, by name."""
        return replace(self, **{name.replace("-", "_"): value for name, value in limits.items()})


NAMES = ("file-cpu", "file-wall", "run-cpu", "run-wall", "memory")
"""What can be set, as it is written."""


def words(name: str, amount: float) -> str:
    """Return the amount of one part in words."""
    if name == "memory":
        return f"{amount:,g} MiB of memory"
    return f"{amount:g} seconds{' of processor time' if name.endswith('cpu') else ''}"
