"""What exported plans state of the operands and results of one operator, where it cannot lead from the one to the other.

It is asked of plans whose relations are not derived, such as those that are too large: a plan that states for every tensor
which region and which addend of which value it is may contradict itself at one collective. Statements about gradients are left
alone except for regions: exporters state addends of gradients loosely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tvlint.analyses.communication.calls import Call, traffic
from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.ir.operators import Collective, Communicate, Compute, Operator
from tvlint.ir.plan import Box, Role, Tensor
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Family
from tvlint.ops.table import spec_of


def contradictions(facts: Facts) -> Iterator[Defect]:
    """Yield what contradicts itself at one operator, on each of its ranks; of one value it is one mistake."""
    if any(tensor.region is not None for tensor in facts.plan.tensors.values()):
        yield from _identities(facts)
        yield from _chunks(facts)
        yield from _meetings(facts)
        yield from _replicas(facts)


def _on(ranks: Sequence[int], operator: Operator, segment: str, rule: str, about: str, text: str) -> Iterator[Defect]:
    for rank in ranks:
        yield at(operator, segment, Defect(rule, True, f"{name_of(operator)} {text}", rank, cause=(rule, about)))


def _identities(facts: Facts) -> Iterator[Defect]:
    """Yield copies of a part of a value, or of another region of it, that are stated to be more or another one."""
    tensors = facts.plan.tensors
    for name, segment in facts.plan.segments.items():
        for operator in segment.operators:
            if not isinstance(operator, Compute) or len(operator.inputs) != 1 or not operator.outputs:
                continue
            spec, source = spec_of(operator.op), operator.inputs[0]
            if spec is None or spec.family is not Family.IDENTITY or not isinstance(source, str):
                continue
            before, after = tensors.get(source), tensors.get(operator.outputs[0])
            if before is None or after is None or before.role is not Role.ACTIVATION or before.logical != after.logical:
                continue
            ranks = facts.ranks_running(name)
            if before.region is not None and after.region is not None and before.region != after.region:
                text = f"cannot give `{after.name}` region {_box(after.region)} from {_box(before.region)}"
                yield from _on(ranks, operator, name, "unfounded-claim", after.name, text)
            if before.part[1] > 1 and after.part == (0, 1):
                text = f"gives `{after.name}`, which the plan says is complete, from `{source}`, one of several addends"
                yield from _on(ranks, operator, name, "missing-allreduce", after.name, text)


def _chunks(facts: Facts) -> Iterator[Defect]:
    """Yield chunks whose stated piece is not the one at the rank's position in its group."""
    for name, segment in facts.plan.segments.items():
        for _, operator in of_kinds(segment.operators, {Communicate}):
            if not isinstance(operator, Communicate) or operator.kind is not Collective.CHUNK or not operator.inputs:
                continue
            before, after = _tensors(facts, operator)
            ranks = facts.ranks_running(name)
            if before is None or after is None or not ranks or before.region is None or after.region is None:
                continue
            members = facts.fold.members(operator.group, ranks[0])
            if ranks[0] not in members or operator.dim is None or before.logical != after.logical:
                continue
            expected = _piece(before.region, operator.dim, members.index(ranks[0]), len(members))
            if expected is not None and expected != after.region and expected[operator.dim] != after.region[operator.dim]:
                text = f"goes by the order of {describe(members)}: `{after.name}` is {_box(expected)}, "
                text += f"and the plan says {_box(after.region)}"
                yield from _on(ranks, operator, name, "pieces-not-in-rank-order", "", text)


def _meetings(facts: Facts) -> Iterator[Defect]:
    seen = set()
    for meetings in traffic(facts).meetings.values():
        for meeting in meetings:
            calls = [meeting.calls[rank] for rank in meeting.members if rank in meeting.calls]
            if not calls or calls[0].site in seen:
                continue
            seen.add(calls[0].site)
            yield from _at_collective(facts, calls)


def _at_collective(facts: Facts, calls: Sequence[Call]) -> Iterator[Defect]:
    first = calls[0].operator
    if not isinstance(first, Communicate) or not first.inputs or not first.outputs:
        return
    pairs = [_tensors(facts, call.operator) for call in calls if isinstance(call.operator, Communicate)]
    givens = [before for before, _ in pairs if before is not None and before.region is not None]
    result = pairs[0][1]
    if len(givens) < len(calls) or result is None or result.region is None or len({tensor.logical for tensor in givens}) > 1:
        return
    if givens[0].logical != result.logical:
        return
    rule, text = _contradiction(first, [tensor.region or () for tensor in givens], givens, result)
    if rule:
        about = "" if rule == "pieces-not-in-rank-order" else result.name
        yield from _on([call.rank for call in calls], first, calls[0].site.segment, rule, about, text)


def _contradiction(operator: Communicate, regions: Sequence[Box], givens: Sequence[Tensor], result: Tensor) -> tuple[str, str]:
    """Return the rule and what is said of the operator."""
    given, activation, box = givens[0].name, givens[0].role is Role.ACTIVATION, result.region or ()
    unfounded = f"cannot give `{result.name}` region {_box(box)} from {', '.join(map(_box, regions[:4]))}"
    complete = activation and len(givens) > 1 and all(tensor.part == (0, 1) for tensor in givens)
    if operator.kind is Collective.ALL_REDUCE:
        if len(set(regions)) > 1:
            differing = " and ".join(map(_box, [*dict.fromkeys(regions)][:2]))
            return "allreduce-of-shards", f"adds up different pieces of `{given}`: {differing}"
        if regions[0] != box:
            return "unfounded-claim", unfounded
        if complete and (operator.reduce or "sum") == "sum":
            return "doubled-allreduce", f"sums `{given}`, which is complete before"
    if operator.kind is Collective.REDUCE_SCATTER and complete and len(set(regions)) == 1:
        return "reduce-scatter-of-replicated", f"sums `{given}`, which is complete before"
    if operator.kind is not Collective.ALL_GATHER or operator.dim is None:
        return "", ""
    if activation and any(tensor.part[1] > 1 for tensor in givens):
        return "gather-of-partial", f"puts the addends `{given}` side by side; they are to be added"
    if not -len(box) <= operator.dim < len(box):
        return "", ""
    pieces = [region[operator.dim] for region in regions]
    in_order = all(left[1] == right[0] for left, right in pairwise(pieces))
    if in_order and (pieces[0][0], pieces[-1][1]) == box[operator.dim]:
        return "", ""
    if len(set(pieces)) == len(pieces) and (min(pieces)[0], max(pieces)[1]) == box[operator.dim]:
        order = ", ".join(f"{low}:{high}" for low, high in pieces)
        return "pieces-not-in-rank-order", f"goes by rank order: the pieces of `{given}` lie in the order {order}"
    return "unfounded-claim", unfounded


def _replicas(facts: Facts) -> Iterator[Defect]:
    """Yield operators that are stated to give one value on several ranks, and differ in function, constants or attributes."""
    first: dict[object, tuple[str, Compute]] = {}
    for name, segment in facts.plan.segments.items():
        for operator in segment.operators:
            if not isinstance(operator, Compute) or not operator.outputs or operator.source is None:
                continue
            tensor = facts.plan.tensors.get(operator.outputs[0])
            if tensor is None or tensor.role is not Role.ACTIVATION or tensor.region is None or not tensor.logical:
                continue
            other, held = first.setdefault((tensor.logical, tensor.region, tensor.part, operator.source), (name, operator))
            differs = "" if held is operator else difference(held, operator)
            ranks, others = facts.ranks_running(name), facts.ranks_running(other)
            if differs and not set(ranks) & set(others):
                text = f"gives `{operator.outputs[0]}` with {differs}, and the plan says it is that of {describe(others)}"
                yield from _on(ranks, operator, name, "divergent-replicas", repr(operator.source), text)


def _tensors(facts: Facts, operator: Communicate) -> tuple[Tensor | None, Tensor | None]:
    after = facts.plan.tensors.get(operator.outputs[0]) if operator.outputs else None
    return facts.plan.tensors.get(operator.inputs[0]) if operator.inputs else None, after


def _piece(region: Box, dim: int, position: int, count: int) -> Box | None:
    if not 0 <= dim < len(region):
        return None
    low, high = region[dim]
    if (high - low) % count:
        return None
    size = (high - low) // count
    return (*region[:dim], (low + position * size, low + (position + 1) * size), *region[dim + 1 :])


def _box(region: Box) -> str:
    return "[" + ",".join(f"{low}:{high}" for low, high in region) + "]"
