"""Read the lines of a capture, which nothing of is executed, into tapes."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis
from tvlint.ir.placement import Partial, Placement, Replicate, Shard
from tvlint.plurals import counted
from tvlint.readers.capture.tapes.operations import base_of
from tvlint.readers.capture.tapes.tape import (
    Argument,
    Capture,
    Communication,
    Event,
    Given,
    Gradient,
    Laid,
    Mark,
    Named,
    Operation,
    Other,
    Root,
    Tape,
    Tensor,
    Update,
    Wait,
    Window,
    tensors_in,
)
from tvlint.readers.capture.tapes.windows import in_pairs, is_flat, overlap, overlaps_itself, size_of, span
from tvlint.readers.document import ReadError
from tvlint.readers.plan_json.schema_checker import Check, FormError, form

OPENS = b'{"tvlint_capture"'
MOST_LINES = 4_000_000
LONGEST_LINE = 64 << 20

_PAIRS = {"complex64": "float32", "complex128": "float64"}
"""The numbers of which pairs are complex ones."""


def recognise(data: bytes) -> bool:
    """Return whether the content is that of a capture."""
    return data.startswith(OPENS)


def read_capture(path: str, data: bytes) -> Capture:
    """Return the capture in `data`. Raises ReadError at the first line that is wrong."""
    lines = _lines(path, data)
    head = next(lines)[1]
    if "tvlint_capture" not in head:
        raise ReadError("the first line is no head of a capture", Location(path, 1))
    tapes: dict[int, _Rank] = {}
    current: _Rank | None = None
    for number, line in lines:
        if "rank" in line:
            rank = int(line["rank"])
            if rank in tapes or rank >= head["ranks"]:
                raise ReadError(f"rank {rank} is given twice, or is not one of {head['ranks']:.0f}", Location(path, number))
            current = tapes[rank] = _Rank(path, rank)
            continue
        if current is None or "tvlint_capture" in line:
            raise ReadError("the line belongs to no rank", Location(path, number))
        current.add(line, number)
    missing = sorted(set(range(int(head["ranks"]))) - tapes.keys())
    if missing:
        raise ReadError(f"rank {missing[0]} is missing: the capture is not complete", Location(path), "capture it again")
    return Capture(
        path,
        tuple(head.get("launch", ())),
        int(head["ranks"]),
        tuple(tapes[rank].tape() for rank in range(int(head["ranks"]))),
        head.get("torch", ""),
        tuple(head.get("replaced", ())),
        tuple(head.get("sized_down", ())),
    )


def _lines(path: str, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line with its number, as the schema allows it."""
    check = form("capture")
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        if number > MOST_LINES or len(raw) > LONGEST_LINE:
            raise ReadError("the capture is longer than tvlint reads", Location(path, number))
        yield number, _line(path, number, raw, check)


def _line(path: str, number: int, raw: bytes, check: Check) -> dict[str, Any]:
    try:
        line = json.loads(raw)
        check(line, None)
    except FormError as error:
        raise ReadError(error.message, Location(path, number), error.help) from None
    except (ValueError, RecursionError):
        raise ReadError("the line is no JSON", Location(path, number), "capture it again") from None
    assert isinstance(line, dict)
    return line


class _Rank:
    """The lines of one rank, as they are read."""

    def __init__(self, path: str, rank: int) -> None:
        self.path = path
        self.rank = rank
        self.windows: dict[int, Window] = {}
        self.sizes: dict[int, int] = {}
        self.types: dict[int, set[str]] = {}
        self.pairs: set[int] = set()
        self.places: dict[int, Location] = {}
        self.named: dict[str, Window] = {}
        self.gradients: set[str] = set()
        self.works: set[int] = set()
        self.events: list[Event] = []
        self.meshes: list[tuple[tuple[Axis, ...], tuple[int, ...]]] = []
        self.number = 0

    def add(self, line: dict[str, Any], number: int) -> None:
        """Add one line of the capture, the `number`th."""
        self.number = number
        if "tensor" in line:
            self._window(line)
        elif "place" in line and "path" in line:
            self._once(self.places, line["place"], "place")
            self.places[int(line["place"])] = Location(line["path"], int(line["line"]) or None, text=line.get("text", ""))
        elif "mesh" in line:
            axes = tuple(Axis(entry["axis"], int(entry["size"])) for entry in line["mesh"])
            self.meshes.append((axes, _counts(line["of"])))
        else:
            self.events.append(self._event(line))

    def tape(self) -> Tape:
        """Return what was read. Raises ReadError where numbers of one type are read from, or written to, those of another."""
        for event in self.events:
            if isinstance(event, Operation | Communication):
                self._refuse_other_types(event)
        return Tape(self.rank, self.windows, tuple(self.events), tuple(self.meshes), frozenset(self.pairs))

    def _fail(self, text: str) -> ReadError:
        return ReadError(text, Location(self.path, self.number))

    def _refuse_other_types(self, event: Operation | Communication) -> None:
        """Refuse what works on a storage that is held as numbers of several types: values are followed, and not their bits."""
        given = tensors_in(tuple(event.arguments.values())) if isinstance(event, Operation) else event.inputs
        for number in (*given, *event.outputs):
            types = self.types[self.windows[number].storage]
            if len(types) > 1:
                text = (
                    f"this works on memory that is held as {' and as '.join(sorted(types))}, of which the bits are not followed"
                )
                help = "convert numbers with `.to(dtype)` in place of `.view(dtype)`"
                raise ReadError(text, event.mark.place or Location(self.path), help)

    def _window(self, line: dict[str, Any]) -> None:
        shape, stride = _counts(line["shape"]), _counts(line["stride"])
        if len(shape) != len(stride):
            raise self._fail(f"{counted(len(stride), 'stride')} for {counted(len(shape), 'dimension')}")
        self._once(self.windows, line["tensor"], "tensor")
        window = Window(int(line["storage"]), int(line["offset"]), shape, stride, line["dtype"])
        if line["dtype"] in _PAIRS:
            self.pairs.add(int(line["tensor"]))
            window = in_pairs(window, _PAIRS[line["dtype"]])
        if span(window)[1] * size_of(window.dtype) > self.sizes.get(window.storage, sys.maxsize):
            raise self._fail(f"tensor {line['tensor']:.0f} ends behind its storage")
        self.windows[int(line["tensor"])] = window
        self.types.setdefault(window.storage, set()).add(window.dtype)

    def _once(self, known: Collection[int], number: Any, kind: str) -> None:
        """Refuse a number that stands for something else already: events name things by their numbers."""
        if int(number) in known:
            raise self._fail(f"{kind} {number:.0f} stands twice")

    def _known(self, number: Any) -> int:
        if int(number) not in self.windows:
            raise self._fail(f"there is no tensor {number:.0f}")
        return int(number)

    def _event(self, line: dict[str, Any]) -> Event:
        if "given" in line:
            self._once(self.sizes, line["given"], "storage")
            if int(line["given"]) in self.types:
                raise self._fail(f"storage {line['given']:.0f} is given after a tensor on it")
            self.sizes[int(line["given"])] = int(line["bytes"])
            return Given(int(line["given"]), _PAIRS.get(line["dtype"], line["dtype"]), self._values(line))
        if "name" in line:
            whole = _counts(line["whole"]) if "whole" in line else None
            placed = _placements(line.get("placements"))
            begins = _counts(line["start"]) if "start" in line else None
            named = Named(
                line["name"], line["role"], self._known(line["of"]), line.get("trained", False), whole, placed, begins
            )
            self.named[named.name] = self.windows[named.window]
            return self._flat(named, line) if "flat" in line else named
        if "op" in line:
            if "." not in line["op"]:
                raise self._fail(f"`{line['op']}` is no operator of torch, which names a module")
            arguments = {name: self._argument(value) for name, value in line["arguments"].items()}
            outputs, writes = (tuple(map(self._known, line.get(key, ()))) for key in ("outputs", "writes"))
            self._overwritten(line["op"], arguments, writes)
            if writes and outputs and outputs != writes:
                raise self._fail(f"`{line['op']}` gives other tensors than those that it overwrites")
            if len({*outputs}) < len(outputs):
                raise self._fail(f"`{line['op']}` gives a tensor twice")
            self._made(line["op"], tensors_in(tuple(arguments.values())), outputs)
            self._as_asked(line["op"], arguments, outputs)
            return Operation(line["op"], arguments, outputs, writes, self._argument(line.get("result")), self._mark(line))
        if "communication" in line:
            return self._communication(line)
        if "wait" in line:
            wait = Wait(int(line["wait"]), self._mark(line))
            if wait.work not in self.works:
                raise self._fail(f"nothing was issued that work {wait.work} is")
            return wait
        if "root" in line:
            start = self._known(line["from"]) if "from" in line else None
            return Root(self._known(line["root"]), start, self._values(line), self._mark(line))
        if "gradient" in line:
            if line["gradient"] in self.gradients:
                raise self._fail(f"`{line['gradient']}` has two gradients")
            self.gradients.add(line["gradient"])
            return self._gradient(line)
        if "update" in line:
            values = {name: self._decoded(text) for name, text in line.get("values", {}).items()}
            clipped = tuple(map(self._gradient, line["clipped"]))
            return Update(tuple(line["update"]), line.get("optimizer", ""), values, clipped, line.get("elsewhere", False))
        raise AssertionError(f"a line of a kind that the schema has: {line}")

    def _flat(self, named: Named, line: dict[str, Any]) -> Named:
        """Return a flat weight with the weights that lie in it, one after the other, within the ranges of the group."""
        laid = tuple(
            Laid(each["name"], _counts(each["shape"]), int(each["at"]), each.get("trained", False)) for each in line["flat"]
        )
        group, window = _counts(line.get("group", ())), self.windows[named.window]
        ends = [0, *(each.at + prod(each.shape) for each in laid)]
        behind = any(each.at < end for each, end in zip(laid, ends, strict=False)) or ends[-1] > len(group) * prod(window.shape)
        if self.rank not in group or len({*group}) < len(group) or len(window.shape) != 1 or not is_flat(window) or behind:
            raise self._fail(f"the weights in `{named.name}` do not lie in it one after the other")
        if len({each.name for each in laid}) < len(laid):
            raise self._fail(f"a weight lies twice in `{named.name}`")
        return replace(named, flat=laid, group=group)

    def _gradient(self, line: dict[str, Any]) -> Gradient:
        number, name = self._known(line["of"]), line["gradient"]
        if name in self.named and len(self.named[name].shape) != len(self.windows[number].shape):
            raise self._fail(f"the gradient of `{name}` has another number of dimensions than it")
        return Gradient(name, number, self._values(line), _placements(line.get("placements")))

    def _made(self, name: str, given: Iterable[int], outputs: Iterable[int]) -> None:
        """Refuse results of which two elements are one place, unless they are views of what is given."""
        known = {self.windows[number].storage for number in given}
        windows = [self.windows[number] for number in outputs if self.windows[number].storage not in known]
        windows.sort(key=lambda window: (window.storage, *span(window)))
        both = any(one.storage == other.storage and overlap(one, other) for one, other in pairwise(windows))
        if both or any(map(overlaps_itself, windows)):
            raise self._fail(f"two elements of what `{name}` gives are in one place")

    def _as_asked(self, op: str, arguments: Mapping[str, Argument], outputs: Sequence[int]) -> None:
        """Refuse results of another size or type than the operator is asked for."""
        size, rows, dtype = (arguments.get(name) for name in ("size", "num_weights", "input_dtype"))
        for number in outputs[:1]:
            shape, type = self.windows[number].shape, self.windows[number].dtype
            asked = (*size, *(2,) * (number in self.pairs)) if isinstance(size, tuple) else shape
            others = [each for each, made in zip(asked, shape, strict=False) if each not in (-1, made)]
            if others or len(asked) != len(shape) or (rows is not None and (rows,) != shape[:1]):
                raise self._fail(f"`{op}` gives another size than it is asked for")
            if dtype not in (None, type) or arguments.get("half_to_float") not in (None, False):
                raise self._fail(f"`{op}` gives another type than it is asked for")

    def _overwritten(self, op: str, arguments: Mapping[str, Argument], writes: Sequence[int]) -> None:
        """Refuse tensors that an operator cannot overwrite: others than it is given, or, in place, than it works on."""
        if not {*writes} <= {*tensors_in(tuple(arguments.values()))}:
            raise self._fail(f"`{op}` overwrites a tensor that it is not given")
        if op.endswith((".out", "_out")) and not {*tensors_in((arguments.get("out"),))} <= {*writes}:
            raise self._fail(f"`{op}` does not say that it overwrites the tensor for its result")
        worked_on = tensors_in((arguments.get("self"),))
        if writes and base_of(op).endswith("_") and [*writes[: len(worked_on)]] != worked_on:
            raise self._fail(f"`{op}` overwrites another tensor than the one that it works on")
        self._apart(op, writes)

    def _apart(self, name: str, written: Iterable[int]) -> None:
        """Refuse tensors that are overwritten and of which two elements are one place, as torch does."""
        if any(overlaps_itself(self.windows[number]) for number in written):
            raise self._fail(f"two elements of what `{name}` overwrites are in one place")

    def _communication(self, line: dict[str, Any]) -> Communication:
        kind, group = line["communication"], _counts(line["group"])
        self.works.add(int(line["work"]))
        inputs, outputs = (tuple(map(self._known, line[key])) for key in ("inputs", "outputs"))
        if len({*group}) < len(group):
            raise self._fail("a rank stands twice in a group")
        if int(line.get("root", group[0] if group else 0)) not in group:
            raise self._fail(f"rank {line.get('root', 0):.0f} is none of the group")
        if not _fits(kind, len(inputs), len(outputs)):
            raise self._fail(f"a `{kind}` of {counted(len(inputs), 'tensor')} gives {len(outputs)}")
        if "reduce" in _TAKES.get(kind, ()) and not line.get("reduce"):
            raise self._fail(f"a `{kind}` does not say how it reduces")
        taken = _TAKES.get(kind, frozenset()) if kind != "all-to-all" or len(inputs) == 1 else frozenset()
        more = sorted((_ARGUMENTS - taken) & line.keys())
        if more:
            raise self._fail(f"a `{kind}` of {counted(len(inputs), 'tensor')} takes no `{more[0]}`")
        moved = zip(inputs, outputs, strict=True) if len(inputs) == len(outputs) else ((*inputs, *outputs),)
        if any(len({self.windows[number].dtype for number in numbers}) > 1 for numbers in moved):
            raise self._fail(f"a `{kind}` of numbers of one type gives those of another")
        self._made(kind, inputs, outputs)
        self._apart(kind, outputs)
        return Communication(
            kind,
            inputs,
            outputs,
            group,
            int(line["work"]),
            self._mark(line),
            line.get("reduce", ""),
            int(line["root"]) if "root" in line else None,
            int(line["peer"]) if "peer" in line else None,
            int(line.get("tag", 0)),
            _counts(line.get("splits", ())),
            _counts(line.get("receive_splits", ())),
            int(line.get("batch", 0)),
            line.get("completes", False),
            line.get("communicator", ""),
        )

    def _mark(self, line: dict[str, Any]) -> Mark:
        place = None
        if "at" in line:
            place = self.places.get(int(line["at"]))
            if place is None:
                raise self._fail(f"there is no place {line['at']:.0f}")
        micro_batch = int(line["micro_batch"]) if "micro_batch" in line else -1
        of = int(line["of"]) if "of" in line else -1
        return Mark(line.get("phase", "forward"), micro_batch, place, line.get("module", ""), line.get("node", ""), of)

    def _values(self, line: dict[str, Any]) -> bytes | None:
        return self._decoded(line["values"]) if "values" in line else None

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._fail("the values are no base64") from None

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, list):
            return tuple(map(self._argument, value))
        if not isinstance(value, dict):
            known: int | float | str | bool | None = value
            return known
        if len(value) != 1:
            raise self._fail("a value of more than one kind")
        ((kind, content),) = value.items()
        if kind == "t":
            return Tensor(self._known(content))
        return float(content) if kind == "float" else content if kind == "dtype" else Other(content)


_TAKES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("all-reduce", "reduce-scatter"), frozenset({"reduce"})),
    **dict.fromkeys(("send", "receive"), frozenset({"peer", "tag"})),
    **dict.fromkeys(("broadcast", "gather", "scatter"), frozenset({"root"})),
    "reduce": frozenset({"reduce", "root"}),
    "all-to-all": frozenset({"splits", "receive_splits"}),
}
_ARGUMENTS = frozenset({name for taken in _TAKES.values() for name in taken})
"""What kinds of communication are given besides tensors and a group, which is nothing that the others take."""


def _fits(kind: str, read: int, written: int) -> bool:
    """Return whether a communication may read and write so many tensors on a rank."""
    if kind in ("send", "receive"):
        return (read, written) == ((1, 0) if kind == "send" else (0, 1))
    if kind in ("all-reduce", "broadcast", "reduce"):
        return read == written > 0
    return kind == "barrier" or read > 0 or written > 0


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _placements(written: Mapping[str, Any] | None) -> Mapping[str, Placement] | None:
    if written is None:
        return None
    return {axis: _placement(value) for axis, value in written.items()}


def _placement(written: Mapping[str, Any]) -> Placement:
    if written["kind"] == "shard":
        return Shard(int(written["dim"]))
    return Partial(written.get("reduce", "sum")) if written["kind"] == "partial" else Replicate()
