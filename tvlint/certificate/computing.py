"""Checking forward operators and their gradients on one rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvlint.certificate.attention import merge_gradient, merged, part_gradient
from tvlint.certificate.form import Relation
from tvlint.certificate.operators import extents_of, made
from tvlint.certificate.running import Rank, Running, assign, claim, hold, incoming, read
from tvlint.certificate.sequences import REPEAT, by_name, once, repeated, widened
from tvlint.certificate.sums import added, fold_of
from tvlint.certificate.tables import Rejected
from tvlint.certificate.uses import Kept, Steps, gradient_use
from tvlint.certificate.views import view, view_gradient
from tvlint.ir.operators import Backward, Compute, Literal
from tvlint.ops.shaping import view_sizes
from tvlint.ops.spec import PREVIOUS, Call, Family, OpSpec
from tvlint.ops.table import spec_of


def compute(run: Running, rank: Rank, own: Compute) -> None:
    """Check a forward operator, or any other that is written out."""
    spec = spec_of(own.op)
    if spec is None or own.in_place:
        raise Rejected(f"`{own.op}` is not in the operator table, or overwrites its operand")
    names = [operand for operand in own.inputs if not isinstance(operand, Literal)]
    found = [read(run, rank, name) for name in names]
    values = tuple(value for value in found if value is not None)
    if len(values) != len(found):
        if len(names) > 1 or not _keeps_zero(run, own, spec, names[0]):
            raise Rejected(f"`{own.op}` reads a gradient that nothing makes")
        return
    if spec.family is Family.RESHAPE:
        kept = _viewed(run, rank, own, spec, values)
    else:
        draws = _drawn(run, rank, own, spec, values) if spec.may_draw else ()
        key = (own.op, id(own.attributes), _literals(own), tuple(map(id, (*values, *draws))), _shapes(run, own))
        if key not in run.memo:
            run.memo[key] = _kept(run, own, spec, values, draws)
        kept = run.memo[key]
        held = tuple(
            assign(run, rank, name, value, name in names, True) for name, value in zip(own.outputs, kept.outputs, strict=True)
        )
        if any(one is not other for one, other in zip(held, kept.outputs, strict=True)):
            kept = run.memo.setdefault(("held", id(kept), *map(id, held)), replace(kept, outputs=held))
    assumption = spec.assumption or kept.bound.assumption
    if assumption:
        run.assumptions.add(assumption)
    _, before = rank.kept.get(own.outputs, (own, kept))
    again = (*before.inputs, *before.outputs), (*kept.inputs, *kept.outputs)
    if tuple(map(id, again[0])) != tuple(map(id, again[1])):
        raise Rejected(f"`{own.op}` runs twice on rank {rank.number}, on different operands, which gradients cannot tell apart")
    rank.kept[own.outputs] = (own, kept)
    rank.replaced.pop(own.outputs, None)


def _literals(own: Compute) -> tuple[Any, ...]:
    return tuple((i, repr(operand.value)) for i, operand in enumerate(own.inputs) if isinstance(operand, Literal))


def _shapes(run: Running, own: Compute) -> tuple[tuple[int, ...], ...]:
    return tuple(run.plan.tensors[name].shape if name in run.plan.tensors else () for name in own.outputs)


def _keeps_zero(run: Running, own: Compute, spec: OpSpec, name: str) -> bool:
    shape = run.plan.tensors[name].shape
    inputs = tuple(operand if isinstance(operand, Literal) else shape for operand in own.inputs)
    return frozenset({0}) in spec.bind(Call(own.op, inputs, own.attributes, _shapes(run, own))).linear


def _call(run: Running, own: Compute, values: Sequence[Relation]) -> Call:
    rest = iter(values)
    inputs = tuple(own if isinstance(own, Literal) else run.world.whole_shape(next(rest)) for own in own.inputs)
    return Call(own.op, inputs, own.attributes, _shapes(run, own))


def _viewed(run: Running, rank: Rank, own: Compute, spec: OpSpec, values: tuple[Relation, ...]) -> Kept:
    """A view, for which the certificate says which of the possible readings of its sizes is meant."""
    call = _call(run, own, values)
    bound = spec.bind(call)
    if len(values) != 1:
        raise Rejected(f"`{own.op}` of {len(values)} tensors")
    after = _view_size(call, run.world.local_shape(values[0]))
    said = claim(run, rank)
    if said is None or len(own.outputs) != 1 or view(run.world, values[0], after, said) is not said:
        raise Rejected(f"the view `{own.outputs[0]}` on rank {rank.number} is not what the certificate says it is")
    hold(run, rank, own.outputs[0], said, own.outputs[0] in own.inputs, True)
    return Kept(spec.name, bound, spec.family, values, (said,))


def _view_size(call: Call, before: tuple[int, ...]) -> tuple[int, ...]:
    size = view_sizes(call, before)
    sizes = [n for n in size if type(n) is int] if isinstance(size, tuple) else []
    known = prod(n for n in sizes if n != -1)
    if not isinstance(size, tuple) or len(sizes) != len(size) or sizes.count(-1) > 1 or known < 1 or prod(before) % known:
        raise Rejected(f"a view of {before} as {size} is not understood")
    return tuple(prod(before) // known if n == -1 else n for n in sizes)


def _drawn(run: Running, rank: Rank, own: Compute, spec: OpSpec, values: tuple[Relation, ...]) -> tuple[Relation, ...]:
    """The random numbers that the operator draws: of every draw for the same elements a value of its own.

    A value that no dimension of the batch tells apart is drawn for anew in every micro-batch and replica, and here once.
    """
    call, operands, _ = widened(run.world, spec, _call(run, own, values), values)
    bound = spec.bind(call)
    if bound.draws is None:
        return ()
    of = [(bound.operands[i], operands[i]) for i in bound.draws.of]
    extents = extents_of(run.world, of)
    found = [extents[name] for name in bound.draws.names]
    slot = next((i for i, extent in enumerate(found) if extent.slotted), -1)
    if any(value.parts for _, value in of) or (slot < 0 and run.world.total > 1):
        raise Rejected(f"`{own.op}` draws random numbers for a part of a sum, or for what all of the batch has in common")
    box, terms = tuple((extent.low, extent.high) for extent in found), tuple(value.term for _, value in of)
    before = rank.draws.setdefault((spec.name, terms), [])
    if any(all(a < d and c < b for (a, b), (c, d) in zip(box, other, strict=True)) for other in before if other != box):
        raise Rejected(f"`{own.op}` draws random numbers for elements of which some have more before than others")
    term = run.world.tables.term(("draw", spec.name, before.count(box)), terms, tuple(own.size for own in found), slot)
    before.append(box)
    return (run.world.tables.relation(term, box),)


def _kept(run: Running, own: Compute, spec: OpSpec, given: tuple[Relation, ...], draws: tuple[Relation, ...]) -> Kept:
    call, operands, wide = widened(run.world, spec, _call(run, own, given), given)
    if spec.name == "expand" and any(name not in run.plan.tensors for name in own.outputs):
        raise Rejected(f"`{own.op}` makes a tensor that the plan does not declare")
    bound, values = spec.bind(call).given_draws(), (*operands, *draws)
    name = own.op if spec.assumption else spec.name
    steps = spec.steps(call) if spec.steps is not None else ()
    if spec.family is Family.IDENTITY:
        return Kept(name, bound, spec.family, values, (values[0],) * len(own.outputs))
    if spec.family is Family.MERGE and any(fold_of(value) is not None for value in values):
        results = merged(run.world, values)
        return Kept(name, bound, spec.family, values, results[: max(1, len(own.outputs))])
    if spec.family not in (Family.INDEXED, Family.MERGE):
        raise Rejected(f"`{own.op}` is not known to the checker")
    if spec.name == "add" and bound.attributes == (1,) and _parts_of_one(values):
        return Kept(name, bound, Family.IDENTITY, values, (added(run.world.tables, values),))
    if spec.name == REPEAT:
        return repeated(run.world, values[0], bound)
    if wide:
        last = once(run.world, name, bound, values, call)
        steps_of = ((wide[0], (1,)), (wide[1], (2,)), (last, (0, -2, -1, *range(3, len(values)))))
        return Kept(name, bound, Family.INDEXED, (*given, *draws), last.outputs, steps_of)
    if not steps:
        return once(run.world, name, bound, values, call)
    done: list[tuple[Kept, tuple[int, ...]]] = []
    for op, positions in steps:
        operands = tuple(done[-1][0].outputs[0] if i == PREVIOUS else values[i] for i in positions)
        shapes = call.outputs if len(done) == len(steps) - 1 else ()
        done.append((by_name(run.world, op, operands, {}, shapes), positions))
    return Kept(name, bound, Family.INDEXED, values, done[-1][0].outputs, tuple(done))


def _parts_of_one(values: tuple[Relation, ...]) -> bool:
    """Whether what is added are different parts of one value, or one of them is zero: together they are more of it."""
    if len(values) != 2 or values[0].term != values[1].term or any(fold_of(value) is not None for value in values):
        return False
    one, other = values
    zero = any(not value.parts and value.coefficient == 0 for value in values)
    return zero or (one is not other and bool(one.parts or other.parts))


def backward(run: Running, rank: Rank, own: Backward) -> None:
    """Check the gradient of a forward operator that ran before."""
    ran, kept = rank.kept.get(own.forward.outputs, (None, None))
    if kept is None and own.forward.outputs not in _computed(run):
        ran, kept = own.forward, _anew(run, rank, own.forward)
    if kept is None or (ran is not own.forward and not _same(run, rank, kept, ran, own.forward)):
        raise Rejected(f"a gradient on rank {rank.number} is that of an operator that did not run before")
    operands = [operand for operand in own.forward.inputs if not isinstance(operand, Literal)]
    if ran is not None and ran.inputs == own.forward.inputs:
        _check_unchanged(rank, own, kept, operands)
    given: dict[int, Relation] = {}
    for position, name in enumerate(own.inputs):
        value = incoming(run, rank, name) if name else None
        if value is not None:
            given[position] = value
    _check_places(run, own.inputs, own.forward.outputs)
    _check_places(run, own.outputs, operands)
    if not given:
        return
    named = [name for name in own.inputs if name]
    if len(own.outputs) > len(operands) or len(own.inputs) > len(kept.outputs) or len(set(named)) != len(named):
        raise Rejected(f"a gradient of `{own.forward.op}` has other operands than the operator, or one of them twice")
    for position, name in enumerate(own.outputs):
        if not name:
            continue
        key = ("gradient", id(kept), position, tuple((i, id(value)) for i, value in given.items()))
        if key not in run.memo:
            run.memo[key] = (kept, _gradient(run, kept, position, given))
        value = run.memo[key][1]
        if value is not None:
            assign(run, rank, name, value, False, True)
        elif run.of.get(name) and operands[position] not in run.of[name]:
            raise Rejected(f"`{name}` is said to be the gradient of `{operands[position]}`, which has none")


def _check_unchanged(rank: Rank, own: Backward, kept: Kept, operands: Sequence[str]) -> None:
    """Rejects a gradient that needs an operand which communication has changed since the forward operator read it.

    What else an operand's name may mean here is what it was there.
    """
    changed = rank.replaced.get(own.forward.outputs)
    for name, value in zip(operands, kept.inputs, strict=False):
        if rank.local.get(name, value) is not value and name not in (changed or ()):
            raise Rejected(f"a gradient of `{own.forward.op}` on rank {rank.number} is given another value as `{name}`")
    if not changed or kept.family in (Family.IDENTITY, Family.RESHAPE):
        return
    for asked, _ in filter(lambda place: place[1], enumerate(own.outputs)):
        groups = () if kept.steps else (kept.bound.shape_only, *(group for group in kept.bound.linear if asked in group))
        spared = frozenset[int]().union(*groups)
        if any(name in changed for place, name in enumerate(operands) if place not in spared):
            raise Rejected(f"a gradient on rank {rank.number} needs an operand of `{own.forward.op}` that is changed since")


def _computed(run: Running) -> frozenset[tuple[str, ...]]:
    """The outputs of operators that the plan runs, rather than naming them for their gradients only."""
    if "computed" not in run.memo:
        every = (own for segment in run.plan.segments.values() for own in segment.operators)
        run.memo["computed"] = frozenset(own.outputs for own in every if isinstance(own, Compute))
    found: frozenset[tuple[str, ...]] = run.memo["computed"]
    return found


def _anew(run: Running, rank: Rank, own: Compute) -> Kept:
    """What an operator that is written out for its gradient alone would keep, had it run on its operands as they are now."""
    spec = spec_of(own.op)
    if spec is None or own.in_place or spec.may_draw or spec.family is Family.RESHAPE:
        raise Rejected(f"a gradient of `{own.op}` on rank {rank.number}, which did not run")
    values = [read(run, rank, operand) for operand in own.inputs if not isinstance(operand, Literal)]
    given = tuple(value for value in values if value is not None)
    if len(given) != len(values):
        raise Rejected(f"`{own.op}` reads a gradient that nothing makes")
    key = ("anew", own.op, id(own.attributes), _literals(own), tuple(map(id, given)), _shapes(run, own))
    if key not in run.memo:
        run.memo[key] = _kept(run, own, spec, given, ())
    kept: Kept = run.memo[key]
    assumption = spec.assumption or kept.bound.assumption
    if assumption:
        run.assumptions.add(assumption)
    return kept


def _same(run: Running, rank: Rank, kept: Kept, one: Compute, other: Compute) -> bool:
    """Whether the operator that is written out is the one that ran, on the same values under whatever names."""
    same = (one.op, one.outputs, _literals(one)) == (other.op, other.outputs, _literals(other))
    if not same or dict(one.attributes) != dict(other.attributes):
        return False
    if one.inputs == other.inputs:
        return True
    values = [read(run, rank, operand) for operand in other.inputs if not isinstance(operand, Literal)]
    return len(values) <= len(kept.inputs) and all(a is b for a, b in zip(values, kept.inputs, strict=False))


def _check_places(run: Running, names: Sequence[str], places: Sequence[str]) -> None:
    """Gradients stand in the places of what they are declared to be the gradients of."""
    for name, place in zip(names, places, strict=False):
        owners = run.of.get(name, ())
        if name in run.plan.tensors and place not in owners and any(owner in places for owner in owners):
            raise Rejected(f"`{name}` stands in the place of the gradient of `{place}`")


def _gradient(run: Running, kept: Kept, position: int, given: dict[int, Relation]) -> Relation | None:
    if any(i >= len(kept.outputs) or kept.outputs[i].box != value.box for i, value in given.items()):
        raise Rejected(f"`{kept.op}` gets the gradient of another slice than it gave")
    if kept.family is Family.IDENTITY:
        return added(run.world.tables, tuple(given.values()))
    if kept.steps:
        found = tuple(_through(run, kept.steps, len(kept.steps) - 1, position, given))
        return added(run.world.tables, found) if found else None
    if kept.family is Family.MERGE:
        return merge_gradient(run.world, kept, position, given)
    if any(fold_of(value) is not None for value in given.values()):
        return part_gradient(run.world, kept, position, given)
    if kept.family is Family.RESHAPE:
        return view_gradient(run.world, kept.inputs[0], kept.outputs[0], given[0])
    use = gradient_use(kept, position, given)
    return None if use is None else made(run.world, use)


def _through(run: Running, steps: Steps, index: int, position: int, given: dict[int, Relation]) -> Iterator[Relation]:
    """What the operators up to `index` add to the gradient of operand `position`."""
    step, places = steps[index]
    for i, place in enumerate(places):
        found = _gradient(run, step, i, given) if place in (position, *range(-index, 0)) else None
        if found is not None:
            yield from (found,) if place == position else _through(run, steps, index + place, position, {0: found})
