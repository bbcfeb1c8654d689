"""Weights that lie in a flat weight, of which ranks hold ranges, taken as weights that every rank holds whole.

`FullyShardedDataParallel` lays weights one after the other in a flat one, gathers the ranges of it, and reads its weights as
ranges of what it has gathered. It scatters the sum of flat gradients, so that each rank has those of its range. The optimizer
works on each element by itself, so the program trains as one in which each rank holds every weight and the sum of its gradients
whole. What reads a flat weight in another way is an error at its line.
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
from tvlint.readers.capture.rewriting.flat_gradients import FlatGradient, FlatWeight, NotFlatError, View
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
    flats = [_flat_weights(tape) for tape in capture.tapes]
    if not any(flats):
        return list(programs)
    wholes = [_copied(program) for program in programs]
    every = [flat for known in flats for flat in known.values()]
    try:
        for flat in every:
            _check_held(flat, flats)
        places = [_with_weights(program, known, programs) for program, known in zip(wholes, flats, strict=True)]
        for flat in every:
            _check_gathered(flat, places)
        for program, known in zip(wholes, flats, strict=True):
            _with_gradients(program, known, programs)
    except NotFlatError as error:
        text = f"the flat weight `{error.flat}` is read, gathered or reduced in another way than is followed here"
        help = "shard the model with `fully_shard` of `torch.distributed.fsdp`"
        place = error.mark.place if error.mark is not None else None
        raise ReadError(text, place or Location(capture.path), help) from None
    return wholes


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
    return FlatWeight(named, prod(tape.windows[named.window].shape), tape.rank, places)


def _check_held(flat: FlatWeight, flats: Sequence[Mapping[str, FlatWeight]]) -> None:
    """Raise NotFlatError where the ranks of a group do not hold ranges of one flat weight."""
    for member in flat.group:
        known = flats[member].get(flat.name) if member < len(flats) else None
        if known is None or (known.laid, known.group, known.size) != (flat.laid, flat.group, flat.size):
            raise NotFlatError(flat.name, None)


def _check_gathered(flat: FlatWeight, places: Sequence[Mapping[str, list[int]]]) -> None:
    """Raise NotFlatError where the ranks of a group do not gather a flat weight at once."""
    if any(places[member].get(flat.name) != places[flat.rank].get(flat.name) for member in flat.group):
        raise NotFlatError(flat.name, None)


def _with_weights(program: Program, flats: Mapping[str, FlatWeight], every: Sequence[Program]) -> dict[str, list[int]]:
    """Let a program read weights in place of ranges of flat ones; return the places of each one's gathers among collectives."""
    ranges: dict[str, _Range] = {}
    views: dict[str, View] = {}
    for value, given in list(program.given.items()):
        flat = flats.get(given.named.name) if given.named is not None and given.named.flat else None
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
        if not read or (node.mark.phase == "optimizer" and not isinstance(node, Exchange)):
            kept.append(node)
            continue
        held = ranges[read[0]]
        flat = flats[held.flat]
        if isinstance(node, Exchange):
            if node.kind != "all-gather" or node.group != flat.group or node.dim != 0 or (held.low, held.high) != flat.held:
                raise NotFlatError(flat.name, node.mark)
            ranges[node.outputs[0]] = replace(held, low=0, high=flat.size * len(flat.group))
            places.setdefault(flat.name, []).append(place)
            ended.add(node.handle)
            continue
        moved = _moved(node, ranges, program) if isinstance(node, Apply) else None
        if moved is None or not isinstance(node, Apply):
            raise NotFlatError(flat.name, node.mark)
        laid = flat.places.get((moved.low, moved.high))
        if laid is None:
            ranges[node.outputs[0]] = moved
        else:
            kept += views[flat.name].nodes(program, laid, node, moved.cast)
    program.nodes[:] = kept
    return places


def _moved(node: Apply, ranges: Mapping[str, _Range], program: Program) -> _Range | None:
    """Return the range that an operator gives of ranges that it reads; None where it gives no range."""
    sources = [ranges.get(name) for name in reads(node)]
    known = [source for source in sources if source is not None]
    if len(known) < len(sources) or len({(source.flat, id(source.cast)) for source in known}) > 1:
        return None
    first = known[0]
    if node.op == "view" and len(known) == 1:
        return first
    if node.op == "narrow" and len(known) == 1 and node.arguments["dim"] == 0:
        start, row = node.arguments["start"], prod(program.shape(reads(node)[0])[1:])
        assert isinstance(start, int)
        low = first.low + start * row
        return replace(first, low=low, high=low + prod(program.shape(node.outputs[0])))
    follows = all(one.high == other.low for one, other in pairwise(known))
    if node.op == "cat" and node.arguments.get("dim") == 0 and len(program.shape(node.outputs[0])) == 1 and follows:
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
        named = replace(known.named, name=laid.name, trained=laid.trained, flat=(), group=())
        program.given[name] = GivenValue(named, _part(numbers, laid), known.mark)
    return found


def _given_numbers(program: Program, name: str) -> Array | None:
    return next(
        (given.numbers for given in program.given.values() if given.named is not None and given.named.name == name), None
    )


def _joined(parts: Sequence[Array | None], flat: FlatWeight) -> Array | None:
    """Return the numbers that the ranges of all ranks hold together; None where some are not known."""
    import numpy as np

    known = [part.reshape(-1) for part in parts if part is not None and part.size == flat.size]
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
            if value:
                program.gradients[laid.name] = gradient.of(value, laid, flat), _part(numbers, laid)
    gradient.put()
