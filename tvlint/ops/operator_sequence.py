"""What one operator is, as operators one after the other (`OpSpec.steps`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvlint.ir.operators import Literal
from tvlint.ops.spec import Steps


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a step."""

    number: int


@dataclass(slots=True)
class OperatorSequence:
    """Operators in sequence, each with its operands: positions of those of the whole, results of steps, and constants."""

    made: list[tuple[str, tuple[int | Literal | Made, ...]]] = field(default_factory=list)

    def then(self, op: str, *operands: int | Literal | Made) -> Made:
        """Return the result of one more operator."""
        self.made.append((op, operands))
        return Made(len(self.made) - 1)

    def steps(self) -> Steps:
        """Return the operators, with results counted back from where they are read."""
        return tuple(
            (op, tuple(operand.number - at if isinstance(operand, Made) else operand for operand in operands))
            for at, (op, operands) in enumerate(self.made)
        )
