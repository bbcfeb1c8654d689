"""Every single mistake of a family, made in a good plan: what a wrong exporter, pass or hand edit would produce."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oracle.mutant import Mutant, alike, with_operators
from oracle.mutate_schedule import of_interface, of_order, of_plan, of_steps, of_tensors
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Peer,
    Receive,
    ReduceGradients,
    Send,
)
from tvlint.ir.plan import Phase, Plan, Segment

SIGNATURES = {
    "torch.add": "torch.sub",
    "torch.mul": "torch.add",
    "torch.div": "torch.mul",
    "torch.pow": "torch.mul",
    "torch.rsqrt": "torch.exp",
    "torch.mean": "torch.sum",
    "torch.sum": "torch.mean",
    "torch.relu": "torch.tanh",
    "torch.tanh": "torch.sigmoid",
    "torch.sigmoid": "torch.exp",
    "torch.exp": "torch.relu",
    "torch.nn.functional.silu": "torch.nn.functional.gelu",
    "torch.nn.functional.gelu": "torch.nn.functional.silu",
    "torch.nn.functional.softmax": "torch.nn.functional.log_softmax",
    "torch.transpose": "torch.Tensor.contiguous",
    "torch.Tensor.contiguous": "torch.Tensor.float",
    "nnscaler.runtime.function.identity": "torch.relu",
}
"""Operators that are taken for each other."""


def mutants(plan: Plan) -> Iterator[Mutant]:
    """Every single mutation of `plan`, lazily, in a fixed order."""
    for segment in plan.segments.values():
        yield from _of_operators(plan, segment)
        yield from of_order(plan, segment)
        yield from of_interface(plan, segment)
    yield from of_steps(plan)
    yield from of_tensors(plan)
    yield from of_plan(plan)


def _with_compute(plan: Plan, segment: Segment, at: int, new: Compute) -> Plan:
    """The operator replaced, and the forward of its backward too, as autograd would have it."""
    old = segment.operators[at]
    changed = dict(plan.segments)
    changed[segment.name] = replace(segment, operators=(*segment.operators[:at], new, *segment.operators[at + 1 :]))
    for name, other in plan.segments.items():
        if other.mirror == segment.name:
            operators = tuple(
                replace(each, forward=new) if isinstance(each, Backward) and each.forward == old else each
                for each in other.operators
            )
            changed[name] = replace(other, operators=operators)
    return replace(plan, segments=changed)


def _of_operators(plan: Plan, segment: Segment) -> Iterator[Mutant]:
    operators = list(segment.operators)
    for at, operator in enumerate(operators):
        what = f"{segment.name}/operator {at} {_called(operator)}"
        if segment.phase is Phase.DATA:
            continue
        yield Mutant("drop", what, with_operators(plan, segment, operators[:at] + operators[at + 1 :]))
        yield Mutant("duplicate", what, with_operators(plan, segment, [*operators[: at + 1], *operators[at:]]))
        for kind, how, new in _changed(plan, operator):
            where = f"{what}: {how}"
            yield Mutant(kind, where, with_operators(plan, segment, [*operators[:at], new, *operators[at + 1 :]]))
        if isinstance(operator, Compute):
            for kind, how, new_compute in _changed_compute(plan, operator):
                yield Mutant(kind, f"{what}: {how}", _with_compute(plan, segment, at, new_compute))
        yield from _of_insertions(plan, segment, at)


def _of_insertions(plan: Plan, segment: Segment, at: int) -> Iterator[Mutant]:
    """A collective, a factor or a change of precision too many behind the operator."""
    operator = segment.operators[at]
    if not isinstance(operator, Compute | Backward | Communicate):
        return
    outputs = operator.outputs
    group = next((o.group for o in segment.operators if isinstance(o, Communicate)), None)
    for i, name in enumerate(outputs):
        if not name:
            continue
        between = replace(plan.tensors[name], name=f"{name}.before", gradient="")
        first: Operator = replace(operator, outputs=(*outputs[:i], between.name, *outputs[i + 1 :]))
        added: dict[str, Operator] = {
            "rescale": Compute("torch.mul", (between.name, Literal(2)), (name,)),
            "precision": Compute("nnscaler.runtime.function.to", (between.name,), (name,), {"dtype_or_device": "bfloat16"}),
        }
        if group is not None:
            added["collective-added"] = Communicate(Collective.ALL_REDUCE, (between.name,), (name,), group, "sum")
        for kind, second in added.items():
            longer = (*segment.operators[:at], first, second, *segment.operators[at + 1 :])
            changed = with_operators(plan, segment, list(longer))
            changed = replace(changed, tensors={**plan.tensors, between.name: between})
            yield Mutant(kind, f"{segment.name}/operator {at} {_called(operator)}: behind {name}", changed)


def _called(operator: Operator) -> str:
    if isinstance(operator, Compute):
        return operator.op.rsplit(".", 1)[-1]
    if isinstance(operator, Backward):
        return f"backward of {operator.forward.op.rsplit('.', 1)[-1]}"
    return operator.kind.value if isinstance(operator, Communicate) else type(operator).__name__.lower()


def _changed(plan: Plan, operator: Operator) -> Iterator[tuple[str, str, Operator]]:
    if isinstance(operator, Communicate):
        yield from _changed_collective(plan, operator)
    elif isinstance(operator, Send | Receive):
        for rank in _other_ranks(plan, (operator.peer.rank,)):
            yield "retarget-peer", f"peer {rank}", replace(operator, peer=Peer(rank))
        yield "tag", "tag 7", replace(operator, tag=7)
        for name in alike(plan, operator.tensor):
            yield "rewire", f"{operator.tensor} -> {name}", replace(operator, tensor=name)
    elif isinstance(operator, ReduceGradients):
        yield from _changed_reducer(plan, operator)
    elif isinstance(operator, Backward):
        yield from _changed_backward(plan, operator)


def _other_ranks(plan: Plan, without: tuple[int | None, ...]) -> list[int]:
    ranks = sorted(rank for program in plan.programs for rank in program.ranks)
    return [rank for rank in [*ranks, ranks[-1] + 1] if rank not in without]


def _changed_collective(plan: Plan, operator: Communicate) -> Iterator[tuple[str, str, Operator]]:
    ranks = operator.group.ranks
    if len(ranks) > 1:
        yield "group", "short group", replace(operator, group=Group(ranks=ranks[:-1]))
        yield "group", "permuted group", replace(operator, group=Group(ranks=ranks[::-1]))
        yield "group", "own rank", replace(operator, group=Group(ranks=ranks[:1]))
        shifted = tuple(rank + len(ranks) for rank in ranks)
        yield "group", f"group {shifted}", replace(operator, group=Group(ranks=shifted))
        every = tuple(sorted(rank for program in plan.programs for rank in program.ranks))
        if every != tuple(sorted(ranks)):
            yield "group", "all ranks", replace(operator, group=Group(ranks=every))
    if operator.dim is not None:
        for dim in (operator.dim - 1, operator.dim + 1):
            if 0 <= dim < len(plan.tensors[operator.inputs[0]].shape):
                yield "dim", f"dim {dim}", replace(operator, dim=dim)
    if operator.concat_dim is not None:
        yield "dim", "dims swapped", replace(operator, dim=operator.concat_dim, concat_dim=operator.dim)
    if "reduce" in operator.kind.value:
        for how in ("max", "avg", "min"):
            yield "reduce", how, replace(operator, reduce=how)
    for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.CHUNK):
        if kind is not operator.kind:
            reduce = "sum" if "reduce" in kind.value else ""
            dim = operator.dim if operator.dim is not None else 0
            yield (
                "kind",
                kind.value,
                replace(
                    operator, kind=kind, reduce=reduce, dim=None if kind is Collective.ALL_REDUCE else dim, concat_dim=None
                ),
            )
    if len(operator.inputs) == len(operator.outputs) == 1:
        same = Compute("nnscaler.runtime.function.identity", operator.inputs, operator.outputs)
        yield "collective-dropped", "identity", same
    for name in alike(plan, operator.inputs[0]):
        yield "rewire", f"{operator.inputs[0]} -> {name}", replace(operator, inputs=(name,))


def _changed_reducer(plan: Plan, operator: ReduceGradients) -> Iterator[tuple[str, str, Operator]]:
    for weight in operator.weights:
        yield "reducer", f"without {weight}", replace(operator, weights=tuple(w for w in operator.weights if w != weight))
    yield "reducer", "halved", replace(operator, divisor=2)
    yield "reducer", "averaged", replace(operator, reduce="avg")
    yield "reducer", "largest", replace(operator, reduce="max")
    yield "reducer", "replicated flipped", replace(operator, replicated=not operator.replicated)
    ranks = operator.group.ranks
    if len(ranks) > 1:
        yield "reducer", "short group", replace(operator, group=Group(ranks=ranks[:-1]))
    for rank in _other_ranks(plan, ranks)[:2]:
        yield "reducer", f"group {(*ranks, rank)}", replace(operator, group=Group(ranks=(*ranks, rank)))
        yield "reducer", f"group {(rank,)}", replace(operator, group=Group(ranks=(rank,)))


def _changed_backward(plan: Plan, operator: Backward) -> Iterator[tuple[str, str, Operator]]:
    outputs, inputs = operator.outputs, operator.inputs
    for i in range(len(outputs)):
        if outputs[i]:
            yield "gradient-dropped", f"output {i}", replace(operator, outputs=(*outputs[:i], "", *outputs[i + 1 :]))
        for j in range(i + 1, len(outputs)):
            swapped = list(outputs)
            swapped[i], swapped[j] = outputs[j], outputs[i]
            yield "gradient-swap", f"outputs {i} and {j}", replace(operator, outputs=tuple(swapped))
    for i, name in enumerate(inputs):
        if not name:
            continue
        yield "gradient-dropped", f"input {i}", replace(operator, inputs=(*inputs[:i], "", *inputs[i + 1 :]))
        for other in alike(plan, name):
            yield "rewire", f"{name} -> {other}", replace(operator, inputs=(*inputs[:i], other, *inputs[i + 1 :]))
        for j in range(i + 1, len(inputs)):
            twice = list(inputs)
            twice[j] = name
            yield "gradient-doubled", f"input {i} for {j}", replace(operator, inputs=tuple(twice))
    for i, name in enumerate(outputs):
        for other in alike(plan, name, 1) if name else ():
            yield "rewire", f"{name} -> {other}", replace(operator, outputs=(*outputs[:i], other, *outputs[i + 1 :]))
    for kind, how, forward in _changed_compute(plan, operator.forward):
        yield f"{kind} (backward only)", how, replace(operator, forward=forward)


def _changed_compute(plan: Plan, operator: Compute) -> Iterator[tuple[str, str, Compute]]:
    inputs = operator.inputs
    for i, operand in enumerate(inputs):
        before, after = inputs[:i], inputs[i + 1 :]
        if isinstance(operand, Literal):
            if isinstance(operand.value, int | float) and not isinstance(operand.value, bool):
                for value in (operand.value * 2, operand.value + 1, -operand.value, 0):
                    yield "constant", f"{operand.value} -> {value}", replace(operator, inputs=(*before, Literal(value), *after))
            continue
        for other in alike(plan, operand):
            yield "rewire", f"{operand} -> {other}", replace(operator, inputs=(*before, other, *after))
    if len(inputs) > 1:
        yield "operands-swapped", "", replace(operator, inputs=(inputs[1], inputs[0], *inputs[2:]))
    if len(operator.outputs) > 1:
        yield "outputs-swapped", "", replace(operator, outputs=operator.outputs[::-1])
    if operator.op in SIGNATURES:
        yield "signature", SIGNATURES[operator.op], replace(operator, op=SIGNATURES[operator.op])
    yield "signature", "an unknown operator", replace(operator, op=f"{operator.op}_other")
    if operator.op.endswith("identity"):
        scaled = replace(operator, op="torch.mul", inputs=(inputs[0], Literal(2)))
        yield "rescale", "twice", scaled
    yield "attribute", "an unknown keyword", replace(operator, attributes={**operator.attributes, "scale_by": 2})
    for low, high in (("start", "stop"), ("local_expert_start", "local_expert_end")):
        if low in operator.attributes:
            start, stop = (operator.attributes[key] for key in (low, high))
            assert isinstance(start, int)
            assert isinstance(stop, int)
            for shift in (1, stop - start, -start):
                moved = {**operator.attributes, low: start + shift, high: stop + shift}
                if shift:
                    yield "range", f"{start}:{stop} by {shift}", replace(operator, attributes=moved)
    for key, old in operator.attributes.items():
        for new in _other_values(key, old):
            yield "attribute", f"{key}: {old} -> {new}", replace(operator, attributes={**operator.attributes, key: new})
        yield (
            "attribute",
            f"without {key}",
            replace(operator, attributes={k: v for k, v in operator.attributes.items() if k != key}),
        )


def _other_values(key: str, old: Any) -> list[Any]:
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int | float):
        return [old + 1, old - 1, old * 2, 0]
    if isinstance(old, tuple) and key in ("size", "shape"):
        return [
            (*old[1:], old[0]),
            tuple(v * 2 if i == 0 else v for i, v in enumerate(old)),
            (-1, *old[1:]),
            (old[0], -1, *old[2:]),
        ]
    if isinstance(old, tuple):
        return [tuple(v - 1 for v in old)]
    if isinstance(old, str):
        return ["bfloat16", "float16", "int32"] if "dtype" in key else ["softmax"]
    return [1] if key in ("padding_idx", "rounding_mode") else []
