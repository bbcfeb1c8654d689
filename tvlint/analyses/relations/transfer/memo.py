"""Memo of transfer functions, for operands that differ in their terms only.

Layer `k + 1` of a model does what layer `k` does, to other terms. A `Form` is an operator apart from the names that it reads
and writes; a `Case` is a form on operands of certain extents (`relation.Value`), with what was worked out for it.

Why a case may stand for all layers: its key is all that is looked at. The annotation of an operator depends on its name, its
attributes and constants, the shapes of its results as the plan declares them, and the shapes of its whole operands; the form
has the first three, and an extent the shape and the slot of a term, which in one derivation make the shape of the whole. A use
of it depends on the annotation, on the boxes, shapes and slots of its operands, which are their extents, and on which of two
operands that may be exchanged comes first, which `run_again` is given with the key. So nothing is taken to be a repetition that
was not compared. What depends on more stays outside and is done for every term: the term itself with the identities that may
give another in its place, coefficients, sums and folds that are not complete, sums of gradients, the reading of a view that the
reference knows, draws, normal forms, and every error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvlint.ir.operators import Compute, Literal, Value
from tvlint.ir.plan import Tensor
from tvlint.ops.spec import Bound, Call, OpSpec, Shape, Steps
from tvlint.ops.table import spec_of


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A forward operator apart from the names that it reads and writes; in one derivation, equal forms are one object."""

    op: str
    spec: OpSpec | None
    operands: tuple[Literal | None, ...]
    """The constants in their places, None where a tensor is."""
    attributes: Mapping[str, Value]
    outputs: tuple[Shape | None, ...]
    """The shapes of the results, None where the plan declares none."""

    def call(self, shapes: Iterable[Shape]) -> Call:
        """Return the operator on tensors of these shapes; those that are more than it has operands are left out."""
        rest = iter(shapes)
        inputs = tuple(next(rest) if operand is None else operand for operand in self.operands)
        return Call(self.op, inputs, self.attributes, tuple(shape or () for shape in self.outputs))


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A form on operands of certain extents: the call on whole operands, and what it means."""

    name: str
    call: Call
    bound: Bound
    steps: Steps = ()
    everything: bool = False
    """Whether it is a slice that takes all of its operand."""
    uses: dict[Any, Any] = field(default_factory=dict)
    """What `apply.run_again` and views look up, each under all that it depends on besides the annotation."""


@dataclass(slots=True)
class Cases:
    """The forms and cases of one derivation, in which sizes and slots mean one thing."""

    forms: dict[tuple[Any, ...], Form] = field(default_factory=dict)
    known: dict[tuple[Any, ...], Case] = field(default_factory=dict)
    """By form and by the extents of all operands."""
    _attributes: dict[int, tuple[Mapping[str, Value], int]] = field(default_factory=dict)
    """Attributes by their identity, each with a number for what they say exactly."""
    _texts: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)

    def form(self, operator: Compute, tensors: Mapping[str, Tensor]) -> Form:
        """Return the form of a forward operator over these declarations."""
        held = self._attributes.get(id(operator.attributes))
        if held is None:
            text = tuple((name, repr(value)) for name, value in operator.attributes.items())
            held = operator.attributes, self._texts.setdefault(text, len(self._texts))
            self._attributes[id(operator.attributes)] = held
        constants = tuple([None if isinstance(operand, str) else repr(operand.value) for operand in operator.inputs])
        outputs = tuple([tensors[name].shape if name in tensors else None for name in operator.outputs])
        key = (operator.op, held[1], constants, outputs)
        found = self.forms.get(key)
        if found is None:
            operands = tuple(None if isinstance(operand, str) else operand for operand in operator.inputs)
            found = Form(operator.op, spec_of(operator.op), operands, operator.attributes, outputs)
            self.forms[key] = found
        return found
