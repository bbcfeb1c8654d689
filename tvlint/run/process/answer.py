"""One answer of a server, found in a process of its own and within a budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.run.process.budget import Budget
from tvlint.run.process.supervisor import file_without_name, supervised
from tvlint.run.process.worker import Done, Journal, Steps

T = TypeVar("T")


def value_of(work: Callable[[Steps], T], path: str, budget: Budget) -> T | Problem:
    """Return what the work finds about the file, done as a command is; where it came to no end, or tvlint failed, a problem."""
    if not hasattr(os, "fork"):
        return work(Steps())
    file = file_without_name()
    journal = Journal(file)

    def command(steps: Steps) -> int:
        try:
            found: T | Problem = work(steps)
        except Exception as error:
            found = Problem(f"internal error: {type(error).__name__}: {error}", Location(path), "tvlint is at fault")
        journal.add(Done(found))
        return 0

    ended = supervised(command, budget, file)
    if isinstance(ended, Problem):
        return Problem(ended.message, Location(path))
    last = journal.entries()[-1]
    return last.value if isinstance(last, Done) else Problem("internal error", Location(path))  # type: ignore[return-value]
