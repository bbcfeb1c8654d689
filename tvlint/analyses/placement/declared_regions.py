"""Claims of exported plans that contradict each other at one operator: regions and addends around a collective.

A plan that states for every tensor which region and which addend of which value it is, contradicts itself where a collective
(or its absence) cannot lead from the claims of its operands to the claim of its result. Claims on gradients are left alone
except for regions: exporters state addends of gradients loosely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tvlint.analyses.communication.calls import Call
from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.placement.domain import Defect
from tvlint.ir.operators import Collective, Communicate, Compute
from tvlint.ir.plan import Box, Role, Tensor
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Family
from tvlint.ops.table import spec_of


def claim_defects(facts: Facts) -> tuple[Defect, ...]:
    """Return the contradictions, once per value; computed once."""
    return facts.derived("claim defects", lambda: tuple(_claim_defects(facts)))


def _claim_defects(facts: Facts) -> Iterator[Defect]:
    if all(tensor.region is None for tensor in facts.plan.tensors.values()):
        return
    merged: dict[tuple[str, str], Defect] = {}
    ranks: dict[tuple[str, str], set[int]] = {}
    for defect in (*_identities(facts), *_chunks(facts), *_meetings(facts), *_replicas(facts)):
        output = defect.other or defect.name
        if defect.rule == "pieces-not-in-rank-order":
            output = ""
        elif defect.rule == "divergent-replicas":
            output = repr(facts.place(*defect.where))
        key = (defect.rule, output)
        merged.setdefault(key, defect)
        ranks.setdefault(key, set()).update(defect.ranks)
    for key, defect in merged.items():
        yield Defect(
            defect.rule, defect.where, defect.name, defect.axis, defect.has, defect.operator, defect.other, defect.made,
            tuple(sorted(ranks[key])),
        )  # fmt: skip


def _identities(facts: Facts) -> Iterator[Defect]:
    """Values that are claimed complete though the same addend goes in."""
    tensors = facts.plan.tensors
    for segment in facts.plan.segments.values():
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Compute) or len(operator.inputs) != 1 or not operator.outputs:
                continue
            spec = spec_of(operator.op)
            source = operator.inputs[0]
            if spec is None or spec.family is not Family.IDENTITY or not isinstance(source, str):
                continue
            before, after = tensors.get(source), tensors.get(operator.outputs[0])
            if before is None or after is None or before.role is not Role.ACTIVATION or before.logical != after.logical:
                continue
            if before.region is not None and after.region is not None and before.region != after.region:
                ranks = facts.ranks_running(segment.name)
                yield Defect(
                    "unfounded-claim", (segment.name, index), source, describe(ranks), _box(before.region), "identity",
                    _box(after.region), None, ranks,
                )  # fmt: skip
            if before.part[1] > 1 and after.part == (0, 1):
                axis = describe(facts.ranks_running(segment.name), facts.plan.mesh)
                yield Defect(
                    "missing-allreduce", (segment.name, index), source, axis, "P", "identity", after.name, None,
                    facts.ranks_running(segment.name),
                )  # fmt: skip


def _replicas(facts: Facts) -> Iterator[Defect]:
    """Operators that are claimed to give the same value on several ranks, and differ in function, constants or attributes."""
    first: dict[object, tuple[str, int, Compute]] = {}
    for name, segment in facts.plan.segments.items():
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Compute) or not operator.outputs or operator.source is None:
                continue
            tensor = facts.plan.tensors.get(operator.outputs[0])
            if tensor is None or tensor.role is not Role.ACTIVATION or tensor.region is None or not tensor.logical:
                continue
            key = (tensor.logical, tensor.region, tensor.part, operator.source)
            held = first.setdefault(key, (name, index, operator))
            differs = "" if held[2] is operator else difference(held[2], operator)
            ranks, others = facts.ranks_running(name), facts.ranks_running(held[0])
            if differs and not set(ranks) & set(others):
                yield Defect(
                    "divergent-replicas", (name, index), operator.outputs[0], describe(others), differs,
                    operator.op.rsplit(".", 1)[-1], describe(ranks), (held[0], held[1]), (*others, *ranks),
                )  # fmt: skip


def _chunks(facts: Facts) -> Iterator[Defect]:
    """Chunks whose claimed piece is not the one at the rank's position in its group."""
    for name, segment in facts.plan.segments.items():
        for index, operator in of_kinds(segment.operators, {Communicate}):
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
                yield Defect(
                    "pieces-not-in-rank-order", (name, index), after.name, describe(members), _box(expected),
                    "chunk", _box(after.region), None, ranks,
                )  # fmt: skip


def _meetings(facts: Facts) -> Iterator[Defect]:
    seen = set()
    for meetings in facts.traffic.meetings.values():
        for meeting in meetings:
            calls = [meeting.calls[rank] for rank in meeting.members if rank in meeting.calls]
            if not calls or calls[0].site in seen:
                continue
            seen.add(calls[0].site)
            yield from _at_collective(facts, calls)


def _at_collective(facts: Facts, calls: Sequence[Call]) -> Iterator[Defect]:
    operators = [call.operator for call in calls]
    first = operators[0]
    if not isinstance(first, Communicate) or not first.inputs or not first.outputs:
        return
    pairs = [_tensors(facts, operator) for operator in operators if isinstance(operator, Communicate)]
    givens = [before for before, _ in pairs if before is not None and before.region is not None]
    result = pairs[0][1]
    if len(givens) < len(calls) or result is None or result.region is None or len({tensor.logical for tensor in givens}) > 1:
        return
    if givens[0].logical != result.logical:
        return
    rule, has, other = _contradiction(first, [tensor.region or () for tensor in givens], givens, result)
    if rule:
        ranks = tuple(call.rank for call in calls)
        where = (calls[0].site.segment, calls[0].site.index)
        yield Defect(rule, where, givens[0].name, describe(ranks), has, first.kind.value, other, None, ranks)


def _contradiction(
    operator: Communicate, regions: Sequence[Box], givens: Sequence[Tensor], result: Tensor
) -> tuple[str, str, str]:
    activation = givens[0].role is Role.ACTIVATION
    box = result.region or ()
    if operator.kind is Collective.ALL_REDUCE:
        if len(set(regions)) > 1:
            return "allreduce-of-shards", f"region {_box(regions[0])} on one rank, {_box(regions[1])} on another", result.name
        if regions[0] != box:
            return "unfounded-claim", _box(regions[0]), _box(box)
        if activation and all(tensor.part == (0, 1) for tensor in givens) and (operator.reduce or "sum") == "sum":
            return "doubled-allreduce", "R", result.name
    complete = activation and len(givens) > 1 and all(tensor.part == (0, 1) for tensor in givens)
    if operator.kind is Collective.REDUCE_SCATTER and complete and len(set(regions)) == 1:
        return "reduce-scatter-of-replicated", "R", result.name
    if operator.kind is Collective.ALL_GATHER and operator.dim is not None:
        if activation and any(tensor.part[1] > 1 for tensor in givens):
            return "gather-of-partial", "P", result.name
        dim = operator.dim
        if not -len(box) <= dim < len(box):
            return "", "", ""
        pieces = [region[dim] for region in regions]
        in_order = all(left[1] == right[0] for left, right in pairwise(pieces))
        if in_order and (pieces[0][0], pieces[-1][1]) == box[dim]:
            return "", "", ""
        if len(set(pieces)) == len(pieces) and (min(pieces)[0], max(pieces)[1]) == box[dim]:
            order = ", ".join(f"{low}:{high}" for low, high in pieces)
            return "pieces-not-in-rank-order", order, f"{box[dim][0]}:{box[dim][1]}"
        return "unfounded-claim", ", ".join(_box(region) for region in regions[:4]), _box(box)
    return "", "", ""


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
