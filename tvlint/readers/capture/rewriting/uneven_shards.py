"""Weights of whose rows the ranks hold unequal shards, taken as weights that every rank holds whole.

`fully_shard` fills the shard up to the size of the largest, gathers the rows of all ranks and reads as many as the weight has:
that is the weight. It scatters the sum of gradients that are filled up with zeros, and each rank reads as many rows as it
holds: those rows of the sum of gradients. The optimizer works on each element by itself, so the program trains as one in which
each rank holds the weight and the sum of its gradients whole. What is read in another way is an error at its line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.placement import Replicate, Shard
from tvlint.readers.capture.lifting.program import (
    Apply,
    Array,
    End,
    Exchange,
    GivenValue,
    Node,
    Program,
    Ref,
    Type,
    makes,
    reads,
)
from tvlint.readers.capture.rewriting.shard_gradients import (
    NotFollowedError,
    UnevenWeight,
    WholeGradient,
    at_places,
    bounds,
    gradient_of_none,
)
from tvlint.readers.capture.tapes.tape import Capture, Named, Tape
from tvlint.readers.document import ReadError

_HELP = "give the layer a size that the ranks divide, or launch as many ranks as divide it"


_Held: TypeAlias = tuple[str, Array | None]
"""The value of a gradient on a rank, and its recorded numbers."""


def without_uneven_shards(capture: Capture, programs: Sequence[Program]) -> list[Program]:
    """Return the programs of all ranks with whole weights in place of unequal shards.

    Raises ReadError, at the line that reads it, for a shard that is not gathered whole, or whose gradient is not scattered.
    """
    wholes = _Wholes([replace(program, nodes=list(program.nodes), types=dict(program.types)) for program in programs])
    try:
        for weight in _weights(capture.tapes):
            wholes.take(weight)
        for program, after, clipped in zip(wholes.programs, wholes.after, wholes.clipped, strict=True):
            program.after |= after
            program.clipped |= clipped
    except NotFollowedError as error:
        weight = error.weight
        one, other, *_ = dict.fromkeys(weight.shards.values())
        text = f"the shards of `{weight.name}`, of shape {weight.whole}, are of unequal sizes, {one} and {other}"
        place = error.mark.place if error.mark is not None else None
        raise ReadError(f"{text}, which is not followed here", place or Location(capture.path), _HELP) from None
    return wholes.programs


def _weights(tapes: Sequence[Tape]) -> list[UnevenWeight]:
    """Return the weights whose rows one axis cuts into unequal shards."""
    shards: dict[str, dict[int, tuple[int, ...]]] = {}
    named: dict[str, Named] = {}
    for tape in tapes:
        for event in (event for event in tape.events if isinstance(event, Named) and event.whole is not None):
            if event.placements:
                shards.setdefault(event.name, {}).setdefault(tape.rank, tape.windows[event.window].shape)
                named.setdefault(event.name, event)
    found = [UnevenWeight(name, named[name].whole or (), held) for name, held in shards.items() if len(set(held.values())) > 1]
    for weight in found:
        cut = [lies for lies in (named[weight.name].placements or {}).values() if not isinstance(lies, Replicate)]
        if cut != [Shard(0)]:
            raise NotFollowedError(weight, None)
    return found


class _Wholes:
    """The programs of all ranks while unequal shards are replaced."""

    def __init__(self, programs: list[Program]) -> None:
        self.programs = programs
        self.after: list[dict[str, Array | None]] = [{} for _ in programs]
        self.clipped: list[dict[str, tuple[Array | None, tuple[str, ...]]]] = [{} for _ in programs]

    def take(self, weight: UnevenWeight) -> None:
        """Let each rank hold a weight and its gradient whole."""
        values = {rank: _value_of(self.programs[rank], weight) for rank in weight.shards}
        gathers = {rank: self._gathers(rank, value, weight) for rank, value in values.items() if weight.shards[rank][0]}
        for rank in values.keys() - gathers:
            like = next((found for found in gathers.values() if rank in found[0][1].group), None)
            if like is None:
                raise NotFollowedError(weight, None)
            gathers[rank] = at_places(self.programs[rank], like[0][1].group, [place for place, _ in like])
        for rank, value in values.items():
            self._check_order(rank, gathers, weight)
            program = self.programs[rank]
            group = gathers[rank][0][1].group
            numbers = _joined([_numbers(self.programs[member], values[member]) for member in group], weight)
            whole = program.fresh(Type(weight.whole, program.types[value].dtype))
            known = program.given[value]
            assert known.named is not None
            program.given[whole] = GivenValue(replace(known.named, whole=None, placements=None), numbers, known.mark)
            for _, gather in gathers[rank]:
                self._read_whole(program, gather, whole, weight)
            members = [self.programs[member] for member in group]
            if weight.name in program.after:
                self.after[rank][weight.name] = _joined([member.after.get(weight.name) for member in members], weight)
            if weight.name in program.clipped:
                clipped = [member.clipped.get(weight.name, (None, ())) for member in members]
                whole_clipped = None if any(summed for _, summed in clipped) else _joined([part for part, _ in clipped], weight)
                self.clipped[rank][weight.name] = whole_clipped, ()
        groups = {rank: found[0][1].group for rank, found in gathers.items()}
        gradients = {rank: self.programs[rank].gradients.get(weight.name) for rank in weight.shards}
        for rank in sorted(gradients, key=lambda rank: bool(weight.shards[rank][0])):
            if gradients[rank] is None:
                continue
            parts = [gradients[member] for member in groups[rank]]
            numbers = _joined([part[1] if part is not None else None for part in parts], weight)
            value = self._gradient(rank, groups, gradients, weight)
            self.programs[rank].gradients[weight.name] = value, numbers

    def _gradient(
        self, rank: int, groups: Mapping[int, tuple[int, ...]], gradients: Mapping[int, _Held | None], weight: UnevenWeight
    ) -> str:
        """Return the whole of a gradient on a rank; where it holds no rows, as another rank of its group has it."""
        program = self.programs[rank]
        taken, held = WholeGradient(program, weight, rank, groups), gradients[rank]
        if held is not None and weight.shards[rank][0]:
            return taken.whole(held[0])
        peer = next(member for member in groups[rank] if weight.shards[member][0])
        known = gradients[peer]
        value = gradient_of_none(program, self.programs[peer], known[0], weight.whole, taken.whole) if known else None
        if value is None:
            raise NotFollowedError(weight, None)
        return value

    def _gathers(self, rank: int, value: str, weight: UnevenWeight) -> list[tuple[int, Exchange]]:
        """Return the gathers of a shard, each with its place among the collectives of the group; nothing else reads it."""
        program = self.programs[rank]
        made = _filled_up(program, value, weight)
        counts: dict[tuple[int, ...], int] = {}
        found: list[tuple[int, Exchange]] = []
        for node in program.nodes:
            if isinstance(node, Exchange):
                place = counts.setdefault(node.group, 0)
                counts[node.group] += 1
                if made & set(node.inputs):
                    if node.kind != "all-gather" or rank not in node.group or node.dim != 0:
                        raise NotFollowedError(weight, node.mark)
                    found.append((place, node))
            elif made & set(reads(node)) and not made & set(makes(node)) and node.mark.phase != "optimizer":
                raise NotFollowedError(weight, node.mark)
        if not found or len({node.group for _, node in found}) > 1:
            raise NotFollowedError(weight, found[0][1].mark if found else None)
        return found

    def _check_order(self, rank: int, gathers: Mapping[int, list[tuple[int, Exchange]]], weight: UnevenWeight) -> None:
        """Raise NotFollowedError where the ranks of a group do not gather all rows of this weight at once, in order."""
        group = gathers[rank][0][1].group
        places = [place for place, _ in gathers[rank]]
        if not gathers.keys() >= set(group):
            raise NotFollowedError(weight, gathers[rank][0][1].mark)
        largest, at = max(weight.shards[member][0] for member in group), 0
        for member in group:
            program = self.programs[member]
            sizes = {prod(program.shape(node.inputs[0])) for _, node in gathers[member]}
            rows = weight.shards[member][0]
            same = gathers[member][0][1].group == group and [place for place, _ in gathers[member]] == places
            if not same or sizes != {largest * prod(weight.whole[1:])} or rows != min(largest, weight.whole[0] - at):
                raise NotFollowedError(weight, gathers[rank][0][1].mark)
            at += rows
        if at != weight.whole[0]:
            raise NotFollowedError(weight, gathers[rank][0][1].mark)

    def _read_whole(self, program: Program, gather: Exchange, whole: str, weight: UnevenWeight) -> None:
        """Let what reads as many rows of a gather as the weight has read the weight."""
        (gathered,) = gather.outputs
        rows = {gathered}
        ended = not gather.handle
        kept: list[Node] = []
        for node in program.nodes:
            if node is gather or (isinstance(node, End) and gather.handle and node.handle == gather.handle):
                ended = ended or isinstance(node, End)
                continue
            if rows.isdisjoint(reads(node)):
                kept.append(node)
                continue
            if not isinstance(node, Apply) or not ended:
                raise NotFollowedError(weight, node.mark)
            shape = program.shape(node.outputs[0])
            if node.op == "view":
                rows.add(node.outputs[0])
            elif node.op == "narrow" and bounds(node)[:2] == (0, 0) and prod(shape) == prod(weight.whole):
                kept.append(replace(node, op="view", arguments={"self": Ref(whole), "size": shape}))
            else:
                raise NotFollowedError(weight, node.mark)
        program.nodes[:] = kept


def _value_of(program: Program, weight: UnevenWeight) -> str:
    """Return the value that is the rank's shard of a weight."""
    for name, given in program.given.items():
        if given.named is not None and given.named.name == weight.name:
            return name
    raise NotFollowedError(weight, None)


def _filled_up(program: Program, value: str, weight: UnevenWeight) -> set[str]:
    """Return the values that are the shard, in any shape, or the shard with something behind it."""
    found = {value}
    for node in program.nodes:
        if not isinstance(node, Apply):
            continue
        source, listed = node.arguments.get("self"), node.arguments.get("tensors")
        if node.op == "view" and isinstance(source, Ref) and source.name in found:
            found.update(node.outputs)
        elif node.op == "cat" and isinstance(listed, tuple) and node.arguments.get("dim") == 0 and listed:
            first, *rest = listed
            if (
                isinstance(first, Ref)
                and first.name in found
                and not found.intersection(e.name for e in rest if isinstance(e, Ref))
            ):
                found.update(node.outputs)
    return found


def _numbers(program: Program, value: str) -> Array | None:
    return program.given[value].numbers


def _joined(parts: Sequence[Array | None], weight: UnevenWeight) -> Array | None:
    """Return the numbers of a whole of which the parts are the rows; None where some are not known."""
    import numpy as np

    known = [part for part in parts if part is not None and part.ndim and part.shape[1:] == weight.whole[1:]]
    if len(known) < len(parts):
        return None
    joined: Array = np.concatenate(known)
    return joined if joined.shape == weight.whole else None
