"""The storages of one rank: what is read from them becomes values, and nothing is overwritten any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tvlint.ir.location import Location
from tvlint.readers.capture.lifting.program import (
    Apply,
    Argument,
    GivenValue,
    Program,
    Ref,
    Type,
    unfollowed,
)
from tvlint.readers.capture.recorded_numbers import part_of, same_throughout
from tvlint.readers.capture.tapes.columns import Columns
from tvlint.readers.capture.tapes.tape import (
    Given,
    Mark,
    Named,
    Tape,
    Window,
)
from tvlint.readers.capture.tapes.windows import (
    Expand,
    Move,
    Narrow,
    Permute,
    View,
    count,
    flat,
    is_flat,
    moves,
    overlap,
    span,
    whole_of,
)
from tvlint.readers.document import ReadError


@dataclass(frozen=True, slots=True)
class Entry:
    """The last write to a window; where it is not `written`, what the storage held before, or a repetition of what it holds."""

    window: Window
    value: str
    written: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a flat buffer, and the entry that it is part of (None: nothing was written there)."""

    low: int
    high: int
    entry: Entry | None


class Storages:
    """The storages of one rank while its events are followed."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.program = Program(tape.rank)
        self.storages: dict[int, list[Entry]] = {}
        self.before: dict[int, Given] = {}
        self.named = {tape.windows[event.window]: event for event in reversed(tape.events) if isinstance(event, Named)}
        self.moved: dict[tuple[str, str, int], dict[Window, str]] = {}
        self.columns = Columns()
        self.sending: dict[str, Window] = {}
        self.place: Location | None = None

    def _name(self, named: Named) -> None:
        window = self.tape.windows[named.window]
        if not self.storages.get(window.storage):
            self._give(window, Mark())

    def read(self, number: int, mark: Mark) -> str:
        """Return the value of a tensor."""
        return self._read(self.tape.windows[number], mark)

    def _read(self, window: Window, mark: Mark) -> str:
        entries = self.storages.setdefault(window.storage, [])
        for entry in reversed(entries):
            if entry.window == window:
                return entry.value
            if not overlap(entry.window, window):
                continue
            found = moves(entry.window, window) if entry.window.dtype == window.dtype else None
            if found is None and not entry.written:
                continue
            if found is not None:
                known = self.moved.setdefault((entry.value, mark.phase, mark.micro_batch), {})
                if window not in known:
                    source = entry.value
                    if len(entry.window.shape) > 1:
                        source, found = _nearest(known, window, source, found)
                    known[window] = self._moved(source, found, window, mark)
                return known[window]
            return self._composed(window, mark)
        whole = whole_of(window, self.named, self.before) if 0 not in window.shape else None
        if whole is not None and all(entry.window != whole for entry in entries):
            self._give(whole, mark)
            return self._read(window, mark)
        return self._give(window, mark)

    def _give(self, window: Window, mark: Mark) -> str:
        """Return a new value for what the storage held before, or for what nothing has written."""
        known = self.before.get(window.storage)
        name = self.program.fresh(Type(window.shape, window.dtype))
        if not count(window) and window not in self.named:
            self.program.nodes.append(Apply("aten.full.default", {"size": window.shape, "fill_value": 0}, (name,), mark))
        elif known is None:
            self.program.nodes.append(Apply("aten.empty.memory_format", {"size": window.shape}, (name,), mark))
        else:
            named, numbers = self.named.get(window), part_of(known, window)
            number = same_throughout(numbers) if named is None else None
            if number is not None:
                filled: dict[str, Argument] = {"size": window.shape, "fill_value": number}
                self.program.nodes.append(Apply("aten.full.default", filled, (name,), mark))
                self.program.constants.append((number, mark))
            else:
                self.program.given[name] = GivenValue(named, numbers, mark)
        self.storages.setdefault(window.storage, []).append(Entry(window, name, known is None or window in self.named))
        return name

    def _moved(self, value: str, found: tuple[Move, ...], window: Window, mark: Mark) -> str:
        for move in found:
            value = self._move(value, move, mark)
        assert self.program.shape(value) == window.shape
        return value

    def _move(self, value: str, move: Move, mark: Mark) -> str:
        shape = self.program.shape(value)
        arguments: Mapping[str, Argument]
        if isinstance(move, Permute):
            op, arguments, result = "permute", {"dims": move.dims}, tuple(shape[dim] for dim in move.dims)
        elif isinstance(move, View):
            op, arguments, result = "view", {"size": move.shape}, move.shape
        elif isinstance(move, Narrow):
            op, arguments = "narrow", {"dim": move.dim, "start": move.start, "length": move.size}
            result = (*shape[: move.dim], move.size, *shape[move.dim + 1 :])
        elif isinstance(move, Expand):
            op, arguments, result = "expand", {"size": move.shape}, move.shape
        name = self.program.fresh(Type(result, self.program.types[value].dtype))
        self.program.nodes.append(Apply(op, {"self": Ref(value), **arguments}, (name,), mark))
        return name

    def _composed(self, window: Window, mark: Mark) -> str:
        """Return the value of a window that several writes made."""
        parts = (self._parts_of_flat(window, mark) if is_flat(window) else None) or self._parts_of_box(window, mark)
        if parts is None:
            return self._unfollowed("a tensor that overlapping writes made", window, mark)
        dim, values = parts
        sizes = [self.program.shape(value)[dim] for value in values]
        shape = list(self.program.shape(values[0]))
        shape[dim] = sum(sizes)
        name = self.program.fresh(Type(tuple(shape), window.dtype))
        listed = tuple(Ref(value) for value in values)
        self.program.nodes.append(Apply("cat", {"tensors": listed, "dim": dim}, (name,), mark))
        return self._move(name, View(window.shape), mark) if tuple(shape) != window.shape else name

    def _unfollowed(self, text: str, window: Window, mark: Mark) -> str:
        name = self.program.fresh(Type(window.shape, window.dtype))
        entries = self.storages.get(window.storage, ())
        inputs = tuple(Ref(entry.value) for entry in entries if overlap(entry.window, window))
        self.program.nodes.append(unfollowed(f"{text} is not followed", inputs, name, mark))
        return name

    def _pieces(self, window: Window) -> list[Piece]:
        """Return the ranges of a flat window, each with the entry that was written last, in order."""
        open_ranges = [span(window)]
        found: list[Piece] = []
        for entry in reversed(self.storages.get(window.storage, ())):
            low, high = span(entry.window)
            left = []
            for start, end in open_ranges:
                inner = max(start, low), min(end, high)
                if inner[0] >= inner[1] or not overlap(entry.window, flat(window.storage, *inner, window.dtype)):
                    left.append((start, end))
                    continue
                found.append(Piece(*inner, entry))
                left += [each for each in ((start, inner[0]), (inner[1], end)) if each[0] < each[1]]
            open_ranges = left
        found += [Piece(low, high, None) for low, high in open_ranges]
        return sorted(found, key=lambda piece: piece.low)

    def _parts_of_flat(self, window: Window, mark: Mark) -> tuple[int, list[str]] | None:
        values = []
        for piece in self._pieces(window):
            this_window = flat(window.storage, piece.low, piece.high, window.dtype)
            if piece.entry is None:
                values.append(self._give(this_window, mark))
                continue
            found = moves(piece.entry.window, this_window)
            if found is None:
                return None
            values.append(self._moved(piece.entry.value, found, this_window, mark))
        return 0, values

    def _parts_of_box(self, window: Window, mark: Mark) -> tuple[int, list[str]] | None:
        """Return the parts of a window side by side along one dimension, each of which one write made."""
        for dim, size in enumerate(window.shape):
            cuts, at = [], 0
            while at < size:
                taken = self._longest(window, dim, at)
                if taken is None:
                    break
                cuts.append(taken)
                at += taken[0].shape[dim]
            if at == size:
                return dim, [self._moved(entry.value, found, part, mark) for part, entry, found in cuts]
        return None

    def _longest(self, window: Window, dim: int, at: int) -> tuple[Window, Entry, tuple[Move, ...]] | None:
        """Return the longest part of the window from place `at` of a dimension that one write made."""
        for end in range(window.shape[dim], at, -1):
            shape = (*window.shape[:dim], end - at, *window.shape[dim + 1 :])
            part = Window(window.storage, window.offset + at * window.stride[dim], shape, window.stride, window.dtype)
            for entry in reversed(self.storages[window.storage]):
                if overlap(entry.window, part):
                    found = moves(entry.window, part)
                    if found is not None:
                        return part, entry, found
                    break
        return None

    def write(self, number: int, value: str) -> None:
        """Put a value into the window of a tensor."""
        self._put(self.tape.windows[number], value)

    def _put(self, window: Window, value: str) -> None:
        """Let a window hold a value. Raises ReadError where it is of another shape or dtype than the window."""
        held = self.program.types[value]
        if held != Type(window.shape, window.dtype):
            text = f"what is recorded as {window.dtype} of shape {window.shape} is {held.dtype} of shape {held.shape}"
            raise ReadError(text, self.place or Location(""), "capture it again")
        self.columns.forget(window.storage)
        for handle in [name for name, sent in self.sending.items() if sent.storage == window.storage and overlap(sent, window)]:
            del self.sending[handle]
        low, high = span(window)
        whole = is_flat(window)
        kept = []
        for entry in self.storages.get(window.storage, ()):
            start, end = span(entry.window)
            if not (entry.window == window or (whole and low <= start and end <= high)):
                kept.append(entry)
        self.storages[window.storage] = [*kept, Entry(window, value)]

    def _filled(self, pieces: list[Piece], window: Window) -> list[Piece]:
        """Return the pieces without those that hold zeros since before the step, which sums and factors leave as they are."""
        known = self.before.get(window.storage)
        if known is None:
            return pieces
        found: list[Piece] = []
        for piece in pieces:
            this_window = flat(window.storage, piece.low, piece.high, window.dtype)
            numbers = part_of(known, this_window) if piece.entry is None else None
            if numbers is None or numbers.any():
                found.append(piece)
        return found

    def _each_piece(self, pieces: list[Piece], window: Window, mark: Mark) -> Iterator[tuple[Window, str]]:
        """Yield the window of each piece, that of its entry where the piece is all of it, and its value."""
        for piece in pieces:
            entry = piece.entry
            if entry is not None and span(entry.window) == (piece.low, piece.high):
                yield entry.window, entry.value
                continue
            this_window = flat(window.storage, piece.low, piece.high, window.dtype)
            if entry is None:
                yield this_window, self._give(this_window, mark)
                continue
            found = moves(entry.window, this_window)
            if found is None:
                yield this_window, self._unfollowed("a part of a buffer", this_window, mark)
            else:
                yield this_window, self._moved(entry.value, found, this_window, mark)

    def _cast(self, value: str, dtype: str, mark: Mark) -> str:
        """Return a value in the numbers of what it is written to."""
        if self.program.types[value].dtype == dtype:
            return value
        made = self.program.fresh(Type(self.program.shape(value), dtype))
        self.program.nodes.append(Apply("aten._to_copy.default", {"self": Ref(value), "dtype": dtype}, (made,), mark))
        return made


def _nearest(known: Mapping[Window, str], window: Window, value: str, found: tuple[Move, ...]) -> tuple[str, tuple[Move, ...]]:
    """Return what a part is read from, and how: the smallest view that is known, where no dimension of it has to be split."""
    low, high = span(window)
    around = [each for each in known if span(each)[0] <= low and high <= span(each)[1] and count(each) > count(window)]
    for each_window in sorted(around, key=count):
        shorter = moves(each_window, window)
        if shorter is not None and not _splits(each_window, shorter):
            return known[each_window], shorter
    return value, found


def _splits(source: Window, found: tuple[Move, ...]) -> bool:
    """Return whether a dimension is split so that a range of one of its factors can be taken."""
    sizes = sorted(size for size in source.shape if size != 1)
    return any(
        isinstance(one, View) and isinstance(other, Narrow) and sorted(size for size in one.shape if size != 1) != sizes
        for one, other in pairwise(found)
    )
