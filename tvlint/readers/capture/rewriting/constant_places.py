"""Places that a program chooses by numbers that it makes itself, as the parts of a sequence that are a rank's.

The numbers are recorded, and are no part of what the reference is given. What they choose is cut out and joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tvlint.readers.capture.lifting.calls import CHOOSE
from tvlint.readers.capture.lifting.program import Apply, Argument, Array, Node, Program, Ref, makes, reads
from tvlint.readers.capture.placing import boxes_of

_VIEW = "view"


def with_constant_places(program: Program, wholes: Iterable[Array]) -> Program:
    """Return the program with ranges joined in place of what `index_select` chooses by numbers that the reference lacks."""
    known = list(wholes)
    readers: dict[str, list[Node]] = {}
    makers: dict[str, Node] = {}
    for node in program.nodes:
        for name in reads(node):
            readers.setdefault(name, []).append(node)
        makers.update(dict.fromkeys(makes(node), node))
    places = {name: found for name in program.given if (found := _places(program, name, readers.get(name, ()), known))}
    if not places:
        return program
    given = {name: value for name, value in program.given.items() if name not in places}
    made = replace(program, given=given, types=dict(program.types), chosen=list(program.chosen))
    nodes: list[Node] = []
    joined: dict[str, str] = {}
    for node in program.nodes:
        by = node.arguments.get("index") if isinstance(node, Apply) and node.op == CHOOSE else None
        source = node.arguments.get("self") if isinstance(node, Apply) and node.op == _VIEW else None
        along = _along(program, node)
        if isinstance(node, Apply) and along is not None and isinstance(by, Ref) and by.name in places:
            *ranges, join = _joined(made, _in_chunks(made, node, along, places[by.name], makers))
            nodes += ranges
            whole = join if join.outputs == node.outputs else _viewed(made, join, node)
            nodes += [join] if whole is join else [join, whole]
            joined[node.outputs[0]] = join.outputs[0]
            made.chosen.append(node.mark)
        elif isinstance(node, Apply) and isinstance(source, Ref) and source.name in joined:
            nodes.append(replace(node, arguments={**node.arguments, "self": Ref(joined[source.name])}))
        else:
            nodes.append(node)
    return replace(made, nodes=nodes)


def _places(program: Program, name: str, readers: Iterable[Node], known: Iterable[Array]) -> tuple[int, ...]:
    """Return the places that a given value says; none where it may be data, or something else than a choice reads it."""
    value = program.given[name]
    numbers = value.numbers
    if value.named is not None or numbers is None or numbers.ndim != 1 or numbers.dtype.kind != "i":
        return ()
    along = [_along(program, node) for node in readers]
    alone = all(found is not None and found[0] != Ref(name) for found in along)
    if not alone or any(boxes_of(numbers, whole) for whole in known):
        return ()
    return tuple(numbers.tolist())


def _along(program: Program, node: Node) -> tuple[Ref, int] | None:
    """Return from what and along which dimension of it a node chooses places; None where it is no such choice."""
    if not isinstance(node, Apply) or node.op != CHOOSE:
        return None
    source, dim = node.arguments.get("self"), node.arguments.get("dim")
    if not isinstance(source, Ref) or not isinstance(dim, int):
        return None
    rank = len(program.shape(source.name))
    return (source, dim % rank) if -rank <= dim < rank else None


@dataclass(frozen=True, slots=True)
class _Choice:
    """What chooses `places`, of `size` neighbouring indices each, along a dimension of a value."""

    source: Ref
    dim: int
    places: tuple[int, ...]
    size: int
    node: Apply


def _in_chunks(
    program: Program, node: Apply, along: tuple[Ref, int], places: tuple[int, ...], makers: Mapping[str, Node]
) -> _Choice:
    """Return a choice, of a dimension that was viewed as chunks and their indices as one of the dimension itself."""
    source, at = along
    shape, maker = program.shape(source.name), makers.get(source.name)
    before = maker.arguments["self"] if isinstance(maker, Apply) and maker.op == _VIEW else None
    if isinstance(before, Ref) and program.shape(before.name)[: at + 1] == (*shape[:at], prod(shape[at : at + 2])):
        return _Choice(before, at, places, prod(shape[at + 1 : at + 2]), node)
    return _Choice(source, at, places, 1, node)


def _joined(program: Program, choice: _Choice) -> Iterator[Apply]:
    """Yield the ranges of neighbouring places, and last what joins them."""
    type, at, places, mark = program.types[choice.source.name], choice.dim, choice.places, choice.node.mark
    starts = [i for i, place in enumerate(places) if i == 0 or place != places[i - 1] + 1]
    ranges = []
    for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
        size = (end - start) * choice.size
        name = program.fresh(type.of_shape((*type.shape[:at], size, *type.shape[at + 1 :])))
        ranges.append(Ref(name))
        taken: dict[str, Argument] = {"self": choice.source, "dim": at, "start": places[start] * choice.size, "length": size}
        yield Apply("narrow", taken, (name,), mark)
    whole = type.of_shape((*type.shape[:at], len(places) * choice.size, *type.shape[at + 1 :]))
    outputs = choice.node.outputs if program.types[choice.node.outputs[0]] == whole else (program.fresh(whole),)
    yield Apply("cat", {"tensors": tuple(ranges), "dim": at}, outputs, mark)


def _viewed(program: Program, join: Apply, node: Apply) -> Apply:
    """Return the view of what was joined that is what the choice gave."""
    return Apply(_VIEW, {"self": Ref(join.outputs[0]), "size": program.shape(node.outputs[0])}, node.outputs, node.mark)
