"""Collectives along another dimension than the first, which torch writes as one along the first and a rearrangement.

`cat(parts, d)` of the equal parts of `all-gather(x, 0)` is `all-gather(x, d)`, and `reduce-scatter(cat(parts, 0), 0)` of the
equal parts of x along d is `reduce-scatter(x, d)`.
"""

from __future__ import annotations

from dataclasses import replace

from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, outputs_of
from tvlint.readers.capture.lifting.program import Exchange, Ref


def with_dimensions(lifted: Lifted) -> Lifted:
    """Return the program with gathers and scatters along the dimension that they are about."""
    makers = {name: node for node in lifted.nodes for name in outputs_of(node)}
    readers: dict[str, int] = {}
    for node in lifted.nodes:
        for name in inputs_of(node):
            readers[name] = readers.get(name, 0) + 1
    gathered: dict[int, Exchange] = {}
    gone: set[int] = set()
    for node in lifted.nodes:
        if isinstance(node, Call) and node.op == "torch.cat":
            source = _parts_of(node, makers)
            exchange = makers.get(source[0]) if source is not None else None
            if source is None or source[1] != 0 or not isinstance(exchange, Exchange) or exchange.kind != "all-gather":
                continue
            if len(node.inputs) == len(exchange.group) == readers[source[0]] and exchange.dim == 0:
                gathered[id(exchange)] = replace(exchange, outputs=node.outputs, dim=_dim(node))
                gone.add(id(node))
        if isinstance(node, Exchange) and node.kind == "reduce-scatter" and node.dim == 0:
            joined = makers.get(node.inputs[0])
            source = _parts_of(joined, makers) if isinstance(joined, Call) and joined.op == "torch.cat" else None
            if source is None or not isinstance(joined, Call) or _dim(joined) != 0 or len(joined.inputs) != len(node.group):
                continue
            gathered[id(node)] = replace(node, inputs=(source[0],), dim=source[1])
    nodes = [gathered.get(id(node), node) for node in lifted.nodes if id(node) not in gone]
    return replace(lifted, nodes=nodes)


def _dim(call: Call) -> int:
    dim = call.attributes.get("dim", 0)
    assert isinstance(dim, int)
    return dim


def _parts_of(call: Call, makers: dict[str, LiftedNode]) -> tuple[str, int] | None:
    """Return the value and the dimension whose parts the call joins, all of them in order and of one size; None for others."""
    found: list[tuple[str, int, int, int]] = []
    for each_input in call.inputs:
        part = makers.get(each_input.name) if isinstance(each_input, Ref) else None
        if not isinstance(part, Call) or part.op != "torch.narrow" or not isinstance(part.inputs[0], Ref):
            return None
        dim, start, length = (argument.value for argument in part.inputs[1:] if not isinstance(argument, Ref))
        assert isinstance(dim, int)
        assert isinstance(start, int)
        assert isinstance(length, int)
        found.append((part.inputs[0].name, dim, start, length))
    name, dim, _, size = found[0]
    if any(part != (name, dim, at * size, size) for at, part in enumerate(found)):
        return None
    return name, dim
