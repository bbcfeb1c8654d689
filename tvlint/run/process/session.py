"""State that the parts of a run share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tvlint.ir.values import dataclass, field
from tvlint.run.process.worker import Steps

if TYPE_CHECKING:
    from tvlint.cache.remember import Cache

Progress: TypeAlias = Callable[[str, float], None]
"""What is being done, and which share of it is done (0 to 1)."""


@dataclass(frozen=True, slots=True)
class Session:
    """The steps in which a run goes, each within its budget, what is called with its progress, what earlier runs found, and
    how many files or pairs are worked on at a time."""

    steps: Steps = field(default_factory=Steps)
    progress: Progress | None = None
    cache: Cache | None = None
    jobs: int = 1
