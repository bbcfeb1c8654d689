"""nnScaler's `graph.ckp`: the traced single-device graph, as a reference plan.

The file holds the traced forward operators with shapes, and what nnScaler takes for their gradients; the gradients here are
derived from the operators instead. Names are those of the plan pickle: `w<id>`, `t<id>`, and `g.<name>` for a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Compute, Literal, Operator
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor
from tvlint.ops.annotations.declared import PREFIX, Declared
from tvlint.ops.table import meant
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.nnscaler.gencode.lower.autograd import differentiated, gradient
from tvlint.readers.nnscaler.gencode.lower.batch_dependent_sizes import as_expansion, makers, widened
from tvlint.readers.nnscaler.gencode.lower.methods import GETATTR
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY, Gradual
from tvlint.readers.nnscaler.gencode.lower.parts import Parts
from tvlint.readers.nnscaler.gencode.lower.shapes import Contradiction, Kind, bound_of, in_its_dimensions, results
from tvlint.readers.nnscaler.gencode.lower.traced_containers import Traced, taken_apart
from tvlint.readers.nnscaler.gencode.syntax.containers import Field, field_name
from tvlint.readers.nnscaler.gencode.traced_views import reshaped
from tvlint.readers.nnscaler.named_tensors import with_named_tensors
from tvlint.readers.nnscaler.pickle.adapters import Scope
from tvlint.readers.nnscaler.pickle.operators import Operators, without_gradient
from tvlint.readers.nnscaler.pickle.records import (
    Malformed,
    Sources,
    Work,
    described,
    fields,
    kind,
    records_in,
    required,
    sequence,
)
from tvlint.readers.nnscaler.pickle.tensors import Tensors
from tvlint.readers.sources.decompress import decompress
from tvlint.readers.sources.inert_pickle import Loaded, load, looks_like_pickle
from tvlint.readers.sources.resource_limits import without_collection
from tvlint.readers.sources.unsafe_pickle import unsafe_calls

FORMAT = "nnscaler-graph"
LARGEST = 1 << 30
_LEAST_WORK = 1_000_000


def is_traced_graph(data: bytes) -> bool:
    """Return whether unpacked `data` look like a pickle of nnScaler's traced graph."""
    head = data[: 1 << 16]
    return looks_like_pickle(data) and b"nnscaler.graph.graph" in head and b"IRGraph" in head


def read(path: str, data: bytes) -> Document:
    """Return the traced graph in `data`, compressed or not. Raises `ReadError` when it is not one."""
    with without_collection():
        loaded, work = _loaded(path, data)
        return Document(path, FORMAT, _graph(path, loaded, work, 1, (1,)), findings=tuple(unsafe_calls(loaded, path)))


def read_graph(
    path: str, data: bytes, slots: int = 1, scalar: tuple[int, ...] = (1,), declared: tuple[Declared, ...] = ()
) -> Plan:
    """Return the traced graph as the reference of a plan that runs it `slots` times, on different parts of one batch.

    A graph is traced with the batch of one micro-batch of one replica. The reference has the whole batch: dimension 0 of
    every input is `slots` times as long. `scalar` is the shape of a sum over everything.
    """
    with without_collection():
        loaded, work = _loaded(path, data)
        return _graph(path, loaded, work, slots, scalar, declared)


def traced(path: str, data: bytes) -> Traced:
    """Return what the graph was traced with."""
    with without_collection():
        loaded, work = _loaded(path, data)
        try:
            graph = _Graph(path, work, 1, (1,))
            inputs, forward = graph.opened(loaded)
        except Malformed as error:
            raise ReadError(str(error), Location(path)) from None
        declared = graph.tensors.declared
        kinds = {field: (declared[name].shape, declared[name].dtype) for field, name in inputs.items() if name in declared}
        parameters = (one for one in declared.values() if one.role in (Role.WEIGHT, Role.BUFFER) and one.dtype != "object")
        shapes = {one.logical: one.whole or one.shape for one in parameters}
        unsafe = tuple(unsafe_calls(loaded, path))
        return Traced(kinds, shapes, dict(graph.tensors.full_ids), unsafe, _by_name(forward, graph.tensors.variables()))


def _by_name(forward: Sequence[Compute], variables: Mapping[str, str]) -> dict[str, Compute]:
    """Return the operators by the name of their first result, on tensors of such names."""
    found: dict[str, Compute] = {}
    for operator in forward:
        inputs = tuple(variables.get(operand, operand) if isinstance(operand, str) else operand for operand in operator.inputs)
        for result in operator.outputs[:1]:
            found.setdefault(variables.get(result, result), replace(operator, inputs=inputs))
    return found


def _loaded(path: str, data: bytes) -> tuple[Loaded, Work]:
    refuse_larger(path, data, LARGEST)
    unpacked = decompress(data, path)
    return load(unpacked, path, ("nnscaler.",)), Work(_LEAST_WORK + len(unpacked))


def _root(loaded: Loaded) -> Any:
    root = loaded.root
    if isinstance(root, tuple) and len(root) == 2:
        root = root[1]
    if kind(root) != "IRGraph":
        raise Malformed(f"the pickle holds {described(root)}, not nnScaler's `IRGraph`")
    return root


def _nodes(loaded: Loaded, work: Work) -> Sequence[Any]:
    found = sequence(required(fields(_root(loaded), "the graph"), "_nodes", "the graph"), "the nodes of the graph")
    for node in (*found, _root(loaded)):
        attributes = fields(node, "a node")
        for record in records_in((attributes.get("_inputs"), attributes.get("_outputs"), attributes.get("_kwargs")), work):
            _complete(record)
            _complete(record.__dict__.get("_grad"))
    return found


def _complete(record: Any) -> None:
    """Give a tensor what newer versions of nnScaler keep in the full tensor that it is a part of.

    A parameter without dimensions, which the graph writes as one with one, has none.
    """
    attributes = getattr(record, "__dict__", None)
    if not attributes or "_full_tensor" not in attributes or "_is_grad" in attributes:
        return
    whole = getattr(attributes["_full_tensor"], "__dict__", {})
    for name in ("_is_grad", "_is_attr", "_dtype", "_requires_grad"):
        if name in whole:
            attributes[name] = whole[name]
    if whole.get("_is_scalar_tensor") is True and attributes.get("_is_attr") is True and whole.get("_shape") in ((), (1,)):
        attributes["_shape"] = whole["_shape"] = ()
        attributes["_indmap"] = None


def _graph(
    path: str, loaded: Loaded, work: Work, slots: int, scalar: tuple[int, ...], declared: tuple[Declared, ...] = ()
) -> Plan:
    try:
        return _Graph(path, work, slots, scalar, declared).plan(loaded)
    except Malformed as error:
        raise ReadError(str(error), Location(path)) from None


class _Graph:
    def __init__(self, path: str, work: Work, slots: int, scalar: tuple[int, ...], declared: tuple[Declared, ...] = ()) -> None:
        self.declared = declared
        self.path = path
        self.slots = slots
        self.scalar = scalar
        self.tensors = Tensors(work)
        self.work = work
        self.operators = Operators(self.tensors, Sources(path))
        self.scope = Scope(self.tensors, {})
        self.untracked: set[str] = set()
        """Labels of operators that were traced below `torch.no_grad()`."""

    def plan(self, loaded: Loaded) -> Plan:
        """Return the plan of the whole graph."""
        found, forward = self.opened(loaded)
        if self.declared:
            forward = [replace(operator, op=meant(operator.op, self.declared)) for operator in forward]
        inputs = list(found.values())
        root = fields(_root(loaded), "the graph")
        given = [(record, self.tensors.name(record)) for record in records_in(root.get("_outputs") or (), self.work)]
        records = [record for record, name in given if self.tensors.declared[name].dtype != "object"]
        outputs = tuple(self.tensors.name(record) for record in records)
        losses = [name for record, name in zip(records, outputs, strict=True) if _is_loss(record)]
        loss = losses[0] if len(losses) == 1 else ""
        forward, kinds = self._scaled(forward, inputs)
        tensors = self._declared(kinds)
        weights = [name for name, tensor in tensors.items() if tensor.role is Role.WEIGHT]

        def constant(operator: Compute) -> frozenset[int]:
            bound = bound_of(operator, kinds, self.scalar)
            return bound.zero_gradient | bound.shape_only if bound is not None else frozenset()

        body = [Gradual(operator, differentiable=operator.label not in self.untracked) for operator in forward]
        backward = differentiated(body, weights, (loss,) if loss else outputs, constant)
        return self._finished(tuple(inputs), tuple(forward), backward, outputs, loss, tensors)

    def opened(self, loaded: Loaded) -> tuple[dict[Field, str], list[Compute]]:
        """Return what the loader gives, taken apart into tensors in order, and the operators of the graph."""
        given: list[Any] = []
        forward: list[Compute] = []
        for index, node in enumerate(_nodes(loaded, self.work)):
            which = kind(node)
            attributes = fields(node, "a node")
            if which == "IRDataOperation":
                given += self._inputs(required(attributes, "_outputs", "a node"), "what a loader gives")
            elif which != "IRBpOperation":
                if "signature" not in attributes:
                    raise Malformed(f"a node of the graph is {described(node)}")
                forward.append(self.operators.forward(node, self.scope, lambda index=index: f"node {index}"))  # type: ignore[misc]
                if without_gradient(attributes.get("_op_context")) or self._loses_gradient(forward[-1]):
                    self.untracked.add(forward[-1].label)
        if not given:
            given += self._inputs(fields(_root(loaded), "the graph").get("_inputs") or (), "the inputs of the graph")
        inputs = [self.tensors.name(record) for record in given]
        declared = self.tensors.declared
        declared.update({name: replace(declared[name], role=Role.INPUT) for name in inputs if declared[name].dtype != "object"})
        claim = next((operator.op for operator in forward if operator.op.startswith(PREFIX)), None)
        if claim is not None:
            raise Malformed(f"an operator is named `{claim[:60]}`")
        found, kept = taken_apart(inputs, forward, self.tensors)
        self._name_like_the_code(found, given)
        for index, operator in enumerate(kept):
            if operator.op == GETATTR and operator.inputs[1:] == (Literal("data"),) and not operator.attributes:
                kept[index] = replace(operator, op=IDENTITY, inputs=operator.inputs[:1])
                self.untracked.add(operator.label)
        return found, kept

    def _inputs(self, value: object, what: str) -> list[Any]:
        """Return the records of what the graph is given, named as inputs."""
        found = list(records_in(sequence(value, what), self.work))
        self.tensors.names(found, what, Role.INPUT)
        return found

    def _name_like_the_code(self, found: Mapping[Field, str], given: Sequence[Any]) -> None:
        """Give the inputs the full names that they have in generated code: `sample_46['ids']`."""
        for (position, path), name in found.items():
            attributes = given[position].__dict__
            variable, number, declared = attributes.get("name"), attributes.get("_id"), self.tensors.declared[name]
            if isinstance(variable, str) and variable.isidentifier() and variable.isascii():
                self.tensors.declared[name] = replace(declared, logical=field_name(f"{variable}_{number}", path))

    def _loses_gradient(self, operator: Compute) -> bool:
        """Return whether numbers that need no gradient are made of some that do; before 0.7 nothing else is left of
        `no_grad`.
        """
        declared = self.tensors.declared
        made = [declared[name] for name in operator.outputs if name in declared]
        needs = any(name in declared and declared[name].requires_grad for name in operator.tensor_operands)
        numbers = all(tensor.dtype.startswith(("float", "bfloat")) for tensor in made)
        return needs and numbers and bool(made) and not any(tensor.requires_grad for tensor in made)

    def _finished(
        self,
        inputs: tuple[str, ...],
        forward: tuple[Compute, ...],
        backward: tuple[Operator, ...],
        outputs: tuple[str, ...],
        loss: str,
        tensors: Mapping[str, Tensor],
    ) -> Plan:
        source = Location(self.path, pointer="data")
        segments = (
            Segment("data", Phase.DATA, (), inputs, (Compute("dataloader", (), inputs, source=source),)),
            Segment("forward", Phase.FORWARD, inputs, outputs, forward),
            Segment("backward", Phase.BACKWARD, (), (), backward, mirror="forward"),
        )
        steps = tuple(Step(segment.name, 0) for segment in segments)
        plan = Plan(
            self.path,
            FORMAT,
            Mesh((Axis("dp", 1),)),
            tensors,
            {segment.name: segment for segment in segments},
            (Program((0,), steps),),
            outputs=outputs,
            losses=(loss,) if loss else (),
        )
        return with_named_tensors(plan)

    def _scaled(self, forward: Sequence[Compute], inputs: Sequence[str]) -> tuple[list[Compute], dict[str, Kind]]:
        """Return the operators and the kinds of all tensors when the inputs hold all slots."""
        traced = {name: (tensor.shape, tensor.dtype) for name, tensor in self.tensors.declared.items()}
        parameters = (Role.WEIGHT, Role.BUFFER)
        kinds = {name: traced[name] for name, tensor in self.tensors.declared.items() if tensor.role in parameters}
        for name in inputs:
            shape, dtype = traced.get(name, ((), ""))
            if shape:
                kinds[name] = (shape[0] * self.slots, *shape[1:]), dtype
        changed: list[Compute] = []
        parts = Parts(self.scalar)
        forward = [
            one for one in (as_expansion(parts.named(one, traced), traced) for one in forward) if isinstance(one, Compute)
        ]
        made = makers((operator, operator.label not in self.untracked) for operator in forward)
        wide = (one for given in forward for one in widened(given, made, traced, self.scalar))
        for operator in (one for widest in wide for one in in_its_dimensions(reshaped(widest, traced, kinds), kinds)):
            assert isinstance(operator, Compute)
            changed.append(operator)
            for name in operator.outputs:
                self.tensors.declared.setdefault(name, Tensor(name, (), "", Role.ACTIVATION))
            try:
                found = results(operator, kinds, self.scalar)
            except Contradiction:
                found = {}
            if not found and self.slots == 1:
                found = {name: traced[name] for name in operator.outputs if name in traced}
            for name, (shape, dtype) in found.items():
                kinds[name] = shape, traced[name][1] if name in traced else dtype
        return changed, kinds

    def _declared(self, kinds: Mapping[str, Kind]) -> dict[str, Tensor]:
        """Return the declarations, with derived gradients; what has no known shape is not declared."""
        found: dict[str, Tensor] = {}
        for name, tensor in self.tensors.declared.items():
            if tensor.role is Role.GRADIENT or name not in kinds:
                continue
            shape, dtype = kinds[name]
            parameter = tensor.role in (Role.WEIGHT, Role.BUFFER)
            whole, region = (tensor.whole, tensor.region) if parameter else (None, None)
            given = "" if tensor.role in (Role.BUFFER, Role.INPUT) else gradient(name)
            found[name] = replace(tensor, shape=shape, dtype=dtype, whole=whole, region=region, part=(0, 1), gradient=given)
            if given:
                found[given] = Tensor(given, shape, dtype, Role.GRADIENT, gradient_of=name)
        return found


def _is_loss(record: Any) -> bool:
    parent = getattr(record, "_full_tensor", None)
    return getattr(parent, "_is_loss", False) is True or getattr(record, "_is_loss", False) is True
