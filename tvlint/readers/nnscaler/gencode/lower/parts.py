"""Several results that are kept under one name and taken from there: `parts = torch.unbind(x)`, and `parts[1]` later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvlint.ir.operators import Compute, Literal, Operator
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind, bound_of
from tvlint.readers.nnscaler.gencode.syntax.expressions import GETITEM


@dataclass
class Parts:
    """The names of the results that are kept under one name, as far as a method has been read."""

    scalar: tuple[int, ...]
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def named(self, operator: Operator, kinds: Mapping[str, Kind]) -> Operator:
        """Return what takes a tensor apart with a name for each part, and what takes one of them as the identity that it is."""
        if not isinstance(operator, Compute):
            return operator
        match operator.op, operator.inputs:
            case op, (str() as kept, Literal(value=int() as place)) if op == GETITEM and kept in self.known:
                parts = self.known[kept]
                if -len(parts) <= place < len(parts):
                    return replace(operator, op=IDENTITY, inputs=(parts[place],))
        if len(operator.outputs) != 1 or not has_trait(operator.op, Trait.APART):
            return operator
        bound = bound_of(operator, kinds, self.scalar)
        if bound is None or len(bound.outputs) < 2:
            return operator
        (kept,) = operator.outputs
        self.known[kept] = tuple(f"{kept}.{place}" for place in range(len(bound.outputs)))
        return replace(operator, outputs=self.known[kept])
