"""The gradients of forward operators on one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tvlint.analyses.dataflow.operator_diff import difference, same_operator
from tvlint.analyses.relations.derivation.environment import assign, incoming, operand_value
from tvlint.analyses.relations.derivation.forward import forward, literals, noted, recovered
from tvlint.analyses.relations.derivation.forward_rules import check_fit, evaluated, scaled_gradient
from tvlint.analyses.relations.derivation.gradients.pairing import check_absent, check_gradient_names, check_owners
from tvlint.analyses.relations.derivation.gradients.starts import given, uses_on
from tvlint.analyses.relations.derivation.localisation.localise import blame, tell
from tvlint.analyses.relations.derivation.localisation.runnable import may_go_back
from tvlint.analyses.relations.derivation.localisation.sure import is_sure
from tvlint.analyses.relations.derivation.operators.packed import gradient_in_pieces
from tvlint.analyses.relations.derivation.operators.slices import as_all_of, moved_gradient
from tvlint.analyses.relations.derivation.operators.unknown_operators import attended_gradients
from tvlint.analyses.relations.derivation.state import Held, Machine, Pulled, RankState, Saved, Slot
from tvlint.analyses.relations.terms.loss_identities import factor_of
from tvlint.analyses.relations.transfer.apply import run, run_again
from tvlint.analyses.relations.transfer.context import Mismatch, of_one_plan
from tvlint.analyses.relations.transfer.operator_uses import Use, gradient_use
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.analyses.relations.transfer.reshape import reshape_gradient
from tvlint.analyses.relations.transfer.ring_attention import ATTENTION, gradient_over_all_keys, merge_gradient
from tvlint.ir.operators import Backward, Compute
from tvlint.ops.spec import Family, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of

_PASSES_ON = (Trait.CONVERSION, Trait.DETACHED, Trait.VIEW)


def backward(machine: Machine, rank: RankState, operator: Backward) -> None:
    """Give the gradients of the operands of a forward operator, and note what was taken and given as the gradient of what."""
    taken = list(_pulled(machine, rank, operator, is_given=False))
    saved = _backward(machine, rank, operator)
    every = [*taken, *_pulled(machine, rank, operator, is_given=True)]
    if saved is not None:
        forward = operator.forward
        kept = dict(zip((*forward.tensor_operands, *forward.outputs), (*saved.inputs, *saved.outputs), strict=False))
        every = [_of_kept(pulled, kept.get(pulled.of)) for pulled in every]
    machine.derived.pulled += every


def _of_kept(pulled: Pulled, kept: Slot) -> Pulled:
    """Return what is taken or given, as the gradient of what the forward operator kept where the rank does not hold that."""
    return replace(pulled, value=kept.term) if not isinstance(pulled.value, int) and kept is not None else pulled


def _pulled(machine: Machine, rank: RankState, operator: Backward, is_given: bool) -> Iterator[Pulled]:
    """Yield what a backward operator takes, or gives, as the gradient of what; of plans with a reference that is not needed."""
    names, places = (operator.outputs, operator.forward.inputs) if is_given else (operator.inputs, operator.forward.outputs)
    values = (place for place in places if isinstance(place, str))
    for name, of in zip(names, values, strict=False) if machine.alone else ():
        if name:
            gradient = _value(machine, rank, name)
            held = _held(machine, rank, name), _held(machine, rank, of)
            yield Pulled(rank.number, operator, name, of, *held, is_given, _times(gradient))


def _held(machine: Machine, rank: RankState, name: str) -> Held:
    """Return the term of what a rank holds under a name; the rank and the name where that is not known."""
    value = _value(machine, rank, name)
    return (rank.number, name) if value is None else value.term


def _times(gradient: Slot) -> Coefficient:
    """Return how many times its term a gradient is, or each part that ranks have of it; 0 where that is not one number."""
    if gradient is None or gradient.fold is not None:
        return 0
    times = {leaf.coefficient for leaf in gradient.leaves} or {gradient.coefficient}
    return times.pop() if len(times) == 1 else 0


def _value(machine: Machine, rank: RankState, name: str) -> Slot:
    weight = machine.weight_of.get(name, "")
    return rank.gradients.get(weight) if weight else rank.local.get(name, rank.environment.get(name))


def _backward(machine: Machine, rank: RankState, operator: Backward) -> Saved | None:
    """Give the gradients of the operands, and return what the forward operator kept, where that is known."""
    saved = _kept(machine, rank, operator)
    if saved is None:
        machine.derived.roots_open = True
        _go_back_without(machine, rank, operator)
        return None
    gradients = _incoming_of_each(machine, rank, operator, saved)
    if gradients is None:
        for output in filter(None, operator.outputs):
            assign(machine, rank, operator, output, None, ())
        return saved
    operands = operator.forward.tensor_operands
    machine.paired.update(zip(operator.inputs, operator.forward.outputs, strict=False))
    machine.paired.update(zip(operator.outputs, operands, strict=False))
    check_gradient_names(machine, rank, operator, saved, operands)
    check_owners(machine, rank, operator, saved, operands)
    if not gradients:
        reach_nothing(machine, rank, operator)
        return saved
    if saved.family is Family.IDENTITY and len(set(operator.inputs)) < len([n for n in operator.inputs if n]):
        wrong = Mismatch("gradient-added-twice", "adds one gradient twice and leaves another out", refutes=True)
        tell(machine, rank, operator, wrong)
    if len(operator.outputs) > len(operands) or len(operator.inputs) > len(operator.forward.outputs):
        wrong = Mismatch("surplus-gradients", "has more gradients than its forward operator operands or results", refutes=False)
        tell(machine, rank, operator, wrong, fatal=True)
    for position, (name, operand) in enumerate(zip(operator.outputs, operands, strict=False)):
        if name:
            value = _gradient_of(machine, rank, operator, saved, position, gradients)
            if isinstance(value, str):
                check_absent(machine, rank, operator, name, operand)
                rank.zero.add(name)
            else:
                assign(machine, rank, operator, name, value, ())
    return saved


def _kept(machine: Machine, rank: RankState, operator: Backward) -> Saved | None:
    """Return what the forward operator kept, where that is known; tell where its operands hold something else by now."""
    ran, saved = rank.saved.get(operator.forward.outputs, (None, None))
    if saved is None and operator.forward.outputs not in rank.poisoned and not computes(machine, operator.forward):
        saved, ran = _anew_where_it_fits(machine, rank, operator), operator.forward
    if saved is not None and ran is not operator.forward and not same_as_ran(machine, rank, operator, ran, saved):
        saved = of_other_forward(machine, rank, operator, ran, saved)
    if saved is None:
        return None
    operands = operator.forward.tensor_operands
    if lost := replaced(rank, operator, saved, ran, operands):
        text = f"needs `{lost}` as its forward operator had it, and communication has put something else in it since"
        tell(machine, rank, operator, Mismatch("replaced-operand", text, refutes=False), fatal=True)
    elif rebound := given_another_value(rank, operator, saved, operands):
        text = f"is given another value as `{rebound}` than its forward operator had"
        tell(machine, rank, operator, Mismatch("other-operand", text, refutes=False), fatal=True)
    return saved


def _go_back_without(machine: Machine, rank: RankState, operator: Backward) -> None:
    """Give what is known of the gradients where the forward operator was not understood, or tell that it has not run."""
    if operator.forward.outputs in rank.poisoned:
        known = attended_gradients(machine, rank, operator) if machine.alone else ()
        for place, name in enumerate(operator.outputs):
            if name:
                assign(machine, rank, operator, name, known[place] if place < len(known) else None, ())
        return
    partly = any(name in rank.local or name in rank.environment for name in operator.forward.outputs)
    partly = partly or (machine.alone and not computes(machine, operator.forward))
    mismatch = Mismatch("gradient-before-forward", "runs before its forward operator", refutes=not partly)
    tell(machine, rank, operator, mismatch, fatal=True)


def _incoming_of_each(machine: Machine, rank: RankState, operator: Backward, saved: Saved) -> dict[int, Value] | None:
    """Return the gradients that the operator is given, by the position of the result that each is of; None if one is unknown.

    One that is zero is left out.
    """
    gradients: dict[int, Value] = {}
    for position, (name, of) in enumerate(zip(operator.inputs, operator.forward.outputs, strict=False)):
        if not name:
            continue
        result = saved.outputs[position] if position < len(saved.outputs) else None
        try:
            found = incoming(machine, rank, operator, name, of, result)
        except Mismatch as mismatch:
            blame(machine, rank, operator, mismatch)
            found = None
        if found is None:
            return None
        if isinstance(found, Value):
            found = gradients[position] = given(machine, rank, operator, of, result, found)
            if not found.clean and saved.family is not Family.IDENTITY:
                rank.consumers.setdefault(name, (saved.op, operator))
    return gradients


def _gradient_of(
    machine: Machine, rank: RankState, operator: Backward, saved: Saved, position: int, gradients: dict[int, Value]
) -> Slot | str:
    """Return the gradient of an operand, or tell why it is not known; a text where it is zero."""
    try:
        return vjp(machine, rank, operator, saved, position, gradients)
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch, runs=may_go_back(machine, saved, gradients))
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same gradient in different ways"
        tell(machine, rank, operator, Mismatch("ambiguous-sum", text, refutes=False))
    except UnsupportedError as error:
        tell(machine, rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
    return None


def reach_nothing(machine: Machine, rank: RankState, operator: Backward) -> None:
    """Note that no gradient reaches the operator, so that it makes zero; it has to be known of each that it is zero."""
    given = [name for name in operator.inputs if name]
    pairs = [(name, of) for name, of in zip(operator.inputs, operator.forward.outputs, strict=False) if name]
    unread = any(of not in uses_on(machine, rank).readers for name, of in pairs if name not in rank.zero)
    if not given or unread:
        what = f"`{given[0]}`, which nothing makes" if given else "no gradient"
        mismatch = Mismatch("absent-gradient", f"is given {what}", refutes=False)
        tell(machine, rank, operator, mismatch, fatal=True)
    rank.zero.update(filter(None, operator.outputs))


def computes(machine: Machine, forward: Compute) -> bool:
    """Return whether the plan runs an operator of these outputs, rather than naming it for its gradient only."""
    if not machine.made:
        this_operator = machine.plan.operators()
        machine.made.update(operator.outputs for operator in this_operator if isinstance(operator, Compute))
    return forward.outputs in machine.made


def anew(machine: Machine, rank: RankState, operator: Backward) -> Saved | None:
    """Return what an operator that is written out for its gradient alone would keep, had it run on its operands as they are
    now. Raises Mismatch where it does not take them.
    """
    spec = spec_of(operator.forward.op)
    if spec is None or spec.may_draw or spec.family is Family.RESHAPE:
        return None
    try:
        forward(machine, rank, operator.forward)
    except UnsupportedError:
        return None
    return rank.saved.pop(operator.forward.outputs, (None, None))[1]


def _anew_where_it_fits(machine: Machine, rank: RankState, operator: Backward) -> Saved | None:
    """Return what `anew` does; where the operator does not take its operands, tell what is surely wrong, and return None."""
    try:
        return anew(machine, rank, operator)
    except Mismatch as mismatch:
        if machine.alone and mismatch.refutes and is_sure(machine, rank, operator.forward, mismatch):
            tell(machine, rank, operator, mismatch)
            rank.poisoned.add(operator.forward.outputs)
        return None


def is_of_another(machine: Machine, rank: RankState, operator: Backward, saved: Saved) -> bool:
    """Return whether an activation or a product that is written out gives another value than the one that ran, and so has
    another gradient; of a plan that is derived alone.
    """
    if not machine.alone or not has_trait(operator.forward.op, Trait.ACTIVATION, Trait.CONTRACTION):
        return False
    kept = rank.saved.get(operator.forward.outputs)
    try:
        other = anew(machine, rank, operator)
    except Mismatch:
        other = None
    if kept is not None:
        rank.saved[operator.forward.outputs] = kept
    known = [value for found in (saved, other) if found is not None for value in found.outputs[:1] if value is not None]
    return len(known) == 2 and known[0].term != known[1].term


def same_as_ran(machine: Machine, rank: RankState, operator: Backward, ran: Compute | None, saved: Saved) -> bool:
    """Return whether the operator that is written out is the one that ran, on the same values under whatever names."""
    forward = operator.forward
    kept = rank.earlier.get(id(forward))
    if kept is not None and (kept.inputs, kept.outputs) != (saved.inputs, saved.outputs):
        return False
    if ran is None or same_operator(ran, forward):
        return ran is not None
    if (ran.op, ran.outputs, dict(ran.attributes), literals(ran)) != (
        forward.op,
        forward.outputs,
        dict(forward.attributes),
        literals(forward),
    ):
        return False
    names = forward.tensor_operands
    try:
        values = [operand_value(machine, rank, operator, name) for name in names]
    except Mismatch:
        return False
    return len(values) <= len(saved.inputs) and all(one is other for one, other in zip(values, saved.inputs, strict=False))


def of_other_forward(machine: Machine, rank: RankState, operator: Backward, ran: Compute | None, saved: Saved) -> Saved | None:
    """Return what an operator kept whose gradient is that of another one that is written out; tell it, and return None, where
    these have other gradients or none is known.
    """
    text = "is the gradient of an operator that differs from the one that ran"
    mismatch, written = Mismatch("other-forward", text, refutes=False), None
    try:
        written = as_written(machine, rank, operator, ran, saved)
    except Mismatch as misfit:
        mismatch = misfit
    if written is not None and written.outputs == saved.outputs:
        return written
    both = None if written is None else gradients_of_both(machine, rank, operator, saved, written)
    if both is not None and all(one is not None and one == other for one, other in both):
        return saved
    is_sure = machine.alone and has_another_gradient(machine, operator, saved, written, both)
    if is_sure or is_of_another(machine, rank, operator, saved):
        how = difference(ran, operator.forward) if ran is not None else ""
        mismatch = of_one_plan("gradient-of-another-operator", f"{text}: {how}" if how else text)
    tell(machine, rank, operator, mismatch, fatal=True)
    rank.poisoned.add(operator.forward.outputs)
    return None


def as_written(machine: Machine, rank: RankState, operator: Backward, ran: Compute | None, saved: Saved) -> Saved | None:
    """Return what the operator that is written out keeps; None where it is not known.

    It takes the values that the one that ran took under these names, where the rank makes no name twice. Raises Mismatch where
    no framework runs it on them.
    """
    form = machine.cases.form(operator.forward, machine.plan.tensors)
    if rank.earlier or ran is None or form.spec is None or form.spec.may_draw or operator.forward.in_place:
        return None
    known = dict(zip(ran.tensor_operands, saved.inputs, strict=False))
    names = operator.forward.tensor_operands
    values = [known.get(name) for name in names]
    operands = tuple([value for value in values if value is not None])
    if len(operands) < len(values):
        return None
    check_fit(machine, form, operands, saved.outputs)
    try:
        return evaluated(machine, form, form.spec, operands)
    except (Mismatch, UnsupportedError):
        return None


def has_another_gradient(
    machine: Machine,
    operator: Backward,
    saved: Saved,
    written: Saved | None,
    both: Iterable[tuple[Slot | str, Slot | str]] | None,
) -> bool:
    """Return whether the operator that is written out has other gradients than the one that ran, which no plan means.

    Of another operator only what both are linear in counts: what rounds or passes a value on may be given another gradient on
    purpose. A constant that is added has no part in gradients; what is linear, and what is no sum, has other ones where it
    gives others.
    """
    if written is None or both is None or saved.steps or has_trait(operator.forward.op, Trait.CONVERSION):
        return False
    asked = [place for place, name in enumerate(operator.outputs) if name]
    linear = frozenset().union(*saved.bound.linear)
    if written.op != saved.op:
        linear &= frozenset().union(*written.bound.linear)
        passed_on = {saved.family, written.family} & {Family.IDENTITY, Family.RESHAPE} or has_trait(saved.op, *_PASSES_ON)
        bare = machine.world.values.bare
        return not passed_on and any(
            isinstance(one, Value) and isinstance(other, Value) and place in linear and bare(one) != bare(other)
            for place, (one, other) in zip(asked, both, strict=True)
        )
    counts = has_trait(operator.forward.op, Trait.NONLINEAR, Trait.SOFTMAX)
    return any(
        isinstance(one, Value) and isinstance(other, Value) and one.term != other.term and (counts or place in linear)
        for place, (one, other) in zip(asked, both, strict=True)
    )


def gradients_of_both(
    machine: Machine, rank: RankState, operator: Backward, saved: Saved, written: Saved
) -> tuple[tuple[Slot | str, Slot | str], ...] | None:
    """Return the gradients of the operator that ran beside those of the one that is written out; None where these are unknown.

    Operators that give other values may have equal gradients, as sums with constants do.
    """
    try:
        pairs = zip(operator.inputs, operator.forward.outputs, saved.outputs, strict=True)
        found = {place: incoming(machine, rank, operator, *each) for place, each in enumerate(pairs) if each[0]}
        gradients = {place: value for place, value in found.items() if isinstance(value, Value)}
        if not gradients or len(gradients) < len(found):
            return None
        asked = [place for place, name in enumerate(operator.outputs) if name]
        of_each = [[_vjp_of(machine, kept, place, gradients) for place in asked] for kept in (saved, written)]
    except (Mismatch, AmbiguousSumError, UnsupportedError, ValueError):
        return None
    return tuple(zip(*of_each, strict=True))


def _vjp_of(machine: Machine, saved: Saved, position: int, gradients: dict[int, Value]) -> Slot | str:
    inputs = tuple(value for value in saved.inputs if value is not None)
    return None if len(inputs) < len(saved.inputs) else evaluated_vjp(machine, saved, inputs, position, gradients)


def given_another_value(rank: RankState, operator: Backward, saved: Saved, operands: Sequence[str]) -> str:
    """Return an operand whose name means another value here than where the forward operator read it; empty where there is none.

    A value that is not known is another one.
    """
    changed = rank.replaced.get(operator.forward.outputs, ())
    for name, kept in zip(operands, saved.inputs, strict=False):
        if kept is not None and rank.local.get(name, kept) != kept and name not in changed:
            return name
    return ""


def replaced(rank: RankState, operator: Backward, saved: Saved, ran: Compute | None, operands: Sequence[str]) -> str:
    """Return an operand that the gradients need the value of and that is replaced since it was read; empty where there is none.

    What is linear in an operand does not need it for its gradient. An operator that is written out on other names reads those.
    """
    names = rank.replaced.get(operator.forward.outputs)
    if not names or saved.family in (Family.IDENTITY, Family.RESHAPE) or ran is None or ran.inputs != operator.forward.inputs:
        return ""
    linear = () if saved.steps else saved.bound.linear
    for position, name in enumerate(operator.outputs):
        group: frozenset[int] = next((group for group in linear if position in group), frozenset())
        for other, operand in enumerate(operands) if name else ():
            if operand in names and other not in group and other not in saved.bound.shape_only:
                return operand
    return ""


def vjp(
    machine: Machine, rank: RankState, operator: Backward, saved: Saved, position: int, gradients: dict[int, Value]
) -> Slot | str:
    key = (saved, position, *gradients.items())
    found = machine.results.get(key)
    if found is None:
        found = _vjp_of(machine, saved, position, gradients)
        if found is None:
            return None
        machine.results[key] = found
    if isinstance(found, str) or not noted(machine, rank, (found,)):
        return found
    (result,) = recovered(machine, rank, operator, (found,), (*saved.inputs, *gradients.values()))
    return result


def evaluated_vjp(
    machine: Machine, saved: Saved, inputs: tuple[Value, ...], position: int, gradients: dict[int, Value]
) -> Value | str:
    pieces_of = machine.world.values.pieces_of
    results = {output: saved.outputs[output] for output in gradients if output < len(saved.outputs)}
    gradients = {output: as_all_of(machine.world, results.get(output), given) for output, given in gradients.items()}
    for output, gradient in gradients.items():
        result = results.get(output)
        if result is not None and pieces_of(result) != pieces_of(gradient):
            raise Mismatch("mismatched-shards", "gets the gradient of another slice than its result", refutes=True)
    if saved.family is Family.IDENTITY:
        if any(pieces_of(gradient) != pieces_of(inputs[0]) for gradient in gradients.values()):
            raise Mismatch("mismatched-shards", "adds gradients of different slices", refutes=True)
        total = machine.world.values.gradient_sum(inputs[0].term, tuple(gradients.values()))
        if total is None:
            raise Mismatch("mismatched-shards", "adds gradients of different slices", refutes=True)
        return total
    if saved.family is Family.RESHAPE:
        result = saved.outputs[0]
        if result is None:
            raise UnsupportedError("a view that failed")
        return reshape_gradient(machine.world, inputs[0], result, gradients[0])
    if saved.packed is not None:
        on_whole = saved.packed
        wholes = tuple(value for value in on_whole.inputs if value is not None)
        return gradient_in_pieces(
            machine.world, saved, position, gradients, lambda given: evaluated_vjp(machine, on_whole, wholes, position, given)
        )
    if saved.moved is not None:
        return moved_gradient(machine, saved, position, gradients)
    if saved.steps:
        return vjp_in_sequence(machine, saved, position, gradients)
    if saved.family is Family.MERGE or any(gradient.fold is not None for gradient in gradients.values()):
        return vjp_of_parts(machine, saved, inputs, position, gradients)

    def use() -> Use | None:
        return gradient_use(saved.op, saved.bound, position, inputs, gradients)

    key = ("gradient", position, tuple(gradients))
    result = run_again(machine.world, machine.total_slots, saved.uses, key, use, inputs, gradients)
    if result is None:
        return "absent"
    factor = factor_of(saved.op, saved.bound.attributes) if len(inputs) == 1 else None
    return result if factor is None else scaled_gradient(machine, gradients[0], result, factor)


def vjp_of_parts(
    machine: Machine, saved: Saved, inputs: tuple[Value, ...], position: int, gradients: dict[int, Value]
) -> Value:
    """Return the gradient of one operand of a merge, or of attention whose results are merged."""
    outputs = tuple(value for value in saved.outputs if value is not None)
    if len(outputs) < len(saved.outputs):
        raise UnsupportedError("a merge that failed")
    if saved.family is Family.MERGE:
        return merge_gradient(machine.world, inputs, outputs, position, gradients)
    if saved.op != ATTENTION:
        raise Mismatch("part-used-as-complete", "uses the gradient of a part of attention", refutes=False)
    whole = gradient_over_all_keys(machine.world, outputs[0], gradients)
    names = frozenset(name for name, kind in saved.bound.splits.items() if kind == "merge")
    use = gradient_use(saved.op, saved.bound, position, inputs, {0: whole}, names)
    if use is None:
        raise Mismatch("part-gradient", "has no gradient", refutes=False)
    return run(machine.world, use, machine.total_slots)


def vjp_in_sequence(machine: Machine, saved: Saved, position: int, gradients: dict[int, Value]) -> Value | str:
    """Return the gradient of one operand of operators in sequence, the sum over the places where it is used."""
    found: list[Value] = []
    first = len(saved.steps) - len(saved.outputs)
    together = len(saved.steps[-1][0].outputs) == len(saved.outputs)
    given = {len(saved.steps) - 1: gradients} if together else {first + place: {0: value} for place, value in gradients.items()}
    for index in reversed(range(len(saved.steps))):
        if index not in given:
            continue
        step, places = saved.steps[index]
        inputs = tuple(value for value in step.inputs if value is not None)
        for place, operand in enumerate(places):
            if operand != position and not _reaches(saved, index + operand if operand < 0 else -1, position):
                continue
            value = evaluated_vjp(machine, step, inputs, place, given[index])
            if not isinstance(value, Value):
                continue
            if operand == position:
                found.append(_of_index(machine, saved.inputs[position], inputs[place], value))
            else:
                before, made = given.get(index + operand), saved.steps[index + operand][0]
                given[index + operand] = {0: _added(machine, made, before, value)}
    if not found:
        return "absent"
    operand_term = next(value.term for i, value in enumerate(saved.inputs) if i == position and value is not None)
    return _sum_of(machine, operand_term, found)


def _of_index(machine: Machine, operand: Slot, taken: Value, gradient: Value) -> Value:
    """Return the gradient of an operand, of which a plan that is derived alone takes an index out of all of its value."""
    if not machine.alone or operand is None or operand is taken or operand.term != taken.term:
        return gradient
    return machine.world.values.with_box(gradient, operand.box)


def _added(machine: Machine, step: Saved, before: dict[int, Value] | None, value: Value) -> Value:
    """Return the gradient of a step's result with what one more use adds to it."""
    (made,) = step.outputs
    if before is None or made is None:
        return value
    return _sum_of(machine, made.term, (before[0], value))


def _sum_of(machine: Machine, term: int, gradients: Sequence[Value]) -> Value:
    total = machine.world.values.gradient_sum(term, gradients)
    if total is None:
        raise Mismatch("mismatched-shards", "adds gradients of different slices", refutes=True)
    return total


def _reaches(saved: Saved, index: int, position: int) -> bool:
    """Return whether step `index` depends on operand `position` of the whole."""
    if index < 0:
        return False
    return any(
        offset == position or (offset < 0 and _reaches(saved, index + offset, position)) for offset in saved.steps[index][1]
    )
