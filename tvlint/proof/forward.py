"""Forward operators on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from tvlint.ir.operators import Backward, Compute, Literal
from tvlint.ir.plan import Phase, Role, Segment
from tvlint.ops.shaping import view_sizes
from tvlint.ops.spec import Call, Family, OpSpec, UnsupportedError
from tvlint.ops.table import spec_of
from tvlint.proof.advice import instead_of
from tvlint.proof.blame import bare_name, blame, name_of, tell
from tvlint.proof.diagonal import below_the_diagonal
from tvlint.proof.draws import drawn
from tvlint.proof.identities import factor_of, is_gradient
from tvlint.proof.lookup import assign, input_value, is_absent, operand_value, parts_of_one
from tvlint.proof.machine import Foreign, Machine, RankState, Saved, Slot
from tvlint.proof.merging import ATTENTION, merge, merges_parts
from tvlint.proof.nearest import Near
from tvlint.proof.relation import AmbiguousSumError, Value
from tvlint.proof.reshape import reshape
from tvlint.proof.sequences import as_widened, evaluated_once, grouped, has_groups, in_sequence, repeated
from tvlint.proof.slices import SLICES, sliced
from tvlint.proof.trouble import Constant, Fix, Substitute, Trouble, at
from tvlint.proof.unknown_operators import how_to_declare
from tvlint.proof.world import Mismatch


def compute(machine: Machine, rank: RankState, segment: Segment, operator: Compute) -> None:
    if segment.phase is Phase.DATA:
        if spec_of(operator.op) is not None or any(isinstance(operand, str) for operand in operator.inputs):
            text = "computes in a segment that loads data"
            tell(machine, rank, operator, Mismatch("computes-while-loading", text, refutes=False), fatal=True)
        for name in operator.outputs:
            if name in machine.plan.tensors and machine.plan.tensors[name].role is Role.INPUT:
                rank.local[name] = input_value(machine, rank, name)
        return
    try:
        results = forward(machine, rank, operator)
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch)
        rank.poisoned.add(operator.outputs)
        results = (None,) * len(operator.outputs)
    except UnsupportedError as error:
        tell(machine, rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
        rank.poisoned.add(operator.outputs)
        results = (None,) * len(operator.outputs)
    names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    for name, value in zip(operator.outputs, results, strict=False):
        assign(machine, rank, operator, name, value, names)


def forward(machine: Machine, rank: RankState, operator: Compute) -> tuple[Slot, ...]:
    """The results of the operator; none where its one operand is a gradient that nothing produces, which is zero."""
    if operator.in_place:
        raise UnsupportedError(f"`{operator.op}` overwrites its operand")
    spec = spec_of(operator.op)
    names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    if spec is None:
        for name in names:
            if not is_absent(machine, rank, operator, name):
                operand_value(machine, rank, operator, name)
        raise UnsupportedError(f"`{operator.op}` is not in the operator table{how_to_declare(operator)}")
    if any(is_absent(machine, rank, operator, name) for name in names):
        if len(names) > 1 or not keeps_zero(machine, operator, spec, names[0]):
            raise Mismatch("absent-gradient", "reads a gradient that nothing produces", refutes=False)
        return ()
    values = tuple(operand_value(machine, rank, operator, name) for name in names)
    for name, value in zip(names, values, strict=True):
        if value is not None and not value.clean and spec.family is not Family.IDENTITY:
            rank.consumers.setdefault(name, (spec.name, operator))
    if any(value is None for value in values):
        rank.poisoned.add(operator.outputs)
        return (None,) * len(operator.outputs)
    operands = tuple(value for value in values if value is not None)
    known = (*operands, *draws_of(machine, rank, operator, spec, operands))
    key = (
        operator.op,
        id(operator.attributes),
        literals(operator),
        tuple(map(id, known)),
        output_shapes(machine, operator),
    )
    found = machine.results.get(key)
    if found is None:
        found = machine.results[key] = evaluated(machine, operator, spec, known)
    assumption = spec.assumption or (found.bound.assumption if found.bound is not None else "")
    if assumption:
        machine.derived.assumptions.add(assumption)
    results = checked(machine, rank, operator, found.outputs, operands)
    rank.replaced.pop(operator.outputs, None)
    rank.saved[operator.outputs] = (operator, found if results == found.outputs else replace(found, outputs=results))
    return results


def draws_of(
    machine: Machine, rank: RankState, operator: Compute, spec: OpSpec, values: tuple[Value, ...]
) -> tuple[Value, ...]:
    """The random numbers that the operator draws, as one more operand.

    Ranks that hold parts of one sum draw each for its own part; a part is no element, so nothing makes their draws one.
    """
    if not spec.may_draw:
        return ()
    call = call_of(machine, operator, values)
    if has_groups(spec, call):
        call, values = as_widened(machine, call, values)
    draws = drawn(machine, rank, spec.name, spec.bind(call), values)
    if draws and any(value.leaves for value in values):
        raise Mismatch("partial-used-as-complete", "draws for a partial sum as if it were complete", refutes=True)
    return draws


def keeps_zero(machine: Machine, operator: Compute, spec: OpSpec, name: str) -> bool:
    """Whether the operator is linear in its one operand, so that it makes zero of zero."""
    shape = machine.plan.tensors[name].shape
    inputs = tuple(operand if isinstance(operand, Literal) else shape for operand in operator.inputs)
    bound = spec.bind(Call(operator.op, inputs, operator.attributes, output_shapes(machine, operator)))
    return frozenset({0}) in bound.linear


def output_shapes(machine: Machine, operator: Compute) -> tuple[tuple[int, ...], ...]:
    tensors = machine.plan.tensors
    return tuple(tensors[name].shape if name in tensors else () for name in operator.outputs)


def call_of(machine: Machine, operator: Compute, values: tuple[Value, ...]) -> Call:
    """The operator on whole operands."""
    shapes = iter(values)
    inputs = tuple(
        operand if isinstance(operand, Literal) else machine.world.logical_shape(next(shapes), machine.total_slots)
        for operand in operator.inputs
    )
    return Call(operator.op, inputs, operator.attributes, output_shapes(machine, operator))


def evaluated(machine: Machine, operator: Compute, spec: OpSpec, values: tuple[Value, ...]) -> Saved:
    """The operator's results, with what its gradient needs."""
    call = call_of(machine, operator, values)
    name = operator.op if spec.assumption else spec.name
    if spec.name == "expand" and any(out not in machine.plan.tensors for out in operator.outputs):
        raise UnsupportedError(f"`{operator.op}` into a tensor that the plan does not declare")
    if has_groups(spec, call):
        inner, _ = as_widened(machine, call, values)
        return grouped(machine, name, spec.bind(inner).given_draws(), call, values)
    bound = spec.bind(call).given_draws()
    steps = spec.steps(call) if spec.steps is not None else ()
    if steps:
        return in_sequence(machine, name, bound, steps, values, call.outputs)
    if spec.family is Family.IDENTITY:
        return Saved(name, bound, spec.family, values, (values[0],) * len(operator.outputs))
    if spec.family is Family.RESHAPE:
        result = reshape(machine.world, values[0], view_size(call, machine.world.local_shape(values[0])))
        return Saved(name, bound, spec.family, values, (result,))
    if values and takes_everything(spec, operator, machine.world.local_shape(values[0])):
        return Saved(name, bound, Family.IDENTITY, values, (values[0],) * len(operator.outputs))
    if spec.name == "repeat-interleave":
        return repeated(machine, bound, values, call)
    if spec.family is Family.MERGE and merges_parts(values):
        merged = merge(machine.world, values)
        return Saved(name, bound, Family.MERGE, values, merged[: max(1, len(operator.outputs))])
    if spec.name == "add" and len(values) == 2 and bound.attributes == (1,) and parts_of_one(*values):
        return Saved(name, bound, Family.IDENTITY, values, (more_of_one(machine, values),))
    if spec.name in SLICES and len(values) == 1:
        return sliced(machine, spec, operator, values, lambda: evaluated_once(machine, name, bound, values, call))
    saved = evaluated_once(machine, name, bound, values, call)
    if name == ATTENTION:
        return below_the_diagonal(machine, spec, call, values, saved)
    factor = factor_of(name, bound.attributes) if len(values) == 1 else None
    if factor is None:
        return saved
    (given,), (made,) = saved.inputs, saved.outputs
    if given is None or made is None:
        return saved
    return replace(saved, outputs=(scaled_gradient(machine, given, made, factor),))


def takes_everything(spec: OpSpec, operator: Compute, shape: tuple[int, ...]) -> bool:
    """Whether the operator takes a slice of its one operand, of local shape `shape`, that is all of it."""
    if spec.name not in ("index", "narrow", "slice", "split"):
        return False
    inputs = tuple(operand if isinstance(operand, Literal) else shape for operand in operator.inputs)
    try:
        bound = spec.bind(Call(operator.op, inputs, operator.attributes))
    except UnsupportedError:
        return False
    if spec.name == "split":
        return len(bound.attributes) == 1
    taken = [(0, size, 1) if own is None else own for own, size in zip(bound.attributes, shape, strict=True)]
    return len(bound.outputs[0]) == len(shape) and taken == [(0, size, 1) for size in shape]


def scaled_gradient(machine: Machine, value: Value, result: Value, factor: Fraction) -> Value:
    """A gradient that is multiplied with a constant where the reference does not is a multiple of that gradient."""
    terms = machine.world.terms
    same = (terms.shape[value.term], terms.slot[value.term]) == (terms.shape[result.term], terms.slot[result.term])
    if terms.normal or not same or not terms.foreign(result.term) or not is_gradient(terms, value.term):
        return result
    return machine.world.values.scaled(value, factor)


def more_of_one(machine: Machine, values: tuple[Value, ...]) -> Value:
    """The sum of two different parts of one value, which is more of that value."""
    try:
        total = machine.world.values.sum_over(values[0].term, values)
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same value in different ways"
        raise Mismatch("ambiguous-sum", text, refutes=False) from None
    if total is None:
        raise Mismatch("mismatched-slices", "adds different slices of a value", refutes=True)
    return total


def checked(
    machine: Machine, rank: RankState, operator: Compute | Backward, results: tuple[Slot, ...], known: Sequence[Value]
) -> tuple[Slot, ...]:
    """The results, with values that the reference never computes noted, and replaced if the derivation recovers."""
    terms = machine.world.terms
    machine.derived.computed.update(value.term for value in results if value is not None)
    if terms.sealed < 0 or not any(value is not None and terms.foreign(value.term) for value in results):
        return results
    if any(terms.foreign(value.term) for value in known):
        return results
    replaced = []
    for value in results:
        if value is None or not terms.foreign(value.term) or terms.keys[value.term][0] == "gradient-sum":
            replaced.append(value)
            continue
        near = machine.nearest.to(value.term) if machine.nearest is not None else None
        if near is not None and near.kind == "operator" and (not value.clean or _casts(operator)):
            near = None
        subject = name_of(operator)
        text = near.text if near is not None else "is applied to values that the reference does not apply it to"
        if isinstance(operator, Compute) and (near is None or near.kind == "operator"):
            text += instead_of(operator.op)
        trouble = Trouble(
            "other-operator" if near is None or near.kind == "operator" else near.kind,
            False,
            f"{subject} on {{ranks}} {text}",
            rank.number,
            operator=bare_name(operator),
            expected=near.expected if near is not None else "",
            actual=near.actual if near is not None else "",
            cause=("foreign", value.term),
            fix=fix_of(operator, near) if near is not None and isinstance(operator, Compute) else None,
        )
        segment = rank.segment.name if rank.segment else ""
        machine.derived.foreign.append(
            Foreign(at(operator, segment, trouble), value.term, near.term if near else None, forward_of(operator))
        )
        replaced.append(machine.world.values.retermed(value, near.term) if near is not None else value)
    return tuple(replaced)


def _casts(operator: Compute | Backward) -> bool:
    """Whether the operator only changes the type of numbers, and so stands in the place of no other."""
    spec = spec_of(operator.op if isinstance(operator, Compute) else operator.forward.op)
    return spec is not None and spec.name == "to"


def forward_of(operator: Compute | Backward) -> tuple[str, ...]:
    """The outputs of the forward operator."""
    return operator.outputs if isinstance(operator, Compute) else operator.forward.outputs


def fix_of(operator: Compute, near: Near) -> Fix | None:
    """The change that makes a forward operator what the reference has."""
    if near.difference is not None:
        expected, actual = near.difference
        return Constant(operator, actual, expected)
    return Substitute(operator, near.expected) if near.kind == "operator" else None


def literals(operator: Compute) -> tuple[Any, ...]:
    return tuple((i, o.value, type(o.value)) for i, o in enumerate(operator.inputs) if isinstance(o, Literal))


def view_size(call: Call, before: tuple[int, ...]) -> tuple[int, ...]:
    size = view_sizes(call, before)
    if not isinstance(size, tuple) or not all(isinstance(n, int) and not isinstance(n, bool) for n in size):
        raise UnsupportedError(f"`{call.op}` to {size}")
    sizes = tuple(n for n in size if isinstance(n, int))
    known = prod(n for n in sizes if n != -1)
    total = prod(before)
    if sizes.count(-1) > 1 or known <= 0 or total % known:
        raise Mismatch("wrong-view-size", f"views shape {before} as {size}", refutes=True)
    return tuple(total // known if n == -1 else n for n in sizes)
