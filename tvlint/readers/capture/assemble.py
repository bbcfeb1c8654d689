"""Captures become plans: the programs of all ranks, folded where they are the same."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, product
from math import gcd
from operator import itemgetter

from tvlint.analyses.dataflow.def_use import needs, writes
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Operator, Update
from tvlint.ir.placement import Partial, Placement, Shard
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor
from tvlint.readers.capture.emit import CrossingError, Run
from tvlint.readers.capture.equal_constants import with_one_name
from tvlint.readers.capture.equal_gathers import without_equal_gathers
from tvlint.readers.capture.following import follow
from tvlint.readers.capture.left_parts import with_reducers_of_left_parts
from tvlint.readers.capture.lifting.lift import inputs_of, outputs_of
from tvlint.readers.capture.lifting.program import Exchange
from tvlint.readers.capture.lifting.program import Program as Followed
from tvlint.readers.capture.own_parts import with_own_parts
from tvlint.readers.capture.pairing import Found, Held, Whole, alone, paired, uses_of
from tvlint.readers.capture.placing import axes_of, mesh_of, meshes, placements_of, whole_box
from tvlint.readers.capture.rank import LOSS, Prepared, RankProgram, in_operators, prepare, titles_of, write_rank
from tvlint.readers.capture.reducers import agree_on_means
from tvlint.readers.capture.rewriting.constant_places import with_constant_places
from tvlint.readers.capture.rewriting.equal_broadcasts import received_numbers, without_equal_broadcasts
from tvlint.readers.capture.rewriting.flat_weights import without_flat_weights
from tvlint.readers.capture.rewriting.turned_samples import with_samples_as_given
from tvlint.readers.capture.rewriting.uneven_batches import with_whole_batches
from tvlint.readers.capture.rewriting.unit_dimensions import Holding, units_of, with_units
from tvlint.readers.capture.rewriting.unread_collectives import with_nothing_in_unread_collectives
from tvlint.readers.capture.tapes.communicators import with_communicators
from tvlint.readers.capture.tapes.joined_calls import with_calls_joined
from tvlint.readers.capture.tapes.spelling import UNSCALE
from tvlint.readers.capture.tapes.tape import Capture, Communication, Mark, Operation
from tvlint.readers.document import ReadError


@dataclass(frozen=True, slots=True)
class Lifting:
    """A capture and the plan that it was lifted into, with the names of what each rank was given.

    `problem` says why the plan has nothing of the program but what it is given.
    """

    capture: Capture
    prepared: tuple[Prepared, ...]
    found: Found
    plan: Plan
    problem: Problem | None = None


class CrossedBatchesError(ReadError):
    """A value of one micro-batch is read in another one."""


def lift_reference(capture: Capture) -> Lifting:
    """Return the plan of a single-device capture. Raises ReadError where there is none."""
    if capture.ranks != 1:
        text = f"the reference was captured on {capture.ranks} ranks"
        raise ReadError(text, Location(capture.path), "capture the single-device program as reference")
    lifted = with_nothing_in_unread_collectives([in_operators(capture.path, program) for program in _followed(capture)])
    prepared = (prepare(capture.tapes[0], lifted[0]),)
    found = alone(prepared[0], capture.path)
    _keep_single_samples(prepared[0], found)
    try:
        return Lifting(capture, prepared, found, _plan(capture, prepared, found, Mesh(()), {}, None))
    except CrossedBatchesError:
        joined = with_calls_joined(capture)
        if joined is capture:
            raise
        return lift_reference(joined)


def lift_parallel(capture: Capture, reference: Lifting) -> Lifting:
    """Return the plan of a capture whose weights and inputs are pieces of the reference's.

    Raises ReadError where they are not, and where no values can be followed.
    """
    captured, capture = capture, without_equal_gathers(with_communicators(capture))
    followed = _followed(capture)
    inputs = [whole.numbers for whole in reference.found.wholes.values() if whole.role is Role.INPUT]
    wholes = [numbers for numbers in inputs if numbers is not None]
    followed = [with_constant_places(with_samples_as_given(program, wholes), wholes) for program in followed]
    programs = without_equal_broadcasts(with_whole_batches(followed, wholes))
    lifted = [in_operators(capture.path, program) for program in programs]
    for rank, received in enumerate(received_numbers(lifted)):
        if received:
            lifted[rank] = in_operators(capture.path, programs[rank], received)
    tokens = reference.prepared[0].lifted.tokens
    pairs = list(zip(capture.tapes, with_nothing_in_unread_collectives(lifted), strict=True))
    ranks = [prepare(*pair, tokens) for pair in pairs]
    if not agree_on_means([each.reduced for each in ranks]):
        ranks = [prepare(*pair, tokens, averages=False) for pair in pairs]
    prepared = with_own_parts(with_reducers_of_left_parts(ranks))
    found = paired(prepared, reference.prepared[0], reference.found, capture.path)
    found = with_one_name(found, reference.prepared[0], reference.found, found)
    _divide(prepared, found, {name: whole.local for name, whole in found.wholes.items()})
    _add_units(prepared, found, reference)
    mesh, placements = _NO_MESH
    try:
        mesh, placements = _mesh(capture, prepared, found)
        data = _axes_of_data(mesh, placements, found, prepared)
        lies = _loss_placements(mesh, data, _is_sum(prepared, reference.prepared[0]))
        return Lifting(capture, prepared, found, _plan(capture, prepared, found, mesh, placements, lies))
    except ReadError as error:
        joined = with_calls_joined(captured) if isinstance(error, CrossedBatchesError) else captured
        if joined is not captured:
            return lift_parallel(joined, reference)
        given = _given(found, placements, _gradient_dtypes(prepared))
        return Lifting(capture, prepared, found, Plan(capture.path, "capture", mesh, given, {}, ()), error.problem)


_NO_MESH: tuple[Mesh, Mapping[str, Mapping[str, Placement]]] = (Mesh(()), {})
"""The mesh of a program that is no plan, and the placements on it."""


def _followed(capture: Capture) -> list[Followed]:
    """Return the programs of all ranks, in which weights that lie in flat ones are weights of their own.

    What a rank holds of a weight that an optimizer of another rank steps is stepped too: it is compared as it is then.
    """
    programs = [follow(tape) for tape in capture.tapes]
    stepped = {name: optimizer for program in programs for name, optimizer in program.updated.items()}
    for program in programs:
        program.updated.update((name, stepped[name]) for name in program.kept if name in stepped)
    return _with_negative(without_flat_weights(capture, programs))


def _with_negative(programs: Sequence[Followed]) -> list[Followed]:
    """Return the programs of all ranks with the negative whole numbers that any of them is given, in any micro-batch.

    Ranks and micro-batches that are given none of a mark are then lifted as those are that are given one.
    """
    given = [value.numbers for program in programs for value in program.given.values()]
    whole = [numbers for numbers in given if numbers is not None and numbers.dtype.kind == "i"]
    found = frozenset(float(number) for numbers in whole for number in set(numbers[numbers < 0].tolist()))
    return [replace(program, negative=found) for program in programs]


def _keep_single_samples(prepared: Prepared, found: Found) -> None:
    """Let the batch be a factor where each micro-batch of a reference holds one sample, of which no view says where it is."""
    single = {name for name, whole in found.wholes.items() if whole.local[:1] == (1,) and whole.local != whole.shape}
    units = {value: {0: ((_SAMPLE, 1),)} for value, name in found.names[0].items() if name in single}
    weights = frozenset(value for value, name in found.names[0].items() if found.wholes[name].role is not Role.INPUT)
    with_units([Holding(prepared.factors, prepared.lifted, units, weights)])


_SAMPLE = -1
"""Stands for the batch among the units of values."""


def _divide(prepared: Sequence[Prepared], found: Found, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Let inputs that are declared with more dimensions than a program reads consist of those."""
    for each_prepared, names in zip(prepared, found.names, strict=True):
        for value, name in names.items():
            if name in shapes and len(shapes[name]) > len(each_prepared.lifted.program.shape(value)):
                each_prepared.factors.divide(value, shapes[name])


def _add_units(prepared: Sequence[Prepared], found: Found, reference: Lifting) -> None:
    """Let dimensions be factors of which ranks hold one index of what the reference has."""
    factors = reference.prepared[0].factors
    whole = {name: factors.of(value) for value, name in reference.found.names[0].items()}
    holdings = []
    for each_prepared, names in zip(prepared, found.names, strict=True):
        units: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {}
        for value, name in names.items():
            shapes = each_prepared.lifted.program.shape(value), reference.found.wholes[name].local
            for dim, (size, all_of_it) in enumerate(zip(*shapes, strict=True) if len(shapes[0]) == len(shapes[1]) else ()):
                if len(found.wholes[name].shape) != len(shapes[1]):
                    break  # the parts are those of dimensions that the program reads as one, and may be no outermost ones
                leaves = [(leaf, factors.sizes[leaf]) for leaf in factors.flat([whole[name][dim]])]
                held = units_of(leaves, all_of_it // size) if size and all_of_it % size == 0 else ()
                if size == all_of_it == 1:
                    held = tuple((leaf, 1) for leaf, _ in leaves)
                if held:
                    units.setdefault(value, {})[dim] = held
        weights = frozenset(value for value, name in names.items() if found.wholes[name].role is not Role.INPUT)
        holdings.append(Holding(each_prepared.factors, each_prepared.lifted, units, weights))
    with_units(holdings)


def with_constants(reference: Lifting, parallel: Lifting) -> Lifting:
    """Return a reference in which what the parallel program shows to be constants are no inputs.

    Inputs that it reads flat have the dimensions along which the ranks hold parts of them.
    """
    constants = {name for name, whole in parallel.found.wholes.items() if whole.role is Role.BUFFER}
    shapes = {name: whole.shape for name, whole in parallel.found.wholes.items()}
    wholes = {
        name: replace(whole, role=Role.BUFFER) if name in constants and whole.local == whole.shape else whole
        for name, whole in reference.found.wholes.items()
    }
    wholes = {name: _of_shape(whole, shapes.get(name, whole.shape)) for name, whole in wholes.items()}
    _divide(reference.prepared, reference.found, {name: whole.local for name, whole in wholes.items()})
    found = with_one_name(replace(reference.found, wholes=wholes), reference.prepared[0], reference.found, parallel.found)
    if found == reference.found:
        return reference
    return replace(reference, found=found, plan=_plan(reference.capture, reference.prepared, found, Mesh(()), {}, None))


def _of_shape(whole: Whole, shape: tuple[int, ...]) -> Whole:
    """Return a value that the reference holds whole with other dimensions."""
    if shape == whole.shape or whole.numbers is None:
        return whole
    held = {rank: {number: Held(whole_box(shape), True) for number in by} for rank, by in whole.held.items()}
    return replace(whole, shape=shape, local=shape, held=held, numbers=whole.numbers.reshape(shape))


# ---- the mesh ----


def _mesh(capture: Capture, prepared: Sequence[Prepared], found: Found) -> tuple[Mesh, Mapping[str, Mapping[str, Placement]]]:
    """Return the mesh with the fewest axes by which all placements and most groups can be said, and these placements.

    A group that is none of axes, as of the first and the last stage, is written by its ranks.
    """
    groups = {tuple(sorted(group)) for each_prepared in prepared for group in _groups(each_prepared)}
    said = [axes for axes, ranks in capture.tapes[0].meshes if ranks == tuple(range(capture.ranks))]
    candidates = [Mesh(axes) for axes in sorted(said, key=len)] + [mesh_of(sizes) for sizes in meshes(capture.ranks)]
    ordered, apart = _are_ordered(found), _cut_into_other_samples(found)
    spanned = {mesh: sum(axes_of(mesh, group) is not None for group in groups) for mesh in candidates}
    for mesh in sorted(candidates, key=lambda mesh: -spanned[mesh]):
        placements = {name: _placements(mesh, whole, ordered, bool(apart)) for name, whole in found.wholes.items()}
        known = {name: value for name, value in placements.items() if value is not None}
        if len(known) == len(placements):
            return _named(mesh, known, _axes_of_data(mesh, known, found, prepared), groups)
    odd = next(name for name, whole in found.wholes.items() if _placements(candidates[-1], whole, ordered, bool(apart)) is None)
    if odd in apart:
        text = f"ranks read `{apart[1]}` in other samples than `{apart[0]}`"
        place = _first_uses(prepared, found).get(apart[1], Location(capture.path))
        raise ReadError(text, place, "give each rank the same samples of all inputs in each micro-batch")
    text = f"the placement of `{odd}` on the ranks does not follow axes of a mesh"
    raise ReadError(text, Location(capture.path), "capture a launch whose ranks form a grid")


def _groups(prepared: Prepared) -> Iterable[tuple[int, ...]]:
    yield from (node.group for node in prepared.lifted.nodes if isinstance(node, Exchange))
    yield from (reducer.group for reducer in prepared.reduced.reducers)


def _placements(mesh: Mesh, whole: Whole, ordered: bool, apart: bool) -> Mapping[str, Placement] | None:
    """Return how a value lies on the axes of a mesh; None where they do not say it."""
    if whole.role is Role.INPUT:
        return _of_input(mesh, whole, ordered, apart)
    blocks = {held.blocks.dim for by in whole.held.values() for held in by.values() if held.blocks is not None}
    if blocks:
        return _in_order(mesh, whole, min(blocks))
    boxes = {rank: held.box for rank, by in whole.held.items() for held in by.values()}
    return placements_of(mesh, boxes, whole.shape)


def _are_ordered(found: Found) -> bool:
    """Return whether ranks hold blocks of anything but samples, of which the order counts."""
    inputs = (whole for whole in found.wholes.values() if whole.role is Role.INPUT)
    every = (held for whole in inputs for by in whole.held.values() for held in by.values())
    return any(held.blocks is not None and held.blocks.dim > 0 for held in every)


def _cut_into_other_samples(found: Found) -> tuple[str, ...]:
    """Return two inputs of which ranks that read the same of either in some micro-batches read other samples; empty where there
    are none.
    """
    known: dict[object, tuple[str, dict[tuple[int, int], tuple[Fraction, ...]]]] = {}
    for name, whole in found.wholes.items():
        dim = next((dim for dim, size in enumerate(whole.shape) if whole.local[dim] != size), None)
        if whole.role is not Role.INPUT or dim is None:
            continue
        held = {(rank, number): _shares(each, dim, whole) for rank, by in whole.held.items() for number, each in by.items()}
        together: dict[object, set[tuple[int, int]]] = {}
        for place, shares in held.items():
            together.setdefault(shares, set()).add(place)
        other, shared = known.setdefault(frozenset(map(frozenset, together.values())), (name, held))
        if shared != held:
            return other, name
    return ()


def _shares(held: Held, dim: int, whole: Whole) -> tuple[Fraction, ...]:
    """Return the ranges that are held of a dimension, each by its ends as shares of all of it."""
    places = _places(held, dim)
    starts = [place for at, place in enumerate(places) if at == 0 or place != places[at - 1] + 1]
    stops = [place + 1 for at, place in enumerate(places) if at + 1 == len(places) or places[at + 1] != place + 1]
    return tuple(Fraction(end, whole.shape[dim]) for ends in zip(starts, stops, strict=True) for end in ends)


def _of_input(mesh: Mesh, whole: Whole, ordered: bool, apart: bool) -> Mapping[str, Placement] | None:
    """Return how an input lies: the samples of replicas, and what each rank has of one more dimension in all its samples.

    Where the blocks that ranks hold are `ordered` those of the only dimension that is cut are no samples. Where inputs are cut
    `apart`, into other samples each, the order of these counts too.
    """
    cut = [dim for dim, (local, size) in enumerate(zip(whole.local, whole.shape, strict=True)) if local != size]
    if len(cut) > 2:
        return None
    if len(cut) == 1 and ordered and any(held.blocks is not None for by in whole.held.values() for held in by.values()):
        return _in_order(mesh, whole, cut[0]) if all(len(by) == 1 for by in whole.held.values()) else None
    if apart and any(len(by) > 1 for by in whole.held.values()):
        return None if cut else {}
    samples = {} if not cut else _in_order(mesh, whole, cut[0]) if apart else _of_samples(mesh, whole, cut[0])
    within = _in_order(mesh, whole, cut[1]) if len(cut) == 2 else {}
    return None if samples is None or within is None or samples.keys() & within.keys() else {**samples, **within}


def _in_order(mesh: Mesh, whole: Whole, dim: int) -> Mapping[str, Placement] | None:
    """Return the placement on the one axis along which ranks hold places of a dimension; None where there is no such axis."""
    held = {rank: {_places(each, dim) for each in by.values()} for rank, by in whole.held.items()}
    if any(len(places) > 1 for places in held.values()):
        return None
    for axis in mesh.axes:
        by_place: dict[int, set[tuple[int, ...]]] = {}
        for rank, places in held.items():
            by_place.setdefault(mesh.coordinates(rank)[axis.name], set()).update(places)
        if len(by_place) < axis.size or any(len(places) > 1 for places in by_place.values()):
            continue
        order = [min(by_place[place]) for place in range(axis.size)]
        if sorted(place for places in order for place in places) == [*range(whole.shape[dim])]:
            return {axis.name: Shard(dim, _blocks_in_order(order))}
    return None


def _blocks_in_order(order: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return places of a dimension in blocks as large as can be; nothing where each rank holds one range, in order."""
    starts = {place for places in order for i, place in enumerate(places) if i == 0 or place != places[i - 1] + 1}
    size = gcd(*starts, *map(len, order))
    blocks = tuple(tuple(place // size for place in places[::size]) for places in order)
    return () if blocks == tuple((place,) for place in range(len(blocks))) else blocks


def _of_samples(mesh: Mesh, whole: Whole, dim: int) -> Mapping[str, Placement] | None:
    """Return how the samples lie; replicas may read any of the batch that are theirs alone."""
    replicas: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for rank, by in whole.held.items():
        replicas.setdefault(tuple(sorted(_places(held, dim) for held in by.values())), []).append(rank)
    if len({place for pieces in replicas for piece in pieces for place in piece}) != sum(
        len(piece) for pieces in replicas for piece in pieces
    ):
        return None
    if len(replicas) == 1:
        return {}
    order = sorted(replicas.values(), key=min)
    boxes = {
        rank: tuple((place, place + 1) if at == dim else (0, 1) for at in range(len(whole.shape)))
        for place, ranks in enumerate(order)
        for rank in ranks
    }
    wide = tuple(len(order) if at == dim else 1 for at in range(len(whole.shape)))
    return placements_of(mesh, boxes, wide)


def _places(held: Held, dim: int) -> tuple[int, ...]:
    """Return the places of a dimension that are held."""
    if held.blocks is None or held.blocks.dim != dim:
        return tuple(range(*held.box[dim]))
    size = held.blocks.size
    return tuple(at for place in held.blocks.places for at in range(place * size, (place + 1) * size))


def _axes_of_data(
    mesh: Mesh, placements: Mapping[str, Mapping[str, Placement]], found: Found, prepared: Sequence[Prepared]
) -> set[str]:
    """Return the axes along which ranks read different data: parts of an input, or unequal parts that they cut out of one."""
    parts = {axis for name, value in placements.items() if found.wholes[name].role is Role.INPUT for axis in value}
    nodes = (node for each in prepared for node in each.lifted.nodes if isinstance(node, Exchange))
    cut = {node.group for node in nodes if node.kind == "chunk" and node.splits}
    return parts | {axis for group in cut for axis in axes_of(mesh, group) or ()}


def _named(
    mesh: Mesh, placements: Mapping[str, Mapping[str, Placement]], data: set[str], groups: set[tuple[int, ...]]
) -> tuple[Mesh, Mapping[str, Mapping[str, Placement]]]:
    """Return the mesh with the names that people use, where the program gives none."""
    if not any(axis.name.startswith("axis") for axis in mesh.axes):
        return mesh, placements
    talks = {axis for group in groups for axis in axes_of(mesh, group) or ()}
    names: dict[str, str] = {}
    for axis in mesh.axes:
        kind = "dp" if axis.name in data else "tp" if axis.name in talks else "pp"
        names[axis.name] = kind if kind not in names.values() else axis.name
    renamed = Mesh(tuple(replace(axis, name=names[axis.name]) for axis in mesh.axes))
    return renamed, {name: {names[axis]: one for axis, one in value.items()} for name, value in placements.items()}


# ---- the plan ----


def _plan(
    capture: Capture,
    prepared: Sequence[Prepared],
    found: Found,
    mesh: Mesh,
    placements: Mapping[str, Mapping[str, Placement]],
    loss: Mapping[str, Placement] | None,
) -> Plan:
    try:
        data = frozenset(name for name, whole in found.wholes.items() if whole.role is Role.INPUT)
        pieces = {name: whole.local for name, whole in found.wholes.items()}
        ranks = [
            write_rank(each_prepared, names, pieces, data) for each_prepared, names in zip(prepared, found.names, strict=True)
        ]
        classes = _classes(ranks)
        if len(classes) > 1:
            prefixes = {rank: f"r{same[0]}." for same in classes for rank in same}
            ranks = [
                write_rank(each_prepared, names, pieces, data, prefixes[rank])
                for rank, (each_prepared, names) in enumerate(zip(prepared, found.names, strict=True))
            ]
    except CrossingError as error:
        text = "a value of one micro-batch is read in another one, which is followed where gradients add up and no further"
        help = "clip accumulated gradients with `torch.nn.utils.clip_grad_norm_`, or capture one micro-batch"
        place = error.mark.place or _next_place(prepared, error.value)
        raise CrossedBatchesError(text, place or Location(capture.path), help) from None
    tensors = _given(found, placements, _gradient_dtypes(prepared))
    for name, place in _first_uses(prepared, found).items():
        tensors[name] = replace(tensors[name], source=place)
    losses = {title: value for each in prepared for value, title in titles_of(each.lifted).items()}
    segments: dict[str, Segment] = {}
    programs = []
    for same in classes:
        rank_program = ranks[same[0]]
        for name, (shape, dtype) in rank_program.declared.items():
            tensors.setdefault(name, Tensor(name, shape, dtype, Role.ACTIVATION))
        prefix = f"r{same[0]}." if len(classes) > 1 else ""
        programs.append(Program(tuple(same), _steps(rank_program, tensors, segments, prefix, losses)))
    for title, value in losses.items():
        type = prepared[0].lifted.program.types.get(value)
        shape = () if type is None else type.shape
        tensors[f"grad({title})"] = Tensor(f"grad({title})", (), "float32", Role.GRADIENT, gradient_of=title)
        declared = tensors.get(title, Tensor(title, shape, "float32", Role.ACTIVATION))
        tensors[title] = replace(declared, gradient=f"grad({title})", placements=loss)
    micro_batches = max((step.micro_batch for program in programs for step in program.steps), default=0) + 1
    outputs = (LOSS,) if losses else ()
    return Plan(
        capture.path, "capture", mesh, tensors, segments, tuple(programs), micro_batches=max(1, micro_batches), outputs=outputs,
        losses=tuple(sorted(losses)), name=" ".join(capture.launch), assumed=_assumed(capture, prepared, found),
    )  # fmt: skip


def _next_place(prepared: Sequence[Prepared], value: str) -> Location | None:
    """Return the first line at which what a value goes into is read, on a rank that has it."""
    for nodes in (each_prepared.lifted.nodes for each_prepared in prepared):
        reached = {value}
        for node in nodes:
            if reached.isdisjoint(inputs_of(node)):
                continue
            if node.mark.place is not None and node.mark.phase != "backward":
                return node.mark.place
            reached.update(outputs_of(node))
    return None


def _loss_placements(mesh: Mesh, data: set[str], is_sum: bool) -> Mapping[str, Placement] | None:
    """Return that the loss is averaged, or summed, over the axes along which ranks read different data."""
    return {axis.name: Partial("sum" if is_sum else "avg") for axis in mesh.axes if axis.name in data} or None


def _is_sum(prepared: Sequence[Prepared], reference: Prepared) -> bool:
    """Return whether the recorded losses of the ranks are shares of the reference's, and not the reference's.

    Of several micro-batches each may have its own mean, or its share of it; a reference of as many has what the ranks have.
    """
    losses = [total for total in map(_loss_of, prepared) if total is not None]
    whole = _loss_of(reference)
    if whole is None or not losses:
        return False
    batches = max(len(rank.lifted.losses) for rank in prepared), len(reference.lifted.losses)
    mean = abs(sum(losses) / len(losses))
    if batches[1] in (1, batches[0]):
        return mean < abs(whole) * _SHARE
    pairs = product({mean, mean / max(1, batches[0])}, {abs(whole), abs(whole) / batches[1]})
    return not any(abs(here - there) < (1 - _SHARE) * there for here, there in pairs)


def _loss_of(prepared: Prepared) -> float | None:
    """Return the sum of a rank's recorded losses over its micro-batches; None where it has none."""
    numbers = [root.number for root in prepared.lifted.losses]
    known = [float(number.sum()) for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


_SHARE = 0.75
"""A loss that is less than so much of the reference's is the share of one of two ranks or more."""


def _classes(ranks: Sequence[RankProgram]) -> list[list[int]]:
    """Return the ranks that run the same program, together."""
    classes: list[list[int]] = []
    for rank, rank_program in enumerate(ranks):
        same = next((one for one in classes if ranks[one[0]] == rank_program), None)
        if same is None:
            classes.append([rank])
        else:
            same.append(rank)
    return classes


def _gradient_dtypes(prepared: Sequence[Prepared]) -> dict[str, str]:
    """Return the dtypes of gradients, which are others than those of weights where they are accumulated in another one."""
    return {
        weight: rank.lifted.program.types[value].dtype
        for rank in prepared
        for weight, (value, _) in rank.lifted.gradients.items()
    }


def _given(
    found: Found, placements: Mapping[str, Mapping[str, Placement]], gradient_dtypes: Mapping[str, str]
) -> dict[str, Tensor]:
    """Return the weights, buffers and inputs, and the gradients of weights."""
    tensors: dict[str, Tensor] = {}
    for name, each_whole in found.wholes.items():
        local = each_whole.local or each_whole.shape
        lies = placements.get(name, {})
        whole = each_whole.shape
        if each_whole.role is Role.INPUT:
            whole = _whole_of_micro_batch(each_whole, lies)
        trained = each_whole.role is Role.WEIGHT
        gradient = f"grad({name})" if trained else ""
        tensors[name] = Tensor(
            name,
            local,
            each_whole.dtype,
            each_whole.role,
            whole=whole,
            placements=lies,
            gradient=gradient,
            requires_grad=trained,
        )
        if trained:
            dtype = gradient_dtypes.get(name, each_whole.dtype)
            tensors[gradient] = Tensor(gradient, local, dtype, Role.GRADIENT, gradient_of=name)
    return tensors


def _first_uses(prepared: Sequence[Prepared], found: Found) -> dict[str, Location]:
    """Return where the program first reads each weight, buffer and input."""
    places: dict[str, Location] = {}
    for each_prepared, names in zip(prepared, found.names, strict=True):
        for use in uses_of(each_prepared):
            if use.mark.place is not None:
                places.setdefault(names[use.value], use.mark.place)
    return places


def _whole_of_micro_batch(whole: Whole, placements: Mapping[str, Placement]) -> tuple[int, ...]:
    """Return the shape of what all replicas read in one micro-batch."""
    if not placements:
        return whole.local
    most = max(len(by) for by in whole.held.values())
    samples = next((dim for dim, (local, size) in enumerate(zip(whole.local, whole.shape, strict=True)) if local != size), -1)
    return tuple(size // most if dim == samples else size for dim, size in enumerate(whole.shape))


def _steps(
    program: RankProgram, tensors: Mapping[str, Tensor], segments: dict[str, Segment], prefix: str, losses: Container[str]
) -> tuple[Step, ...]:
    """Return the steps of a rank, and add the segments that it runs; runs that do the same are one segment."""
    steps: list[Step] = []
    written: dict[str, object] = {}
    for run, (inputs, outputs) in zip(program.runs, _borders(program, tensors, losses), strict=True):
        key = run.phase, inputs, outputs, _without_places(run.operators)
        name = next((name for name, known in written.items() if known == key), "")
        if not name:
            name = _free(f"{prefix}{run.phase}", segments)
            segments[name] = Segment(name, Phase(run.phase), inputs, outputs, tuple(run.operators))
            written[name] = key
        steps.append(Step(name, run.micro_batch))
    update: tuple[Operator, ...] = (Update(program.updated),)
    ends = ((Phase.REDUCE, "reduce", program.reducers), (Phase.OPTIMIZER, "step", update))
    for phase, word, operators in ends:
        if operators:
            name = _free(f"{prefix}{word}", segments)
            segments[name] = Segment(name, phase, (), (), operators)
            steps.append(Step(name))
    return tuple(steps)


def _without_places(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Return operators without the lines that they stand at, which micro-batches in a loop written out do not share."""
    found: list[Operator] = []
    for operator in operators:
        bare = replace(operator, source=None)
        found.append(replace(bare, forward=replace(bare.forward, source=None)) if isinstance(bare, Backward) else bare)
    return tuple(found)


def _free(name: str, segments: Mapping[str, Segment]) -> str:
    count = 1
    while (name if count == 1 else f"{name}{count}") in segments:
        count += 1
    return name if count == 1 else f"{name}{count}"


def _borders(
    rank_program: RankProgram, tensors: Mapping[str, Tensor], losses: Container[str]
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return what enters and what leaves each run."""
    made: dict[tuple[int, str], int] = {}
    for index, run in enumerate(rank_program.runs):
        for operator in run.operators:
            for name in writes(operator):
                made.setdefault((run.micro_batch, name), index)
    inputs: list[dict[str, None]] = [{} for _ in rank_program.runs]
    outputs: list[dict[str, None]] = [{} for _ in rank_program.runs]
    for index, run in enumerate(rank_program.runs):
        for name in _reads(run):
            maker = made.get((run.micro_batch, name))
            known = tensors.get(name)
            if maker is not None and maker != index:
                inputs[index][name] = None
                outputs[maker][name] = None
            elif known is not None and known.role is Role.INPUT:
                inputs[index][name] = None
        for operator in run.operators:
            for name in writes(operator):
                if name in losses or (name in tensors and tensors[name].role is Role.GRADIENT):
                    outputs[index][name] = None
    return [(tuple(here), tuple(there)) for here, there in zip(inputs, outputs, strict=True)]


def _reads(run: Run) -> Iterable[str]:
    for operator in run.operators:
        yield from (name for name in needs(operator) if name)


def _assumed(capture: Capture, prepared: Sequence[Prepared], found: Found) -> tuple[str, ...]:
    """Return what the capture leaves to trust, in words for a verdict."""
    said = [f"captured with the {text}" for text in (*capture.replaced, *capture.sized_down)]
    said.append("later steps do what the recorded one does")
    optimizers = sorted({name for each_prepared in prepared for name in each_prepared.lifted.program.updated.values()})
    if optimizers:
        said.append(
            f"the step of the optimizer itself (`{'`, `'.join(optimizers)}`) is compared by the weights behind it, not proved"
        )
    buffers = sorted({name for tape in capture.tapes for name in tape.changed_buffers})
    if buffers:
        more = f" and in {len(buffers) - 1} more" if len(buffers) > 1 else ""
        said.append(f"what the step leaves in the buffer `{buffers[0]}`{more} is not compared")
    reads = [event for tape in capture.tapes for event in tape.events if isinstance(event, Operation)]
    lines = sorted({_line(event) for event in reads if event.op == "aten._local_scalar_dense.default" and _line(event)})
    if lines:
        said.append(f"the path of the program does not depend on the numbers that it reads at {', '.join(lines)}")
    if any(UNSCALE in event.op for event in reads):
        said.append("no gradient from which the scaler of the loss takes its factor is infinite on any rank, as recorded")
    if any(isinstance(event, Communication) and event.completes for tape in capture.tapes for event in tape.events):
        said.append("torch waits for the collectives that its own code issues outside of Python, as in its reducer")
    if any(each_prepared.lifted.program.partial for each_prepared in prepared):
        said.append("the optimizer completes the gradients that distributed tensors leave as partial sums")
    if any(each_prepared.lifted.program.whole for each_prepared in prepared):
        said.append("the optimizer takes of gradients that distributed tensors leave whole the part that its weight is")
    unwaited = sorted({_line_of(mark) for each_prepared in prepared for mark in each_prepared.lifted.program.unwaited})
    said += [f"torch keeps what is sent at {line}, for which the program never waits, until it is sent" for line in unwaited]
    given = [constant for each_prepared in prepared for constant in each_prepared.lifted.program.constants]
    constants = sorted({(number, _line_of(mark)) for number, mark in given if _line_of(mark)})
    for number, places in groupby(constants, itemgetter(0)):
        listed = ", ".join(line for _, line in places)
        said.append(f"what the step is given at {listed} is {number:g} throughout, as recorded")
    chosen = sorted({_line_of(mark) for each_prepared in prepared for mark in each_prepared.lifted.program.chosen})
    said += [f"the places that are chosen at {line} are always those that were recorded" for line in chosen]
    absent = sorted({(_line_of(mark), number) for each_prepared in prepared for number, mark in each_prepared.lifted.absent})
    if any(each_prepared.lifted.tokens for each_prepared in prepared):
        said.append("the program does with any choice of experts what it did with the recorded one")
    counted = sorted({_line_of(mark) for each_prepared in prepared for mark in each_prepared.lifted.counted})
    multiplied = sorted({_line_of(mark) for each_prepared in prepared for mark in each_prepared.lifted.multiplied})
    said += [f"all ranks have the number by which a sum is multiplied at {line}, as recorded" for line in multiplied]
    cancelled = sorted({_line_of(mark) for each_prepared in prepared for mark in each_prepared.lifted.cancelled})
    said += [f"some target counts in each mean that is multiplied by their number at {line}" for line in cancelled if line]
    said += [f"what is added up at {line} are whole numbers, as recorded" for line in counted if line]
    said += [f"what is compared with {number:g} at {line} is never {number:g}, as recorded" for line, number in absent if line]
    return (*said, *found.assumed)


def _line(event: Operation) -> str:
    return _line_of(event.mark)


def _line_of(mark: Mark) -> str:
    """Return the line of a mark in words; empty for the step of the optimizer, which is not compared.

    Operators of torch's autograd engine, as those that add up gradients, are issued by no line of the program.
    """
    place = mark.place
    if mark.phase == "optimizer":
        return ""
    return f"{place.path}:{place.line}" if place is not None else "a line outside of the program"
