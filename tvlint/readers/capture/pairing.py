"""Pair the inputs of two captures: weights, buffers and inputs, under names that both share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod

from tvlint.ir.location import Location
from tvlint.ir.operators import Literal
from tvlint.ir.placement import Replicate, Shard
from tvlint.ir.plan import Box, Role
from tvlint.readers.capture.lifting.calls import NARROW
from tvlint.readers.capture.lifting.lift import Call, GradientOf, inputs_of
from tvlint.readers.capture.lifting.program import Array, GivenValue, Program, Ref
from tvlint.readers.capture.placing import Blocks, blocks_of, boxes_of, pieces_in_blocks, whole_box
from tvlint.readers.capture.rank import Prepared
from tvlint.readers.capture.tapes.tape import Mark
from tvlint.readers.document import ReadError


@dataclass(frozen=True, slots=True)
class Held:
    """The piece of a whole value that a rank holds in one micro-batch; `sure` says that the numbers show it.

    Where the piece lies in `blocks` of one dimension, that dimension of the box says how much of it the rank holds.
    The `others` are more pieces with the same numbers.
    """

    box: Box
    sure: bool
    blocks: Blocks | None = None
    others: tuple[Held, ...] = field(default=(), compare=False)


@dataclass(slots=True)
class Whole:
    """A value that the step is given, as all ranks hold it: by rank, and of each by micro-batch (-1: all).

    `numbers` are those that the reference holds of it, of an input in all micro-batches.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    held: dict[int, dict[int, Held]] = field(default_factory=dict)
    local: tuple[int, ...] = ()
    numbers: Array | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Found:
    """The wholes of a capture by name, and the names of given values on each rank."""

    wholes: dict[str, Whole]
    names: tuple[dict[str, str], ...]
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A given value that a rank reads, where it does first, and in which micro-batches (-1: outside of them)."""

    value: str
    given: GivenValue
    mark: Mark
    micro_batches: set[int] = field(default_factory=set, compare=False)


def place_of(held: Held) -> tuple[slice | Array, ...]:
    """Return the index that takes a piece out of its whole."""
    import numpy as np

    place: list[slice | Array] = [slice(low, high) for low, high in held.box]
    if held.blocks is not None:
        size = held.blocks.size
        place[held.blocks.dim] = np.array([at * size + within for at in held.blocks.places for within in range(size)])
    return tuple(place)


def uses_of(prepared: Prepared) -> list[Use]:
    """Return the given values that a program reads, in the order of their first use."""
    found: dict[str, Use] = {}
    given = prepared.lifted.program.given
    for node in prepared.lifted.nodes:
        names = (*inputs_of(node), *(inputs_of(node.forward) if isinstance(node, GradientOf) else ()))
        for name in names:
            if name in given:
                found.setdefault(name, Use(name, given[name], node.mark)).micro_batches.add(node.mark.micro_batch)
    return list(found.values())


def alone(prepared: Prepared, path: str) -> Found:
    """Return what the one rank of a reference is given: it holds all of everything, of the batch in micro-batches.

    What the step is given in one of several micro-batches, under no name, is its part of an input, in the order of use; what it
    is given in more of them is a constant.
    """
    program, uses = prepared.lifted.program, uses_of(prepared)
    wholes: dict[str, Whole] = {}
    names: dict[str, str] = {}
    parts: dict[int, list[Use]] = {}
    many = {number for use in uses for number in use.micro_batches} > {0}
    counts = count()
    for use in uses:
        named = use.given.named
        role = Role.BUFFER if many else Role.INPUT
        if named is not None:
            role = _role(named.role, named.trained)
        elif many and len(use.micro_batches) == 1:
            parts.setdefault(use.mark.micro_batch, []).append(use)
            continue
        name = named.name if named is not None else f"input{next(counts)}"
        type = program.types[use.value]
        whole = Whole(name, role, type.shape, type.dtype, local=type.shape, numbers=use.given.numbers)
        whole.held[0] = {-1: Held(whole_box(type.shape), True)}
        if name in wholes:
            raise ReadError(f"two values of the reference are called `{name}`", _at(use.mark, path))
        wholes[name], names[use.value] = whole, name
    for same in _by_place(parts, program, path):
        whole = _whole_input(f"input{next(counts)}", same, program)
        wholes[whole.name] = whole
        names.update((use.value, whole.name) for use in same)
    return Found(wholes, (names,), ())


def _by_place(parts: Mapping[int, Sequence[Use]], program: Program, path: str) -> list[list[Use]]:
    """Return what every micro-batch has of each input. Raises ReadError where micro-batches are not given alike."""
    order = [parts[number] for number in sorted(parts)]
    for uses in order:
        types = [[program.types[use.value] for use in each] for each in (order[0], uses)]
        if types[0] != types[1]:
            odd = next((use for use, one, other in zip(uses, *types, strict=False) if one != other), uses[-1])
            text = "a micro-batch of the reference is given other shapes than the first, or more or fewer values"
            help = "give a reference whose micro-batches are alike, or that takes the whole batch as one"
            raise ReadError(text, _at(odd.mark, path), help)
    return [list(same) for same in zip(*order, strict=True)]


def _whole_input(name: str, parts: Sequence[Use], program: Program) -> Whole:
    """Return an input of which each micro-batch has a part; the batch is the first dimension."""
    import numpy as np

    type, numbers = program.types[parts[0].value], [use.given.numbers for use in parts]
    local, known = type.shape, [array for array in numbers if array is not None]
    shape = (local[0] * len(parts), *local[1:]) if local else ()
    joined = np.concatenate(known) if local and len(known) == len(parts) else None
    whole = Whole(name, Role.INPUT, shape, type.dtype, local=local, numbers=joined)
    rest = whole_box(local)[1:]
    whole.held[0] = {
        use.mark.micro_batch: Held(((place * local[0], (place + 1) * local[0]), *rest) if local else (), True)
        for place, use in enumerate(parts)
    }
    return whole


def _role(role: str, trained: bool) -> Role:
    return {"weight": Role.WEIGHT if trained else Role.BUFFER, "buffer": Role.BUFFER}.get(role, Role.INPUT)


def _at(mark: Mark, path: str) -> Location:
    return mark.place or Location(path)


def paired(ranks: Sequence[Prepared], reference: Prepared, found: Found, path: str) -> Found:
    """Return what the ranks are given, under the names that the reference has for it.

    Weights and buffers go by their names, everything else by its numbers. Raises ReadError where a value cannot be found.
    """
    named = {found.names[0][use.value] for use in uses_of(reference) if use.given.named is not None}
    numbers = {name: whole.numbers for name, whole in found.wholes.items()}
    wholes = {name: Whole(name, whole.role, whole.shape, whole.dtype) for name, whole in found.wholes.items()}
    by_rank: list[dict[str, str]] = []
    for rank, prepared in enumerate(ranks):
        names_of_rank: dict[str, str] = {}
        taken: dict[int, set[str]] = {}
        for use in uses_of(prepared):
            unnamed = {name: whole for name, whole in wholes.items() if name not in named}
            candidates = sorted(unnamed, key=lambda name: name in taken.get(use.mark.micro_batch, ()))
            _unflatten(use, candidates, wholes, numbers, found)
            _uncut(use, candidates, wholes, numbers, reference, found)
            name, held = _match(use, prepared, wholes, numbers, candidates, path)
            whole, local = wholes[name], tuple(high - low for low, high in held.box)
            if whole.local not in ((), local):
                text = f"ranks hold pieces of different shapes of `{name}`: {whole.local} and {local}"
                raise ReadError(text, _at(use.mark, path), "capture a launch in which every rank holds as much")
            whole.local = local
            micro_batch = use.mark.micro_batch if whole.role is Role.INPUT else -1
            whole.held.setdefault(rank, {})[micro_batch] = held
            names_of_rank[use.value] = name
            if whole.role is Role.INPUT:
                taken.setdefault(use.mark.micro_batch, set()).add(name)
        _settle(wholes, rank)
        _lay_in_blocks(wholes, rank)
        by_rank.append(names_of_rank)
    _tell_constants(wholes)
    assumed = tuple(_assumed_of(whole) for whole in wholes.values() if not all(held.sure for held in _every(whole)))
    return Found({name: whole for name, whole in wholes.items() if whole.held}, tuple(by_rank), assumed)


def _every(whole: Whole) -> list[Held]:
    return [held for by in whole.held.values() for held in by.values()]


def _assumed_of(whole: Whole) -> str:
    """Return what is assumed of a value whose pieces the numbers do not show."""
    if any(held.blocks is not None for held in _every(whole)):
        return f"`{whole.name}` lies in blocks as other weights of the ranks do, which its numbers do not show"
    return f"`{whole.name}` lies in pieces of {whole.local} in the order of the ranks, which its numbers do not show"


def _lay_in_blocks(wholes: Mapping[str, Whole], rank: int) -> None:
    """Let a weight of equal numbers lie in the blocks of another one that the rank holds, where they fit: so does the bias of a
    layer that joins several.
    """
    of_rank = [(whole, whole.held[rank][-1]) for whole in wholes.values() if -1 in whole.held.get(rank, {})]
    known = {(whole.shape[each.dim], whole.local[each.dim], each) for whole, held in of_rank for each in _blocks(held)}
    for whole, held in () if not known else of_rank:
        sizes = list(zip(whole.shape, whole.local, strict=True))
        fitting = [blocks for size, local, blocks in known if sizes[blocks.dim : blocks.dim + 1] == [(size, local)]]
        if not held.sure and len(fitting) == 1:
            whole.held[rank][-1] = Held(whole_box(whole.local), False, fitting[0])


def _blocks(held: Held) -> tuple[Blocks, ...]:
    return () if held.blocks is None else (held.blocks,)


def _unflatten(
    use: Use, names: Sequence[str], wholes: Mapping[str, Whole], numbers: dict[str, Array | None], reference: Found
) -> None:
    """Let an input whose first dimension joins several have those of another one, where a part of it is cut along them.

    So are targets, and rows of a product, that a program flattens, of which ranks hold ranges of the sequence of each sample.
    """
    part = use.given.numbers
    if part is None or not part.size:
        return
    for name in names:
        whole, array = wholes[name], numbers.get(name)
        is_whole = reference.wholes[name].local == reference.wholes[name].shape == whole.shape
        if whole.held or array is None or not array.ndim or not is_whole or array.dtype != part.dtype:
            continue
        if any(boxes_of(piece, array) for piece in _in_shapes_of(part, array)):
            continue
        for first in _shapes_of_as_many(array.shape[0], reference.wholes):
            shape = *first, *array.shape[1:]
            wide = array.reshape(shape)
            parts = _in_shapes_of(part, wide)
            if any(boxes_of(piece, wide) or [*pieces_in_blocks(piece, wide, [])] for piece in parts):
                whole.shape, numbers[name] = shape, wide
                return


def _uncut(
    use: Use,
    names: Sequence[str],
    wholes: Mapping[str, Whole],
    numbers: dict[str, Array | None],
    reference: Prepared,
    found: Found,
) -> None:
    """Let an input whose batch the reference cuts into equal parts have a dimension for them, where ranks hold some of each.

    So are pairs of texts whose first ones stand before all second ones, of which ranks hold some pairs.
    """
    part = use.given.numbers
    if part is None or not part.size:
        return
    for name in names:
        whole, array = wholes[name], numbers.get(name)
        is_whole = found.wholes[name].local == found.wholes[name].shape == whole.shape
        if whole.held or array is None or not is_whole or boxes_of(part, array):
            continue
        blocks = blocks_of(part, array, [])
        count = blocks.dim == 0 and len(array) % len(blocks.places) == 0 and len(blocks.places) if blocks is not None else 0
        if blocks is None or not count:
            continue
        size = len(array) // count
        starts = [place * blocks.size for place in blocks.places]
        apart = starts == [starts[0] + at * size for at in range(count)] and size % blocks.size == 0
        if apart and starts[0] < size and _is_cut(reference, name, found, size):
            shape = count, size, *array.shape[1:]
            whole.shape, numbers[name] = shape, array.reshape(shape)


def _is_cut(reference: Prepared, name: str, found: Found, size: int) -> bool:
    """Return whether a reference takes ranges, in whole parts of a size, of the first dimension of an input."""
    factors = reference.factors
    dims = [factors.flat(factors.of(value)[:1]) for value, known in found.names[0].items() if known == name]
    for node in reference.lifted.nodes:
        if not isinstance(node, Call) or node.op != NARROW or not isinstance(node.inputs[0], Ref):
            continue
        dim, *cut = (operand.value for operand in node.inputs if isinstance(operand, Literal))
        dims_of = factors.of(node.inputs[0].name)
        if (
            isinstance(dim, int)
            and factors.flat([dims_of[dim]]) in dims
            and all(isinstance(each, int) and each % size == 0 for each in cut)
        ):
            return True
    return False


def _shapes_of_as_many(size: int, wholes: Mapping[str, Whole]) -> list[tuple[int, ...]]:
    """Return the first dimensions of inputs, two or more, that have so many elements."""
    inputs = [whole.shape for whole in wholes.values() if whole.role is Role.INPUT]
    return list(dict.fromkeys(shape[:k] for shape in inputs for k in range(2, len(shape) + 1) if prod(shape[:k]) == size))


def _match(
    use: Use,
    prepared: Prepared,
    wholes: Mapping[str, Whole],
    numbers: Mapping[str, Array | None],
    unnamed: Sequence[str],
    path: str,
) -> tuple[str, Held]:
    """Return which value of the reference a use is of, `unnamed` ones in this order, and the piece of it.

    Of those that hold its numbers in blocks the one with the largest: labels are tokens too, the next ones, one by one.
    """
    named, type = use.given.named, prepared.lifted.program.types[use.value]
    if named is not None and named.role != "input":
        if named.name not in wholes:
            text = f"the reference has no {named.role} `{named.name}`"
            raise ReadError(text, _at(use.mark, path), "capture the same model as the reference, with the same names")
        return named.name, _piece(use, wholes[named.name], numbers.get(named.name), type.shape, prepared, path)
    in_blocks: list[tuple[str, Held]] = []
    for name in unnamed:
        whole = numbers.get(name)
        if wholes[name].dtype != type.dtype or whole is None or use.given.numbers is None:
            continue
        rank, micro_batch = prepared.lifted.program.rank, use.mark.micro_batch
        parts = _in_shapes_of(use.given.numbers, whole)
        boxes = [box for part in parts for box in boxes_of(part, whole)]
        if boxes:
            return name, _any_of([Held(box, True) for box in boxes])
        known = _blocks_beside(wholes, rank, micro_batch)
        pieces = [piece for part in parts for piece in pieces_in_blocks(part, whole, known)]
        if pieces:
            in_blocks.append((name, _any_of([Held(box, True, blocks) for box, blocks in pieces])))
    if in_blocks:
        return max(in_blocks, key=lambda piece: piece[1].blocks.size if piece[1].blocks is not None else 0)
    text = f"a value of shape {type.shape} that the step is given is no part of what the reference is given"
    help = "feed the reference the same batch (the same seed, and all of what the ranks read), and make masks in the model"
    raise ReadError(text, _at(use.mark, path), help)


def _in_shapes_of(part: Array, whole: Array) -> list[Array]:
    """Return the numbers of a piece; where it is read in other dimensions, in the shapes of pieces cut along one dimension."""
    if part.ndim == whole.ndim or not part.size or not whole.size:
        return [part]
    rests = [(dim, whole.size // size) for dim, size in enumerate(whole.shape)]
    shapes = [(*whole.shape[:dim], part.size // rest, *whole.shape[dim + 1 :]) for dim, rest in rests if part.size % rest == 0]
    return [part.reshape(shape) for shape in shapes]


def _any_of(pieces: Sequence[Held]) -> Held:
    return replace(pieces[0], others=tuple(pieces[1:]))


def _settle(wholes: Mapping[str, Whole], rank: int) -> None:
    """Let pieces of a rank whose numbers stand in several places lie in the samples of others of their micro-batch, else where
    those of no other micro-batch lie.

    What the rank holds whole lies in no samples.
    """
    samples: dict[int, set[tuple[int, int]]] = {}
    of_rank = [(whole, whole.held[rank]) for whole in wholes.values() if rank in whole.held]
    for whole, by_micro_batch in of_rank:
        for micro_batch, held in by_micro_batch.items():
            if held.box and not held.others and whole.local != whole.shape:
                samples.setdefault(micro_batch, set()).add(held.box[0])
    for _, by_micro_batch in of_rank:
        places: dict[int, list[Held]] = {}
        for micro_batch, held in by_micro_batch.items():
            known = samples.get(micro_batch, ())
            beside = [each for each in (held, *held.others) if each.box and each.box[0] in known]
            places[micro_batch] = beside[:1] or [held, *held.others]
        by_micro_batch.update({number: replace(each, others=()) for number, each in _apart(places).items()})


def _apart(places: Mapping[int, Sequence[Held]]) -> dict[int, Held]:
    """Return one of the places of each micro-batch, in order, and no two the same where each can have one of its own."""
    taken: dict[Box, int] = {}
    found = {number: each[0] for number, each in places.items()}

    def moves(number: int, tried: set[Box]) -> bool:
        for each in places[number]:
            if each.box in tried:
                continue
            tried.add(each.box)
            if each.box not in taken or moves(taken[each.box], tried):
                taken[each.box], found[number] = number, each
                return True
        return False

    for number in places:
        moves(number, set())
    return found


def _blocks_beside(wholes: Mapping[str, Whole], rank: int, micro_batch: int) -> list[Blocks]:
    """Return the blocks that the micro-batch's other inputs lie in."""
    held = [whole.held[rank][micro_batch] for whole in wholes.values() if micro_batch in whole.held.get(rank, {})]
    return [each.blocks for each in held if each.blocks is not None]


def _piece(use: Use, whole: Whole, numbers: Array | None, shape: tuple[int, ...], prepared: Prepared, path: str) -> Held:
    """Return the box of a weight or buffer that a rank holds: what its framework says, else what its numbers show."""
    array = use.given.numbers
    boxes = [] if numbers is None or array is None else boxes_of(array, numbers)
    said = _said(use, whole, shape, prepared)
    if said is not None:
        if boxes and said not in boxes:
            text = f"`{whole.name}` is said to be piece {said} of the reference's, and holds the numbers of {boxes[0]}"
            raise ReadError(text, _at(use.mark, path), "initialise both programs alike, or leave numbers out of the question")
        return Held(said, True)
    if len(boxes) == 1:
        return Held(boxes[0], True)
    if shape == whole.shape:
        if array is not None and numbers is not None and not boxes:
            text = f"`{whole.name}` does not start as in the reference"
            raise ReadError(
                text, _at(use.mark, path), "seed both programs alike, so that weights with the same names start equal"
            )
        return Held(whole_box(shape), True)
    if array is not None and numbers is not None and not boxes and array.shape == shape:
        blocks = blocks_of(array, numbers, [])
        if blocks is not None:
            return Held(whole_box(shape), True, blocks)
        text = f"`{whole.name}` of shape {shape} holds the numbers of no one piece of the reference's, of shape {whole.shape}"
        help = "cut it from the whole weight along one dimension, and seed both programs alike"
        raise ReadError(text, _at(use.mark, path), help)
    return Held(_in_order(whole, shape, prepared.lifted.program.rank, boxes, use, path), False)


def _said(use: Use, whole: Whole, shape: tuple[int, ...], prepared: Prepared) -> Box | None:
    """Return the box that a framework declares; None where nothing is declared that a box says."""
    named = use.given.named
    if named is not None and named.start is not None:
        stated = tuple((low, low + size) for low, size in zip(named.start, shape, strict=False))
        fits = len(named.start) == len(shape) == len(whole.shape) and named.whole == whole.shape
        return stated if fits and all(high <= size for (_, high), size in zip(stated, whole.shape, strict=True)) else None
    if named is None or named.placements is None:
        return None
    mesh = next((axes for axes, _ in prepared.meshes if {axis.name for axis in axes} >= named.placements.keys()), None)
    ranks = next((ranks_of_mesh for axes, ranks_of_mesh in prepared.meshes if axes == mesh), None)
    rank = prepared.lifted.program.rank
    if mesh is None or ranks is None or rank not in ranks:
        return None
    place = ranks.index(rank)
    coordinates: dict[str, int] = {}
    for axis in reversed(mesh):
        place, coordinates[axis.name] = divmod(place, axis.size)
    box = list(whole_box(whole.shape))
    for axis in mesh:
        placement = named.placements.get(axis.name, Replicate())
        if isinstance(placement, Replicate):
            continue
        if not isinstance(placement, Shard):
            return None
        low, high = box[placement.dim]
        step, rest = divmod(high - low, axis.size)
        if rest:
            return None
        box[placement.dim] = (low + coordinates[axis.name] * step, low + (coordinates[axis.name] + 1) * step)
    return tuple(box) if tuple(high - low for low, high in box) == shape else None


def _in_order(whole: Whole, shape: tuple[int, ...], rank: int, boxes: Sequence[Box], use: Use, path: str) -> Box:
    """Return the box that a rank holds if the pieces lie in the order of the ranks, where the numbers do not tell."""
    cut = [dim for dim, (local, size) in enumerate(zip(shape, whole.shape, strict=False)) if local != size]
    if len(shape) != len(whole.shape) or len(cut) != 1 or not shape[cut[0]] or whole.shape[cut[0]] % shape[cut[0]]:
        text = f"`{whole.name}` of shape {shape} is no piece of the reference's, of shape {whole.shape}"
        raise ReadError(text, _at(use.mark, path), "capture the same model as the reference, with the same names")
    dim, pieces = cut[0], whole.shape[cut[0]] // shape[cut[0]]
    place = rank % pieces
    box = (*whole_box(shape)[:dim], (place * shape[dim], (place + 1) * shape[dim]), *whole_box(shape)[dim + 1 :])
    if boxes and box not in boxes:
        text = f"`{whole.name}` holds the numbers of {boxes[0]} of the reference's on rank {rank}, not those of {box}"
        raise ReadError(text, _at(use.mark, path), "cut weights in the order of the ranks")
    return box


def _tell_constants(wholes: Mapping[str, Whole]) -> None:
    """Take what every rank reads whole in every micro-batch for a constant, where other inputs are cut."""
    inputs = [each_whole for each_whole in wholes.values() if each_whole.role is Role.INPUT and each_whole.held]
    cut = [each_input for each_input in inputs if each_input.local != each_input.shape]
    for whole in inputs if cut else ():
        if whole not in cut:
            whole.role = Role.BUFFER
            whole.held = {rank: {-1: held} for rank, by in whole.held.items() for held in by.values()}
