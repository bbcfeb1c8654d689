"""Follow the communication of one rank: each collective becomes one on values, in pieces where a buffer is several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, zip_longest
from math import prod

from tvlint.readers.capture.lifting.program import (
    UNFOLLOWED,
    Apply,
    Exchange,
    Message,
    Ref,
    Type,
    unfollowed,
)
from tvlint.readers.capture.storages import Piece, Storages
from tvlint.readers.capture.tapes.columns import Column, strides_of
from tvlint.readers.capture.tapes.tape import (
    Communication,
    Operation,
    Tape,
    Wait,
    Window,
)
from tvlint.readers.capture.tapes.windows import (
    Narrow,
    View,
    count,
    is_flat,
    span,
)


class Collectives(Storages):
    """The storages of one rank while its communication is followed."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.handles: dict[int, list[str]] = {}
        self.immediate = _immediate_waits(tape)

    def _communicate(self, event: Communication) -> None:
        if event.kind == "barrier":
            self.program.nodes.append(Exchange("barrier", (), (), event.group, event.mark))
        elif event.kind in ("send", "receive"):
            self._message(event)
        elif event.kind in ("all-reduce", "broadcast", "reduce"):
            self._in_place(event)
        else:
            self._between(event)

    def _handle(self, event: Communication) -> str:
        is_message = event.kind in ("send", "receive")
        if event.completes or (event.work in self.immediate and not is_message):
            return ""
        known = self.handles.setdefault(event.work, [])
        known.append(f"h{event.work}" if not known else f"h{event.work}.{len(known)}")
        return known[-1]

    def _message(self, event: Communication) -> None:
        number = (event.inputs or event.outputs)[0]
        window, sends = self.tape.windows[number], event.kind == "send"
        value = self.read(number, event.mark) if sends else self.program.fresh(Type(window.shape, window.dtype))
        handle, peer = self._handle(event), -1 if event.peer is None else event.peer
        self.program.nodes.append(Message(value, sends, peer, event.group, event.mark, event.tag, event.batch, handle))
        if not sends:
            self.write(number, value)
        elif handle:
            self.sending[handle] = window

    def _in_place(self, event: Communication) -> None:
        for number, result in zip(event.inputs, event.outputs, strict=True):
            window = self.tape.windows[number]
            pieces = self._pieces(window) if is_flat(window) and number == result else []
            if len(event.group) == 1:
                if number != result:
                    self.write(result, self.read(number, event.mark))
                continue
            if len(pieces) > 1:
                for each_window, value in list(self._each_piece(self._filled(pieces, window), window, event.mark)):
                    self._put(each_window, self._exchange(event, value, self.program.types[value]))
                continue
            value = self.read(number, event.mark)
            self.write(result, self._exchange(event, value, self.program.types[value]))

    def _exchange(self, event: Communication, value: str, type: Type, dim: int | None = None) -> str:
        made = self.program.fresh(type)
        root = event.root if event.kind in ("broadcast", "reduce", "gather", "scatter") else None
        if event.kind == "reduce" and root != self.program.rank:
            self.program.elsewhere.add(made)
        self.program.nodes.append(
            Exchange(
                event.kind, (value,), (made,), event.group, event.mark, event.reduce, dim, root,
                event.splits, event.receive_splits, self._handle(event),
            )
        )  # fmt: skip
        return made

    def _between(self, event: Communication) -> None:
        """Follow a collective that gives other tensors than it takes; all work along the first dimension."""
        ranks, windows = len(event.group), self.tape.windows
        in_order = list(event.group) == sorted(event.group)  # plans write groups in the order of the ranks
        along = event.kind in ("all-gather", "reduce-scatter")
        if along and len(event.inputs) == len(event.outputs) > 1:
            for number, result in zip(event.inputs, event.outputs, strict=True):
                self._between(replace(event, inputs=(number,), outputs=(result,)))
            return
        if in_order and along and self._exchanged_by_column(event):
            return
        if not in_order:
            self._unfollowed_exchange(event)
        elif event.kind == "all-gather" and len(event.inputs) == len(event.outputs) == 1:
            self._along_first(event, event.inputs[0], event.outputs[0], ranks)
        elif event.kind == "all-gather" and len(event.inputs) == 1 and len(event.outputs) == ranks:
            value = self.read(event.inputs[0], event.mark)
            type = self.program.types[value]
            splits = self._unequal_parts(event.outputs)
            shape = (sum(splits) or ranks * (type.shape[0] if type.shape else 1), *type.shape[1:])
            if not type.shape:
                value = self._move(value, View((1,)), event.mark)
            whole = Type(shape, type.dtype)
            self._write_parts(self._exchange(replace(event, splits=splits), value, whole, 0) if ranks > 1 else value, event)
        elif event.kind == "reduce-scatter" and self._is_in_place(event):
            self._scatter_in_place(event)
        elif event.kind == "reduce-scatter" and len(event.inputs) == len(event.outputs) == 1:
            self._along_first(event, event.inputs[0], event.outputs[0], ranks)
        elif event.kind == "reduce-scatter" and len(event.outputs) == 1 and len(event.inputs) == ranks:
            target = windows[event.outputs[0]]
            joined = self._together(event, target, ranks)
            stated = replace(event, splits=self._unequal_parts(event.inputs))
            self.write(event.outputs[0], self._exchange(stated, joined, Type(target.shape, target.dtype), 0))
        elif event.kind == "all-to-all" and len(event.inputs) == len(event.outputs) == 1:
            target = windows[event.outputs[0]]
            value = self.read(event.inputs[0], event.mark)
            self.write(event.outputs[0], self._exchange(event, value, Type(target.shape, target.dtype), 0))
        elif event.kind == "all-to-all" and self._has_equal_parts(event, ranks):
            joined = self._together(event, windows[event.outputs[0]], ranks)
            self._write_parts(self._exchange(event, joined, self.program.types[joined], 0), event)
        else:
            self._unfollowed_exchange(event)

    def _has_equal_parts(self, event: Communication, ranks: int) -> bool:
        """Return whether each rank is sent and sends one tensor, all of one shape."""
        shapes = {self.tape.windows[number].shape for number in (*event.inputs, *event.outputs)}
        return ranks > 1 and len(event.inputs) == len(event.outputs) == ranks and len(shapes) == 1 and shapes != {()}

    def _unequal_parts(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return how long the tensors of the ranks are, if not all are equally long."""
        lengths = tuple(shape[0] if shape else 1 for shape in (self.tape.windows[number].shape for number in numbers))
        return lengths if len(set(lengths)) > 1 else ()

    def _together(self, event: Communication, part: Window, ranks: int) -> str:
        """Return what is sent to the ranks one after the other, `part` the window of one of them."""
        shape = (sum(self._unequal_parts(event.inputs)) or ranks * (part.shape[0] if part.shape else 1), *part.shape[1:])
        whole = self._side_by_side(event.inputs, shape)
        if whole is not None:
            return self._read(whole, event.mark)
        values = tuple(Ref(self.read(number, event.mark)) for number in event.inputs)
        joined = self.program.fresh(Type(shape, part.dtype))
        self.program.nodes.append(Apply("cat", {"tensors": values, "dim": 0}, (joined,), event.mark))
        return joined

    def _side_by_side(self, numbers: Sequence[int], shape: tuple[int, ...]) -> Window | None:
        """Return the window of this shape that tensors make up which lie in a storage one behind the other."""
        parts = [self.tape.windows[number] for number in numbers]
        is_row = all(map(is_flat, parts)) and all(_follows(*both) for both in pairwise(parts))
        if not is_row or sum(map(count, parts)) != prod(shape):
            return None
        return Window(parts[0].storage, parts[0].offset, shape, strides_of(shape), parts[0].dtype)

    def _write_parts(self, made: str, event: Communication) -> None:
        """Write what comes from the ranks one after the other into the tensors that take it."""
        shape = self.program.shape(made)
        whole = self._side_by_side(event.outputs, shape)
        if whole is not None:
            self._put(whole, made)
            return
        several = len(event.outputs) > 1
        sizes = self._unequal_parts(event.outputs) or [shape[0] // len(event.outputs)] * len(event.outputs)
        for result, size, end in zip(event.outputs, sizes, accumulate(sizes), strict=True):
            part = self._move(made, Narrow(0, end - size, size), event.mark) if several else made
            if self.program.shape(part) != self.tape.windows[result].shape:
                part = self._move(part, View(self.tape.windows[result].shape), event.mark)
            self.write(result, part)

    def _unfollowed_exchange(self, event: Communication) -> None:
        for number in event.outputs:
            window = self.tape.windows[number]
            value = self.program.fresh(Type(window.shape, window.dtype))
            read = tuple(Ref(self.read(each_input, event.mark)) for each_input in event.inputs)
            self.program.nodes.append(unfollowed(f"it {UNFOLLOWED}", read, value, event.mark, f"c10d.{event.kind}"))
            self.write(number, value)

    def _along_first(self, event: Communication, number: int, result: int, ranks: int) -> None:
        target = self.tape.windows[result]
        value = self.read(number, event.mark)
        if ranks > 1:
            shape = self.program.shape(value)
            wide, narrow = (target.shape, shape) if event.kind == "all-gather" else (shape, target.shape)
            joined = bool(narrow) and wide == (narrow[0] * ranks, *narrow[1:])
            made = target.shape if joined else (prod(target.shape),)
            if not joined and len(shape) != 1:
                value = self._move(value, View((prod(shape),)), event.mark)
            value = self._exchange(event, value, Type(made, target.dtype), 0)
        if self.program.shape(value) != target.shape:
            value = self._move(value, View(target.shape), event.mark)
        self.write(result, value)

    def _exchanged_by_column(self, event: Communication) -> bool:
        """Exchange each column of a buffer by itself; return whether the buffer has columns."""
        if len(event.inputs) != 1 or len(event.outputs) != 1:
            return False
        whole, part = (self.tape.windows[tensor] for tensor in (event.inputs[0], event.outputs[0]))
        return (
            self._scatter_columns(event, whole, part)
            if event.kind == "reduce-scatter"
            else self._gather_columns(event, part, whole)
        )

    def _scatter_columns(self, event: Communication, whole: Window, part: Window) -> bool:
        ranks = len(event.group)
        found = self.columns.tiling(whole.storage, whole.offset, count(part)) if is_flat(whole) and is_flat(part) else None
        if found is None or count(whole) != ranks * count(part):
            return False
        for place, column in found:
            shape = self.program.shape(column.value)
            rows = (shape[0] // ranks, *shape[1:])
            made = self._exchange(event, column.value, Type(rows, part.dtype), 0)
            at = part.offset + place - whole.offset
            self._put(Window(part.storage, at, rows, strides_of(rows), part.dtype), made)
        return True

    def _gather_columns(self, event: Communication, whole: Window, part: Window) -> bool:
        """Gather rows where this rank's row is made of parts and nothing was written to the others."""
        if whole.storage != part.storage or not is_flat(whole) or not is_flat(part):
            return False
        entries = self.storages.get(whole.storage, [])
        pieces = self._pieces(part)
        parts = [
            piece.entry for piece in pieces if piece.entry is not None and span(piece.entry.window) == (piece.low, piece.high)
        ]
        if len(parts) != len(pieces) or len(parts) != len(entries) or any(not entry.window.shape for entry in parts):
            return False
        ranks, gathered = len(event.group), list[tuple[int, Column]]()
        for entry in parts:
            shape = entry.window.shape
            value = (
                entry.value
                if ranks == 1
                else self._exchange(event, entry.value, Type((ranks * shape[0], *shape[1:]), part.dtype), 0)
            )
            gathered.append((whole.offset + entry.window.offset - part.offset, Column(value, prod(shape))))
        self.storages[whole.storage] = []
        for place, column in gathered:
            self.columns.put(whole.storage, place, column)
        return True

    def _is_in_place(self, event: Communication) -> bool:
        """Return whether a collective leaves each rank its own part of the flat buffer that it takes."""
        if len(event.inputs) != 1 or len(event.outputs) != 1 or self.program.rank not in event.group or len(event.group) < 2:
            return False
        whole, part = (self.tape.windows[number] for number in (event.inputs[0], event.outputs[0]))
        place = event.group.index(self.program.rank)
        size = count(part)
        return (
            (whole.storage, whole.dtype) == (part.storage, part.dtype)
            and is_flat(whole)
            and is_flat(part)
            and size * len(event.group) == count(whole)
            and part.offset == whole.offset + place * size
        )

    def _scatter_in_place(self, event: Communication) -> None:
        """Follow a reduction of a flat buffer in place, of which each rank is left its own part.

        It is one reduction for each piece, to the rank that the piece is left to. What the other ranks hold of it then is never
        read as a gradient: it counts as not there.
        """
        window = self.tape.windows[event.inputs[0]]
        size = count(window) // len(event.group)
        borders = [window.offset + place * size for place in range(1, len(event.group))]
        pieces = self._cut(self._filled(self._pieces(window), window), borders)
        for each_window, value in list(self._each_piece(pieces, window, event.mark)):
            owner = event.group[(each_window.offset - window.offset) // size]
            to_owner = replace(event, kind="reduce", root=owner)
            self._put(each_window, self._exchange(to_owner, value, self.program.types[value]))

    def _cut(self, pieces: list[Piece], borders: list[int]) -> list[Piece]:
        """Return the pieces, none of which crosses a border."""
        found: list[Piece] = []
        for piece in pieces:
            places = [piece.low, *(border for border in borders if piece.low < border < piece.high), piece.high]
            found += [replace(piece, low=low, high=high) for low, high in pairwise(places)]
        return found


def _follows(before: Window, window: Window) -> bool:
    """Return whether a flat window begins where another one ends."""
    return (before.storage, before.dtype, span(before)[1]) == (window.storage, window.dtype, window.offset)


def _immediate_waits(tape: Tape) -> frozenset[int]:
    """Return the works of which the program waits for every collective at once."""
    at_once, others = set[int](), set[int]()
    talk = [event for event in tape.events if isinstance(event, Communication | Wait | Operation)]
    for event, following in zip_longest(talk, talk[1:]):
        if isinstance(event, Communication):
            is_waited = isinstance(following, Wait) and following.work == event.work
            (at_once if is_waited else others).add(event.work)
    return frozenset(at_once - others)
