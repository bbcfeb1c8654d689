"""Shards of unequal size, which ranks hold of a weight whose rows they do not divide, and which are not followed."""

from __future__ import annotations

from tvlint.ir.location import Location
from tvlint.readers.capture.tapes.tape import Argument, Capture, Named, Operation, Tape, Tensor
from tvlint.readers.document import ReadError

_HELP = "give the layer a size that the ranks divide, or launch as many ranks as divide it"


def check_even(capture: Capture) -> None:
    """Raise ReadError, where the first of them is read, for a distributed weight of which ranks hold shards of unequal size."""
    first: dict[str, tuple[int, ...]] = {}
    for tape in capture.tapes:
        for named in (
            event for event in tape.events if isinstance(event, Named) and event.whole is not None and event.placements
        ):
            shape = tape.windows[named.window].shape
            known = first.setdefault(named.name, shape)
            if known != shape:
                text = f"the shards of `{named.name}`, of shape {named.whole}, are of unequal sizes, {known} and {shape}"
                raise ReadError(f"{text}, which is not followed", _first_use(tape, named) or Location(capture.path), _HELP)


def _first_use(tape: Tape, named: Named) -> Location | None:
    """Return where an operator first reads the weight, in whatever shape; else the first place after it is named."""
    storage = tape.windows[named.window].storage
    operations = [event for event in tape.events if isinstance(event, Operation) and event.mark.place is not None]
    uses = (
        event
        for event in operations
        for number in _windows(tuple(event.arguments.values()))
        if tape.windows[number].storage == storage
    )
    return next((event.mark.place for event in (*uses, *operations)), None)


def _windows(argument: Argument) -> tuple[int, ...]:
    if isinstance(argument, Tensor):
        return (argument.window,)
    return tuple(number for each in argument for number in _windows(each)) if isinstance(argument, tuple) else ()
