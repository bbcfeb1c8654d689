"""Ring attention: whose keys and values every rank attends to, step by step, and how the results are put together.

Values are followed from rank to rank by the messages that carry them; an operator with one tensor operand keeps whose value it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvlint.analyses.communication.calls import Call, traffic
from tvlint.analyses.dataflow.attention import is_attention
from tvlint.analyses.dataflow.def_use import has, of_kinds
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.ir.operators import Communicate, Compute, Receive, Send
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait, spec_of

Where = tuple[str, int]
_LARGEST = 1 << 14


@dataclass(frozen=True, slots=True)
class RingDefect:
    """A defect of the ring of `rank` at `where`: its `kind`, the value concerned, and in words what is missing.

    `again` is the rank whose keys the queries have met before; -1 for none.
    """

    kind: str
    where: Where
    name: str
    ranks: tuple[int, ...]
    missing: tuple[int, ...] = ()
    other: str = ""
    again: int = -1


@dataclass(slots=True, eq=False)
class _Attention:
    """One attention step of a rank: whose queries, keys and values it takes."""

    where: Where
    operator: Compute
    query: tuple[str, int]
    key: tuple[str, int]
    value: tuple[str, int]
    names: tuple[str, ...]
    normalised: bool = True


@dataclass(slots=True, eq=False)
class _Rank:
    """The position of a rank in its program, and whose value each of its names holds."""

    rank: int
    steps: list[tuple[Where, object, Call | None]]
    at: int = 0
    holds: dict[str, tuple[str, int]] = field(default_factory=dict)
    attended: list[_Attention] = field(default_factory=list)
    received: dict[tuple[str, int], str] = field(default_factory=dict)
    scores: dict[str, _Scores] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Scores:
    """Products of queries and keys that are written out, and whether an exponential or a softmax was taken of them."""

    query: str
    key: str
    raised: bool = False
    normalised: bool = False


@once_per_plan
def ring_defects(facts: Facts) -> tuple[RingDefect, ...]:
    """Return what is wrong with the rings of the plan."""
    return tuple(_defects(facts))


def _defects(facts: Facts) -> Iterator[RingDefect]:
    plan = facts.plan
    if not any(has(segment.operators, {Receive}) for segment in plan.segments.values()) or not _takes_what_came(plan):
        return
    ranks = _run(facts)
    merged: dict[tuple[str, Where, str, str], tuple[set[int], RingDefect]] = {}
    for state in ranks.values():
        for found in (*_unrotated(state), *_missing(facts, state), *_summed(state)):
            merged.setdefault((found.kind, found.where, found.name, found.other), (set(), found))[0].add(state.rank)
    for (kind, where, name, other), (members, first) in merged.items():
        yield RingDefect(kind, where, name, tuple(sorted(members)), first.missing, other, first.again)


def _takes_what_came(plan: Plan) -> bool:
    """Return whether attention, or a product, takes what is sent or received, in whatever shape."""
    sent, taken, made_of = set[str](), set[str](), dict[str, set[str]]()
    for operator in plan.operators():
        if isinstance(operator, Send | Receive):
            sent.add(operator.tensor)
        elif isinstance(operator, Compute):
            tensors = operator.tensor_operands
            if len(tensors) == 1:
                for name in operator.outputs:
                    made_of.setdefault(name, set()).add(tensors[0])
            elif is_attention(operator) or _is_product(operator):
                taken.update(tensors)
    return not _sources(sent, made_of).isdisjoint(_sources(taken, made_of))


def _sources(names: Iterable[str], made_of: Mapping[str, set[str]]) -> set[str]:
    """Return the names and all that these are made of by operators that take nothing else."""
    found, waiting = set(names), [*names]
    while waiting:
        new = made_of.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _is_product(operator: Compute) -> bool:
    spec = spec_of(operator.op)
    return spec is not None and spec.name == "matmul" and len(operator.tensor_operands) == 2 and len(operator.outputs) == 1


def _run(facts: Facts) -> dict[int, _Rank]:
    """Runs all ranks, each as far as what it receives has been sent."""
    ranks = {rank: _Rank(rank, _steps(facts, rank)) for rank in facts.fold.present}
    sent: dict[Call, tuple[str, int]] = {}
    waiting = list(ranks.values())
    progress = True
    weights = frozenset(name for name, tensor in facts.plan.tensors.items() if tensor.role is Role.WEIGHT)
    while progress:
        progress = False
        for state in waiting:
            before = state.at
            while state.at < len(state.steps) and _advance(state, sent, weights):
                state.at += 1
            progress = progress or state.at > before
        waiting = [state for state in waiting if state.at < len(state.steps)]
    return ranks


def _steps(facts: Facts, rank: int) -> list[tuple[Where, object, Call | None]]:
    """Return the operators of the first run of every segment, with the calls of messages."""
    number = facts.fold.program_of(rank)
    calls = {(call.step, call.site.index): call for call in traffic(facts).calls.get(rank, ())}
    found: list[tuple[Where, object, Call | None]] = []
    done: set[str] = set()
    for at, step in enumerate(facts.plan.programs[number].steps if number is not None else ()):
        segment = facts.plan.segments.get(step.segment)
        if segment is None or step.segment in done or len(found) > _LARGEST:
            continue
        done.add(step.segment)
        for index, operator in of_kinds(segment.operators, {Communicate, Compute, Receive, Send}):
            found.append(((segment.name, index), operator, calls.get((at, index))))
    return found


def _advance(state: _Rank, sent: dict[Call, tuple[str, int]], weights: frozenset[str]) -> bool:
    where, operator, call = state.steps[state.at]
    if isinstance(operator, Send):
        if call is not None:
            sent[call] = _held(state, operator.tensor)
    elif isinstance(operator, Receive):
        if call is not None and call.partner is not None:
            if call.partner not in sent and call.partner.rank != state.rank:
                return False
            held = sent.get(call.partner, (operator.tensor, state.rank))
            state.holds[operator.tensor] = held
            state.received[held] = operator.tensor
    elif isinstance(operator, Communicate):
        state.holds |= {name: (name, -1) for name in operator.outputs}
    elif isinstance(operator, Compute):
        tensors = operator.tensor_operands
        if is_attention(operator):
            state.attended.append(_attention(state, where, operator, tensors[0], tensors[1], tensors[2]))
        elif not weights.intersection(tensors):
            _written_out(state, where, operator, tensors)
        held_by = _held(state, tensors[0]) if len(tensors) == 1 else None
        for name in operator.outputs:
            state.holds[name] = held_by or (name, state.rank)
    return True


def _attention(
    state: _Rank, where: Where, operator: Compute, query: str, key: str, value: str, normalised: bool = True
) -> _Attention:
    whose = _held(state, query), _held(state, key), _held(state, value)
    return _Attention(where, operator, *whose, (query, key, value), normalised)


def _written_out(state: _Rank, where: Where, operator: Compute, tensors: Sequence[str]) -> None:
    """Attention in single operators: queries by keys, an exponential or softmax of that, and that by values."""
    scored = tuple([name for name in tensors if name in state.scores])
    product = _is_product(operator)
    if product and not scored:
        state.scores[operator.outputs[0]] = _Scores(tensors[0], tensors[1])
    elif product and scored == tensors[:1]:
        of = state.scores[tensors[0]]
        if of.raised:
            state.attended.append(_attention(state, where, operator, of.query, of.key, tensors[1], of.normalised))
    elif len(scored) == 1 and tensors[0] == scored[0] and len(operator.outputs) == 1 and not _is_reduction(operator):
        of = state.scores[scored[0]]
        raised, soft = _raises(operator), has_trait(operator.op, Trait.SOFTMAX)
        state.scores[operator.outputs[0]] = _Scores(of.query, of.key, of.raised or raised, of.normalised or soft)


def _raises(operator: Compute) -> bool:
    return has_trait(operator.op, Trait.EXPONENTIAL, Trait.SOFTMAX)


def _is_reduction(operator: Compute) -> bool:
    return has_trait(operator.op, Trait.REDUCTION)


def _held(state: _Rank, name: str) -> tuple[str, int]:
    return state.holds.get(name, (name, state.rank))


def _unrotated(state: _Rank) -> Iterator[RingDefect]:
    """Steps whose keys and values are those of different ranks."""
    for step in state.attended:
        keys, values = step.key[1], step.value[1]
        if keys != values and min(keys, values) >= 0:
            yield RingDefect("values", step.where, step.names[2], (state.rank,), (keys, values), step.names[1])


def _missing(facts: Facts, state: _Rank) -> Iterator[RingDefect]:
    """Queries that never meet the keys of some rank of the ring."""
    by_query: dict[tuple[str, int], list[_Attention]] = {}
    for step in state.attended:
        by_query.setdefault(step.query, []).append(step)
    for steps in by_query.values():
        roots = {step.key[0] for step in steps}
        others = {rank for root, rank in state.received if root in roots and rank != state.rank}
        axis = _axis(facts, state.rank, others)
        if not axis or any(step.key[1] < 0 for step in steps):
            continue
        ring = facts.plan.mesh.along(state.rank, (axis,))
        if any(_is_causal(step.operator) for step in steps):
            ring = tuple(rank for rank in ring if rank <= state.rank)
        met = [step.key[1] for step in steps]
        missing = tuple(rank for rank in ring if rank not in met)
        if missing:
            at = next((step for place, step in enumerate(steps) if step.key[1] in met[:place]), steps[-1])
            again = at.key[1] if len(set(met)) < len(met) else -1
            yield RingDefect("step", at.where, _name(at, 1), (state.rank,), missing, f"{len({*met})} of {len(ring)}", again)


def _axis(facts: Facts, rank: int, others: set[int]) -> str:
    """Return the axis along which keys come from `others`; empty where there is no one axis, or where it is no ring."""
    mesh = facts.plan.mesh
    if not others or max(others) >= mesh.size or rank >= mesh.size:
        return ""
    coordinates = mesh.coordinates(rank)
    axes = {axis.name for other in others for axis in mesh.axes if mesh.coordinates(other)[axis.name] != coordinates[axis.name]}
    return axes.pop() if len(axes) == 1 else ""


def _is_causal(operator: Compute) -> bool:
    return any(bool(value) for name, value in operator.attributes.items() if "causal" in name)


def _name(step: _Attention, position: int) -> str:
    return step.names[position]


def _summed(state: _Rank) -> Iterator[RingDefect]:
    """Yield results over different keys that are added as they are."""
    results = {step.operator.outputs[0]: step for step in state.attended if step.operator.outputs and step.normalised}
    if len({step.key for step in results.values()}) < 2:
        return
    for where, operator, _ in state.steps:
        if not isinstance(operator, Compute) or not operator.outputs:
            continue
        parts = operator.tensor_operands
        if len(parts) == 1 and has_trait(operator.op, Trait.SCALING, Trait.CONVERSION, Trait.VIEW) and parts[0] in results:
            results.setdefault(operator.outputs[0], results[parts[0]])
        merged = [part for part in parts if part in results]
        if len(merged) > 1 and has_kind(operator.op, Trait.LOG_SUM_EXP_MERGE):
            first = results[merged[0]]
            results.setdefault(operator.outputs[0], replace(first, key=(operator.outputs[0], -1)))
            continue
        adds = has_trait(operator.op, Trait.SUM) and not has_trait(operator.op, Trait.DIFFERENCE)
        if not adds or len(parts) != 2 or not all(part in results for part in parts):
            continue
        one, two = results[parts[0]], results[parts[1]]
        results.setdefault(operator.outputs[0], one)
        if one.query == two.query and one.key != two.key:
            yield RingDefect("sum", where, parts[0], (state.rank,), (), parts[1])
