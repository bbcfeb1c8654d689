"""Micro-batches in flight and idle time of Megatron's pipeline schedules."""

from __future__ import annotations

from dataclasses import dataclass

BUBBLE_SOURCE = "Narayanan et al. 2021, arxiv.org/abs/2104.04473, section 2.2: (p - 1) / (v m) of the work, for equal stages"


@dataclass(frozen=True, slots=True)
class Bubble:
    """The idle time of a pipeline of equal stages: against the time of the work alone, and against the whole."""

    schedule: str
    stages: int
    virtual: int
    micro_batches: int

    @property
    def of_work(self) -> float:
        return (self.stages - 1) / (self.virtual * self.micro_batches)

    @property
    def of_step(self) -> float:
        return (self.stages - 1) / (self.virtual * self.micro_batches + self.stages - 1)


def bubble(stages: int, virtual: int, micro_batches: int) -> Bubble:
    """Return the bubble of the schedule that Megatron picks for so many pipeline stages and virtual stages in each."""
    if micro_batches <= 0:
        raise ValueError("there is no micro-batch")
    if stages == 1:
        return Bubble("no pipeline", 1, 1, micro_batches)
    return Bubble("interleaved 1F1B" if virtual > 1 else "1F1B", stages, virtual, micro_batches)


def in_flight(stage: int, stages: int, virtual: int, group: int, micro_batches: int | None) -> tuple[int, ...]:
    """Of how many micro-batches a pipeline stage holds activations at the first peak, for each of its virtual stages.

    The forwards before the first backward: `stages - stage` without virtual stages, else 2 (stages - stage - 1) +
    (virtual - 1) group + 1, which take `group` micro-batches of each virtual stage in turn
    (megatron/core/pipeline_parallel/schedules.py:953). Without a number of micro-batches there are enough.
    """
    if virtual == 1:
        held = stages - stage
        return (held if micro_batches is None else min(held, micro_batches),)
    forwards = 2 * (stages - stage - 1) + (virtual - 1) * group + 1
    if micro_batches is not None:
        forwards = min(forwards, virtual * micro_batches)
        group = min(group, micro_batches)
    rounds, rest = divmod(forwards, group * virtual)
    return tuple(rounds * group + min(group, max(0, rest - chunk * group)) for chunk in range(virtual))
