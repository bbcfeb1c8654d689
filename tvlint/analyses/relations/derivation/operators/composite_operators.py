"""The results of annotated operators: of one, and of uses that are several in sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvlint.analyses.relations.derivation.operators.in_steps import InSteps
from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.transfer.apply import run_again
from tvlint.analyses.relations.transfer.context import Mismatch, is_zeros
from tvlint.analyses.relations.transfer.extents import in_order
from tvlint.analyses.relations.transfer.memo import Case
from tvlint.analyses.relations.transfer.operator_uses import Use, forward_use
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.analyses.relations.transfer.reshape import reshape
from tvlint.analyses.relations.transfer.ring_attention import ATTENTION
from tvlint.ir.operators import Literal
from tvlint.ops.families.attention import shares_heads
from tvlint.ops.families.shaping import viewed_shape
from tvlint.ops.spec import PREVIOUS, Bound, Call, Family, MisfitError, OpSpec, Shape, Steps, UnsupportedError
from tvlint.ops.table import adds_both, spec_of
from tvlint.plurals import counted

REPEATED = "repeat-interleave"
EXPAND = "expand"


def evaluated_once(machine: Machine, case: Case, values: tuple[Value, ...]) -> Saved:
    """Return the results of one annotated operator."""
    call, bound = case.call, case.bound
    if len(bound.outputs) != max(1, len(call.outputs)):
        raise UnsupportedError(f"`{call.op}` with {counted(len(call.outputs), 'output')}")
    rest = besides_zeros(machine, case, values)
    if rest is not None:
        return Saved(case.name, bound, Family.IDENTITY, values, (rest,))
    machine.derived.uses.append((call, bound, values))
    results = tuple([_output(machine, case, i, values) for i in range(len(bound.outputs))])
    if case.name == ATTENTION and len(results) == 2 and not machine.world.terms.foreign(results[0].term):
        machine.world.terms.auxiliary.add(results[1].term)
    return Saved(case.name, bound, Family.INDEXED, values, results, uses=case.uses)


def besides_zeros(machine: Machine, case: Case, values: tuple[Value, ...]) -> Value | None:
    """Return the addend that zeros of its shape are added to, which is the sum; None for everything else."""
    if len(values) != 2 or not adds_both(case.name, case.bound.attributes):
        return None
    terms, shapes = machine.world.terms, {machine.world.local_shape(value) for value in values}
    for zeros, other in (values, values[::-1]):
        if is_zeros(terms, zeros) and len(shapes) == 1:
            return other
    return None


def _output(machine: Machine, case: Case, output: int, values: tuple[Value, ...]) -> Value:
    bound = case.bound
    order = in_order(machine.world, values) if bound.commutative else ()

    def use() -> Use:
        return forward_use(case.name, bound, output, values, free_sizes(bound, output, case.call))

    made = run_again(machine.world, machine.total_slots, case.uses, ("output", output, order), use, values, {})
    assert made is not None
    return made


def repeated(
    machine: Machine, bound: Bound, values: tuple[Value, ...], call: Call, copies: tuple[int, int] | None = None
) -> Saved:
    """Every element several times in a row, as what that is: a new dimension, widened, and joined with the one before.

    So stated, a part of the elements gives a part of the result, and so do some of the `copies` of one element. Where a
    dimension has one element it is widened.
    """
    world, (repeats,), within = machine.world, bound.attributes, InSteps(machine, values)
    dim = next(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    if not isinstance(repeats, int):
        raise UnsupportedError(f"`{call.op}` {repeats} times")
    if world.terms.shape[values[0].term][dim] == 1 and dim != world.terms.slot[values[0].term] and copies is None:
        alone = {"size": (-1,) * dim + (repeats,) + (-1,) * (len(bound.operands[0]) - dim - 1)}
        return within.saved(EXPAND, bound, _then(within, EXPAND, alone, 0))
    size = (-1,) * (dim + 1) + (repeats,) + (-1,) * (len(bound.operands[0]) - dim - 1)
    added = _then(within, "unsqueeze", {"dim": dim + 1}, 0)
    wide = within.value(_then(within, EXPAND, {"size": size}, added))
    shape = world.local_shape(wide)
    joined = reshape(world, wide, (*shape[:dim], shape[dim] * repeats, *shape[dim + 2 :]))
    if copies is not None:
        first = joined.box[dim][0]
        wide = world.values.with_box(wide, (*wide.box[: dim + 1], copies, *wide.box[dim + 2 :]))
        joined = world.values.with_box(
            joined, (*joined.box[:dim], (first + copies[0], first + copies[1]), *joined.box[dim + 1 :])
        )
        last, operands = within.steps[-1]
        within.steps[-1] = replace(last, outputs=(wide,)), operands
    return within.saved(REPEATED, bound, within.add(Saved("view", None, Family.RESHAPE, (wide,), (joined,)), ~1))


def repeated_along(machine: Machine, value: Value, dim: int, times: int, copies: tuple[int, int] | None = None) -> Saved:
    """Return every element of a dimension so many times in a row, or some of its `copies`."""
    spec = _spec("repeat_interleave")
    shape = machine.world.logical_shape(value, machine.total_slots)
    step = Call("repeat_interleave", (shape,), {"repeats": times, "dim": dim})
    return repeated(machine, spec.bind(step), (value,), step, copies)


def normalised_in_groups(machine: Machine, bound: Bound, values: tuple[Value, ...], call: Call) -> Saved:
    """Normalisation over groups of channels, as what that is: over rows of one group each, which are joined again.

    So stated, some of the groups give a part of the result.
    """
    (groups, epsilon), within = bound.attributes, InSteps(machine, values)
    shape, local = call.shape(0), machine.world.local_shape(values[0])
    for (low, high), size in zip(values[0].box[2:], shape[2:], strict=True):
        if (low, high) != (0, size):
            text = f"needs a whole dimension of {size} and gets indices {low}:{high} of it"
            raise Mismatch("split-dimension", text, refutes=True, operand=0)
    width = shape[1] // groups if isinstance(groups, int) else 1
    rows = within.viewed(0, (local[0], local[1] // width, width * prod(local[2:])))
    normalised = _then(within, "layer_norm", {"normalized_shape": (width * prod(shape[2:]),), "eps": epsilon}, rows)
    made = within.viewed(normalised, local)
    for operand, op in zip(range(1, len(values)), ("mul", "add"), strict=False):
        wide = operand
        for _ in shape[2:]:
            wide = _then(within, "unsqueeze", {"dim": -1}, wide)
        made = _then(within, op, {}, made, wide)
    return within.saved("group-norm", bound, made)


def _then(within: InSteps, op: str, attributes: dict[str, Any], *places: int) -> int:
    """Run one more operator on the values at places; return the place of its result."""
    machine, spec = within.machine, _spec(op)
    operands = tuple(map(within.value, places))
    step = Call(op, tuple(machine.world.logical_shape(value, machine.total_slots) for value in operands), attributes)
    return within.add(evaluated_once(machine, Case(spec.name, step, spec.bind(step)), operands), *places)


def _spec(op: str) -> OpSpec:
    spec = spec_of(op)
    if spec is None:
        raise AssertionError(f"the operator table has no `{op}`")
    return spec


def of_one_head(machine: Machine, spec: OpSpec, call: Call, values: Sequence[Value]) -> Call:
    """Return attention of a rank's one head of queries to the one head of keys and values that serves it as grouped attention.

    Of whole values there are several heads of queries for each of keys. A rank's own are one each, which it need not repeat.
    """
    if spec.name != ATTENTION or len(values) < 3 or len(values[0].box) < 3 or call.attributes.get("enable_gqa"):
        return call
    dim, slots = len(values[0].box) - 3, machine.world.terms.slot
    shapes = [call.shape(i) for i in range(3)]
    if any(len(shape) != dim + 3 for shape in shapes) or any(slots[value.term] == dim for value in values[:3]):
        return call
    (query, key, other), heads = (value.box[dim] for value in values[:3]), [shape[dim] for shape in shapes]
    if heads[0] == heads[1] or heads[1] != heads[2] or heads[0] % heads[1] or key != other:
        return call
    is_one = query[1] - query[0] == key[1] - key[0] == 1 and query[0] // (heads[0] // heads[1]) == key[0]
    return replace(call, attributes={**call.attributes, "enable_gqa": True}) if is_one else call


def has_groups(spec: OpSpec, call: Call) -> bool:
    """Return whether several heads of queries share one of keys and values."""
    return spec.name == ATTENTION and shares_heads(call)


def widened(machine: Machine, call: Call, values: Sequence[Value]) -> tuple[Saved, Saved]:
    """Keys and values of attention with each head as often as heads of queries share it, which is what such attention means.

    A rank that holds one head of keys takes it as often as it has heads of queries, which must be some of those that share it.
    """
    query, key, value = (call.shape(i) for i in range(3))
    if len(query) < 3 or not len(query) == len(key) == len(value) or key[-3] != value[-3] or query[-3] % max(1, key[-3]):
        raise UnsupportedError(f"`{call.op}` of heads of shapes {query}, {key} and {value}")
    dim, times = len(query) - 3, query[-3] // key[-3]
    (low, high), (first, last) = values[0].box[dim], values[1].box[dim]
    slotted = dim in (machine.world.terms.slot[value.term] for value in values[:3])
    some = last - first == 1 and first * times <= low < high <= last * times and not slotted
    copies = (low - first * times, high - first * times) if some else None
    one, other = (repeated_along(machine, value, dim, times, copies) for value in values[1:3])
    return one, other


def as_widened(machine: Machine, call: Call, values: Sequence[Value]) -> tuple[Call, tuple[Value, ...]]:
    """Return the call on keys and values that are widened, and its operands."""
    wide = [output for saved in widened(machine, call, values) if (output := saved.outputs[0]) is not None]
    shapes = [machine.world.logical_shape(value, machine.total_slots) for value in wide]
    attributes = {name: value for name, value in call.attributes.items() if name != "enable_gqa"}
    return Call(call.op, (call.inputs[0], *shapes, *call.inputs[3:]), attributes, call.outputs), (values[0], *wide, *values[3:])


def grouped(machine: Machine, name: str, bound: Bound, call: Call, values: tuple[Value, ...]) -> Saved:
    """Attention on widened keys and values; `call` and `bound` are those of it, before keys and values are widened."""
    steps = widened(machine, call, values)
    inner, operands = as_widened(machine, call, values)
    last = evaluated_once(machine, Case(name, inner, bound), operands)
    places = (0, PREVIOUS - 1, PREVIOUS, *range(3, len(operands)))
    done = ((steps[0], (1,)), (steps[1], (2,)), (last, places))
    return Saved(name, bound, Family.INDEXED, values, last.outputs, done)


def in_sequence(
    machine: Machine, name: str, bound: Bound, steps: Steps, values: tuple[Value, ...], outputs: tuple[Shape, ...]
) -> Saved | None:
    """Return the result of operators one after the other; the last one makes `outputs`. None where what the rank has is not
    what one of them looks at as another shape.
    """
    done: list[tuple[Saved, tuple[int, ...]]] = []
    first = len(steps) - len(bound.outputs)
    for op, positions in steps:
        spec = _spec(op)
        places = tuple(place for place in positions if isinstance(place, int))
        operands = tuple(done[place][0].outputs[0] if place < 0 else values[place] for place in places)
        known = tuple(value for value in operands if value is not None)
        shapes = iter([machine.world.logical_shape(value, machine.total_slots) for value in known])
        given = tuple(place if isinstance(place, Literal) else next(shapes) for place in positions)
        made = len(done) - first
        call = Call(op, given, {}, outputs[made : made + 1] if made >= 0 else ())
        if spec.family is Family.RESHAPE:
            viewed = _viewed(machine, call, known[0])
            if viewed is None:
                return None
            done.append((Saved(op, None, spec.family, known, (viewed,)), places))
            continue
        done.append((evaluated_once(machine, Case(spec.name, call, spec.bind(call)), known), places))
    last = tuple(result for step, _ in done[first:] for result in step.outputs)
    return Saved(name, bound, Family.INDEXED, values, last, tuple(done))


def _viewed(machine: Machine, call: Call, value: Value) -> Value | None:
    """Return a value under the shape that a step gives to what the rank has of it; None where that is no view of it."""
    try:
        return reshape(machine.world, value, view_size(call, machine.world.local_shape(value)))
    except Mismatch:
        return None


def view_size(call: Call, before: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of a view of the shape `before`. Raises Mismatch where they do not hold its elements."""
    try:
        return viewed_shape(call, before)
    except MisfitError as misfit:
        raise Mismatch("wrong-view-size", f"views shape {before}: {misfit.expected}", refutes=True) from None


def free_sizes(bound: Any, output: int, call: Call) -> dict[str, int]:
    shape = call.outputs[output] if output < len(call.outputs) else ()
    return {**dict(zip(bound.outputs[output], shape, strict=False)), **bound.sizes}
