"""Record what one rank runs: every operator that computes, all communication, what is waited for.

A tensor is a window on a storage (offset, shape, strides). Views are not recorded, but for expansions in backward passes, the
gradients of sums: whoever reads the capture follows the storages. A storage that existed before is recorded with its numbers
when it is touched first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork, Work
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tvlint.capture.communication import communication, run
from tvlint.capture.encoding import LEFT_OUT, bytes_of, dtype_name, encode, tensors_in
from tvlint.capture.places import Places

LARGEST_STORAGE = 1 << 22
"""The numbers of a larger storage, in bytes, are not recorded."""

_DESUGARED = frozenset({"DTensor", "AsyncCollectiveTensor"})
"""Tensor classes that run operators on what they hold; those are recorded."""

_FRAMES = 6
"""So far above a collective its function of `torch.distributed` is."""

_TORCH = os.path.dirname(torch.__file__)
_DISPATCHES = ("_compile.py", "eval_frame.py")
"""Modules of torch between the caller of an operator and the recorder."""

_SILENT = ("prim.", "profiler.")
_PREPARES = frozenset(
    f"aten.{name}"
    for name in ("detach.default", "alias.default", "_local_scalar_dense.default", "clone.default", "cat.default",
                 "stack.default", "_to_copy.default", "copy_.default", "view.default", "t.default", "slice.Tensor",
                 "split.Tensor", "select.int", "transpose.int", "_unsafe_view.default", "permute.default",
                 "zeros_like.default", "ones_like.default", "empty_like.default", "full_like.default", "new_zeros.default",
                 "new_ones.default", "new_empty.default", "new_full.default", "new_empty_strided.default")
)  # fmt: skip
"""Operators that programs run on weights before they train too, such as optimizers where they are made: on none of these does a
training step begin. What is drawn in the shape of a weight is of the step.
"""

_CHOOSES = frozenset(f"aten.{name}" for name in ("cat.default", "stack.default", "index.Tensor", "index_select.default"))
"""Operators that choose and join samples: what they make of data alone, outside of modules, is data as well."""

_DESCRIBED = frozenset({"arange", "full", "ones", "zeros", "scalar_tensor", "empty", "empty_strided"})
"""Operators that make a tensor of no other one, and are recorded; what any other makes so is a constant with its numbers."""

_NOTHING = frozenset({"aten.record_stream.default", "aten.is_pinned.default", "_c10d_functional._wrap_tensor_autograd.default"})


_RECEIVE = "c10d.recv_.default"
_MESSAGES = (_RECEIVE, "c10d.send.default")


@dataclass(slots=True)
class _Early:
    """A message from before the step: the operator, its arguments, where it was issued, and whether it was waited for."""

    name: str
    arguments: dict[str, Any]
    mark: dict[str, Any]
    work: Any
    waited: bool = False


class Recorder(TorchDispatchMode):
    """Writes events, one JSON object a line, while it is entered and `recording` is set."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write
        self.recording = False
        self.places = Places()
        self.storages: dict[int, int] = {}
        self.made: set[int] = set()
        self.changed: set[int] = set()
        self.constant: set[int] = set()
        self.known: dict[tuple[Any, ...], int] = {}
        self.kept: list[Any] = []
        self.tensors: dict[tuple[Any, ...], int] = {}
        self.works: dict[int, int] = {}
        self.results: dict[int, int] = {}
        self.phase = "forward"
        self.micro_batch = 0
        self.modules: list[str] = []
        self.issued: dict[int, tuple[int | None, str, int, int | None]] = {}
        self.operations = 0
        self.backward_micro_batch = 0
        self.batch = 0
        self.begin: Callable[[], None] = lambda: None
        self.away = False
        self.early: list[_Early] | None = []
        self.received: dict[int, int] = {}
        self.arrived: set[int] = set()

    def emit(self, event: dict[str, Any]) -> None:
        """Write one event."""
        for place in self.places.new:
            self.write(json.dumps(place))
        self.places.new.clear()
        self.write(json.dumps(event))

    def identify(self, tensor: torch.Tensor, made: bool = False) -> int:
        """Return the number of the window that `tensor` is; `made` says that an operator has just made it."""
        tensor = _held(tensor)
        storage = tensor.untyped_storage()
        number = self.storages.get(storage._cdata)
        if number is None:
            number = self.storages[storage._cdata] = len(self.storages)
            self.kept.append(StorageWeakRef(storage))
            if made:
                self.made.add(number)
            else:
                self._given(number, tensor)
        if made:
            self.changed.add(number)
        key = (number, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        known = self.tensors.get(key)
        if known is None:
            known = self.tensors[key] = len(self.tensors)
            window = {"storage": number, "offset": key[1], "shape": key[2], "stride": key[3], "dtype": dtype_name(key[4])}
            self.write(json.dumps({"tensor": known, **window}))
        return known

    def _given(self, number: int, tensor: torch.Tensor) -> None:
        """Write the numbers of a storage that existed before."""
        storage = tensor.untyped_storage()
        event: dict[str, Any] = {"given": number, "dtype": dtype_name(tensor.dtype), "bytes": storage.nbytes()}
        if 0 < storage.nbytes() <= LARGEST_STORAGE and tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor):
            with _disable_current_modes():
                whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))
                event["values"] = bytes_of(whole)
        self.write(json.dumps(event))

    def is_made(self, tensor: torch.Tensor) -> bool:
        """Return whether an operator of the step has made the storage of a tensor."""
        return self._storage_of(tensor) in self.made

    def is_received(self, tensor: torch.Tensor) -> bool:
        """Return whether a message of the step has written a tensor."""
        return self._storage_of(tensor) in self.arrived

    def is_data(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is no weight, and nothing that the step has written or named."""
        return not tensor.requires_grad and self._storage_of(tensor) not in self.changed

    def _storage_of(self, tensor: torch.Tensor) -> int | None:
        return self.storages.get(_held(tensor).untyped_storage()._cdata)

    def name(self, tensor: torch.Tensor) -> int:
        """Return the number of the window that a weight or buffer is."""
        number = self.identify(tensor)
        self.changed.add(self.storages[_held(tensor).untyped_storage()._cdata])
        return number

    def values(self, tensor: torch.Tensor) -> str:
        """Return the numbers of a tensor."""
        with _disable_current_modes():
            return bytes_of(tensor)

    def mark(self, event: dict[str, Any], read: Iterable[torch.Tensor] = ()) -> dict[str, Any]:
        """Add to an event where it was issued, in which phase, for which micro-batch, and whose gradient it computes."""
        place = self.places.current()
        node = torch._C._current_autograd_node()
        operation = self.operations if "op" in event else None
        if node is None:
            own_batch = self.backward_micro_batch if self.phase == "backward" else self._micro_batch_of_all(read)
            where = (place, self._module(), own_batch, operation)
            self.issued.setdefault(torch.autograd._get_sequence_nr() - 1, where)
        else:
            known = self.issued.get(node._sequence_nr())
            forward = known or (place, "", self.backward_micro_batch, None)
            self.backward_micro_batch = forward[2]
            if place is not None:
                again = (place, self._module() or forward[1], forward[2], operation)
                self.issued.setdefault(torch.autograd._get_sequence_nr() - 1, again)
            where = (forward[0] if place is None else place, forward[1], forward[2], operation)
            event["node"] = node.name()
            if forward[3] is not None:
                event["of"] = forward[3]
        event["phase"] = self.phase
        if self.phase != "optimizer":
            event["micro_batch"] = where[2]
        if where[0] is not None:
            event["at"] = where[0]
        if where[1]:
            event["module"] = where[1]
        if operation is not None:
            self.operations += 1
        return event

    def micro_batch_of(self, tensor: torch.Tensor) -> int:
        """Return the micro-batch whose forward pass made a tensor; the current one where that is not known."""
        node: Any = tensor.grad_fn
        while node is not None and node._sequence_nr() not in self.issued:  # a view, which is not recorded
            node = node.next_functions[0][0] if node.next_functions else None
        return self.micro_batch if node is None else self.issued[node._sequence_nr()][2]

    def _micro_batch_of_all(self, read: Iterable[torch.Tensor]) -> int:
        """Return the micro-batch of what is computed outside of any module: that of all it reads, else the current one."""
        found = set() if self.modules else {self.micro_batch_of(tensor) for tensor in read if tensor.grad_fn is not None}
        return found.pop() if len(found) == 1 else self.micro_batch

    def _module(self) -> str:
        return self.modules[-1] if self.modules else ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if name.startswith(_SILENT):
            return func(*args, **kwargs)
        if not self.recording and torch.is_grad_enabled() and name not in _PREPARES and not name.startswith("c10d."):
            for tensor in tensors_in([args, *kwargs.values()]):
                if tensor.requires_grad and tensor.is_leaf:
                    self.begin()
        if not self.recording:
            return self._before(name, func, args, kwargs)
        if any(kind.__name__ in _DESUGARED for kind in types):
            return NotImplemented
        arguments = _arguments(func, args, kwargs)
        if any(map(_is_without_numbers, tensors_in(list(arguments.values())))):
            return func(*args, **kwargs)
        if name.startswith(("c10d.", "_c10d_functional.")) or name in _NOTHING:
            return self._communicate(name, func, args, kwargs, arguments)
        sources = list(tensors_in(list(arguments.values())))
        is_drawn = torch.Tag.nondeterministic_seeded in func.tags
        if not sources and is_drawn:
            return self._drawn(func(*args, **kwargs))
        if not sources and name.startswith("aten.") and name.split(".")[1] not in _DESCRIBED:
            return self._with_its_numbers(func(*args, **kwargs))
        chooses = name in _CHOOSES and not self.modules and self.phase == "forward"
        if chooses and sources and all(map(self.is_data, sources)):
            return func(*args, **kwargs)
        is_written_out = name == "aten.lift_fresh.default" and self._storage_of(sources[0]) is None
        read = {key: encode(value, self.identify) for key, value in arguments.items() if key not in LEFT_OUT}
        if is_written_out:
            self.constant.add(self.storages[_held(sources[0]).untyped_storage()._cdata])
        result = func(*args, **kwargs)
        if any(map(_is_without_numbers, tensors_in(result))):
            return result
        overwritten, made = _written(func, arguments), list(tensors_in(result))
        is_constant = not is_drawn and all(self._storage_of(each) in self.constant for each in sources)
        if is_constant and not overwritten and sources and _rounds(sources, made):
            return self._with_its_numbers(result)
        written = [self.identify(each, True) for each in overwritten]
        inside = {each_tensor.untyped_storage()._cdata for each_tensor in sources}
        shares = bool(made) and all(each.untyped_storage()._cdata in inside for each in made)
        is_view = name.startswith("aten.") and not written and shares
        if is_view and not (name == "aten.expand.default" and torch._C._current_autograd_node() is not None):
            return result
        outputs = [self.identify(each, True) for each in made]
        touched = {self.storages[_held(each).untyped_storage()._cdata] for each in (*overwritten, *made)}
        (self.constant.update if is_constant else self.constant.difference_update)(touched)
        if overwritten:
            self.known = {key: number for key, number in self.known.items() if number not in touched}
        name = _on_lazy(name, sources)
        event = {"op": name, "arguments": read, "outputs": outputs}
        if written:
            event["writes"] = written
        if not made and result is not None:
            event["result"] = encode(result, self.identify)
        self.emit(self.mark(event, sources))
        return result

    def _drawn(self, result: Any) -> Any:
        """Take numbers that are drawn from nothing for data, as a program makes them up that has none."""
        for tensor in tensors_in(result):
            self.identify(tensor)
        return result

    def _with_its_numbers(self, result: Any) -> Any:
        """Take what is made of constants for a constant that the step is given, and for one where it is made again."""
        for tensor in tensors_in(result):
            storage = tensor.untyped_storage()
            key = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, self.values(tensor))
            known = self.known.get(key)
            if known is not None and storage._cdata not in self.storages:
                self.storages[storage._cdata] = known
                self.kept.append(StorageWeakRef(storage))
            self.identify(tensor)
            self.known[key] = self.storages[storage._cdata]
        return result

    def _communicate(self, name: str, func: Any, args: Any, kwargs: Any, arguments: dict[str, Any]) -> Any:
        if name in _NOTHING:
            return func(*args, **kwargs)
        if name.startswith("_c10d_functional.wait_tensor"):
            self._wait(self.results.get(arguments["tensor"].untyped_storage()._cdata))
            return func(*args, **kwargs)
        for tensor in tensors_in(list(arguments.values())):
            self.identify(tensor)
            self.constant.discard(self.storages[_held(tensor).untyped_storage()._cdata])
        result = run(name, func, args, kwargs, arguments)
        event = communication(name, arguments, result, lambda tensor: self.identify(tensor, True))
        if event is None:
            event = {"op": name, "arguments": {}, "outputs": [self.identify(each, True) for each in tensors_in(result)]}
            self.emit(self.mark(event))
            return result
        if event["communication"] == "receive":
            self.arrived.update(self.storages[each.untyped_storage()._cdata] for each in tensors_in(arguments["tensors"]))
        event["work"] = number = len(self.works)
        if self.batch:
            event["batch"] = self.batch
        work = _work(result)
        self.works[id(work) if work is not None else -number - 1] = number
        self.kept.append(work)
        if name.startswith("_c10d_functional."):
            self.results.update((each_tensor.untyped_storage()._cdata, number) for each_tensor in tensors_in(result))
        elif not _issued_in_python():
            event["completes"] = True
        self.emit(self.mark(event))
        return result

    def _before(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator before the step, and keep a message for the step that the rank begins with it."""
        if not name.startswith("c10d."):
            return func(*args, **kwargs)
        arguments = _arguments(func, args, kwargs)
        result = run(name, func, args, kwargs, arguments)
        if self.early is not None and not self.away and name in _MESSAGES:
            read: dict[str, Any] = {} if name == _RECEIVE else {"tensors": []}  # what is sent before the step is no part of it
            self.early.append(_Early(name, arguments | read, self.mark({}), _work(result)))
        return result

    def begin_with_messages(self) -> None:
        """Record the messages from before the step: a rank receives before it uses a weight, and its peer sends in the step."""
        early, self.early = self.early or [], None
        for each_early in early:
            event = communication(each_early.name, each_early.arguments, None, self.identify)
            assert event is not None
            number = len(self.works)
            self.works[-number - 1 if each_early.waited else id(each_early.work)] = number
            self.kept.append(each_early.work)
            self.received.update(
                (tensor.untyped_storage()._cdata, number) for tensor in tensors_in(each_early.arguments["tensors"])
            )
            self.emit({"early": True, **event, "work": number, **each_early.mark})
            if each_early.waited:
                self.emit({"early": True, "wait": number, **each_early.mark})

    def emit_of(self, tensor: torch.Tensor, event: dict[str, Any]) -> None:
        """Write an event about a weight, unless it was received in the step, which is known once all ranks are."""
        number = self.received.get(tensor.untyped_storage()._cdata)
        self.emit(event if number is None else {"early": True, **event, "work": number})

    def waited(self, work: Any) -> None:
        """Record that `work` is waited for."""
        if self.recording:
            self._wait(self.works.get(id(work)))
        for early in self.early or ():
            early.waited |= early.work is work

    def _wait(self, number: int | None) -> None:
        if number is not None:
            self.emit(self.mark({"wait": number}))


def _arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of the call by the names in the operator's schema."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _held(tensor: torch.Tensor) -> Any:
    """Return the tensor that a rank holds of one of the classes that run operators on what they hold."""
    if type(tensor).__name__ not in _DESUGARED:
        return tensor
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else getattr(tensor, "elem", None)


def _on_lazy(name: str, read: list[torch.Tensor]) -> str:
    """Return the operator that one is on tensors that are conjugated or negated when they are read: a copy does that."""
    conjugated, negated = any(each.is_conj() for each in read), any(each.is_neg() for each in read)
    if not conjugated and not negated:
        return name
    if name != "aten.clone.default" or (conjugated and negated):
        return f"lazy.{name}"
    return "aten.conj_physical.default" if conjugated else "aten.neg.default"


def _is_without_numbers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a shape only, as those on which DTensor tries what an operator gives."""
    return isinstance(tensor, FakeTensor) or tensor.device.type == "meta"


def _rounds(read: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Return whether an operator makes whole numbers of others, which no operator of the table describes."""
    whole = made and not any(each.is_floating_point() or each.is_complex() or each.dtype == torch.bool for each in made)
    return bool(whole) and any(each.is_floating_point() for each in read)


def _written(func: Any, arguments: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that the operator overwrites."""
    found = []
    for argument in func._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write and arguments.get(argument.name) is not None:
            found += list(tensors_in(arguments[argument.name]))
    return found


def _work(result: Any) -> Any:
    """Return the work that a communication operator gives, the one that Python sees."""
    for each in result if isinstance(result, tuple | list) else (result,):
        if isinstance(each, torch.ScriptObject):
            return Work.unbox(each)
    return None


def _issued_in_python() -> bool:
    """Return whether the collective comes from the functions of `torch.distributed`, or from code that is not torch's.

    What torch's reducer issues from C++, it waits for in C++, which nothing shows. Methods of a process group return at once.
    """
    frame: FrameType | None = sys._getframe(2)
    known: list[str] = []
    while frame is not None and len(known) < _FRAMES:
        known.append(frame.f_code.co_filename)
        frame = frame.f_back
    caller = next((path for path in known[1:] if not path.endswith(_DISPATCHES)), _TORCH)
    return not caller.startswith(_TORCH) or any(path.endswith("distributed_c10d.py") for path in known)


def watch_waits(recorder: Recorder) -> None:
    """Let `recorder` see the waits of all works, and those of torch for what a hook of its reducer returns the future of."""
    _watch_hooks(recorder)
    for kind in (Work, FakeWork):
        original = kind.__dict__.get("wait")
        if original is not None:
            kind.wait = _watched(original, recorder)


def _watch_hooks(recorder: Recorder) -> None:
    """Let `recorder` see that the reducer of torch waits for the works that the future of a hook is made of: by what was called
    on their futures, or, of a future that the hook makes by itself, for all works that it has asked for theirs.
    """
    replicas: Any = DistributedDataParallel
    futures: Any = torch.futures
    kind_of_future: Any = torch._C.Future
    made: dict[int, tuple[Any, tuple[Any, ...]]] = {}
    get_future, then, register = Work.get_future, kind_of_future.then, replicas.register_comm_hook
    collect_all = futures.collect_all

    def works_of(future: Any) -> tuple[Any, ...]:
        return made.get(id(future), (None, ()))[1]

    def kept(future: Any, works: tuple[Any, ...]) -> Any:
        made[id(future)] = future, works
        return future

    def collect(given: Any) -> Any:
        return kept(collect_all(given), tuple(work for future in given for work in works_of(future)))

    def register_hook(self: Any, state: object, hook: Any) -> None:
        @wraps(hook)
        def hooked(*given: Any) -> Any:
            made.clear()
            found = hook(*given)
            every = [work for _, works in made.values() for work in works]
            for work in works_of(found) if id(found) in made else every:
                recorder.waited(work)
            return found

        register(self, state, hooked)

    kind_of_work: Any = Work
    kind_of_work.get_future = lambda self: kept(get_future(self), (self,))
    kind_of_future.then = lambda self, callback: kept(then(self, callback), works_of(self))
    futures.collect_all, replicas.register_comm_hook = collect, register_hook


def _watched(original: Any, recorder: Recorder) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.waited(self)
        with _disable_current_modes():  # some collectives of gloo copy their results where they are waited for
            return original(self, *args, **kwargs)

    return wait
