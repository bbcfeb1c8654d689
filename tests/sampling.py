"""Samples of the cases of a test: the daily suite runs some, the whole suite all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the cases as parameters, all but every `every`-th marked as heavy."""
    return sampled_tuples([(case,) for case in cases], every)


def sampled_tuples(cases: Iterable[tuple[Any, ...]], every: int) -> list[Any]:
    """Return the cases, each of several arguments, as parameters, all but every `every`-th marked as heavy."""
    return [pytest.param(*case, marks=[pytest.mark.heavy] if at % every else []) for at, case in enumerate(cases)]
