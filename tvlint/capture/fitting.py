"""Fewer ranks than a launch of Megatron starts, where one machine cannot start them all, that show the same parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import lcm, prod

from tvlint.capture.launch import Launch, LaunchError, number_in

LARGEST_WORLD = 16
"""More ranks than these are not started on one machine."""

TENSOR, STAGES, CONTEXT = "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size"
EXPERTS, EXPERT_TENSOR = "--expert-model-parallel-size", "--expert-tensor-parallel-size"

_REDUCED = (
    (CONTEXT, 4), (EXPERTS, 8), (STAGES, 4), (TENSOR, 4), (EXPERTS, 4), (CONTEXT, 2), (TENSOR, 2), (EXPERTS, 2), (STAGES, 2),
)  # fmt: skip
"""What becomes smaller, one after the other, until the ranks fit: each kind of parallelism stays, and stages in the middle of a
pipeline as long as they can."""

_FIXED_BY = {STAGES: "--pipeline-model-parallel-layout", CONTEXT: "--hierarchical-context-parallel-sizes"}
"""Options that spell out one parallel size, which then is not reduced."""


def fitted(launch: Launch) -> Launch:
    """Return the launch with so few ranks that one machine starts them: two replicas, or as many as experts need.

    Where one replica is too large its parallel sizes are reduced, in the arguments of Megatron that say them.

    Raises LaunchError where even those are more ranks than are started on one machine.
    """
    given = {
        name: size for name in (TENSOR, STAGES, CONTEXT, EXPERTS, EXPERT_TENSOR) if (size := _size(launch.arguments, name))
    }
    if not given.keys() - {EXPERT_TENSOR} or 0 < launch.ranks <= LARGEST_WORLD:
        _refuse_many(launch.ranks)
        return launch
    sizes = dict(given)
    for name, most in _REDUCED:
        if _fewest(sizes) <= LARGEST_WORLD:
            break
        if name in given and not any(_is_option(word, _FIXED_BY.get(name)) for word in launch.arguments):
            sizes[name] = _smaller(sizes[name], most, must_divide=name == TENSOR)
            if EXPERT_TENSOR in sizes:
                sizes[EXPERT_TENSOR] = min(sizes[EXPERT_TENSOR], sizes.get(TENSOR, 1))
    ranks = _fewest(sizes)
    _refuse_many(ranks)
    reduced = {name: size for name, size in sizes.items() if size != given[name]}
    arguments = _with_sizes(launch.arguments, reduced)
    before = tuple((name, given[name]) for name in reduced)
    return replace(launch, ranks=ranks, declared=launch.ranks, arguments=arguments, reduced=before)


def declared_sizes(launch: Launch) -> Mapping[str, int]:
    """Return the sizes of tensor, pipeline and context parallelism that the command of a launch says, by their options."""
    before = dict(launch.reduced)
    return {name: before.get(name) or _size(launch.arguments, name) or 1 for name in (TENSOR, STAGES, CONTEXT)}


def reductions(launch: Launch) -> tuple[str, ...]:
    """Return what of a launch is smaller than its command says, in the words of an assumption."""
    sizes = (f"`{name}` {before} reduced to {_size(launch.arguments, name)}" for name, before in launch.reduced)
    return (*sizes, *((f"ranks {launch.declared} reduced to {launch.ranks}",) if launch.declared else ()))


def _fewest(sizes: Mapping[str, int]) -> int:
    """Return the fewest ranks that hold two replicas, and the experts of each stage."""
    tensor, stages = sizes.get(TENSOR, 1), sizes.get(STAGES, 1)
    within = sizes.get(EXPERTS, 1) * sizes.get(EXPERT_TENSOR, tensor) * stages
    return lcm(2 * prod((tensor, stages, sizes.get(CONTEXT, 1))), within)


def _smaller(size: int, most: int, must_divide: bool) -> int:
    """Return the largest size from 2 to `most`, which divides the declared one where heads are cut by it."""
    return (
        max((each for each in range(2, most + 1) if not must_divide or size % each == 0), default=size) if size > most else size
    )


def _refuse_many(ranks: int) -> None:
    if 0 < ranks <= LARGEST_WORLD:
        return
    text = f"{ranks} ranks are more than" if ranks else "the number of ranks is not known: it must be no more than"
    help = "capture a smaller launch with the same kinds of parallelism"
    raise LaunchError(f"{text} the {LARGEST_WORLD} that are started on one machine", help)


def _is_option(word: str, name: str | None) -> bool:
    return word.partition("=")[0].replace("_", "-") == name


def _size(arguments: Sequence[str], name: str) -> int:
    """Return a parallel size that is among the arguments of Megatron; 0 where it is not."""
    found = 0
    for place, word in enumerate(arguments):
        if _is_option(word, name):
            value = word.partition("=")[2] or (arguments[place + 1] if place + 1 < len(arguments) else "")
            found = number_in(value)
    return found


def _with_sizes(arguments: Sequence[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the arguments with other sizes behind, which parsers of options take."""
    return (*arguments, *(word for name, size in sizes.items() for word in (name, str(size))))
