"""nnScaler's forward operators and their backward mirrors, as `Compute` and `Backward`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvlint.ir.operators import Backward, Compute, Literal, Operand, Value
from tvlint.ops.spelling import with_second_in_place
from tvlint.readers.nnscaler.pickle.adapters import Scope
from tvlint.readers.nnscaler.pickle.records import (
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
from tvlint.readers.nnscaler.pickle.tensors import Tensors
from tvlint.readers.sources.inert_objects import Record

_NONE: Mapping[str, Value] = {}
_WARNED = "_stacklevel"
"""Whom a warning of `softmax` is about; nnScaler adds it to every spelling of it, and torch takes it in one."""


@dataclass(slots=True)
class _Operands:
    """The operands of one operator so far; `records` are those that are tensors."""

    scope: Scope
    inputs: list[Operand] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Append a tensor under its current name."""
        self.inputs.append(self.scope.of(self.scope.tensors.name(record)))
        self.records.append(record)


class Operators:
    """Lowers the operators of one device; an operator record becomes one `Compute`, whoever asks for it."""

    def __init__(self, tensors: Tensors, sources: Sources) -> None:
        self._tensors = tensors
        self._sources = sources
        self._lowered: dict[int, tuple[Compute, list[Record], list[Record]]] = {}
        """The operators of this device, by identity of the record, with their tensor operands and their outputs."""
        self._attributes: dict[int, tuple[Mapping[str, Value], Any]] = {}

    def begin_device(self) -> None:
        """Forget the operators of the device before; what they share stays."""
        self._lowered = {}

    def forward(self, operator: Any, scope: Scope, pointer: Callable[[], str]) -> Compute:
        """Return one forward operator, its constants in place and its keyword arguments as attributes.

        A tensor among the keyword arguments is appended to the inputs, and the attribute says `operand <position>`. Tensors
        in lists are flattened into the inputs, and the attribute `operands` keeps the nesting, with `*` for each of them.
        """
        return self._of_record(operator, scope, pointer)[0]

    def _of_record(self, operator: Any, scope: Scope, pointer: Callable[[], str]) -> tuple[Compute, list[Record], list[Record]]:
        held = self._lowered.get(id(operator))
        if held is not None:
            return held
        record_fields = fields(operator, "an operator")
        work = self._tensors.work
        work.spend(1)
        operands = _Operands(scope)
        nesting: list[Value] = []
        nested = False
        for value in sequence(required(record_fields, "_inputs", "an operator"), "the inputs of an operator"):
            if isinstance(value, Record):
                operands.add(value)
                nesting.append("*")
            elif isinstance(value, (list, tuple, dict)) and self._holds_tensor(value):
                nested = True
                nesting.append(self._unfold(value, operands))
            else:
                operands.inputs.append(Literal(constant(value, work)))
                nesting.append("constant")
        given = records_in(sequence(required(record_fields, "_outputs", "an operator"), "the outputs"), work)
        outputs = [scope.of(self._tensors.name(record)) for record in given]
        attributes = self._keywords(record_fields.get("_kwargs"), operands)
        if nested:
            attributes = {**attributes, "operands": tuple(nesting)}
        signature = text(record_fields.get("signature"), "the signature of an operator")
        given_operands, attributes = with_second_in_place(signature, tuple(operands.inputs), attributes)
        lowered = Compute(
            signature,
            given_operands,
            tuple(outputs),
            attributes,
            _annotation(record_fields.get("_annos_candidates")),
            (0,) if attributes.get("inplace") is True else (),
            source=self._sources.of(_one_line(record_fields.get("_comment")), pointer),
            label=_label(record_fields),
        )
        self._lowered[id(operator)] = held = lowered, operands.records, given
        return held

    def backward(self, operator: Any, scope: Scope, pointer: Callable[[], str]) -> Backward:
        """Return one backward operator.

        Gradients stand where the plan puts them: its n-th input belongs to the n-th output of the forward operator that has a
        gradient, its n-th output to the n-th tensor operand that has one. What is left over is appended.
        """
        attributes = fields(operator, "a backward operator")
        self._tensors.work.spend(1)
        mirror = attributes.get("_mirror")
        if not kind(mirror):
            raise Malformed("a backward operator has no forward operator")
        if without_gradient(fields(mirror, "an operator").get("_op_context")):
            raise Malformed("an operator runs below `torch.no_grad()` and has a gradient")
        forward, operands, results = self._of_record(mirror, scope, pointer)
        taken = self._tensors.names(required(attributes, "_inputs", "a backward operator"), "the inputs of a backward operator")
        given = self._tensors.names(
            required(attributes, "_outputs", "a backward operator"), "the outputs of a backward operator"
        )
        placed_results = _placed([scope.of(name) for name in taken], self._slots(results, forward.outputs))
        names = forward.tensor_operands
        placed_operands = _placed([scope.of(name) for name in given], self._slots(operands, names))
        return Backward(forward, placed_results, placed_operands, source=forward.source, label=_label(attributes))

    def _slots(self, records: list[Record], names: Sequence[str]) -> list[bool]:
        """Return whether each tensor, whose current names are `names`, has a gradient."""
        has_gradient = self._tensors.has_gradient
        return [has_gradient(record, name) for record, name in zip(records, names, strict=True)]

    def _keywords(self, value: object, operands: _Operands) -> Mapping[str, Value]:
        if not value:
            return _NONE
        held = self._attributes.get(id(value))
        if held is not None:
            return held[0]
        found: dict[str, Value] = {}
        shared = True
        for key, item in mapping(value, "the keyword arguments of an operator").items():
            word = text(key, "a keyword argument")
            if word == _WARNED:
                continue
            if isinstance(item, (list, tuple, dict, Record)) and self._holds_tensor(item):
                shared = False
                start = len(operands.inputs)
                if isinstance(item, Record):
                    found[word] = f"operand {start}"
                    operands.add(item)
                else:
                    found[word] = (f"operands from {start}", self._unfold(item, operands))
            else:
                found[word] = constant(item, self._tensors.work)
        if shared:
            self._attributes[id(value)] = found, value
        return found

    def _holds_tensor(self, value: object) -> bool:
        return bool(records_in(value, self._tensors.work))

    def _unfold(self, value: object, operands: _Operands) -> Value:
        self._tensors.work.spend(1)
        if isinstance(value, Record):
            operands.add(value)
            return "*"
        if isinstance(value, (list, tuple)):
            return tuple([self._unfold(item, operands) for item in value])
        if isinstance(value, dict):
            return tuple([(constant(key, self._tensors.work), self._unfold(item, operands)) for key, item in value.items()])
        return constant(value, self._tensors.work)


def _one_line(comment: object) -> object:
    """Return the comment of an operator, which generated code holds behind one `#`."""
    if isinstance(comment, str) and ("\n" in comment or "\r" in comment):
        raise Malformed("the comment of an operator has several lines, and generated code would run all but the first")
    return comment


def _label(attributes: dict[str, Any]) -> str:
    return f"cell {integer(attributes.get('_id'), 'the id of an operator')}"


def without_gradient(context: object) -> bool:
    """Return whether an operator was traced below `torch.no_grad()` or `torch.inference_mode()`."""
    mode = context.get("grad_mode") if isinstance(context, dict) else None
    return isinstance(mode, dict) and (mode.get("no_grad_mode") is True or mode.get("inference_mode") is True)


def _placed(names: list[str], slots: list[bool]) -> tuple[str, ...]:
    left = iter(names)
    placed = [next(left, "") if slot else "" for slot in slots]
    return (*placed, *left)


def _annotation(candidates: object) -> str:
    if isinstance(candidates, (list, tuple)) and len(candidates) == 1 and isinstance(candidates[0], str):
        return printable(candidates[0])
    return ""
