"""What runs of a pair on numbers show: agreement, a difference, or nothing, for a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvlint.ir.location import Location
from tvlint.ir.operators import Operator

SEEDS = 3
"""So many runs have to show a difference, or all runs none."""

FUNCTIONS = "call what has no numbers"
"""Of plans for whose functions something stood in, and for nothing else."""

DRAWS = "draw random numbers"
"""Of plans for whose random numbers something stood in, and maybe for functions."""

RETURNED = "the gradients agree, and what is returned does not"


@dataclass(frozen=True, slots=True)
class Agreement:
    """All gradients and returned values were those of the reference in each of `SEEDS` runs."""

    sizes: Mapping[int, int] = field(default_factory=dict)
    """As in `Difference`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The gradient of `weight` was another one than the reference's on `ranks`, in each of `SEEDS` runs; or what is left in it,
    a weight or a state, where both plans write out its update; or what is returned under that name, where nothing is trained.

    `error` is the greatest error of the last run, where the greatest element of the reference's is `scale`. `first` is the
    first result in the order of the program that is not the reference's value of that name, and the operator that gives it.
    `invented` says for what something stood in, random numbers or functions that have none. `sizes` are those of dimensions
    that were made smaller for the run, by what they are in the plan.
    """

    weight: str
    ranks: tuple[int, ...]
    error: float
    scale: float
    first: tuple[str, int, Operator] | None
    since: tuple[Operator, ...] = ()
    """What makes the first result out of results that are the reference's, in order, itself last."""
    invented: str = ""
    sizes: Mapping[int, int] = field(default_factory=dict)
    rounds_to: str = ""
    """The narrower type whose casts alone make the difference; empty where others do."""
    of_update: bool = False
    """Whether it is what is left, and no gradient."""
    of_output: bool = False
    """Whether it is what is returned, of plans that train nothing."""
    fails: str = ""
    """How the plan fails on numbers on which the reference runs, and `at`, where it does."""
    at: Location | None = None


@dataclass(frozen=True, slots=True)
class NotRun:
    """Nothing is concluded from numbers, for a reason."""

    why: str
    rounds: bool = False
    """Whether all gradients are the reference's but for what rounding may do."""
    fails: tuple[int, Location | None] | None = None
    """The rank and the place where the plan fails in every framework, if it does."""


NO_NUMBER = NotRun("what the plans give is no number")
"""As where a class is asked for whose score is minus infinity, since only the first classes are ever right."""
