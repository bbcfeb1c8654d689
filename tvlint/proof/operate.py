"""Forward operators and their gradients on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvlint.ir.plan import Backward, Compute, Literal, Phase, Role, Segment
from tvlint.ops.spec import Call, Family, UnsupportedError
from tvlint.ops.table import spec_of
from tvlint.proof.apply import Mismatch, forward_use, gradient_use, run
from tvlint.proof.blame import blame, name_of, tell
from tvlint.proof.lookup import assign, gradient_value, input_value, operand_value
from tvlint.proof.machine import Foreign, Machine, RankState, Saved, Slot
from tvlint.proof.relation import Value
from tvlint.proof.reshape import reshape, reshape_gradient
from tvlint.proof.trouble import Trouble, at


def compute(machine: Machine, rank: RankState, segment: Segment, operator: Compute) -> None:
    if segment.phase is Phase.DATA:
        for name in operator.outputs:
            if name in machine.plan.tensors and machine.plan.tensors[name].role is Role.INPUT:
                rank.local[name] = input_value(machine, rank, name)
        return
    try:
        results = forward(machine, rank, operator)
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch)
        rank.poisoned.add(id(operator))
        results = (None,) * len(operator.outputs)
    except UnsupportedError as error:
        tell(machine, rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
        rank.poisoned.add(id(operator))
        results = (None,) * len(operator.outputs)
    names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    for name, value in zip(operator.outputs, results, strict=True):
        assign(machine, rank, operator, name, value, names)


def forward(machine: Machine, rank: RankState, operator: Compute) -> tuple[Slot, ...]:
    if operator.in_place:
        raise UnsupportedError(f"`{operator.op}` overwrites its operand")
    spec = spec_of(operator.op)
    if spec is None:
        raise UnsupportedError(f"`{operator.op}` is not in the operator table")
    names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    values = tuple(operand_value(machine, rank, operator, name) for name in names)
    for name, value in zip(names, values, strict=True):
        if value is not None and not value.clean and spec.family is not Family.IDENTITY:
            rank.consumers.setdefault(name, (spec.name, operator))
    if any(value is None for value in values):
        rank.poisoned.add(id(operator))
        return (None,) * len(operator.outputs)
    known = tuple(value for value in values if value is not None)
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
    bound, results = found
    if spec.assumption:
        machine.derived.assumptions.add(spec.assumption)
    results = checked(machine, rank, operator, results, known)
    rank.saved[id(operator)] = Saved(spec.name, bound, spec.family, known, results)
    return results


def output_shapes(machine: Machine, operator: Compute) -> tuple[tuple[int, ...], ...]:
    tensors = machine.plan.tensors
    return tuple(tensors[name].shape if name in tensors else () for name in operator.outputs)


def evaluated(machine: Machine, operator: Compute, spec: Any, values: tuple[Value, ...]) -> tuple[Any, tuple[Slot, ...]]:
    shapes = iter(values)
    inputs = tuple(
        operand if isinstance(operand, Literal) else machine.world.local_shape(next(shapes)) for operand in operator.inputs
    )
    call = Call(operator.op, inputs, operator.attributes, output_shapes(machine, operator))
    bound = spec.bind(call)
    if spec.family is Family.IDENTITY:
        return bound, (values[0],) * len(operator.outputs)
    if spec.family is Family.RESHAPE:
        return bound, (reshape(machine.world, values[0], view_size(call, machine.world.local_shape(values[0]))),)
    if len(bound.outputs) != len(operator.outputs):
        raise UnsupportedError(f"`{operator.op}` with {len(operator.outputs)} outputs")
    return bound, tuple(
        run(
            machine.world,
            forward_use(spec.name, bound, output, values, free_sizes(bound, output, call)),
            machine.total_slots,
            ignore,
        )
        for output in range(len(operator.outputs))
    )


def checked(
    machine: Machine, rank: RankState, operator: Compute | Backward, results: tuple[Slot, ...], known: Sequence[Value]
) -> tuple[Slot, ...]:
    """The results, with values that the reference never computes noted, and replaced if the derivation recovers."""
    terms = machine.world.terms
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
        subject = name_of(operator)
        text = near.text if near is not None else "is applied to values that the reference does not apply it to"
        trouble = Trouble(
            "other-operator" if near is None or near.kind == "operator" else near.kind,
            False,
            f"{subject} on {{ranks}} {text}",
            rank.number,
            operator=subject,
            expected=near.expected if near is not None else "",
            actual=near.actual if near is not None else "",
            cause=("foreign", value.term),
        )
        segment = rank.segment.name if rank.segment else ""
        machine.derived.foreign.append(Foreign(at(operator, segment, trouble), value.term, near.term if near else None))
        replaced.append(machine.world.values.retermed(value, near.term) if near is not None else value)
    return tuple(replaced)


def backward(machine: Machine, rank: RankState, operator: Backward) -> None:
    saved = rank.saved.get(id(operator.forward))
    if saved is None:
        if id(operator.forward) in rank.poisoned:
            for name in filter(None, operator.outputs):
                assign(machine, rank, operator, name, None, ())
            return
        mismatch = Mismatch("gradient-before-forward", "runs before its forward operator", refutes=True)
        tell(machine, rank, operator, mismatch, fatal=True)
        return
    gradients: dict[int, Value] = {}
    for position, name in enumerate(operator.inputs):
        if not name:
            continue
        found = gradient_value(machine, rank, operator, name)
        if found is None:
            for output in filter(None, operator.outputs):
                assign(machine, rank, operator, output, None, ())
            return
        if isinstance(found, Value):
            gradients[position] = found
            if not found.clean and saved.family is not Family.IDENTITY:
                rank.consumers.setdefault(name, (saved.op, operator))
    check_gradient_names(machine, rank, operator)
    if not gradients:
        return
    if saved.family is Family.IDENTITY and len(set(operator.inputs)) < len([n for n in operator.inputs if n]):
        mismatch = Mismatch("gradient-added-twice", "adds one gradient twice and leaves another out", refutes=True)
        tell(machine, rank, operator, mismatch)
    operands = [operand for operand in operator.forward.inputs if not isinstance(operand, Literal)]
    for position, name in enumerate(operator.outputs):
        if not name or position >= len(operands):
            continue
        try:
            value = vjp(machine, rank, operator, saved, position, gradients)
        except Mismatch as mismatch:
            blame(machine, rank, operator, mismatch)
            value = None
        except UnsupportedError as error:
            tell(machine, rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
            value = None
        if value != "absent":
            assert not isinstance(value, str)
            assign(machine, rank, operator, name, value, ())


def check_gradient_names(machine: Machine, rank: RankState, operator: Backward) -> None:
    """Gradients stand in the places of what they are the gradients of."""
    operands = [operand for operand in operator.forward.inputs if not isinstance(operand, Literal)]
    for names, places, what in (
        (operator.inputs, operator.forward.outputs, "takes"),
        (operator.outputs, operands, "stores"),
    ):
        for name, place in zip(names, places, strict=False):
            tensor = machine.plan.tensors.get(name)
            owners = machine.forward_of.get(name, ())
            if tensor is None or place in owners or not any(owner in places for owner in owners):
                continue
            owner = next(owner for owner in owners if owner in places)
            text = f"{what} `{name}`, the gradient of `{owner}`, as the gradient of `{place}`"
            mismatch = Mismatch("swapped-gradients", text, refutes=True)
            tell(machine, rank, operator, mismatch, expected=f"the gradient of `{place}`", actual=f"the gradient of `{owner}`")


def vjp(
    machine: Machine, rank: RankState, operator: Backward, saved: Saved, position: int, gradients: dict[int, Value]
) -> Slot | str:
    if any(value is None for value in saved.inputs):
        return None
    inputs = tuple(value for value in saved.inputs if value is not None)
    key = ("vjp", id(saved.bound), position, tuple(map(id, inputs)), tuple((i, id(g)) for i, g in gradients.items()))
    found = machine.results.get(key)
    if found is None:
        found = machine.results[key] = evaluated_vjp(machine, saved, inputs, position, gradients)
    if isinstance(found, str):
        return found
    (result,) = checked(machine, rank, operator, (found,), (*inputs, *gradients.values()))
    return result


def evaluated_vjp(
    machine: Machine, saved: Saved, inputs: tuple[Value, ...], position: int, gradients: dict[int, Value]
) -> Value | str:
    if saved.family is Family.IDENTITY:
        box = inputs[0].box
        if any(gradient.box != box for gradient in gradients.values()):
            raise Mismatch("mismatched-slices", "adds gradients of different slices", refutes=True)
        total = machine.world.values.gradient_sum(inputs[0].term, tuple(gradients.values()))
        if total is None:
            raise Mismatch("mismatched-slices", "adds gradients of different slices", refutes=True)
        return total
    if saved.family is Family.RESHAPE:
        result = saved.outputs[0]
        if result is None:
            raise UnsupportedError("a view that failed")
        return reshape_gradient(machine.world, inputs[0], result, gradients[0])
    use = gradient_use(saved.op, saved.bound, position, inputs, gradients)
    return "absent" if use is None else run(machine.world, use, machine.total_slots, ignore)


def literals(operator: Compute) -> tuple[Any, ...]:
    return tuple((i, o.value, type(o.value)) for i, o in enumerate(operator.inputs) if isinstance(o, Literal))


def view_size(call: Call, before: tuple[int, ...]) -> tuple[int, ...]:
    size = call.attributes.get("size", call.attributes.get("shape"))
    if size is None:
        literals = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
        size = literals[0] if len(literals) == 1 and isinstance(literals[0], tuple) else tuple(literals)
    if not isinstance(size, tuple) or not all(isinstance(n, int) and not isinstance(n, bool) for n in size):
        raise UnsupportedError(f"`{call.op}` to {size}")
    sizes = tuple(n for n in size if isinstance(n, int))
    known = prod(n for n in sizes if n != -1)
    total = prod(before)
    if sizes.count(-1) > 1 or known <= 0 or total % known:
        raise Mismatch("wrong-view-size", f"views shape {before} as {size}", refutes=True)
    return tuple(total // known if n == -1 else n for n in sizes)


def free_sizes(bound: Any, output: int, call: Call) -> dict[str, int]:
    shape = call.outputs[output] if output < len(call.outputs) else ()
    return dict(zip(bound.outputs[output], shape, strict=False))


def ignore(term: int, operands: tuple[int, ...]) -> None:
    return None
