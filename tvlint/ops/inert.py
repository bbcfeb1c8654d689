"""Calls that are made for what they do outside of the model: no tensor, gradient, random stream or message changes by them.

A call has no effect because its row stands here, never because of how its name sounds. Every call of a function that the
operator table does not have may change whatever it can reach.
"""

from __future__ import annotations

from tvlint.ops.spec import Bound, Call, Family, OpSpec, UnsupportedError

_LEVELS = ("debug", "info", "warning", "error", "critical", "exception", "log")
_LOGGERS = ("logging", "logging.Logger", "logger")
_CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "sleep")
_TIMERS = ("timer", "timers", "megatron.core.timers.Timer")
_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
           "memory_summary", "mem_get_info", "reset_peak_memory_stats", "reset_max_memory_allocated")  # fmt: skip
_RANGES = ("range_push", "range_pop", "mark")
_ASSERTIONS = ("torch._assert", "torch._assert_async", "torch.ops.aten._assert_async.msg")

ASSERTED = "every assertion that the plan makes holds"


def _bind(call: Call) -> Bound:
    raise UnsupportedError(f"what `{call.op}` gives is no part of the model")


def _spec(name: str, *signatures: str, assumption: str = "") -> OpSpec:
    return OpSpec(name, signatures, _bind, Family.INERT, assumption)


SPECS = (
    _spec("free-memory", "torch.cuda.empty_cache", "empty_cache", "torch.cuda.ipc_collect", "gc.collect"),
    _spec("measure-memory", *(f"torch.cuda.{name}" for name in _MEMORY)),
    _spec("synchronize-device", "torch.cuda.synchronize", "torch.cuda.Stream.synchronize", "torch.cuda.Event.synchronize"),
    _spec("read-clock", *(f"time.{name}" for name in _CLOCKS)),
    _spec("run-timer", *(f"{timer}.{name}" for timer in _TIMERS for name in ("start", "stop"))),
    _spec("write-log", *(f"{logger}.{level}" for logger in _LOGGERS for level in _LEVELS), "warnings.warn"),
    _spec("print", "print", "builtins.print"),
    _spec("name-a-place", "nnscaler.runtime.function.anchor"),
    _spec("mark-range", *(f"torch.cuda.nvtx.{name}" for name in _RANGES)),
    _spec("check-assertion", "assert", *_ASSERTIONS, assumption=ASSERTED),
)
