"""Samples of the cases of a test: the daily suite runs some, the whole suite all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the cases as parameters, all but every `every`-th marked as heavy."""
    return [case if at % every == 0 else pytest.param(case, marks=pytest.mark.heavy) for at, case in enumerate(cases)]
