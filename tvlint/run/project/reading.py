"""Read a file to a document, or to the problem that says why it cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan

if TYPE_CHECKING:
    from tvlint.ops.annotations.declared import Declared
    from tvlint.readers.document import Document


def read_plan(path: str, operators: tuple[Declared, ...] = ()) -> Plan | Problem:
    """Return the plan in the file, or why there is none."""
    document = read_document(path, operators)
    return document if isinstance(document, Problem) else plan_of(document, path)


def read_document(path: str, operators: tuple[Declared, ...] = ()) -> Document | None | Problem:
    """Return what the file holds, or why it cannot be read."""
    from tvlint.readers.document import ReadError
    from tvlint.readers.read import read

    try:
        return read(path, operators=operators)
    except ReadError as error:
        return error.problem
    except OSError as error:
        return Problem(f"cannot be read: {(error.strerror or 'unknown reason').lower()}", Location(path))


def plan_of(document: Document | None, path: str) -> Plan | Problem:
    """Return the document's plan, or what it is instead."""
    from tvlint.readers.document import NOTHING

    if document is not None and document.plan is not None:
        return document.plan
    if document is None or document.format == NOTHING:
        what = "no format that tvlint reads"
    else:
        what = f"a {'configuration' if document.schedule is None else 'pipeline schedule'} (`{document.format}`)"
    return Problem(f"not a plan: {what}", Location(path), "give a plan pickle, neutral plan JSON or plan text")
