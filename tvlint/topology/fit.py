"""Judge whether the ranks of a configuration have the memory that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvlint.ir.configuration import Unknown
from tvlint.topology.known import Accelerator

if TYPE_CHECKING:
    from tvlint.topology.topology import StageMemory


@dataclass(frozen=True, slots=True)
class Fit:
    """The need of the pipeline stage that needs most, in bytes, against the memory of an accelerator.

    `open` are the parts that are not known of some stage; `needed` is then what the others come to.
    """

    accelerator: Accelerator
    stage: int
    needed: int
    open: tuple[str, ...]

    @property
    def fits(self) -> bool | None:
        """Whether the memory is enough; None where that depends on what is not known, or on the last tenth of the memory.

        An accelerator that is sold with 80 GB offers 79.1 GiB, one with 48 GB 44.4; the CUDA context, communicators and the
        allocator take their part of that. vLLM leaves them a tenth by default (`gpu_memory_utilization`).
        """
        if self.needed > self.accelerator.memory:
            return False
        return None if self.open or self.needed > self.accelerator.memory * 9 // 10 else True


def fit(memory: Sequence[StageMemory] | Unknown, accelerator: Accelerator) -> Fit | Unknown:
    """Compare the stage that needs most with the memory of the accelerator; unknown where nothing is known of any.

    `between` is the memory with the smallest and with the largest vocabulary, where only that is not known.
    """
    if isinstance(memory, Unknown):
        return memory
    names = ("weights", "gradients", "optimizer", "activations")
    parts = [{name: getattr(stage, name) for name in names} for stage in memory]
    needs = [sum(part for part in held.values() if not isinstance(part, Unknown)) for held in parts]
    unknown = tuple(name for name in names if any(isinstance(held[name], Unknown) for held in parts))
    stage = max(range(len(needs)), key=needs.__getitem__)
    if not needs[stage]:
        return next(part for part in parts[stage].values() if isinstance(part, Unknown))
    return Fit(accelerator, stage, needs[stage], unknown)
