"""Calls that a rewriting adds to a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.ir.operators import Literal
from tvlint.ops.spec import Bound
from tvlint.ops.table import spec_of
from tvlint.readers.capture.lifting.calls import VIEW
from tvlint.readers.capture.lifting.factors import table_call
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, makers_of
from tvlint.readers.capture.lifting.program import Program, Ref, Type
from tvlint.readers.capture.tapes.tape import Mark


class Writer:
    """A program while it is rewritten: `makers` of its values, and the `nodes` that are there by now."""

    def __init__(self, lifted: Lifted) -> None:
        self.program: Program = lifted.program
        self.makers = makers_of(lifted)
        self.nodes: list[LiftedNode] = []

    def emit(self, op: str, inputs: Sequence[object], type: Type, mark: Mark, made: str = "", **attributes: object) -> str:
        """Add a call on values (by name), lists and numbers; return its result."""
        operands = tuple(Ref(each) if isinstance(each, str) else Literal(each) for each in inputs)  # type: ignore[arg-type]
        made = made or self.program.fresh(type)
        self.nodes.append(Call(op, operands, attributes, (made,), mark))  # type: ignore[arg-type]
        return made

    def view(self, name: str, shape: tuple[int, ...], mark: Mark, made: str = "") -> str:
        """Return a value in another shape."""
        if self.program.shape(name) == shape and not made:
            return name
        return self.emit(VIEW, (name, shape), self.program.types[name].of_shape(shape), mark, made)

    def is_nothing(self, name: str) -> bool:
        """Return whether a value is made of zeros."""
        node = self.makers.get(name)
        return isinstance(node, Call) and node.op in ("torch.zeros", "torch.zeros_like")

    def bound_of(self, node: Call) -> Bound | None:
        """Return the annotation of a call, in named dimensions."""
        spec = spec_of(node.op)
        shapes = {name: self.program.shape(name) for name in inputs_of(node)}
        return None if spec is None else spec.bound(table_call(node, self.program.shape(node.outputs[0]), shapes))


def row_name(node: Call, bound: Bound, rows: Mapping[str, int]) -> str:
    """Return the name of the dimension that is the one of `rows` in operands that have some, if no other operand has it.

    Empty where there is no such name, where the call says its bounds, and where a row's number says what is computed of it.
    """
    operands = list(zip(inputs_of(node), bound.operands, strict=False))
    found = {dims[rows[value]] for value, dims in operands if value in rows}
    if len(found) != 1:
        return ""
    (name,) = found
    others = any(name in dims for value, dims in operands if value not in rows)
    numbered = {*bound.sizes, *bound.ranges, *bound.counts, *bound.indices.values(), *(bound.masked or ())}
    return "" if others or name in numbered or bound.draws is not None else name
