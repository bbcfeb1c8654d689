"""Follow the events of one rank, and return its program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

from tvlint.ir.placement import Partial, Replicate, Shard
from tvlint.readers.capture.collectives import Collectives
from tvlint.readers.capture.lifting.masks import masks_of
from tvlint.readers.capture.lifting.program import (
    Apply,
    Argument,
    Array,
    End,
    Exchange,
    Message,
    Program,
    Ref,
    RootValue,
    Type,
    references,
    unfollowed,
)
from tvlint.readers.capture.pairs import Pairs
from tvlint.readers.capture.recorded_numbers import numbers_of, range_of
from tvlint.readers.capture.storages import Entry
from tvlint.readers.capture.tapes import tape as recorded
from tvlint.readers.capture.tapes.columns import Column, strides_of
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
    tensors_in,
)
from tvlint.readers.capture.tapes.windows import (
    Expand,
    Narrow,
    View,
    count,
    is_flat,
    span,
)


def follow(tape: Tape) -> Program:
    """Return the program of the rank."""
    follower = _Follower(tape)
    for event in tape.events:
        follower.event(event)
    follower.end()
    return follower.program


class _Follower(Collectives):
    """One rank while its events are followed."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.operations = 0
        self.masks: dict[str, Array] = {}

    def event(self, event: recorded.Event) -> None:
        """Follow one event."""
        self.place = event.mark.place if isinstance(event, Operation | Communication | Root) else None
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
            known = self.program.kept if event.elsewhere else self.program.updated
            known.update(dict.fromkeys(event.weights, event.optimizer))
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
        tensors = {*event.outputs, *event.writes, *tensors_in(tuple(event.arguments.values()))}
        both = tensors <= self.tape.pairs or not tensors & self.tape.pairs
        if event.op == "aten.expand.default" and len(event.outputs) == 1 and isinstance(source, recorded.Tensor) and both:
            return self._expand(self.read(source.window, mark), windows[event.outputs[0]], mark)
        if tensors & self.tape.pairs and not (_is_copy(event) and both):
            return self._on_pairs(event, base)
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

    def _on_pairs(self, event: Operation, base: str) -> str:
        """Follow an operator on complex numbers; return its first result."""
        mark, made = event.mark, list[str]()
        windows = [self.tape.windows[number] for number in event.writes or event.outputs]
        if len(windows) == len(event.outputs) == 1 and not event.writes and event.outputs[0] in self.tape.pairs:
            arguments = {key: self._argument(each, mark) for key, each in event.arguments.items()}
            operands = tuple(event.arguments[name] for name in ("self", "other") if name in event.arguments)
            are_pairs = [number in self.tape.pairs for number in tensors_in(operands)]
            found = Pairs(self.program, mark).of(base, arguments, are_pairs, windows[0].shape)
            made += [] if found is None else [found]
        read = tuple(Ref(self.read(number, mark)) for number in tensors_in(tuple(event.arguments.values())))
        for window in windows[len(made) :]:
            made.append(self.program.fresh(Type(window.shape, window.dtype)))
            self.program.nodes.append(
                unfollowed("it works on complex numbers and is not followed", read, made[-1], mark, f"complex.{base}")
            )
        for window, value in zip(windows, made, strict=True):
            self._put(window, value)
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
        others = {key: argument for key, argument in event.arguments.items() if key not in ("self", "out")}
        tensors = {key: self.tape.windows[each.window] for key, each in others.items() if isinstance(each, recorded.Tensor)}
        alike = {key: each for key, each in tensors.items() if count(each) != 1}
        if any(count(each) != count(window) or not is_flat(each) for each in alike.values()):
            return False
        if event.arguments.get("self") != recorded.Tensor(number) or not is_flat(window):
            return False
        pieces = self._pieces(window)
        if len(pieces) < 2:
            return False
        moves_zeros = base_of(event.op).rstrip("_") in ("add", "sub")
        for each_window, value in self._each_piece(pieces if moves_zeros else self._filled(pieces, window), window, event.mark):
            rest = {key: self._argument(given, event.mark) for key, given in others.items() if key not in alike}
            for key, other in alike.items():
                at = other.offset + each_window.offset - window.offset
                part = Window(other.storage, at, each_window.shape, each_window.stride, other.dtype)
                rest[key] = Ref(self._read(part, event.mark))
            made = self.program.fresh(self.program.types[value])
            self.program.nodes.append(Apply(name, {"self": Ref(value), **rest}, (made,), event.mark))
            self._put(each_window, made)
        return True

    def _copy(self, event: Operation) -> str:
        """Follow `copy_`; return the value that is copied (empty: several)."""
        target, source = event.tensor("self"), event.argument("src")
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

    def _own_row(self, event: Operation) -> bool:
        """Put the parts of weights that this rank holds into its row of a buffer."""
        keys = ("all_gather_inputs", "all_gather_output", "rank", "all_gather_input_numel")
        inputs, output, rank, numel = (event.arguments.get(key) for key in keys)
        if not isinstance(inputs, tuple) or not isinstance(output, recorded.Tensor):
            return False
        parts = [self.tape.windows[each.window] for each in inputs if isinstance(each, recorded.Tensor)]
        target, size = self.tape.windows[output.window], sum(map(count, parts))
        if not isinstance(rank, int) or not isinstance(numel, int) or not 0 <= rank * numel <= count(target) - numel:
            return False
        if len(parts) < len(inputs) or size != numel or not all(map(is_flat, (target, *parts))):
            return False
        at = target.offset + rank * numel
        for part in parts:
            shape, value = self._as_stored(part, event.mark)
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
        flattened = None if cast is None else self._maker(next(iter(references(cast.arguments.get("self"))), ""), "view")
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
        window, targets = self.tape.windows[source.window], [self.tape.windows[number] for number in event.writes]
        rows, row = window.shape if len(window.shape) == 2 else (0, 0)
        found = self.columns.tiling(window.storage, window.offset, row) or []
        if not found or [column.count for _, column in found] != list(sizes) or not all(map(is_flat, (window, *targets))):
            return False
        if [target.shape for target in targets] != [(rows, size) for size in sizes]:
            return False
        for target, (_, column) in zip(targets, found, strict=True):
            shape = self.program.shape(column.value)
            self._put(Window(target.storage, target.offset, shape, strides_of(shape), target.dtype), column.value)
        return True

    def _join_columns(self, event: Operation) -> bool:
        """Put the parts of each tensor along its first dimension into one column of a buffer."""
        tensors, ranks = event.arguments.get("tensors"), event.arguments.get("num_chunks")
        if not isinstance(tensors, tuple) or event.arguments.get("dim") != 0 or len(event.writes) != 1:
            return False
        target = self.tape.windows[event.writes[0]]
        if len(target.shape) != 2 or not is_flat(target) or target.shape[0] != ranks:
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


_COLUMNS: Mapping[str, Callable[[_Follower, Operation], bool]] = {
    "fsdp.all_gather_copy_in.default": _Follower._own_row,
    "fsdp.split_with_sizes_copy.default": _Follower._split_columns,
    "fsdp.chunk_cat.default": _Follower._join_columns,
}
"""Operators of `fully_shard` on its buffers."""


def _is_copy(event: Operation) -> bool:
    """Return whether an operator gives what it is given, in the shape that it is given."""
    base = base_of(event.op)
    return event.op.startswith("aten.") and (base == "copy_" or (base in COPIES and not base.endswith("view")))


def _summed(event: Gradient) -> tuple[str, ...]:
    """Return the axes over which a gradient is left as a partial sum."""
    return tuple(axis for axis, placement in (event.placements or {}).items() if placement == Partial("sum"))
