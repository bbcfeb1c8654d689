"""Stand-ins for GPUs: the CPU, with the names of CUDA."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C import _len_torch_function_stack
from torch.overrides import TorchFunctionMode
from torch.utils._triton import has_triton_package

from tvlint.capture.devices import name_devices
from tvlint.capture.failures import KernelError
from tvlint.capture.half_precision import move_to_cpu
from tvlint.capture.places import Places

CPU = torch.device("cpu")


class _Stream:
    """A stream of a device that has none: everything runs in the order of the program."""

    cuda_stream = 0
    device = CPU

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def wait_stream(self, *_: Any) -> None:
        pass

    def wait_event(self, *_: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True


class _Event:
    """An event that has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    def wait(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, *_: Any) -> float:
        return 0.0


class CpuForCuda(TorchFunctionMode):
    """Turns every request for a CUDA device into one for the CPU."""

    def __init__(self, replace: Callable[[str], object]) -> None:
        super().__init__()
        self.replace = replace

    def _tell(self) -> None:
        """Tell of a replacement that the program itself asked for, and not torch."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(("overrides.py", os.path.basename(__file__))):
            frame = frame.f_back
        if frame is not None and not Places().is_foreign(frame.f_code.co_filename):
            self.replace("device `cuda` replaced by `cpu`")

    def device(self, value: Any) -> Any:
        """Return the CPU where a value says a GPU, by name or number; else the value."""
        named = (isinstance(value, str) and value.startswith("cuda")) or getattr(value, "type", None) == "cuda"
        is_index = isinstance(value, int) and not isinstance(value, bool)
        if is_index or (named and isinstance(value, str | torch.device)):
            self._tell()
            return CPU
        return value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            self._tell()
            return args[0]
        if func in (torch.Tensor.pin_memory,):
            return args[0]
        if func is torch.Tensor.record_stream:
            return None
        if func is torch.Tensor.type and len(args) == 1 and not kwargs and _asks_for_gpu_type():
            return func(*args).replace("torch.", "torch.cuda.", 1)
        if func is torch.device and any(self.device(value) is CPU for value in (*args, *kwargs.values())):
            return CPU
        if "device" in kwargs:
            kwargs["device"] = self.device(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to:
            args = tuple(self.device(argument) for argument in args)
        return func(*args, **kwargs)


def _asks_for_gpu_type() -> bool:
    """Return whether Megatron asks for the type of a tensor, of which it knows those of GPUs only."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith("overrides.py"):
        frame = frame.f_back
    return frame is not None and f"{os.sep}megatron{os.sep}" in frame.f_code.co_filename


def install(replace: Callable[[str], object]) -> CpuForCuda:
    """Let the process find CPUs where it asks for GPUs and gloo where it asks for nccl; `replace` is given what was replaced.

    The mode that is returned must be kept.
    """
    if not torch.cuda.is_available():
        _name_cuda()
        _name_triton(replace)
        move_to_cpu(replace)
        torch.compile = _uncompiled
        torch.backends.mkldnn.enabled = False  # one kernel of it is a whole LSTM
    _use_gloo(replace)
    mode = CpuForCuda(replace)
    mode.__enter__()
    name_devices(mode.device)
    _run_backward_under(mode)
    return mode


def _run_backward_under(mode: CpuForCuda) -> None:
    """Let what a backward pass computes again find CPUs too: torch has left its modes where it begins one."""
    engine: Any = torch.autograd
    run = engine._engine_run_backward

    def run_under(*given: Any, **named: Any) -> Any:
        with mode:
            return run(*given, **named)

    engine._engine_run_backward = run_under


_TENSOR_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16, "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64, "IntTensor": torch.int32, "ByteTensor": torch.uint8,
}  # fmt: skip


class _TensorType(type):
    """The type of a tensor on a GPU, on the CPU: it makes one of a list or of a shape, and knows those of its dtype."""

    dtype: torch.dtype

    def __call__(cls, *given: Any) -> torch.Tensor:
        is_list = bool(given) and isinstance(given[0], list | tuple)
        return torch.tensor(*given, dtype=cls.dtype) if is_list else torch.empty(*given, dtype=cls.dtype)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == cls.dtype


class _Kernels(types.ModuleType):
    """Triton where it is not installed: kernels can be written, and none can be run."""

    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kernel


def _uncompiled(function: Any = None, *_: Any, **__: Any) -> Any:
    """Return a function as it is, or a decorator that does."""
    return function if function is not None else _uncompiled


class _Decorator(type):
    """The type of any name of Triton: a class, which programs ask values of, and a decorator of a kernel."""

    def __call__(cls, *given: Any, **_: Any) -> Any:
        return _Unlaunched(given[0]) if len(given) == 1 and isinstance(given[0], types.FunctionType | _Unlaunched) else cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _Kernel(metaclass=_Decorator):
    """Any name of Triton."""


class _Unlaunched:
    """A kernel that is written and cannot be launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getitem__(self, grid: Any) -> NoReturn:
        raise KernelError(f"the kernel `{self.function.__name__}` of Triton cannot be launched without a GPU")


def _name_triton(replace: Callable[[str], object]) -> None:
    """Let modules of kernels be imported where Triton is not installed; torch has looked for it and remembers."""
    if not has_triton_package():
        sys.meta_path.append(_Triton(replace))


class _Triton(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of Triton."""

    def __init__(self, replace: Callable[[str], object]) -> None:
        self.replace = replace

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of Triton is made."""
        if name.partition(".")[0] != "triton":
            return None
        self.replace("kernels of Triton replaced by none")
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return a module that has every name."""
        return _Kernels(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run nothing."""


def _name_cuda() -> None:
    cuda: Any = torch.cuda
    nothing = ("synchronize", "set_device", "set_stream", "empty_cache", "reset_peak_memory_stats", "ipc_collect")
    for name in nothing:
        setattr(cuda, name, lambda *_, **__: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *_, **__: 0)
    stream = _Stream()
    cuda.current_device = lambda: 0 if _len_torch_function_stack() else CPU  # no mode sees what backward functions call
    cuda.current_stream = cuda.default_stream = lambda *_, **__: stream
    cuda.Stream, cuda.Event = _Stream, _Event
    cuda.stream = lambda *_, **__: contextlib.nullcontext()
    cuda.manual_seed = cuda.manual_seed_all = torch.default_generator.manual_seed
    for name, dtype in _TENSOR_TYPES.items():
        setattr(cuda, name, _TensorType(name, (), {"dtype": dtype}))
    devices: tuple[Any, ...] = (cuda, torch.cpu)
    for device in devices:  # `fork_rng` asks the module of the device that it is given
        device.get_rng_state = lambda *_, **__: torch.get_rng_state()
        device.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.get_device_capability = lambda *_, **__: (8, 0)
    cuda.get_device_name = lambda *_, **__: "cpu"
    cuda.device_count = lambda: 8
    cuda.mem_get_info = lambda *_, **__: (80 << 30, 80 << 30)
    cuda.memory_stats = lambda *_, **__: {}
    properties = types.SimpleNamespace(total_memory=80 << 30, name="cpu", major=8, minor=0, multi_processor_count=1)
    cuda.get_device_properties = lambda *_, **__: properties
    silent = {name: (lambda *_, **__: None) for name in ("range_push", "range_pop", "mark")}
    cuda.nvtx = types.SimpleNamespace(range=lambda *_, **__: contextlib.nullcontext(), **silent)


class _Nccl:
    """The process groups of nccl where torch has none, by the options that a program makes for them."""

    class Options:
        """Options that gloo has no use for."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.config = types.SimpleNamespace()


def _use_gloo(replace: Callable[[str], object]) -> None:
    started, grouped = dist.init_process_group, dist.new_group
    if not hasattr(dist, "ProcessGroupNCCL"):
        dist.ProcessGroupNCCL = _Nccl

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend not in (None, "gloo", "fake"):
            replace(f"backend `{backend}` replaced by `gloo`")
        kept = {name: kwargs[name] for name in ("init_method", "timeout", "world_size", "rank", "store") if name in kwargs}
        return started("gloo", *args, **kept)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *_: Any, **kwargs: Any) -> Any:
        kept = {"group_desc": kwargs["group_desc"]} if "group_desc" in kwargs else {}
        return grouped(ranks, timeout, "gloo" if backend in ("nccl", "ucc", "cpu:gloo,cuda:nccl") else backend, **kept)

    for place in (dist, dist.distributed_c10d):
        place.init_process_group, place.new_group = init_process_group, new_group
        for name in _SUMS:
            if hasattr(place, name):
                setattr(place, name, _multiplied(getattr(place, name), replace))


_SUMS = ("all_reduce", "reduce_scatter_tensor", "reduce_scatter_single")
"""Collectives that add up one tensor of each rank."""


def _multiplied(collective: Callable[..., Any], replace: Callable[[str], object]) -> Callable[..., Any]:
    """Return a collective that multiplies what it adds up itself where it is asked for it, of which gloo knows nothing."""
    signature = inspect.signature(collective)

    @functools.wraps(collective)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        op = given.get("op")
        if not isinstance(op, dist.ReduceOp) or op != dist.ReduceOp.PREMUL_SUM:
            return collective(*args, **kwargs)
        replace("reduction `premul_sum` of nccl replaced by a sum and a multiplication")
        _, factor = op.__getstate__()
        given["op"] = dist.ReduceOp.SUM
        read = "input" if "input" in given else "tensor"
        if factor != 1 and given.get("async_op"):
            given[read] = given[read] * factor if read == "input" else given[read].mul_(factor)
        work = collective(**given)
        if factor != 1 and not given.get("async_op"):
            given["output" if read == "input" else "tensor"].mul_(factor)
        return work

    return run
