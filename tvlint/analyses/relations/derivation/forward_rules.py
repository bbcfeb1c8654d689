"""Transfer relations through forward operators, by family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from tvlint.analyses.relations.derivation.environment import parts_of_one
from tvlint.analyses.relations.derivation.operators.alike import filled_alike
from tvlint.analyses.relations.derivation.operators.composite_operators import (
    as_widened,
    evaluated_once,
    grouped,
    has_groups,
    in_sequence,
    normalised_in_groups,
    of_one_head,
    repeated,
    repeated_along,
    view_size,
)
from tvlint.analyses.relations.derivation.operators.halves import of_halves
from tvlint.analyses.relations.derivation.operators.heads import of_one_head_alone
from tvlint.analyses.relations.derivation.operators.implicit_causal_mask import below_the_diagonal
from tvlint.analyses.relations.derivation.operators.mirrored import mirrored
from tvlint.analyses.relations.derivation.operators.packed import joined_together, slice_of_pieces, taken_apart
from tvlint.analyses.relations.derivation.operators.rows_in_order import rows_in_order
from tvlint.analyses.relations.derivation.operators.slices import (
    as_slices,
    counted,
    cut_out,
    side_by_side_pieces,
    sliced_locally,
)
from tvlint.analyses.relations.derivation.operators.triangles import some_rows
from tvlint.analyses.relations.derivation.state import Machine, Saved, Slot
from tvlint.analyses.relations.terms.loss_identities import factor_of, is_gradient
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.memo import Case, Form
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.analyses.relations.transfer.reshape import readings, viewed
from tvlint.analyses.relations.transfer.ring_attention import ATTENTION, merge, merges_parts
from tvlint.ir.operators import Compute
from tvlint.ops.spec import ONE, Bound, Call, Family, MisfitError, OpSpec, Shape, Trait, UnsupportedError
from tvlint.ops.table import adds_both, has_trait


def call_of(machine: Machine, form: Form, values: tuple[Value, ...]) -> Call:
    """Return the operator on whole operands."""
    return form.call(machine.world.logical_shape(value, machine.total_slots) for value in values)


def applied(machine: Machine, operator: Compute, *values: Value) -> Value:
    """Return what an operator of no plan makes of values. Raises UnsupportedError where it makes nothing that is known."""
    form = machine.cases.form(operator, {})
    made = None if form.spec is None else evaluated(machine, form, form.spec, values).outputs[0]
    if made is None:
        raise UnsupportedError
    return made


def evaluated(machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...]) -> Saved:
    """Return the operator's results, with what its gradient needs.

    What a rank holds of a dimension is a value of its own, which the operator takes where it does not take a part of one.
    """
    is_reference = machine.world.terms.sealed < 0
    if is_reference and (halves := of_halves(machine, spec, form, values, partial(_evaluated, machine))) is not None:
        return halves
    rows = rows_in_order(machine, spec, form, values, partial(_evaluated, machine))
    if rows is not None:
        return rows
    evaluate = partial(_evaluated, machine)
    restricted = set(machine.world.terms.restricted)
    try:
        saved = _of_parts(machine, form, spec, values)
        if not _is_foreign(machine, saved):
            return saved
        asked = machine.world.terms.restricted - restricted
        machine.world.terms.restricted -= asked
        alone = of_one_head_alone(machine, spec, form, values, evaluate)
        machine.world.terms.restricted |= asked if alone is None else set()
        return alone or saved
    except (Mismatch, UnsupportedError) as failed:
        alone = of_one_head_alone(machine, spec, form, values, evaluate)
        if alone is not None:
            return alone
        misfit = isinstance(failed, MisfitError) or (isinstance(failed, Mismatch) and failed.name == "mismatched-dimensions")
        fitting = _of_pieces(machine, form, spec, values) if machine.alone and misfit else None
        if fitting is not None:
            return fitting
        if spec.may_draw:
            raise
        halves = of_halves(machine, spec, form, values, partial(_evaluated, machine))
        if halves is not None:
            return halves
        if machine.alone and not isinstance(failed, UnsupportedError):
            raise
        alike = filled_alike(machine, spec, form, values)
        found = next(of_slices(machine, form, spec, values, alike), None)
        if found is None:
            raise
        return found


def of_slices(
    machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...], alike: tuple[Saved | None, ...] | None = None
) -> Iterator[Saved]:
    """Yield the operator's results on operands that are all of a slice each, of what the rank holds of a dimension."""
    for cuts in (*([alike] if alike else ()), *as_slices(machine, values, partial(_evaluated, machine))):
        try:
            yield _of_fitted(machine, form, spec, values, cuts, keeps=cuts is not alike)
        except (Mismatch, UnsupportedError):
            continue


def _of_fitted(
    machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...], cuts: Sequence[Saved | None], keeps: bool
) -> Saved:
    """Return the operator's results on what is cut out of operands; their gradients are those of the cuts where it `keeps`
    these.
    """
    operands = tuple(values[place] if cut is None else cut.outputs[0] for place, cut in enumerate(cuts))
    saved = _of_parts(machine, form, spec, tuple(value for value in operands if value is not None))
    steps = [(cut, (place,)) for place, cut in enumerate(cuts) if cut is not None]
    steps = [(cut if keeps else replace(cut, outputs=(None,)), places) for cut, places in steps]
    order = {place: number - len(steps) for number, (_, (place,)) in enumerate(steps)}
    last = (saved, tuple(order.get(place, place) for place in range(len(values))))
    return Saved(saved.op, saved.bound, Family.INDEXED, values, saved.outputs, (*steps, last))


def _is_foreign(machine: Machine, saved: Saved) -> bool:
    """Return whether the reference does not compute some of the results."""
    return any(value is not None and machine.world.terms.foreign(value.term) for value in saved.outputs)


def _of_pieces(machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...]) -> Saved | None:
    """Return the operator's results where it takes indices of a value that are the piece which the rank has of another; None
    where nothing is known of that.

    Raises Mismatch where they do not fit the piece: whole, the two do not fit at all. Elements may be combined with the same
    indices on every rank where each shard starts anew, as positions do in sequences of their own.
    """
    pieces = tuple(_cut_piece(machine, value) for value in values)
    pairs = zip(values, pieces, strict=True)
    cuts = [None if one == piece else Saved("slice", None, Family.RESHAPE, (one,), (piece,)) for one, piece in pairs]
    if not any(cuts):
        return None
    try:
        return _of_fitted(machine, form, spec, values, cuts, keeps=False)
    except Mismatch as mismatch:
        if mismatch.refutes and mismatch.name == "mismatched-shards":
            mismatch.unless = "each shard starts anew"
        if mismatch.refutes and mismatch.name.endswith("mismatched-shards"):
            raise
    except UnsupportedError:
        pass
    return None


def _cut_piece(machine: Machine, value: Value) -> Value:
    """Return the piece of a value that a slice of it is; the value itself where it is none."""
    terms = machine.world.terms
    head, operands = terms.keys[value.term], terms.operands[value.term]
    ranges = head[2] if len(head) > 2 and has_trait(str(head[0]), Trait.RANGES) and len(operands) == 1 else ()
    in_ones = all(cut is None or (isinstance(cut, tuple) and cut[2] == 1) for cut in ranges)
    if not ranges or len(ranges) != len(value.box) or not value.clean or not in_ones:
        return value
    box = tuple(bounds if cut is None else cut[:2] for bounds, cut in zip(value.box, ranges, strict=True))
    whole = all(cut is None or bounds == (0, cut[1] - cut[0]) for bounds, cut in zip(value.box, ranges, strict=True))
    return machine.world.values.clean(operands[0], box) if whole else value


def _evaluated(machine: Machine, form: Form, values: tuple[Value, ...]) -> Saved:
    """Return what an operator of the table gives, which another one is made of."""
    if form.spec is None:
        raise AssertionError(f"the operator table has no `{form.op}`")
    return evaluated(machine, form, form.spec, values)


def _of_parts(machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...]) -> Saved:
    """Return the operator's results on what the ranks hold of whole values."""
    packed = _of_packed(machine, form, spec, values) if machine.alone else None
    if packed is not None:
        return packed
    shapes = None if spec.of_all is None else tuple(machine.world.local_shape(value) for value in values)
    key = (form, shapes, *[value.extent for value in values])
    case = machine.cases.known.get(key)
    if case is None:
        call = of_one_head(machine, spec, call_of(machine, form, values), values)
        if spec.of_all is not None and shapes is not None:
            call = spec.of_all(form.call(shapes), call)
        if Trait.BROADCAST in spec.traits:
            dim, times = _repeated_dimension(form, call.shape(0), machine.world.local_shape(values[0]))
            if times > 1 and dim == machine.world.terms.slot[values[0].term]:
                raise UnsupportedError(f"`{form.op}` of one row of the batch")
            if times > 1:
                _check_sizes(spec, form.call(machine.world.local_shape(value) for value in values))
                return repeated_along(machine, values[0], dim, times)
        name = form.op if spec.assumption else spec.name
        if has_groups(spec, call):
            inner, _ = as_widened(machine, call, values)
            return grouped(machine, name, spec.bind(inner).given_draws(), call, values)
        if len(values) == 1 and not spec.traits.isdisjoint((Trait.RANGES, Trait.VIEW)) and spec.family is Family.INDEXED:
            cut = sliced_locally(machine, spec, form, call, values[0])
            if cut is not None:
                return cut
        bound = _bind(machine, form, spec, call, values).given_draws()
        if machine.alone:
            bound = _by_rows(bound, call)
        steps = spec.steps(call) if spec.steps is not None else ()
        if steps and not {position for _, given in steps for position in given}.issuperset(range(len(values))):
            _check_sizes(spec, form.call(machine.world.local_shape(value) for value in values))
        everything = bool(values) and takes_everything(form, spec, machine.world.local_shape(values[0]))
        case = machine.cases.known[key] = Case(name, call, bound, steps, everything)
    return evaluated_case(machine, form, spec, case, values)


def _bind(machine: Machine, form: Form, spec: OpSpec, call: Call, values: tuple[Value, ...]) -> Bound:
    """Return the meaning of an operator on whole operands; raises Mismatch where it states the size of a shard in the place of
    a dimension that it needs all of: a norm over what a rank has, with that part of its weight.

    With a weight that is no shard, the rank's part may be one of several heads; with a reference, it may be a group.
    """
    try:
        return spec.bind(call)
    except MisfitError:
        shapes = [machine.world.local_shape(value) for value in values]
        whole = [machine.world.logical_shape(value, machine.total_slots) for value in values]
        local = spec.bind(form.call(shapes))
        for name in local.whole if len(local.operands) == len(values) else ():
            places = [(at, names.index(name)) for at, names in enumerate(local.operands) if name in names]
            sizes = {(whole[at][dim], shapes[at][dim]) for at, dim in places}
            size, held = max(sizes, default=(0, 0))
            if len(places) > 1 and len(sizes) == 1 and held < size:
                low, high = values[places[0][0]].box[places[0][1]]
                text = f"needs a whole dimension of {size} and gets indices {low}:{high} of it"
                unless = "each rank has a group that is normalised apart"
                raise Mismatch("split-dimension", text, refutes=machine.alone, operand=places[0][0], unless=unless) from None
        raise


def _of_packed(machine: Machine, form: Form, spec: OpSpec, values: tuple[Value, ...]) -> Saved | None:
    """Return what takes apart, or joins, tensors of which a rank holds some pieces; None for everything else."""

    def evaluate(form: Form, values: tuple[Value, ...]) -> Saved:
        return evaluated(machine, form, spec, values)

    if len(values) == 1 and Trait.APART in spec.traits:
        return taken_apart(machine, spec, form, values[0], evaluate)
    if len(values) == 1 and Trait.RANGES in spec.traits:
        return slice_of_pieces(machine, spec, form, values[0])
    return joined_together(machine, spec, form, values, evaluate) if len(values) > 1 and Trait.JOIN in spec.traits else None


def _by_rows(bound: Bound, call: Call) -> Bound:
    """Return the meaning of a lookup in a table of which a rank may hold some rows: it gives zero for all other rows.

    Plans name the kernels that do so like those that do not, and leave out which rows they are.
    """
    linear = {position for group in bound.linear for position in group}
    held = {name: {at for at, names in enumerate(bound.operands) if name in names} for name in bound.indices.values()}
    rows = frozenset(name for name, at in held.items() if at and at <= linear)
    if not rows:
        return bound
    sizes = {name: call.shape(at)[bound.operands[at].index(name)] for name in rows for at in sorted(held[name])[:1]}
    ranges = {name: stated for name, stated in bound.ranges.items() if stated != (0, sizes.get(name))}
    return replace(bound, whole=bound.whole - rows, reduced=bound.reduced | rows, ranges=ranges)


def check_fit(machine: Machine, form: Form, values: tuple[Value, ...], results: Sequence[Slot] = ()) -> None:
    """Raise Mismatch for an operator that no framework runs on what the rank holds, or that gives results of other shapes."""
    if form.spec is None:
        return
    shapes = [machine.world.local_shape(value) for value in values]
    call = form.call(shapes)
    try:
        bound = form.spec.bind(call)
        sizes = bound.sizes_of(call.op, shapes)
    except MisfitError as misfit:
        raise Mismatch("shape-mismatch", f"does not run: {misfit}", refutes=True) from None
    except (UnsupportedError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        return
    for names, result in zip(bound.outputs, results, strict=False):
        if result is None or not sizes.keys() >= set(names):
            continue
        given, taken = tuple(sizes[name] for name in names), machine.world.local_shape(result)
        if given != taken:
            raise Mismatch("shape-mismatch", f"gives shape {given}, and what ran gave {taken}", refutes=True)


def check_matrices(machine: Machine, form: Form, values: tuple[Value, ...]) -> None:
    """Raise Mismatch where matrices of a weight that a rank has meet as many of a value that is cut along another dimension.

    What is repeated, once for each matrix of the rank, has as many as the rank has.
    """
    terms, shape = machine.world.terms, machine.world.local_shape
    if len(values) != 2 or not has_trait(form.op, Trait.CONTRACTION) or any(len(shape(value)) != 3 for value in values):
        return
    check_fit(machine, form, values)
    for value, other in (values, values[::-1]):
        numbers, held = [terms.shape[each.term][0] for each in (value, other)], shape(value)[0]
        is_part = shape(other) != terms.shape[other.term] and terms.slot[other.term] != 0
        is_cut = numbers[0] > held > 1 and numbers[1] == held and is_part
        if is_cut and _is_of_weight(terms, value.term) and not _is_repeated(terms, other.term):
            text = f"multiplies {held} of the {numbers[0]} matrices of a weight with all {held} of another value"
            raise Mismatch("mismatched-shards", text, refutes=True)


def _is_of_weight(terms: Terms, term: int) -> bool:
    while len(terms.operands[term]) == 1 and has_trait(str(terms.keys[term][0]), Trait.VIEW, Trait.CONVERSION):
        (term,) = terms.operands[term]
    return bool(terms.keys[term][0] == "weight")


def _is_repeated(terms: Terms, term: int) -> bool:
    """Return whether a value is made of repetitions of another one, or of what is put together, at any time."""
    seen, waiting = {term}, [term]
    while waiting:
        each = waiting.pop()
        if has_trait(str(terms.keys[each][0]), Trait.BROADCAST, Trait.JOIN, Trait.FILLED):
            return True
        waiting += set(terms.operands[each]) - seen
        seen |= set(terms.operands[each])
    return False


def _check_sizes(spec: OpSpec, call: Call) -> None:
    """Raise UnsupportedError where the operands do not fit each other, of which some are only looked at for their shape."""
    sizes: dict[str, int] = {}
    for position, names in enumerate(spec.bind(call).operands):
        for name, size in zip(names, call.shape(position), strict=True):
            if name != ONE and sizes.setdefault(name, size) != size:
                raise UnsupportedError(f"`{call.op}` of shapes {', '.join(map(str, call.inputs))}")


def _repeated_dimension(form: Form, whole: Shape, local: Shape) -> tuple[int, int]:
    """Return the dimension of which a rank's one element of several is repeated, and how often.

    Raises UnsupportedError where the result is not known, or other dimensions are repeated or made with it.
    """
    made = form.outputs[0] if form.outputs else None
    if made is None:
        raise UnsupportedError(f"`{form.op}` into a tensor that the plan does not declare")
    new = len(made) - len(local)
    if new < 0:
        raise UnsupportedError(f"`{form.op}` of shape {local} into {made}")
    longer = [dim for dim, (size, wanted) in enumerate(zip(local, made[new:], strict=True)) if size != wanted]
    of_several = [dim for dim in longer if local[dim] == 1 != whole[dim]]
    if not of_several:
        return -1, 1
    dim = of_several[0]
    if new or len(longer) > 1:
        raise UnsupportedError(f"`{form.op}` of one element of {whole[dim]} to {made[new + dim]}")
    return dim, made[dim]


def evaluated_case(machine: Machine, form: Form, spec: OpSpec, case: Case, values: tuple[Value, ...]) -> Saved:
    """Return the operator's results where its case is known."""
    name, call, bound, count = case.name, case.call, case.bound, len(form.outputs)
    in_steps = in_sequence(machine, name, bound, case.steps, values, call.outputs) if case.steps else None
    if in_steps is not None:
        return in_steps
    if spec.family is Family.IDENTITY:
        return Saved(name, bound, spec.family, values, (values[0],) * count)
    if spec.family is Family.RESHAPE:
        return Saved(name, bound, spec.family, values, (view_of(machine, case, values[0]),))
    if case.everything:
        return Saved(name, bound, Family.IDENTITY, values, (values[0],) * count)
    if spec.name == "repeat-interleave":
        return repeated(machine, bound, values, call)
    if spec.name == "group-norm":
        return normalised_in_groups(machine, bound, values, call)
    if spec.family is Family.MERGE and merges_parts(values):
        return Saved(name, bound, Family.MERGE, values, merge(machine.world, values)[: max(1, count)])
    if len(values) == 2 and adds_both(spec.name, bound.attributes) and parts_of_one(*values):
        return Saved(name, bound, Family.IDENTITY, values, (more_of_one(machine, values),))
    if len(values) == 1 and not spec.traits.isdisjoint((Trait.RANGES, Trait.SELECTION)):
        return cut_out(machine, spec, form, values, lambda: evaluated_once(machine, case, values))
    if (not values and Trait.POSITIONS in spec.traits) or (len(values) == 1 and Trait.SUM in spec.traits):
        return counted(machine, case, values, evaluated_once(machine, case, values))
    if machine.alone and Trait.MIRROR in spec.traits:
        return mirrored(machine, bound, values[0], lambda values: evaluated_once(machine, case, values))
    if Trait.TRIANGLE in spec.traits and len(values) == 1:
        return some_rows(machine, evaluated_once(machine, case, values))
    if Trait.JOIN in spec.traits and len(values) > 1 and len(bound.operands) == len(values):
        return side_by_side_pieces(
            machine, bound, values, lambda: evaluated_once(machine, case, values), partial(_evaluated, machine)
        )
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
    """Return the operand under another shape."""
    world = machine.world
    choices = case.uses.get("view")
    if choices is None:
        shape = world.local_shape(value)
        choices = case.uses["view"] = readings(world, value, view_size(case.call, shape))
    return viewed(world, value, choices)


def takes_everything(form: Form, spec: OpSpec, shape: tuple[int, ...]) -> bool:
    """Return whether the operator takes a slice of its one operand, of local shape `shape`, that is all of it."""
    if Trait.RANGES not in spec.traits:
        return False
    bound = spec.bound(replace(form.call([shape] * form.operands.count(None)), outputs=()))
    if bound is None:
        return False
    if Trait.APART in spec.traits:
        return len(bound.attributes) == 1
    if len(bound.operands) != 1:
        return False
    taken = [(0, size, 1) if attribute is None else attribute for attribute, size in zip(bound.attributes, shape, strict=True)]
    return len(bound.outputs[0]) == len(shape) and taken == [(0, size, 1) for size in shape]


def scaled_gradient(machine: Machine, value: Value, result: Value, factor: Fraction) -> Value:
    """A gradient that is multiplied with a constant where the reference does not is a multiple of that gradient.

    So is every gradient where the reference accumulates: each plan then divides by the number of its own micro-batches.
    """
    terms, value_term = machine.world.terms, machine.world.terms.whole(value.term)
    same = (terms.shape[value.term], terms.slot[value.term]) == (terms.shape[result.term], terms.slot[result.term])
    apart = terms.accumulates or terms.foreign(result.term)
    if terms.normal or not same or not apart or not is_gradient(terms, value_term):
        return result
    return machine.world.values.scaled(value, factor)


def more_of_one(machine: Machine, values: tuple[Value, ...]) -> Value:
    """Return the sum of two different parts of one value, which is more of that value."""
    try:
        total = machine.world.values.sum_over(values[0].term, values)
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same value in different ways"
        raise Mismatch("ambiguous-sum", text, refutes=False) from None
    if total is None:
        raise Mismatch("mismatched-shards", "adds different slices of a value", refutes=True)
    return total
