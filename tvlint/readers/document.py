"""The result of reading one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvlint.findings import Finding, Problem
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass

if TYPE_CHECKING:
    from tvlint.ir.plan import Plan
    from tvlint.ir.schedule import Schedule


class ReadError(Exception):
    """The file cannot be read as what its content says it is; carries the located problem to report."""

    def __init__(self, message: str, location: Location, help: str = "") -> None:
        super().__init__(message)
        self.problem = Problem(message, location, help)


def refuse_larger(path: str, data: bytes, largest: int, what: str = "file") -> None:
    """Raise ReadError where the content is longer than the `largest` number of bytes that a reader takes."""
    if len(data) > largest:
        raise ReadError(f"the {what} is {len(data)} bytes long, more than the {largest} that are read", Location(path))


NOTHING = ""
"""The format of a text that no reader follows; only findings are said of it."""


@dataclass(frozen=True, slots=True)
class Document:
    """One file's content: a plan, a pipeline schedule or configurations, and what the reader itself found wrong."""

    path: str
    format: str
    plan: Plan | None = None
    configurations: tuple[Configuration, ...] = ()
    findings: tuple[Finding, ...] = ()
    variants: tuple[Plan, ...] = ()
    schedule: Schedule | None = None
