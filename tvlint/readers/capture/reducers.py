"""Follow gradients of weights between the backward passes and the optimizer.

The gradient that the optimizer finds is a sum over micro-batches, on which collectives and divisions work. They are the plan's
reducers; what stands before them are the addends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting import Call, Lifted, LiftedNode, inputs_of, outputs_of
from tvlint.readers.capture.program import Exchange, Ref
from tvlint.readers.capture.tape import Mark


@dataclass(frozen=True, slots=True)
class Reducer:
    """A reduction of the gradient of one weight, then a division."""

    weight: str
    group: tuple[int, ...]
    reduce: str
    divisor: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class Reduced:
    """The addends of each weight's gradient, what reduces their sum, in order, and the nodes that the reducers stand for."""

    addends: Mapping[str, tuple[str, ...]]
    reducers: tuple[Reducer, ...]
    gone: frozenset[int]


def reducers_of(lifted: Lifted) -> Reduced:
    """Return the addends and the reducers of all gradients."""
    makers = {name: node for node in lifted.nodes for name in outputs_of(node)}
    readers: dict[str, int] = {}
    for node in lifted.nodes:
        for name in inputs_of(node):
            readers[name] = readers.get(name, 0) + 1
    for value, _ in lifted.gradients.values():
        readers[value] = readers.get(value, 0) + 1
    addends: dict[str, tuple[str, ...]] = {}
    reducers: list[Reducer] = []
    gone: set[int] = set()
    for weight, (value, _) in lifted.gradients.items():
        chain, start = _chain(value, makers, readers)
        found = _reducers(weight, chain)
        if found is None:
            chain, start, found = [], value, []
        gone.update(map(id, chain))
        reducers += found
        addends[weight] = tuple(_addends(start, lifted, makers))
    return Reduced(addends, tuple(reducers), frozenset(gone))


def _chain(value: str, makers: Mapping[str, LiftedNode], readers: Mapping[str, int]) -> tuple[list[LiftedNode], str]:
    """Return the collectives and divisions that end in `value`, the first of them first, and what they begin with."""
    chain: list[LiftedNode] = []
    while readers.get(value, 0) == 1:
        node = makers.get(value)
        reduces = isinstance(node, Exchange) and node.kind == "all-reduce" and node.reduce in ("sum", "avg")
        scales = isinstance(node, Call) and node.op in ("torch.mul", "torch.div") and _is_after_accumulation(node)
        views = isinstance(node, Call) and node.op == "torch.Tensor.view"
        if node is None or not (reduces or (scales and _factor(node) is not None) or views):
            break
        chain.insert(0, node)
        value = inputs_of(node)[0]
    while chain and isinstance(chain[0], Call) and not any(isinstance(node, Exchange) for node in chain):
        value = outputs_of(chain.pop(0))[0]
    while chain and isinstance(chain[0], Call) and chain[0].op == "torch.Tensor.view":
        value = outputs_of(chain.pop(0))[0]
    return chain, value


def _is_after_accumulation(node: Call) -> bool:
    return node.mark.phase != "backward" or "AccumulateGrad" in node.mark.node or not node.mark.node


def _factor(node: LiftedNode) -> float | None:
    """Return the number that a node multiplies a tensor by; None where it is no number."""
    if not isinstance(node, Call) or node.op not in ("torch.mul", "torch.div") or len(node.inputs) != 2:
        return None
    tensor, number = node.inputs
    value = number.value if isinstance(number, Literal) else None
    if not isinstance(tensor, Ref) or not isinstance(value, int | float) or isinstance(value, bool) or not value:
        return None
    return value if node.op == "torch.mul" else 1 / value


def _reducers(weight: str, chain: list[LiftedNode]) -> list[Reducer] | None:
    """Return the reducers that a chain is; None where it divides by no whole number."""
    found: list[Reducer] = []
    factor = 1.0
    for node in chain:
        factor *= _factor(node) or 1.0
        if isinstance(node, Exchange):
            found.append(Reducer(weight, tuple(sorted(node.group)), node.reduce, 1, node.mark))
    if not found:
        return []
    divisor = round(1 / factor) if factor > 0 else 0
    if divisor < 1 or abs(divisor * factor - 1) > 1e-9:
        return None
    last = found[-1]
    return [*found[:-1], Reducer(weight, last.group, last.reduce, divisor, last.mark)]


def _addends(value: str, lifted: Lifted, makers: Mapping[str, LiftedNode]) -> list[str]:
    """Return what is added up to `value`: gradients of one name are summed."""
    node = makers.get(value)
    if not isinstance(node, Call) or node.op != "torch.add" or node.attributes.get("alpha", 1) != 1:
        return [value]
    operands = inputs_of(node)
    if len(operands) != 2 or any(lifted.program.types[own] != lifted.program.types[value] for own in operands):
        return [value]
    return [addend for own in operands for addend in _addends(own, lifted, makers)]
