"""Follow the storages of one rank: what is read from them becomes values, and nothing is overwritten any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from tvlint.ir.placement import Partial, Replicate, Shard
from tvlint.readers.capture.lifting.masks import masks_of
from tvlint.readers.capture.lifting.program import (
    UNFOLLOWED,
    Apply,
    Argument,
    Array,
    End,
    Exchange,
    GivenValue,
    Message,
    Program,
    Ref,
    RootValue,
    Type,
    references,
    unfollowed,
)
from tvlint.readers.capture.recorded_numbers import numbers_of, part_of, range_of, same_throughout
from tvlint.readers.capture.tapes import tape as recorded
from tvlint.readers.capture.tapes.columns import Column, Columns, strides_of
from tvlint.readers.capture.tapes.operations import base_of, giving, one_by_one
from tvlint.readers.capture.tapes.spelling import COPIES, IN_PIECES, UNWRITTEN
from tvlint.readers.capture.tapes.tape import (
    Communication,
    Given,
    Gradient,
    Mark,
    Named,
    Operation,
    Root,
    Tape,
    Update,
    Wait,
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


def follow(tape: Tape) -> Program:
    """Return the program of the rank."""
    follower = _Follower(tape)
    for event in tape.events:
        follower.event(event)
    follower.end()
    return follower.program


class _Follower:
    """The storages of one rank while its events are followed."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.program = Program(tape.rank)
        self.storages: dict[int, list[Entry]] = {}
        self.before: dict[int, Given] = {}
        self.named: dict[Window, Named] = {}
        self.handles: dict[int, list[str]] = {}
        self.immediate = _immediate_waits(tape)
        self.moved: dict[tuple[str, str, int], dict[Window, str]] = {}
        self.operations = 0
        self.columns = Columns()
        self.masks: dict[str, Array] = {}
        self.sending: dict[str, Window] = {}

    def event(self, event: recorded.Event) -> None:
        """Follow one event."""
        if isinstance(event, Given):
            self.before[event.storage] = event
        elif isinstance(event, Named):
            self._name(event)
        elif isinstance(event, Operation):
            for operation in one_by_one(event):
                made = self._operate(operation)
                if made:
                    self.program.operations.setdefault(self.operations, made)
            self.operations += 1
        elif isinstance(event, Communication):
            self._communicate(event)
        elif isinstance(event, Wait):
            for handle in self.handles.pop(event.work, ()):
                self.program.nodes.append(End(handle, event.mark))
                self.sending.pop(handle, None)
        elif isinstance(event, Root):
            start = "" if event.start is None else self.read(event.start, event.mark)
            number = numbers_of(event.values, self.tape.windows[event.window])
            self.program.roots.append(RootValue(self.read(event.window, event.mark), start, event.mark, number))
        elif isinstance(event, Gradient):
            window = self.tape.windows[event.window]
            numbers = self._held(window, numbers_of(event.values, window))
            summed = _summed(event)
            if summed:
                self.program.partial[event.name] = summed
            value = self.read(event.window, Mark("backward"))
            self.program.gradients[event.name] = self._own_part(event, value, numbers)
        elif isinstance(event, Update):
            self.program.updated.update(dict.fromkeys(event.weights, event.optimizer))
            for window, named in self.named.items():
                if named.name in event.values:
                    self.program.after[named.name] = numbers_of(event.values[named.name], window)
            self.program.clipped.update((gradient.name, self._clipped(gradient)) for gradient in event.clipped)

    def end(self) -> None:
        """Let what is sent, never waited for and not overwritten be sent by the end of the step."""
        sent = [node for node in self.program.nodes if isinstance(node, Message) and node.handle in self.sending]
        self.program.nodes += [End(node.handle, node.mark) for node in sent]
        self.program.unwaited += [node.mark for node in sent]

    def _own_part(self, event: Gradient, value: str, numbers: Array | None) -> tuple[str, Array | None]:
        """Return the rank's part of a gradient that its framework leaves whole where the weight is in shards."""
        for cut in self._cuts(event, self.program.shape(value)):
            value, numbers = self._move(value, cut, Mark("backward")), range_of(numbers, cut)
            self.program.whole.add(event.name)
        return value, numbers

    def _cuts(self, event: Gradient, shape: tuple[int, ...]) -> Iterator[Narrow]:
        """Yield the cuts that leave the rank's part of a gradient that lies whole where the weight is in shards."""
        weight = next((named for named in self.named.values() if named.name == event.name), None)
        placed = (weight.placements if weight is not None else None) or {}
        for axis, placement in placed.items():
            if not isinstance(placement, Shard) or not isinstance((event.placements or {}).get(axis), Replicate):
                continue
            place, ranks = self.tape.place_on(axis)
            size, rest = divmod(shape[placement.dim], ranks)
            if rest:
                return
            shape = (*shape[: placement.dim], size, *shape[placement.dim :][1:])
            yield Narrow(placement.dim, place * size, size)

    def _clipped(self, event: Gradient) -> tuple[Array | None, tuple[str, ...]]:
        """Return what the rank holds of a clipped gradient, and the axes over which it is a partial sum.

        What was left to other ranks before it was clipped still is.
        """
        import numpy as np

        window, summed = self.tape.windows[event.window], _summed(event)
        numbers = numbers_of(event.values, window)
        for cut in self._cuts(event, window.shape):
            numbers = range_of(numbers, cut)
        if len(summed) < sum(isinstance(placement, Partial) for placement in (event.placements or {}).values()):
            return None, ()
        _, before = self.program.gradients.get(event.name, ("", None))
        if isinstance(before, np.ma.MaskedArray) and numbers is not None and numbers.shape == before.shape:
            numbers = np.ma.array(numbers, mask=before.mask)
        return numbers, summed

    def _held(self, window: Window, numbers: Array | None) -> Array | None:
        """Return the numbers of a gradient, those masked that a reduction has left to other ranks."""
        import numpy as np

        if numbers is None or not is_flat(window) or not self.program.elsewhere:
            return numbers
        masked = np.zeros(numbers.size, dtype=bool)
        for piece in self._pieces(window):
            mask = None if piece.entry is None else self._elsewhere().get(piece.entry.value)
            if piece.entry is None or mask is None:
                continue
            array = masked[piece.low - window.offset : piece.high - window.offset]
            start = piece.low - piece.entry.window.offset
            array[:] = mask.reshape(-1)[start : start + array.size] if is_flat(piece.entry.window) else mask.any()
        return np.ma.array(numbers, mask=masked.reshape(numbers.shape)) if masked.any() else numbers

    def _elsewhere(self) -> Mapping[str, Array]:
        """Return which elements of values come from what a reduction has left to other ranks, where any do."""
        import numpy as np

        if not self.masks:
            self.masks.update({name: np.ones(self.program.shape(name), dtype=bool) for name in self.program.elsewhere})
            for node in self.program.nodes:
                if isinstance(node, Apply | Exchange) and not self.masks.keys() >= set(node.outputs):
                    self.masks.update(masks_of(node, self.masks, self.program))
        return self.masks

    def _name(self, named: Named) -> None:
        window = self.tape.windows[named.window]
        if window not in self.named and not self.storages.get(window.storage):
            self.named[window] = named
            self._give(window, Mark())
        elif window not in self.named:
            self.named[window] = named

    # ---- reading ----

    def read(self, number: int, mark: Mark) -> str:
        """Return the value of a tensor."""
        window = self.tape.windows[number]
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
            return self.read(number, mark)
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

    # ---- writing ----

    def write(self, number: int, value: str) -> None:
        """Put a value into the window of a tensor."""
        self._put(self.tape.windows[number], value)

    def _put(self, window: Window, value: str) -> None:
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

    # ---- operators ----

    def _argument(self, argument: recorded.Argument, mark: Mark) -> Argument:
        if isinstance(argument, recorded.Tensor):
            return Ref(self.read(argument.window, mark))
        if isinstance(argument, tuple):
            return tuple(self._argument(each, mark) for each in argument)
        return argument

    def _operate(self, event: Operation) -> str:
        """Follow one operator; return its first result (empty: none)."""
        base, mark = base_of(event.op), event.mark
        windows = self.tape.windows
        if event.op.startswith("aten.") and base in UNWRITTEN and not event.writes:
            for number in event.outputs:
                self.storages[windows[number].storage] = []
            return ""
        source = event.arguments.get("self")
        if event.op == "aten.expand.default" and len(event.outputs) == 1 and isinstance(source, recorded.Tensor):
            return self._expand(self.read(source.window, mark), windows[event.outputs[0]], mark)
        if event.op.startswith("aten.") and base in COPIES and len(event.outputs) == 1 and isinstance(source, recorded.Tensor):
            target = windows[event.outputs[0]]
            value = self.read(source.window, mark)
            value = self._move(value, View(target.shape), mark) if base.endswith("view") else value
            self._put(target, value)
            return value
        if event.op == "aten.copy_.default":
            return self._copy(event)
        if event.op in _COLUMNS and _COLUMNS[event.op](self, event):
            return ""
        functional = {name: argument for name, argument in event.arguments.items() if name != "out" or not event.writes}
        name = giving(event.op) if event.writes else event.op
        if event.writes and name == "aten.zero.default":
            functional, name = {"size": windows[event.writes[0]].shape}, "aten.zeros.default"
        if event.writes and base.rstrip("_") in IN_PIECES and self._in_pieces(event, name):
            return ""
        arguments = {key: self._argument(value, mark) for key, value in functional.items()}
        targets = event.writes or event.outputs
        made = tuple(self.program.fresh(Type(windows[target].shape, windows[target].dtype)) for target in targets)
        self.program.nodes.append(Apply(name, arguments, made, mark))
        for number, value in zip(targets, made, strict=True):
            self.write(number, value)
        return made[0] if made else ""

    def _expand(self, value: str, window: Window, mark: Mark) -> str:
        """Keep an expansion for whoever reads it, since nothing is written."""
        shape = (1,) * (len(window.shape) - len(self.program.shape(value))) + self.program.shape(value)
        source = self._move(value, View(shape), mark) if shape != self.program.shape(value) else value
        made = self._move(source, Expand(window.shape), mark)
        self.storages.setdefault(window.storage, []).append(Entry(window, made, written=False))
        return made

    def _in_pieces(self, event: Operation, name: str) -> bool:
        """Work on each piece of a flat buffer by itself; return whether the window is several pieces."""
        number = event.writes[0]
        window = self.tape.windows[number]
        others = [argument for key, argument in event.arguments.items() if key not in ("self", "out")]
        if any(isinstance(tensor, recorded.Tensor) and count(self.tape.windows[tensor.window]) != 1 for tensor in others):
            return False
        if event.arguments.get("self") != recorded.Tensor(number) or not is_flat(window):
            return False
        pieces = self._pieces(window)
        if len(pieces) < 2:
            return False
        moves_zeros = base_of(event.op).rstrip("_") in ("add", "sub")
        for each_window, value in self._each_piece(pieces if moves_zeros else self._filled(pieces, window), window, event.mark):
            rest = {key: self._argument(given, event.mark) for key, given in event.arguments.items() if key != "self"}
            made = self.program.fresh(self.program.types[value])
            self.program.nodes.append(Apply(name, {"self": Ref(value), **rest}, (made,), event.mark))
            self._put(each_window, made)
        return True

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

    def _copy(self, event: Operation) -> str:
        """Follow `copy_`; return the value that is copied (empty: several)."""
        target, source = event.arguments["self"], event.arguments["src"]
        assert isinstance(target, recorded.Tensor)
        window = self.tape.windows[target.window]
        if isinstance(source, recorded.Tensor) and self._copied_in_pieces(source.window, window, event.mark):
            return ""
        value = self._argument(source, event.mark)
        if not isinstance(value, Ref):
            name = self.program.fresh(Type(window.shape, window.dtype))
            filled = {"size": window.shape, "fill_value": value}
            self.program.nodes.append(Apply("aten.full.default", filled, (name,), event.mark))
            self._put(window, name)
            return name
        name = value.name
        if self.program.shape(name) != window.shape:
            name = self._move(name, Expand(window.shape), event.mark)
        name = self._cast(name, window.dtype, event.mark)
        self._put(window, name)
        return name

    def _cast(self, value: str, dtype: str, mark: Mark) -> str:
        """Return a value in the numbers of what it is written to."""
        if self.program.types[value].dtype == dtype:
            return value
        made = self.program.fresh(Type(self.program.shape(value), dtype))
        self.program.nodes.append(Apply("aten._to_copy.default", {"self": Ref(value), "dtype": dtype}, (made,), mark))
        return made

    def _copied_in_pieces(self, number: int, target: Window, mark: Mark) -> bool:
        """Copy a flat buffer piece by piece; return whether it is several pieces."""
        source = self.tape.windows[number]
        if not (is_flat(source) and is_flat(target) and source.dtype == target.dtype and count(source) == count(target)):
            return False
        pieces = self._pieces(source)
        if len(pieces) < 2:
            return False
        shift = target.offset - source.offset
        for window, value in self._each_piece(pieces, source, mark):
            self._put(Window(target.storage, window.offset + shift, window.shape, window.stride, window.dtype), value)
        return True

    # ---- communication ----

    def _handle(self, event: Communication) -> str:
        is_message = event.kind in ("send", "receive")
        if event.completes or (event.work in self.immediate and not is_message):
            return ""
        known = self.handles.setdefault(event.work, [])
        known.append(f"h{event.work}" if not known else f"h{event.work}.{len(known)}")
        return known[-1]

    def _communicate(self, event: Communication) -> None:
        if event.kind == "barrier":
            self.program.nodes.append(Exchange("barrier", (), (), event.group, event.mark))
        elif event.kind in ("send", "receive"):
            self._message(event)
        elif event.kind in ("all-reduce", "broadcast", "reduce"):
            self._in_place(event)
        else:
            self._between(event)

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
            shape = (ranks * (type.shape[0] if type.shape else 1), *type.shape[1:])
            if not type.shape:
                value = self._move(value, View((1,)), event.mark)
            self._write_parts(self._exchange(event, value, Type(shape, type.dtype), 0) if ranks > 1 else value, event)
        elif event.kind == "reduce-scatter" and self._is_in_place(event):
            self._scatter_in_place(event)
        elif event.kind == "reduce-scatter" and len(event.inputs) == len(event.outputs) == 1:
            self._along_first(event, event.inputs[0], event.outputs[0], ranks)
        elif event.kind == "reduce-scatter" and len(event.outputs) == 1 and len(event.inputs) == ranks:
            target = windows[event.outputs[0]]
            joined = self._together(event, target, ranks)
            self.write(event.outputs[0], self._exchange(event, joined, Type(target.shape, target.dtype), 0))
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

    def _together(self, event: Communication, part: Window, ranks: int) -> str:
        """Return what is sent to the ranks one after the other, `part` the window of one of them."""
        values = tuple(Ref(self.read(number, event.mark)) for number in event.inputs)
        shape = (ranks * (part.shape[0] if part.shape else 1), *part.shape[1:])
        joined = self.program.fresh(Type(shape, part.dtype))
        self.program.nodes.append(Apply("cat", {"tensors": values, "dim": 0}, (joined,), event.mark))
        return joined

    def _write_parts(self, made: str, event: Communication) -> None:
        """Write what comes from the ranks one after the other into the tensors that take it."""
        size = self.program.shape(made)[0] // len(event.outputs) if len(event.outputs) > 1 else 0
        for place, result in enumerate(event.outputs):
            part = self._move(made, Narrow(0, place * size, size), event.mark) if size else made
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

    # ---- buffers of columns ----

    def _own_row(self, event: Operation) -> bool:
        """Put the parts of weights that this rank holds into its row of a buffer."""
        keys = ("all_gather_inputs", "all_gather_output", "rank", "all_gather_input_numel")
        inputs, output, rank, numel = (event.arguments.get(key) for key in keys)
        if not isinstance(inputs, tuple) or not isinstance(output, recorded.Tensor):
            return False
        if not isinstance(rank, int) or not isinstance(numel, int):
            return False
        target = self.tape.windows[output.window]
        at = target.offset + rank * numel
        for each_input in inputs:
            if not isinstance(each_input, recorded.Tensor):
                return False
            shape, value = self._as_stored(self.tape.windows[each_input.window], event.mark)
            self._put(Window(target.storage, at, shape, strides_of(shape), target.dtype), value)
            at += prod(shape)
        return True

    def _as_stored(self, window: Window, mark: Mark) -> tuple[tuple[int, ...], str]:
        """Return the shape and the value of a flat window, as what was written or named there, where that is all of it."""
        known = [*self.named, *(entry.window for entry in self.storages.get(window.storage, ()))]
        for each_window in known:
            if (
                each_window.storage == window.storage
                and each_window.shape
                and is_flat(each_window)
                and span(each_window) == span(window)
            ):
                number = next((key for key, each in self.tape.windows.items() if each == each_window), None)
                if number is not None:
                    window = each_window
                    break
        number = next(key for key, each in self.tape.windows.items() if each == window)
        value = self._before_it_was_flattened(self.read(number, mark), mark)
        return self.program.shape(value), value

    def _before_it_was_flattened(self, value: str, mark: Mark) -> str:
        """Return the cast of what was flattened before it was cast, or the value itself."""
        cast = self._maker(value, "aten._to_copy.default")
        flattened = None if cast is None else self._maker(next(iter(references(cast.arguments["self"])), ""), "view")
        source = None if flattened is None else flattened.arguments["self"]
        if len(self.program.shape(value)) != 1 or not isinstance(source, Ref) or not self.program.shape(source.name):
            return value
        return self._cast(source.name, self.program.types[value].dtype, mark)

    def _maker(self, value: str, op: str) -> Apply | None:
        """Return the operator that made a value, where it is of this kind."""
        made = next((node for node in reversed(self.program.nodes) if isinstance(node, Apply) and value in node.outputs), None)
        return made if made is not None and made.op == op else None

    def _split_columns(self, event: Operation) -> bool:
        """Give each column of a buffer as the whole value that it is the parts of."""
        source, sizes = (event.arguments.get(key) for key in ("all_gather_output", "all_gather_input_split_sizes"))
        if not isinstance(source, recorded.Tensor) or not isinstance(sizes, tuple) or event.arguments.get("dim") != 1:
            return False
        window = self.tape.windows[source.window]
        found = self.columns.tiling(window.storage, window.offset, window.shape[1])
        if found is None or [column.count for _, column in found] != list(sizes) or len(found) != len(event.writes):
            return False
        for number, (_, column) in zip(event.writes, found, strict=True):
            target, shape = self.tape.windows[number], self.program.shape(column.value)
            self._put(Window(target.storage, target.offset, shape, strides_of(shape), target.dtype), column.value)
        return True

    def _join_columns(self, event: Operation) -> bool:
        """Put the parts of each tensor along its first dimension into one column of a buffer."""
        tensors, ranks = event.arguments.get("tensors"), event.arguments.get("num_chunks")
        if not isinstance(tensors, tuple) or event.arguments.get("dim") != 0 or len(event.writes) != 1:
            return False
        target = self.tape.windows[event.writes[0]]
        if len(target.shape) != 2:
            return False
        values = [self.read(tensor.window, event.mark) for tensor in tensors if isinstance(tensor, recorded.Tensor)]
        if not isinstance(ranks, int) or ranks < 1 or any(not self.program.shape(value) for value in values):
            return False
        values = [self._filled_up(self._cast(value, target.dtype, event.mark), ranks, event.mark) for value in values]
        shapes = [self.program.shape(value) for value in values]
        self.storages[target.storage] = []
        self.columns.forget(target.storage)
        at = target.offset
        for value, shape in zip(values, shapes, strict=True):
            if ranks == 1:
                piece = Window(target.storage, at, shape, strides_of(shape), target.dtype)
                self.storages[target.storage].append(Entry(piece, value))
            else:
                self.columns.put(target.storage, at, Column(value, prod(shape) // ranks))
            at += prod(shape) // ranks
        return at == target.offset + target.shape[1]

    def _filled_up(self, value: str, ranks: int, mark: Mark) -> str:
        """Return a value with zeros behind its rows, so that the ranks divide them."""
        shape = self.program.shape(value)
        lacking = -shape[0] % ranks
        if not lacking:
            return value
        made = self.program.fresh(Type((shape[0] + lacking, *shape[1:]), self.program.types[value].dtype))
        around: tuple[Argument, ...] = (*(0 for _ in range(2 * len(shape) - 1)), lacking)
        given: dict[str, Argument] = {"self": Ref(value), "pad": around, "value": 0}
        self.program.nodes.append(Apply("aten.constant_pad_nd.default", given, (made,), mark))
        return made

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

        It is one reduction for each piece, to the rank that the piece is left to. What the other ranks hold of it then stays as
        it was, but is never read as a gradient: it counts as not there.
        """
        window = self.tape.windows[event.inputs[0]]
        size = count(window) // len(event.group)
        borders = [window.offset + place * size for place in range(1, len(event.group))]
        pieces = self._cut(self._filled(self._pieces(window), window), borders)
        for each_window, value in list(self._each_piece(pieces, window, event.mark)):
            owner = event.group[(each_window.offset - window.offset) // size]
            to_owner = replace(event, kind="reduce", root=owner)
            made = self._exchange(to_owner, value, self.program.types[value])
            if owner != self.program.rank:
                self.program.elsewhere.add(made)
            self._put(each_window, made)

    def _cut(self, pieces: list[Piece], borders: list[int]) -> list[Piece]:
        """Return the pieces, none of which crosses a border."""
        found: list[Piece] = []
        for piece in pieces:
            places = [piece.low, *(border for border in borders if piece.low < border < piece.high), piece.high]
            found += [replace(piece, low=low, high=high) for low, high in pairwise(places)]
        return found

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


_COLUMNS: Mapping[str, Callable[[_Follower, Operation], bool]] = {
    "fsdp.all_gather_copy_in.default": _Follower._own_row,
    "fsdp.split_with_sizes_copy.default": _Follower._split_columns,
    "fsdp.chunk_cat.default": _Follower._join_columns,
}
"""Operators of `fully_shard` on its buffers."""


def _immediate_waits(tape: Tape) -> frozenset[int]:
    """Return the works that the program waits for at once."""
    found = set()
    talk = [event for event in tape.events if isinstance(event, Communication | Wait | Operation)]
    for event, following in pairwise(talk):
        if isinstance(event, Communication) and isinstance(following, Wait) and following.work == event.work:
            found.add(event.work)
    return frozenset(found)


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


def _summed(event: Gradient) -> tuple[str, ...]:
    """Return the axes over which a gradient is left as a partial sum."""
    return tuple(axis for axis, placement in (event.placements or {}).items() if placement == Partial("sum"))
