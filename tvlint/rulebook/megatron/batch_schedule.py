"""Megatron's batch schedules (`0:768 1.5T:1536`): from which threshold on which global batch size holds."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from tvlint.ir.patterns import Pattern

_SUFFIXES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12, "": 1}
_NUMBER = Pattern(r"(\d{1,15}(?:\.\d{0,15})?)([KMBT]?)", re.IGNORECASE)
_MOST_ENTRIES = 1000


@lru_cache(maxsize=64)
def parse_batch_schedule(text: str) -> tuple[tuple[int, int], ...] | None:
    """Thresholds and batch sizes, by threshold; None where an entry is not `threshold:size`.

    Raises `ValueError` where the text holds a variable or more entries than a schedule has.
    """
    entries = text.replace(",", " ").split()
    if "$" in text or len(entries) > _MOST_ENTRIES:
        raise ValueError("the batch schedule cannot be read")
    found = []
    for entry in entries:
        threshold, colon, size = entry.partition(":")
        read = _number(threshold), _number(size)
        if not colon or read[0] is None or read[1] is None:
            return None
        found.append((read[0], read[1]))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def batch_schedule_sizes(text: str) -> tuple[int, ...]:
    """Return the batch sizes of a schedule; raises `ValueError` where it does not parse."""
    schedule = parse_batch_schedule(text)
    if schedule is None:
        raise ValueError("the batch schedule does not parse")
    return tuple(size for _, size in schedule)


def is_batch_schedule(text: str, seq_length: int) -> bool:
    """Return whether a schedule starts at 0, rises strictly when counted in samples, and has positive sizes."""
    schedule = parse_batch_schedule(text)
    if not schedule or seq_length <= 0:
        return False
    samples = [threshold // seq_length for threshold, _ in schedule]
    rises = all(before < after for before, after in pairwise(samples))
    return samples[0] == 0 and rises and all(size > 0 for _, size in schedule)


def ramp_sizes(ramp: tuple[int, ...], last: int) -> tuple[int, ...]:
    """Return the batch sizes of a ramp-up `start, increment, samples` to `last`; raises `ValueError` where it does not reach
    it.

    The source is megatron/core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatchesCalculator.
    """
    if len(ramp) != 3 or min(ramp[:2]) <= 0 or last < ramp[0] or (last - ramp[0]) % ramp[1]:
        raise ValueError("the ramp-up does not reach the global batch size")
    if (last - ramp[0]) // ramp[1] > _MOST_ENTRIES:
        raise ValueError("the ramp-up has more steps than are listed")
    return tuple(range(ramp[0], last + 1, ramp[1]))


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    return int(float(match[1]) * _SUFFIXES[match[2].upper()]) if match else None
