"""Values that are made again as they were, as weights that are gathered for the forward and again for the backward pass."""

from __future__ import annotations

from tvlint.readers.capture.lifting.lift import Call, Lifting
from tvlint.readers.capture.lifting.program import Exchange, Ref

_MOST = 10_000


def is_made_again(lifting: Lifting, one: str, other: str) -> bool:
    """Return whether two values are the same, or are made by the same operators and collectives of the same values."""
    waiting, seen = [(one, other)], set[tuple[str, str]]()
    while waiting and len(seen) < _MOST:
        pair = waiting.pop()
        if pair[0] == pair[1] or pair in seen:
            continue
        seen.add(pair)
        sources = _sources_alike(lifting, *pair)
        if sources is None:
            return False
        waiting += sources
    return not waiting


def _sources_alike(lifting: Lifting, one: str, other: str) -> list[tuple[str, str]] | None:
    """Return the pairs of values that two values are made of in the same way; None where they are made in other ways."""
    types, here, there = lifting.program.types, lifting.made.get(one), lifting.made.get(other)
    if types[one] != types[other]:
        return None
    match here, there:
        case Call(), Call():
            if (here.op, here.attributes, len(here.inputs)) != (there.op, there.attributes, len(there.inputs)):
                return None
            pairs = list(zip(here.inputs, there.inputs, strict=True))
            if any(left != right for left, right in pairs if not (isinstance(left, Ref) and isinstance(right, Ref))):
                return None
            names = [(left.name, right.name) for left, right in pairs if isinstance(left, Ref) and isinstance(right, Ref)]
        case Exchange(), Exchange():
            if _way(here) != _way(there) or len(here.inputs) != len(there.inputs):
                return None
            names = list(zip(here.inputs, there.inputs, strict=True))
        case _:
            return None
    if here.outputs.index(one) != there.outputs.index(other):
        return None
    return [(lifting.name(left), lifting.name(right)) for left, right in names]


def _way(node: Exchange) -> tuple[object, ...]:
    return (
        node.kind, node.group, node.reduce, node.dim, node.root, node.splits, node.receive_splits, node.joined
    )  # fmt: skip
