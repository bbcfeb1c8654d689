"""Forward operators on one rank."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tvlint.analyses.dataflow.def_use import overwritten
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.relations.defect import STOPS, Constant, Defect, Fix, Substitute, at
from tvlint.analyses.relations.derivation.environment import (
    assign,
    declared_value,
    input_value,
    is_absent,
    is_gradient,
    operand_value,
    read,
    which,
)
from tvlint.analyses.relations.derivation.forward_rules import applied, call_of, check_fit, check_matrices, evaluated
from tvlint.analyses.relations.derivation.gradients.over_the_step import check_states, note_step
from tvlint.analyses.relations.derivation.gradients.recomputed import check_recomputed
from tvlint.analyses.relations.derivation.gradients.starts import uses_on
from tvlint.analyses.relations.derivation.localisation.advice import instead_of
from tvlint.analyses.relations.derivation.localisation.localise import bare_name, blame, name_of, tell
from tvlint.analyses.relations.derivation.localisation.sure import is_sure, note_cut, note_joined
from tvlint.analyses.relations.derivation.nearest_reference_value import Near
from tvlint.analyses.relations.derivation.operators.alike import expanded_alike
from tvlint.analyses.relations.derivation.operators.composite_operators import as_widened, has_groups, of_one_head
from tvlint.analyses.relations.derivation.operators.overwriting import as_function, forget_what_shares
from tvlint.analyses.relations.derivation.operators.packed import edge_of_shard
from tvlint.analyses.relations.derivation.operators.random_draws import drawn, note_drawn
from tvlint.analyses.relations.derivation.operators.unknown_operators import (
    attended,
    forget_what_it_reaches,
    other_values,
    takes_parts,
    why_unknown,
)
from tvlint.analyses.relations.derivation.own_values import with_values_of_their_own
from tvlint.analyses.relations.derivation.state import Copied, Foreign, Machine, RankState, Saved, Slot, computed_on
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import NOT_UNDERSTOOD, Backward, Compute, Literal
from tvlint.ir.plan import Phase, Role, Segment
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Family, MisfitError, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of
from tvlint.ops.usual_calls import as_copy


def compute(machine: Machine, rank: RankState, segment: Segment, operator: Compute) -> None:
    if segment.phase is Phase.DATA:
        load(machine, rank, operator)
        return
    if is_step(operator):
        note_step(machine, rank, operator)
        if machine.alone:
            check_states(machine, rank, operator)
    if machine.alone:
        _note_copy(machine, rank, segment, operator)
    written, operator = operator, as_function(machine, rank, segment, operator)
    stepped = _stepped(machine, rank, operator) if machine.alone and is_step(operator) and spec_of(operator.op) is None else {}
    try:
        results = _on_parts(machine, rank, operator)
    except Mismatch as mismatch:
        blame(machine, rank, written, mismatch)
        sure = machine.alone and mismatch.refutes and is_sure(machine, rank, operator, mismatch)
        results = beyond(machine, rank, operator) if sure else ()
        machine.derived.recovered.update(value.term for value in results if value is not None)
        if not results:
            rank.poisoned.add(operator.outputs)
            heads = attended(machine, rank, operator) if machine.alone and not sure else None
            results = (heads, *(None,) * (len(operator.outputs) - 1))
    except UnsupportedError as error:
        unsupported = Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False)
        tell(machine, rank, operator, unsupported, cause=_one_function(operator))
        rank.poisoned.add(operator.outputs)
        results = tuple(declared_value(machine, rank, name) for name in operator.outputs)
        unlike = other_values(machine, rank, operator) if machine.alone else None
        if unlike is not None:
            tell(machine, rank, operator, unlike)
        parts = takes_parts(machine, rank, operator) if machine.alone else None
        if parts is not None:
            blame(machine, rank, written, parts)
        if machine.alone and results and results[0] is None:
            results = (attended(machine, rank, operator), *results[1:])
    if machine.in_order:
        results = tuple(
            machine.in_order.get((rank.number, id(written), name), value)
            for name, value in zip(operator.outputs, results, strict=False)
        )
    for name, value in zip(operator.outputs, results, strict=False):
        assign(machine, rank, operator, name, value, written.inputs)
    if operator is not written:
        forget_what_shares(machine, rank, set(operator.outputs), f"`{written.op}`")
    rank.local.update(stepped)


def _on_parts(machine: Machine, rank: RankState, operator: Compute) -> tuple[Slot, ...]:
    """Return the results of an operator, on values of their own where it does not take parts of others."""
    try:
        return forward(machine, rank, operator)
    except Mismatch:
        if not with_values_of_their_own(machine, rank, operator.inputs):
            raise
        return forward(machine, rank, operator)


def _as_values(machine: Machine, operands: Iterable[Value]) -> tuple[Value, ...]:
    """Return the operands with multiples of values as values of their own."""
    found = list[Value]()
    for value in operands:
        if not value.clean and not value.leaves and value.fold is None and value.coefficient:
            times = Compute("torch.mul", ("value", Literal(float(value.coefficient))), ("",))
            value = applied(machine, times, machine.world.values.clean(value.term, value.box))
        found.append(value)
    return tuple(found)


def _note_copy(machine: Machine, rank: RankState, segment: Segment, operator: Compute) -> None:
    """Note what an operator puts in the place of a whole weight or state."""
    copy = as_copy(operator, machine.plan.tensors)
    if copy is operator:
        return
    (into,), (taken,) = copy.outputs, copy.inputs
    if machine.plan.tensors[into].role in (Role.WEIGHT, Role.STATE) and isinstance(taken, str):
        known = which(machine, rank, taken)
        copied = Copied(rank.number, operator, segment.name, into, taken, known, rank.local.get(taken))
        machine.derived.copies.append(copied)


def _stepped(machine: Machine, rank: RankState, operator: Compute) -> dict[str, Value]:
    """Return what an optimizer step of which only the kind is known puts in the place of its operands: element by element,
    so that a piece stays that piece.
    """
    terms, found = machine.world.terms, dict[str, Value]()
    for name in overwritten(operator):
        value = _before_step(machine, rank, operator, name)
        if value is not None and value.clean and terms.whole(value.term) == value.term:
            head = ("stepped", operator.op, *terms.keys[value.term][:2])
            term = terms.term(head, (value.term,), terms.shape[value.term], terms.slot[value.term])
            found[name] = machine.world.values.retermed(value, term)
    return found


def _before_step(machine: Machine, rank: RankState, operator: Compute, name: str) -> Slot:
    try:
        return operand_value(machine, rank, operator, name)
    except Mismatch:
        return None


def beyond(machine: Machine, rank: RankState, operator: Compute) -> tuple[Slot, ...]:
    """Return the results as if each operand were complete; empty where the operator does not take these pieces either."""
    held = {name: rank.local[name] for name in operator.tensor_operands if name in rank.local}
    wanted = {
        name: machine.world.values.clean(value.term, value.box)
        for name, value in held.items()
        if value is not None and not value.clean
    }
    if not wanted:
        return ()
    try:
        rank.local.update(wanted)
        return forward(machine, rank, operator)
    except (Mismatch, UnsupportedError):
        return ()
    finally:
        rank.local.update(held)


def _one_function(operator: Compute) -> Hashable:
    """Return what all calls of an unknown function have in common: one reason, not one for each layer."""
    if spec_of(operator.op) is not None or operator.in_place:
        return None
    return ("unknown function", operator.op, operator.source if NOT_UNDERSTOOD in operator.attributes else None)


def load(machine: Machine, rank: RankState, operator: Compute) -> None:
    """Load inputs, in a segment that does nothing else."""
    spec, tensors = spec_of(operator.op), machine.plan.tensors
    if spec is not None and spec.family is Family.INERT:
        give_nothing(rank, operator)
        return
    given = [name for name in operator.outputs if name in tensors and tensors[name].role is Role.INPUT]
    if spec is not None or operator.tensor_operands:
        text = "computes in a segment that loads data"
        tell(machine, rank, operator, Mismatch("computes-while-loading", text, refutes=False), fatal=True)
    elif not given:
        text = f"is not understood: {why_unknown(operator)}"
        tell(machine, rank, operator, Mismatch("unsupported-operator", text, refutes=False))
        forget_what_it_reaches(machine, rank, operator)
    rank.local.update(dict.fromkeys(operator.outputs))
    for name in given:
        rank.local[name] = input_value(machine, rank, name)


def give_nothing(rank: RankState, operator: Compute) -> None:
    """Note that what the operator gives is no part of the model."""
    rank.local.update(dict.fromkeys(operator.outputs))
    rank.undefined.update(dict.fromkeys(operator.outputs, f"what `{operator.op}` gives is no part of the model"))


def check_operands(machine: Machine, rank: RankState, operator: Compute, names: Sequence[str]) -> None:
    """Raise Mismatch where nothing makes what the operator is given; what there is of it does not matter."""
    for name in names:
        try:
            if not is_absent(machine, rank, operator, name):
                operand_value(machine, rank, operator, name)
        except Mismatch as mismatch:
            if mismatch.name in STOPS:
                raise


def forward(machine: Machine, rank: RankState, operator: Compute) -> tuple[Slot, ...]:
    """Return the results of the operator; none where its one operand is a gradient that nothing produces, which is zero."""
    form = machine.cases.form(operator, machine.plan.tensors)
    spec = form.spec
    names = operator.tensor_operands
    inert = spec is not None and spec.family is Family.INERT and not operator.in_place
    if spec is None or operator.in_place or (not operator.outputs and not inert):
        check_operands(machine, rank, operator, names)
        if not machine.alone or operator.in_place:
            forget_what_it_reaches(machine, rank, operator)
        raise UnsupportedError(why_unknown(operator))
    if inert:
        check_operands(machine, rank, operator, names)
        give_nothing(rank, operator)
        machine.derived.assumptions.update(filter(None, (spec.assumption,)))
        return ()
    gradients = [name for name in names if is_gradient(machine, name)]
    if any(is_absent(machine, rank, operator, name) for name in gradients):
        if len(names) > 1 or not keeps_zero(machine, form, names[0]):
            raise Mismatch("absent-gradient", "reads a gradient that nothing produces", refutes=False)
        rank.zero.update(operator.outputs)
        return ()
    values = [(operand_value if name in gradients else read)(machine, rank, operator, name) for name in names]
    operands = tuple([value for value in values if value is not None])
    if spec.family is not Family.IDENTITY:
        for name, value in zip(names, values, strict=True):
            if value is not None and not value.clean:
                rank.consumers.setdefault(name, (spec.name, operator))
    if len(operands) < len(values):
        rank.poisoned.add(operator.outputs)
        return (None,) * len(operator.outputs)
    draws = draws_of(machine, rank, form, operands)
    note_drawn(machine, rank, operator, draws)
    known = (*operands, *draws)
    key = (form, *known)
    found = machine.results.get(key)
    if found is None:
        if any(low == high for value in operands for low, high in value.box):
            raise UnsupportedError(f"`{form.op}` of no elements")
        try:
            found = machine.results[key] = evaluated(machine, form, spec, known)
        except UnsupportedError as unsupported:
            if not machine.alone and machine.world.terms.sealed >= 0:
                check_fit(machine, form, operands)
            if machine.alone and isinstance(unsupported, MisfitError):
                check_matrices(machine, form, operands)
            raise
        except Mismatch as mismatch:
            is_multiple = machine.alone and mismatch.name == "scaled-value"
            edge = _edge_for_others(machine, rank, operator, form, known) if mismatch.name == "split-dimension" else None
            if edge is None and (not is_multiple or is_sure(machine, rank, operator, mismatch)):
                raise
            found = edge or evaluated(machine, form, spec, _as_values(machine, known))
    assumption = spec.assumption or (found.bound.assumption if found.bound is not None else "")
    if assumption:
        machine.derived.assumptions.add(assumption)
    if Trait.BROADCAST in spec.traits or has_trait(found.op, Trait.BROADCAST):
        found = expanded_alike(machine, rank, found)
    results = found.outputs
    if machine.alone and results:
        note_joined(machine, rank, operator, names, values, results[0])
        note_cut(machine, rank, operator, values, results[0])
    if noted(machine, rank, results):
        results = recovered(machine, rank, operator, results, operands)
    rank.replaced.pop(operator.outputs, None)
    before, kept = rank.saved.get(operator.outputs, (operator, None))
    if kept is not None and before is not operator:
        rank.earlier[id(before)] = kept
        if machine.alone:
            check_recomputed(machine, rank, before, kept.outputs, operator, found.outputs)
    for each_input in operator.inputs:
        if isinstance(each_input, str):
            rank.readers.setdefault(each_input, set()).add(operator.outputs)
    rank.saved[operator.outputs] = (operator, found if results == found.outputs else replace(found, outputs=results))
    return results


def _edge_for_others(
    machine: Machine, rank: RankState, operator: Compute, form: Form, values: tuple[Value, ...]
) -> Saved | None:
    """Return a slice of a shard that only goes to other ranks, or beside what comes from them, as pieces of the whole value."""
    spec = form.spec
    if not machine.alone or spec is None or Trait.RANGES not in spec.traits or len(values) != 1:
        return None
    used = uses_on(machine, rank).readers
    readers = [reader for name in operator.outputs for reader in used.get(name, ())]
    goes_on = all(not isinstance(reader, Compute) or has_trait(reader.op, Trait.JOIN) for reader in readers)
    return edge_of_shard(machine, spec, form, values[0]) if readers and goes_on else None


def draws_of(machine: Machine, rank: RankState, form: Form, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the random numbers that the operator draws, as one more operand.

    Ranks that hold parts of one sum draw each for its own part; a part is no element, so nothing makes their draws one.
    """
    spec = form.spec
    if spec is None or not spec.may_draw:
        return ()
    call = of_one_head(machine, spec, call_of(machine, form, values), values)
    if has_groups(spec, call):
        call, values = as_widened(machine, call, values)
    draws = drawn(machine, rank, spec.name, spec.bind(call), values)
    if draws and any(value.leaves for value in values):
        raise Mismatch("missing-allreduce", "draws for a partial sum as if it were complete", refutes=True)
    return draws


def keeps_zero(machine: Machine, form: Form, name: str) -> bool:
    """Return whether the operator is linear in its one operand, so that it makes zero of zero."""
    assert form.spec is not None
    return frozenset({0}) in form.spec.bind(form.call([machine.plan.tensors[name].shape])).linear


def noted(machine: Machine, rank: RankState, results: tuple[Slot, ...]) -> bool:
    """Return whether the reference never computes some of the results; all are noted to be computed."""
    terms, foreign = machine.world.terms, False
    computed = computed_on(machine.plan, machine.derived, rank.number)
    for value in results:
        if value is not None:
            computed.add(value.term)
            foreign = foreign or terms.foreign(value.term)
    return foreign


def recovered(
    machine: Machine, rank: RankState, operator: Compute | Backward, results: tuple[Slot, ...], known: Sequence[Slot]
) -> tuple[Slot, ...]:
    """Return the results, with values that the reference never computes reported, and replaced if the derivation recovers."""
    terms = machine.world.terms
    if any(value is not None and terms.foreign(value.term) for value in known):
        return results
    replaced = []
    names = operator.outputs if isinstance(operator, Compute) else ("",)
    for name, value in zip(names, results, strict=False):
        known_term = value is None or not terms.foreign(value.term) or _is_share(terms, value.term)
        if value is None or known_term or terms.keys[value.term][0] == "gradient-sum":
            replaced.append(value)
            continue
        near = machine.nearest.to(value.term, rank.number) if machine.nearest is not None else None
        if near is not None and near.kind == "operator" and (not value.clean or _casts(operator)):
            near = None
        if near is not None and not _is_of_type(machine, name, near.term):
            near = None
        subject = name_of(operator)
        text = near.text if near is not None else "is applied to values that the reference does not apply it to"
        if isinstance(operator, Compute) and (near is None or near.kind == "operator"):
            text += instead_of(operator.op)
        defect = Defect(
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
            Foreign(at(operator, segment, defect), value.term, near.term if near else None, forward_of(operator))
        )
        replaced.append(machine.world.values.retermed(value, near.term) if near is not None else value)
    return tuple(replaced)


def _is_share(terms: Terms, term: int) -> bool:
    """Return whether the term is a multiple of a number of which each plan takes the share of its own micro-batches."""
    return terms.accumulates and not terms.shape[term] and multiplied(terms, term) is not None


def _is_of_type(machine: Machine, name: str, term: int) -> bool:
    """Return whether the tensor holds whole numbers where the term does, as far as both are known."""
    tensor, known = machine.plan.tensors.get(name), machine.dtypes.get(term, "")
    word = tensor.dtype if tensor is not None else ""
    return not word or not known or holds_whole_numbers(word) == holds_whole_numbers(known)


def _casts(operator: Compute | Backward) -> bool:
    """Return whether the operator only changes the type of numbers, and so stands in the place of no other."""
    return has_trait(operator.op if isinstance(operator, Compute) else operator.forward.op, Trait.CONVERSION)


def forward_of(operator: Compute | Backward) -> tuple[str, ...]:
    """Return the outputs of the forward operator."""
    return operator.outputs if isinstance(operator, Compute) else operator.forward.outputs


def fix_of(operator: Compute, near: Near) -> Fix | None:
    """Return the change that makes a forward operator what the reference has."""
    if near.difference is not None:
        expected, actual = near.difference
        return Constant(operator, actual, expected)
    return Substitute(operator, near.expected) if near.kind == "operator" else None


def literals(operator: Compute) -> tuple[Any, ...]:
    return tuple((i, o.value, type(o.value)) for i, o in enumerate(operator.inputs) if isinstance(o, Literal))
