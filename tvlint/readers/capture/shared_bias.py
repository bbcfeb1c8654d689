"""Biases that every rank of a sum adds a share of.

Where n ranks hold the same b, `all-reduce(a + b / n)` is `all-reduce(a) + b`: the sum over the ranks adds n shares. So is a
`reduce-scatter` along a dimension that b does not have. It is how DTensor writes a row-parallel layer with a bias. That ranks
hold the same b is not seen on one rank; the replay of all ranks is what holds it.
"""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting import Call, Lifted, LiftedNode, inputs_of, outputs_of, waited_in_time
from tvlint.readers.capture.program import End, Exchange, Ref
from tvlint.readers.capture.tape import Mark


def with_whole_biases(lifted: Lifted) -> Lifted:
    """Return the program with weights added after the sums that they were added to in shares."""
    makers = {name: node for node in lifted.nodes for name in outputs_of(node)}
    readers: dict[str, int] = {}
    for node in lifted.nodes:
        for name in inputs_of(node):
            readers[name] = readers.get(name, 0) + 1
    nodes: list[LiftedNode] = []
    ended: dict[str, Call] = {}
    waited = waited_in_time(lifted)
    for node in lifted.nodes:
        if isinstance(node, End) and node.handle in ended:
            nodes += [node, ended[node.handle]]
            continue
        found = _shared(lifted, node, makers, readers, waited) if isinstance(node, Exchange) else None
        if not isinstance(node, Exchange) or found is None:
            nodes.append(node)
            continue
        rest, bias, mark = found
        type = lifted.program.types[node.inputs[0]]
        if lifted.program.types[rest] != type:
            viewed = lifted.program.fresh(type)
            nodes.append(Call("torch.Tensor.view", (Ref(rest), Literal(type.shape)), {}, (viewed,), mark))
            rest = viewed
        summed = lifted.program.fresh(lifted.program.types[node.outputs[0]])
        nodes.append(replace(node, inputs=(rest,), outputs=(summed,)))
        whole = Call("torch.add", (Ref(summed), Ref(bias)), {}, node.outputs, mark)
        if node.handle:
            ended[node.handle] = whole
        else:
            nodes.append(whole)
    return replace(lifted, nodes=nodes)


def _added(lifted: Lifted, node: Exchange, makers: dict[str, LiftedNode]) -> Call | None:
    """Return the addition whose result is summed, also where it is viewed before with the same last dimension."""
    maker = makers.get(node.inputs[0]) if node.inputs else None
    if isinstance(maker, Call) and maker.op == "torch.Tensor.view" and isinstance(maker.inputs[0], Ref):
        here, there = lifted.program.shape(maker.inputs[0].name), lifted.program.shape(maker.outputs[0])
        if here and there and here[-1] == there[-1]:
            maker = makers.get(maker.inputs[0].name)
    return maker if isinstance(maker, Call) and maker.op == "torch.add" and not maker.attributes else None


def _shared(
    lifted: Lifted, node: Exchange, makers: dict[str, LiftedNode], readers: dict[str, int], waited: frozenset[str]
) -> tuple[str, str, Mark] | None:
    """Return the addend that is summed, the weight of which each rank adds its share, and where; None where that is not so."""
    added = _added(lifted, node, makers)
    kinds = node.kind in ("all-reduce", "reduce-scatter") and node.reduce == "sum"
    if added is None or not kinds or node.handle not in waited or readers[added.outputs[0]] != 1:
        return None
    spared = -1 if node.dim is None else node.dim
    for one, other in (added.inputs, added.inputs[::-1]):
        share = makers.get(other.name) if isinstance(other, Ref) else None
        if not isinstance(one, Ref) or not isinstance(share, Call) or share.op != "torch.div":
            continue
        bias, count = share.inputs
        if not isinstance(bias, Ref) or not _is_weight(bias.name, lifted, makers) or count != Literal(len(node.group)):
            continue
        along = len(lifted.program.shape(node.inputs[0])) - len(lifted.program.shape(bias.name))
        if spared < along:
            return one.name, bias.name, added.mark
    return None


def _is_weight(value: str, lifted: Lifted, makers: dict[str, LiftedNode]) -> bool:
    """Return whether a value is one that the program names, or gathered of such parts."""
    maker = makers.get(value)
    if isinstance(maker, Exchange) and maker.kind == "all-gather":
        return _is_weight(maker.inputs[0], lifted, makers)
    given = lifted.program.given.get(value)
    return given is not None and given.named is not None
