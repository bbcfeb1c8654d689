"""Processes of a node beyond the GPUs that the environment of the launch lets them see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.findings import Finding, Severity
from tvlint.readers.megatron.detect_framework import SWIFT
from tvlint.readers.megatron.launcher import DEVICES, PER_NODE, TORCH, Launch, option_value
from tvlint.readers.shell.values import Piece, Scalar, Value, Word, from_outside, known_text, location_of, span_of

RULE = "more-processes-than-visible-gpus"
VISIBLE = "CUDA_VISIBLE_DEVICES"
OF_SWIFT = "NPROC_PER_NODE"


def beyond_visible(launch: Launch, exported: Mapping[str, Value]) -> Iterator[Finding]:
    """Yield a finding where a launcher starts more processes on a node than `CUDA_VISIBLE_DEVICES` lists GPUs.

    The launcher of DeepSpeed takes no notice of that variable where it is given a number of GPUs.
    """
    words = [known_text(item.pieces) or "" for item in launch.launcher if isinstance(item, Word)]
    is_torch = not TORCH.isdisjoint(word.rpartition("/")[2] for word in words)
    is_swift = launch.program in SWIFT or launch.program == "swift"
    started = option_value(launch.launcher, PER_NODE) if is_torch else _pieces(exported, OF_SWIFT) if is_swift else None
    visible = _pieces(exported, VISIBLE)
    if not started or not visible or from_outside(started) or from_outside(visible):
        return
    count, listed = known_text(started) or "", known_text(visible) or ""
    if count.isascii() and count.isdigit() and DEVICES.fullmatch(listed) and int(count[:9]) > listed.count(",") + 1:
        message = f"{count} processes run on a node, and `{VISIBLE}` lists {listed.count(',') + 1} of its GPUs"
        yield Finding(RULE, Severity.ERROR, message, location_of(span_of(started)), "start as many as it lists, or list more")


def _pieces(exported: Mapping[str, Value], name: str) -> tuple[Piece, ...] | None:
    value = exported.get(name)
    return value.pieces if isinstance(value, Scalar) else None
