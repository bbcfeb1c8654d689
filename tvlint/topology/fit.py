"""Judge whether the ranks of a configuration have the memory that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvlint.ir.configuration import Unknown
from tvlint.topology.footprint import StageMemory
from tvlint.topology.known import Accelerator

PARTS = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True, slots=True)
class Change:
    """Settings with other values, as the file writes their names, and the bytes that the fullest rank then needs."""

    settings: tuple[tuple[str, str | int | bool], ...]
    needed: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The need of the pipeline stage that needs most, in bytes, against the memory of an accelerator.

    `open` are the parts that are not known of some stage; `needed` is then what the others come to.
    """

    accelerator: Accelerator
    stage: int
    needed: int
    open: tuple[str, ...]
    most: int | None = None
    """The need with the largest vocabulary, where that is not known; `needed` is then that with the smallest."""
    changes: tuple[Change, ...] = ()
    """Of what does not fit, what makes it fit."""

    @property
    def fits(self) -> bool | None:
        """Return whether the memory is enough; None where that depends on what is unknown, or on its last tenth.

        An accelerator that is sold with 80 GB offers 79.1 GiB, one with 48 GB 44.4; the CUDA context, communicators and the
        allocator take their part of that. vLLM leaves them a tenth by default (`gpu_memory_utilization`).
        """
        if self.needed > self.accelerator.memory:
            return False
        most = self.needed if self.most is None else self.most
        return None if self.open or most > self.accelerator.memory * 9 // 10 else True


def fit(
    memory: Sequence[StageMemory] | Unknown,
    accelerator: Accelerator,
    between: tuple[Sequence[StageMemory], Sequence[StageMemory]] | None = None,
) -> Fit | Unknown:
    """Compare the stage that needs most with the memory of the accelerator; unknown where nothing is known of any.

    `between` is the memory with the smallest and with the largest vocabulary, where only that is not known.
    """
    if isinstance(memory, Unknown):
        return memory
    least, most = between or (memory, memory)
    needs, largest = _needs(least), _needs(most)
    unknown = tuple(name for name in PARTS if any(isinstance(getattr(stage, name), Unknown) for stage in least))
    stage = max(range(len(largest)), key=largest.__getitem__)
    if not largest[stage]:
        parts = (getattr(memory[stage], name) for name in PARTS)
        return next(part for part in parts if isinstance(part, Unknown))
    return Fit(accelerator, stage, max(needs), unknown, largest[stage] if between else None)


def _needs(memory: Sequence[StageMemory]) -> list[int]:
    """Return what each stage needs of the parts that are known."""
    parts = [[getattr(stage, name) for name in PARTS] for stage in memory]
    return [sum(part for part in held if not isinstance(part, Unknown)) for held in parts]
