"""A folder of generated code after it was read and lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvlint.ir.plan import Plan
from tvlint.readers.nnscaler.gencode.lower.replica import Built
from tvlint.readers.nnscaler.gencode.lower.replica_classes import Difference
from tvlint.readers.nnscaler.gencode.syntax.records import RankFile

if TYPE_CHECKING:
    from tvlint.readers.nnscaler.gencode.lower.traced_containers import Traced


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that has been read: the plan, the same plan as deviating replicas run it, and how it was built."""

    path: str
    plan: Plan
    built: Built
    variants: tuple[tuple[int, Plan, Built], ...]
    """Replicas whose code differs, by number."""
    differences: tuple[Difference, ...]
    undecided: bool
    """Whether as many replicas run the one as the other, so that nothing tells which of them was meant."""
    config: Mapping[str, Any]
    files: tuple[RankFile, ...]
    """The files that were parsed: those of the first replica, then those of the deviating ones."""
    traced: Traced | None
    """What the graph in the folder was traced with, where there is one."""
