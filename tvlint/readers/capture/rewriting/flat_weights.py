"""Weights that lie in a flat weight, of which ranks hold ranges, taken as weights that every rank holds whole.

`FullyShardedDataParallel` lays weights one after the other in a flat one, gathers the ranges of it, and reads its weights as
ranges of what it has gathered. It scatters the sum of flat gradients, so that each rank has those of its range. The optimizer
works on each element by itself, so the program trains as one in which each rank holds every weight and the sum of its gradients
whole. What reads a flat weight in another way is an error at its line.

`fully_shard` leaves ranks unequal shards of the rows of a weight. It fills them up to the size of the largest before it gathers
them, and reads as many rows of what it gathers as the weight has: such a weight is a flat one in which it lies alone. A rank
may hold no rows; which of its collectives are about the weight is said by their places among those of the group, on a rank that
holds rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from tvlint.ir.location import Location
from tvlint.readers.capture.lifting.program import (
    Apply,
    Array,
    End,
    Exchange,
    GivenValue,
    Node,
    Program,
    Type,
    reads,
)
from tvlint.readers.capture.rewriting.flat_gradients import FlatGradient, FlatWeight, NotFlatError, View, issued
from tvlint.readers.capture.rewriting.uneven_shards import uneven_shards
from tvlint.readers.capture.tapes.tape import Capture, Laid, Named, Tape
from tvlint.readers.document import ReadError


@dataclass(frozen=True, slots=True)
class _Range:
    """A value that holds the elements of a flat weight from `low` to `high`, in order, and its cast, where it is one."""

    flat: str
    low: int
    high: int
    cast: Apply | None = None


def without_flat_weights(capture: Capture, programs: Sequence[Program]) -> list[Program]:
    """Return the programs of all ranks with weights in place of the flat ones in which they lie.

    Raises ReadError where a flat weight is read, gathered or reduced in another way.
    """
    wholes = [_copied(program) for program in programs]
    try:
        flats = _with_alike(
            [a | b for a, b in zip(map(_flat_weights, capture.tapes), uneven_shards(capture.tapes), strict=True)]
        )
        if not any(flats):
            return list(programs)
        every = [flat for known in flats for flat in known.values()]
        for flat in every:
            _check_held(flat, flats)
        places: list[dict[str, list[int]]] = [{} for _ in wholes]
        for rank in sorted(range(len(wholes)), key=lambda rank: any(map(_is_empty, flats[rank].values()))):
            met = _met(programs[rank], flats[rank], places)
            places[rank] = _with_weights(wholes[rank], flats[rank], programs, met)
        for flat in every:
            _check_gathered(flat, places)
        for program, known in zip(wholes, flats, strict=True):
            _with_gradients(program, known, programs)
    except NotFlatError as error:
        text, help = _not_followed(error.flat, capture)
        place = error.mark.place if error.mark is not None else _first_read(error.flat, programs)
        raise ReadError(text, place or Location(capture.path), help) from None
    return wholes


def _not_followed(name: str, capture: Capture) -> tuple[str, str]:
    """Return what is not followed of a weight, and what to do."""
    every = [(tape, event) for tape in capture.tapes for event in tape.events if isinstance(event, Named)]
    named = [(tape.windows[event.window].shape, event) for tape, event in every if event.name == name]
    whole = next((event.whole for _, event in named if not event.flat), None)
    if whole is None:
        text = f"the flat weight `{name}` is read, gathered or reduced in another way than is followed here"
        return text, "shard the model with `fully_shard` of `torch.distributed.fsdp`"
    sizes = " and ".join([*dict.fromkeys(str(shape) for shape, _ in named)][:2])
    text = f"the shards of `{name}`, of shape {whole}, are of unequal sizes, {sizes}, which is not followed here"
    return text, "give the layer a size that the ranks divide, or launch as many ranks as divide it"


def _first_read(name: str, programs: Sequence[Program]) -> Location | None:
    """Return where a weight is read first."""
    for program in programs:
        known = {value for value, given in program.given.items() if given.named is not None and given.named.name == name}
        for node in program.nodes:
            if node.mark.place is not None and not known.isdisjoint(reads(node)):
                return node.mark.place
    return None


def _copied(program: Program) -> Program:
    """Return a program that can be changed beside the one that it is of."""
    return replace(
        program,
        nodes=list(program.nodes),
        types=dict(program.types),
        given=dict(program.given),
        gradients=dict(program.gradients),
        updated=dict(program.updated),
        after=dict(program.after),
        clipped=dict(program.clipped),
    )


def _flat_weights(tape: Tape) -> dict[str, FlatWeight]:
    """Return the flat weights of a rank by their names."""
    named = [event for event in tape.events if isinstance(event, Named) and event.flat]
    return {event.name: _flat_weight(event, tape) for event in named}


def _flat_weight(named: Named, tape: Tape) -> FlatWeight:
    places = {(laid.at, laid.at + prod(laid.shape)): laid for laid in named.flat}
    size = prod(tape.windows[named.window].shape)
    return FlatWeight(named, size, tape.rank, places, size * len(named.group))


def _with_alike(flats: Sequence[Mapping[str, FlatWeight]]) -> list[dict[str, FlatWeight]]:
    """Return flat weights with the ranks that hold the same ranges."""
    alike: dict[tuple[str, int], set[int]] = {}
    for known in flats:
        for name, flat in known.items():
            alike.setdefault((name, flat.place), set()).add(flat.rank)
    return [{name: replace(flat, alike=frozenset(alike[name, flat.place])) for name, flat in known.items()} for known in flats]


def _is_empty(flat: FlatWeight) -> bool:
    """Return whether the rank holds nothing of a flat weight."""
    low, high = flat.held
    return low == high


def _met(program: Program, flats: Mapping[str, FlatWeight], places: Sequence[Mapping[str, list[int]]]) -> dict[int, str]:
    """Return the gathers of what the rank holds nothing of, by what each is of; the first rank of a group says which."""
    found: dict[int, str] = {}
    for name, flat in flats.items():
        if _is_empty(flat):
            met = issued(program, flat.group)
            known = [place for place in places[flat.group[0]].get(name, ()) if place < len(met)]
            found |= {id(met[place]): name for place in known}
    return found


def _check_held(flat: FlatWeight, flats: Sequence[Mapping[str, FlatWeight]]) -> None:
    """Raise NotFlatError where the ranks of a group do not hold ranges of one flat weight."""
    for member in flat.group:
        known = flats[member].get(flat.name) if member < len(flats) else None
        if known is None or (known.laid, known.group, known.size, known.total) != (
            flat.laid,
            flat.group,
            flat.size,
            flat.total,
        ):
            raise NotFlatError(flat.name, None)


def _check_gathered(flat: FlatWeight, places: Sequence[Mapping[str, list[int]]]) -> None:
    """Raise NotFlatError where the ranks of a group do not gather a flat weight at once."""
    if any(places[member].get(flat.name) != places[flat.rank].get(flat.name) for member in flat.group):
        raise NotFlatError(flat.name, None)


def _with_weights(
    program: Program, flats: Mapping[str, FlatWeight], every: Sequence[Program], met: Mapping[int, str]
) -> dict[str, list[int]]:
    """Let a program read weights in place of ranges of flat ones; return the places of each one's gathers among collectives.

    `met` are gathers to which the rank adds nothing, with the names of what is gathered.
    """
    ranges: dict[str, _Range] = {}
    views: dict[str, View] = {}
    for value, given in list(program.given.items()):
        flat = flats.get(given.named.name) if given.named is not None else None
        if flat is None:
            continue
        ranges[value] = _Range(flat.name, *flat.held)
        views[flat.name] = View(flat, _weights(program, value, flat, every))
    counts: dict[tuple[int, ...], int] = {}
    places: dict[str, list[int]] = {}
    ended: set[str] = set()
    kept: list[Node] = []
    for node in program.nodes:
        read = [name for name in reads(node) if name in ranges]
        place = counts.get(node.group, 0) if isinstance(node, Exchange) else 0
        if isinstance(node, Exchange):
            counts[node.group] = place + 1
        if isinstance(node, End) and node.handle in ended:
            continue
        if id(node) not in met and (not read or (node.mark.phase == "optimizer" and not isinstance(node, Exchange))):
            kept.append(node)
            continue
        flat = flats[met[id(node)] if id(node) in met else ranges[read[0]].flat]
        held = _Range(flat.name, *flat.filled) if id(node) in met else ranges[read[0]]
        if isinstance(node, Exchange):
            if node.kind != "all-gather" or node.group != flat.group or node.dim != 0 or (held.low, held.high) != flat.filled:
                raise NotFlatError(flat.name, node.mark)
            ranges[node.outputs[0]] = replace(held, low=0, high=flat.size * len(flat.group))
            places.setdefault(flat.name, []).append(place)
            ended.add(node.handle)
            continue
        moved = _moved(node, ranges, program, flat) if isinstance(node, Apply) else None
        if moved is None or not isinstance(node, Apply):
            raise NotFlatError(flat.name, node.mark)
        laid = flat.places.get((moved.low, moved.high))
        if laid is None:
            ranges[node.outputs[0]] = moved
        else:
            kept += views[flat.name].nodes(program, laid, node, moved.cast)
    program.nodes[:] = kept
    return places


def _moved(node: Apply, ranges: Mapping[str, _Range], program: Program, flat: FlatWeight) -> _Range | None:
    """Return the range that an operator gives of ranges that it reads; None where it gives no range."""
    sources = [ranges.get(name) for name in reads(node)]
    known = [source for source in sources if source is not None]
    joins = node.op == "cat" and node.arguments.get("dim") == 0
    first, size = known[0], prod(program.shape(node.outputs[0]))
    if joins and known == sources[:1] and (first.low, first.high) == flat.held and size == flat.size:
        return replace(first, high=first.low + size)
    if len(known) < len(sources) or len({(source.flat, id(source.cast)) for source in known}) > 1:
        return None
    if node.op == "view" and len(known) == 1:
        return first
    if node.op == "narrow" and len(known) == 1 and node.arguments["dim"] == 0:
        start, row = node.arguments["start"], prod(program.shape(reads(node)[0])[1:])
        assert isinstance(start, int)
        low = first.low + start * row
        return replace(first, low=low, high=low + size)
    follows = all(one.high == other.low for one, other in pairwise(known))
    if joins and len(program.shape(node.outputs[0])) == 1 and follows:
        return replace(first, high=known[-1].high)
    if node.op == "aten._to_copy.default" and len(known) == 1 and node.arguments.keys() <= {"self", "dtype"}:
        return replace(first, cast=node) if first.cast is None else None
    return None


def _weights(program: Program, value: str, flat: FlatWeight, every: Sequence[Program]) -> dict[str, str]:
    """Return the values that the weights in a flat one are; their numbers are those that the ranks hold together."""
    numbers = _joined([_given_numbers(every[member], flat.name) for member in flat.group], flat)
    found: dict[str, str] = {}
    for laid in flat.laid:
        found[laid.name] = name = program.fresh(Type(laid.shape, program.types[value].dtype))
        known = program.given[value]
        assert known.named is not None
        named = replace(known.named, name=laid.name, trained=laid.trained, flat=(), group=(), whole=None, placements=None)
        program.given[name] = GivenValue(named, _part(numbers, laid), known.mark)
    return found


def _given_numbers(program: Program, name: str) -> Array | None:
    return next(
        (given.numbers for given in program.given.values() if given.named is not None and given.named.name == name), None
    )


def _joined(parts: Sequence[Array | None], flat: FlatWeight) -> Array | None:
    """Return the numbers that the ranges of all ranks hold together; None where some are not known."""
    import numpy as np

    sized = zip(parts, flat.counts, strict=True)
    known = [part.reshape(-1) for part, count in sized if part is not None and part.size == count]
    return np.concatenate(known) if len(known) == len(parts) else None


def _part(numbers: Array | None, laid: Laid) -> Array | None:
    """Return the numbers of one weight in a flat one."""
    return None if numbers is None else numbers[laid.at : laid.at + prod(laid.shape)].reshape(laid.shape)


def _with_gradients(program: Program, flats: Mapping[str, FlatWeight], every: Sequence[Program]) -> None:
    """Let a program have the gradients of weights, and what is recorded of them, in place of those of flat ones."""
    gradient = FlatGradient(program)
    for name, flat in flats.items():
        members = [every[member] for member in flat.group]
        optimizer = program.updated.pop(name, None)
        after = _joined([member.after.get(name) for member in members], flat)
        held = [member.clipped.get(name, (None, ())) for member in members]
        clipped = None if any(summed for _, summed in held) else _joined([part for part, _ in held], flat)
        numbers = _joined([member.gradients.get(name, ("", None))[1] for member in members], flat)
        has_after, has_clipped = name in program.after, name in program.clipped
        value, _ = program.gradients.pop(name, ("", None))
        program.after.pop(name, None)
        program.clipped.pop(name, None)
        for laid in (laid for laid in flat.laid if laid.trained):
            if optimizer is not None:
                program.updated[laid.name] = optimizer
            if has_after:
                program.after[laid.name] = _part(after, laid)
            if has_clipped:
                program.clipped[laid.name] = _part(clipped, laid), ()
            if value and _is_empty(flat):
                of_peer, _ = members[0].gradients.get(name, ("", None))
                whole = gradient.of_nothing(every[flat.rank], members[0], of_peer, laid, flat)
                program.gradients[laid.name] = whole, _part(numbers, laid)
            elif value:
                program.gradients[laid.name] = gradient.of(value, laid, flat), _part(numbers, laid)
    gradient.put()
