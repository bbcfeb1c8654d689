"""What a part of a program does with its model: it trains it, runs it forward alone, or serves it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from tvlint.frameworks.kin import FRAMEWORKS
from tvlint.ir.configuration import Configuration


class Role(Enum):
    """The roles of the models of reinforcement learning."""

    TRAINS = "trains"
    SCORES = "scores"
    """It runs forward alone: a reference or a reward model."""
    SERVES = "serves"
    """An inference engine draws samples of it."""


_SERVES = frozenset({"rollout", "inference", "generation"})
_SCORES = frozenset({"ref", "reference", "reward", "reward_model", "teacher"})


def serves(path: Iterable[str]) -> bool:
    """Return whether the section at a path is of an inference engine."""
    return not _SERVES.isdisjoint(path)


def role_of(configuration: Configuration) -> Role:
    """Return the role that frameworks of reinforcement learning give the section of their configuration."""
    framework = FRAMEWORKS.get(configuration.framework)
    names = frozenset(configuration.section.split(".") if framework is not None and framework.has_roles else ())
    return Role.SERVES if serves(names) else Role.SCORES if names & _SCORES else Role.TRAINS
