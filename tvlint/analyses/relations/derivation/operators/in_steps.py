"""Operators one after the other, as which another one is derived."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.analyses.relations.transfer.reshape import reshape
from tvlint.ops.spec import Bound, Family, UnsupportedError


@dataclass(slots=True)
class InSteps:
    """Operators on the `values` of another one.

    A place from 0 on is one of these values, a negative one the result of a step: -1 of the first, -2 of the second.
    """

    machine: Machine
    values: tuple[Value, ...]
    steps: list[tuple[Saved, tuple[int, ...]]] = field(default_factory=list)

    def value(self, place: int) -> Value:
        """Return the value at a place. Raises UnsupportedError for a step that gives none, or several."""
        if place >= 0:
            return self.values[place]
        step, _ = self.steps[~place]
        result = step.outputs[0] if len(step.outputs) == 1 else None
        if result is None:
            raise UnsupportedError(f"`{step.op}` gives nothing that is known")
        return result

    def add(self, step: Saved, *places: int) -> int:
        """Note a step whose operands are at `places`; return the place of its result."""
        self.steps.append((step, tuple(place if place >= 0 else ~place - len(self.steps) for place in places)))
        return ~(len(self.steps) - 1)

    def viewed(self, place: int, shape: tuple[int, ...]) -> int:
        """Look at a value as one of another shape of local tensors; return the place of that."""
        value = self.value(place)
        return self.add(Saved("view", None, Family.RESHAPE, (value,), (reshape(self.machine.world, value, shape),)), place)

    def saved(self, op: str, bound: Bound, place: int) -> Saved:
        """Return the operator as these steps, with the value at a place as its result."""
        return Saved(op, bound, Family.INDEXED, self.values, (self.value(place),), tuple(self.steps))
