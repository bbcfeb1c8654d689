"""The memory of a rank of one pipeline stage, by what takes it."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.ir.configuration import Unknown


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The memory of a rank of one pipeline stage: parameters, then bytes."""

    parameters: int | Unknown
    weights: int | Unknown
    gradients: int | Unknown
    optimizer: int | Unknown
    activations: int | Unknown

    @property
    def total(self) -> int | Unknown:
        whole = 0
        for part in (self.weights, self.gradients, self.optimizer, self.activations):
            if isinstance(part, Unknown):
                return part
            whole += part
        return whole
