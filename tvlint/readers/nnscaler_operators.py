"""nnScaler's forward operators and their backward mirrors, as `Compute` and `Backward`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvlint.ir.operators import Backward, Compute, Literal, Operand, Value
from tvlint.readers.inert_objects import Record
from tvlint.readers.nnscaler_adapters import Scope
from tvlint.readers.nnscaler_records import (
    Malformed,
    Sources,
    constant,
    fields,
    integer,
    kind,
    mapping,
    printable,
    records_in,
    required,
    sequence,
    text,
)
from tvlint.readers.nnscaler_tensors import Tensors

_NONE: Mapping[str, Value] = {}


class Operators:
    """Lowers the operators of one device; an operator record becomes one `Compute`, whoever asks for it."""

    def __init__(self, tensors: Tensors, sources: Sources) -> None:
        self._tensors = tensors
        self._sources = sources
        self._lowered: dict[int, Compute] = {}
        self._attributes: dict[int, tuple[Mapping[str, Value], Any]] = {}
        self._labels: dict[int, str] = {}

    def begin_device(self) -> None:
        """Forget the operators of the device before; what they share stays."""
        self._lowered = {}

    def forward(self, operator: Any, scope: Scope, pointer: Callable[[], str]) -> Compute:
        """One forward operator, its constants in place and its keyword arguments as attributes.

        A tensor among the keyword arguments is appended to the inputs, and the attribute says `operand <position>`. Tensors
        in lists are flattened into the inputs, and the attribute `operands` keeps the nesting, with `*` for each of them.
        """
        held = self._lowered.get(id(operator))
        if held is not None:
            return held
        own = fields(operator, "an operator")
        self._tensors.work.spend(1)
        name = self._tensors.name
        current = scope.current
        inputs: list[Operand] = []
        nesting: list[Value] = []
        nested = False
        for value in sequence(required(own, "_inputs", "an operator"), "the inputs of an operator"):
            if isinstance(value, Record):
                found = name(value)
                inputs.append(current.get(found, found) if current else found)
                nesting.append("*")
            elif isinstance(value, (list, tuple, dict)) and self._holds_tensor(value):
                nested = True
                nesting.append(self._unfold(value, inputs, scope))
            else:
                inputs.append(Literal(constant(value, self._tensors.work)))
                nesting.append("constant")
        outputs = [scope.of(found) for found in self._tensors.names(required(own, "_outputs", "an operator"), "the outputs")]
        attributes = self._keywords(own.get("_kwargs"), inputs, scope)
        if nested:
            attributes = {**attributes, "operands": tuple(nesting)}
        lowered = Compute(
            text(own.get("signature"), "the signature of an operator"),
            tuple(inputs),
            tuple(outputs),
            attributes,
            _annotation(own.get("_annos_candidates")),
            (0,) if attributes.get("inplace") is True else (),
            source=self._sources.of(own.get("_comment"), pointer),
            label=self._label(own),
        )
        self._lowered[id(operator)] = lowered
        return lowered

    def backward(self, operator: Any, scope: Scope, pointer: Callable[[], str]) -> Backward:
        """One backward operator.

        Gradients stand where the plan puts them: its n-th input belongs to the n-th output of the forward operator that has a
        gradient, its n-th output to the n-th tensor operand that has one. What is left over is appended.
        """
        own = fields(operator, "a backward operator")
        self._tensors.work.spend(1)
        mirror = own.get("_mirror")
        if not kind(mirror):
            raise Malformed("a backward operator has no forward operator")
        forward = self.forward(mirror, scope, pointer)
        record = fields(mirror, "a forward operator")
        taken = self._tensors.names(required(own, "_inputs", "a backward operator"), "the inputs of a backward operator")
        given = self._tensors.names(required(own, "_outputs", "a backward operator"), "the outputs of a backward operator")
        results = self._slots(record["_outputs"], forward.outputs)
        names = [operand for operand in forward.inputs if not isinstance(operand, Literal)]
        operands = self._slots((record["_inputs"], record.get("_kwargs")), names)
        return Backward(
            forward,
            _placed([scope.of(name) for name in taken], results),
            _placed([scope.of(name) for name in given], operands),
            source=forward.source,
            label=self._label(own),
        )

    def _slots(self, value: object, names: Sequence[str]) -> list[bool]:
        """Whether each tensor in a list, whose current names are `names`, has a gradient."""
        records = records_in(value, self._tensors.work)
        return [self._tensors.has_gradient(record, name) for record, name in zip(records, names, strict=False)]

    def _label(self, own: dict[str, Any]) -> str:
        number = integer(own.get("_id"), "the id of an operator")
        found = self._labels.get(number)
        if found is None:
            found = self._labels[number] = f"cell {number}"
        return found

    def _keywords(self, value: object, inputs: list[Operand], scope: Scope) -> Mapping[str, Value]:
        if not value:
            return _NONE
        held = self._attributes.get(id(value))
        if held is not None:
            return held[0]
        found: dict[str, Value] = {}
        shared = True
        for key, item in mapping(value, "the keyword arguments of an operator").items():
            word = text(key, "a keyword argument")
            if isinstance(item, (list, tuple, dict, Record)) and self._holds_tensor(item):
                shared = False
                if isinstance(item, Record):
                    found[word] = f"operand {len(inputs)}"
                    inputs.append(scope.of(self._tensors.name(item)))
                else:
                    start = len(inputs)
                    found[word] = (f"operands from {start}", self._unfold(item, inputs, scope))
            else:
                found[word] = constant(item, self._tensors.work)
        if shared:
            self._attributes[id(value)] = found, value
        return found

    def _holds_tensor(self, value: object) -> bool:
        return bool(records_in(value, self._tensors.work))

    def _unfold(self, value: object, inputs: list[Operand], scope: Scope) -> Value:
        self._tensors.work.spend(1)
        if isinstance(value, Record):
            inputs.append(scope.of(self._tensors.name(value)))
            return "*"
        if isinstance(value, (list, tuple)):
            return tuple([self._unfold(item, inputs, scope) for item in value])
        if isinstance(value, dict):
            return tuple(
                [(constant(key, self._tensors.work), self._unfold(item, inputs, scope)) for key, item in value.items()]
            )
        return constant(value, self._tensors.work)


def _placed(names: list[str], slots: list[bool]) -> tuple[str, ...]:
    left = iter(names)
    placed = [next(left, "") if slot else "" for slot in slots]
    return (*placed, *left)


def _annotation(candidates: object) -> str:
    if isinstance(candidates, (list, tuple)) and len(candidates) == 1 and isinstance(candidates[0], str):
        return printable(candidates[0])
    return ""
