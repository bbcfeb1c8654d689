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
from tvlint.proof.cases import Case, Form
from tvlint.proof.diagonal import below_the_diagonal
from tvlint.proof.draws import drawn
from tvlint.proof.identities import factor_of, is_gradient
from tvlint.proof.lookup import assign, input_value, is_absent, operand_value, parts_of_one
from tvlint.proof.machine import Foreign, Machine, RankState, Saved, Slot
from tvlint.proof.merging import ATTENTION, merge, merges_parts
from tvlint.proof.nearest import Near
from tvlint.proof.relation import AmbiguousSumError, Value
from tvlint.proof.reshape import readings, viewed
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
    form = machine.cases.form(operator, machine.plan.tensors)
    spec = form.spec
    names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    if spec is None:
        for name in names:
            if not is_absent(machine, rank, operator, name):
                operand_value(machine, rank, operator, name)
        raise UnsupportedError(f"`{operator.op}` is not in the operator table{how_to_declare(operator)}")
    if any(is_absent(machine, rank, operator, name) for name in names):
        if len(names) > 1 or not keeps_zero(machine, form, names[0]):
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
    known = (*operands, *draws_of(machine, rank, form, operands))
    key = (form, *map(id, known))
    found = machine.results.get(key)
    if found is None:
        found = machine.results[key] = evaluated(machine, form, spec, known)
    assumption = spec.assumption or (found.bound.assumption if found.bound is not None else "")
    if assumption:
        machine.derived.assumptions.add(assumption)
    results = checked(machine, rank, operator, found.outputs, operands)
    rank.replaced.pop(operator.outputs, None)
    rank.saved[operator.outputs] = (operator, found if results == found.outputs else replace(found, outputs=results))
    return results


def draws_of(machine: Machine, rank: RankState, form: Form, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The random numbers that the operator draws, as one more operand.

    Ranks that hold parts of one sum draw each for its own part; a part is no element, so nothing makes their draws one.
    """
    spec = form.spec
    if spec is None or not spec.may_draw:
        return ()
    call = call_of(machine, form, values)
    if has_groups(spec, call):
        call, values = as_widened(machine, call, values)
    draws = drawn(machine, rank, spec.name, spec.bind(call), values)
    if draws and any(value.leaves for value in values):
        raise Mismatch("partial-used-as-complete", "draws for a partial sum as if it were complete", refutes=True)
    return draws


def keeps_zero(machine: Machine, form: Form, name: str) -> bool:
    """Whether the operator is linear in its one operand, so that it makes zero of zero."""
    assert form.spec is not None
    return frozenset({0}) in form.spec.bind(form.call([machine.plan.tensors[name].shape])).linear


def call_of(machine: Machine, form: Form, values: tuple[Value, ...]) -> Call:
    """The operator on whole operands."""
    return form.call(machine.world.logical_shape(value, machine.total_slots) for value in values)


def evaluated(machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...]) -> Saved:
    """The operator's results, with what its gradient needs."""
    key = (form, *[value.extent for value in values])
    case = machine.cases.known.get(key)
    if case is None:
        call = call_of(machine, form, values)
        if spec.name == "expand" and None in form.outputs:
            raise UnsupportedError(f"`{form.op}` into a tensor that the plan does not declare")
        name = form.op if spec.assumption else spec.name
        if has_groups(spec, call):
            inner, _ = as_widened(machine, call, values)
            return grouped(machine, name, spec.bind(inner).given_draws(), call, values)
        bound = spec.bind(call).given_draws()
        steps = spec.steps(call) if spec.steps is not None else ()
        everything = bool(values) and takes_everything(form, spec, machine.world.local_shape(values[0]))
        case = machine.cases.known[key] = Case(name, call, bound, steps, everything)
    return evaluated_case(machine, form, spec, case, values)


def evaluated_case(machine: Machine, form: Form, spec: OpSpec, case: Case, values: tuple[Value, ...]) -> Saved:
    """The operator's results where its case is known."""
    name, call, bound, count = case.name, case.call, case.bound, len(form.outputs)
    if case.steps:
        return in_sequence(machine, name, bound, case.steps, values, call.outputs)
    if spec.family is Family.IDENTITY:
        return Saved(name, bound, spec.family, values, (values[0],) * count)
    if spec.family is Family.RESHAPE:
        return Saved(name, bound, spec.family, values, (view_of(machine, case, values[0]),))
    if case.everything:
        return Saved(name, bound, Family.IDENTITY, values, (values[0],) * count)
    if spec.name == "repeat-interleave":
        return repeated(machine, bound, values, call)
    if spec.family is Family.MERGE and merges_parts(values):
        return Saved(name, bound, Family.MERGE, values, merge(machine.world, values)[: max(1, count)])
    if spec.name == "add" and len(values) == 2 and bound.attributes == (1,) and parts_of_one(*values):
        return Saved(name, bound, Family.IDENTITY, values, (more_of_one(machine, values),))
    if spec.name in SLICES and len(values) == 1:
        return sliced(machine, spec, form, values, lambda: evaluated_once(machine, case, values))
    saved = evaluated_once(machine, case, values)
    if name == ATTENTION:
        return below_the_diagonal(machine, spec, call, values, saved)
    factor = factor_of(name, bound.attributes) if len(values) == 1 else None
    if factor is None:
        return saved
    (given,), (made,) = saved.inputs, saved.outputs
    if given is None or made is None:
        return saved
    return replace(saved, outputs=(scaled_gradient(machine, given, made, factor),))


def view_of(machine: Machine, case: Case, value: Value) -> Value:
    """The operand under another shape."""
    world = machine.world
    choices = case.uses.get("view")
    if choices is None:
        shape = world.local_shape(value)
        choices = case.uses["view"] = readings(world, value, view_size(case.call, shape))
    return viewed(world, value, choices)


def takes_everything(form: Form, spec: OpSpec, shape: tuple[int, ...]) -> bool:
    """Whether the operator takes a slice of its one operand, of local shape `shape`, that is all of it."""
    if spec.name not in SLICES:
        return False
    try:
        bound = spec.bind(replace(form.call([shape] * form.operands.count(None)), outputs=()))
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
