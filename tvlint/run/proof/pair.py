"""A parallel plan and its reference: which files, and what they hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tvlint.findings import Finding, Problem
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan
from tvlint.run.process.aside import Aside, pays_off
from tvlint.run.process.session import Progress
from tvlint.run.project.reading import plan_of, read_document, read_plan

if TYPE_CHECKING:
    from tvlint.ops.annotations.declared import Declared


@dataclass(frozen=True, slots=True)
class Pair:
    """A parallel plan and its reference, by path, and the named checks to weaken.

    Without a reference it is the traced graph that lies beside generated code.
    """

    parallel: str
    reference: str
    assume: frozenset[str] = frozenset()
    solver_seconds: float | None = None
    """How long the solver may take on each annotation that a proof relied on; None: it is not asked."""
    operators: tuple[Declared, ...] = ()
    """The operators that the project declares, which decide what the plans mean."""
    replay: bool = False
    """Whether a proved pair is run on random numbers as well."""
    trials: int = 80
    """How many changes of generated code are tried where it is not proved; fewer for code of many lines."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The content of a pair: the parallel plan, for every kind of replica, the reference, and the reader's findings."""

    kinds: tuple[Plan, ...]
    reference: Plan
    findings: tuple[Finding, ...]


def read_pair(
    pair: Pair,
    progress: Progress | None = None,
    known: dict[str, Plan] | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Plans | tuple[Problem, ...]:
    """Return the plans of the pair, or the problems of those that cannot be read.

    `known` are plans that have been read already, by path, and gets those that are read here. `meanwhile` is run as soon as
    other processes have begun to read.
    """
    known = {} if known is None else known
    with ExitStack() as stack:
        aside: dict[str, Aside[Plan | Problem]] = {}
        if pair.reference not in known and pair.parallel not in known and pays_off(_size(pair.reference)):
            aside[pair.reference] = stack.enter_context(Aside(partial(read_plan, pair.reference, pair.operators)))
        if meanwhile is not None:
            meanwhile()
        return _read_pair(pair, progress, known, aside)


def _read_pair(
    pair: Pair, progress: Progress | None, known: dict[str, Plan], aside: dict[str, Aside[Plan | Problem]]
) -> Plans | tuple[Problem, ...]:
    """Return the plans of the pair, or the problems of those that cannot be read; some are read `aside`, by path."""
    plans: list[Plan] = []
    problems: list[Problem] = []
    variants: tuple[Plan, ...] = ()
    said: tuple[Finding, ...] = ()
    for path in (pair.parallel, pair.reference):
        if progress is not None:
            progress(f"reading {Path(path or pair.parallel).name}", 0.0)
        if not path:
            found = _traced(pair, plans[0] if plans else None)
        elif os.path.isdir(path):
            document = read_document(path, pair.operators)
            found = document if isinstance(document, Problem) else plan_of(document, path)
            if path == pair.parallel and not isinstance(document, Problem) and document is not None:
                variants, said = document.variants, document.findings
        else:
            found = known.get(path) or (aside[path].value() if path in aside else read_plan(path, pair.operators))
            if plans and isinstance(found, Plan) and found.format == "nnscaler-graph" and os.path.isdir(pair.parallel):
                known[path] = found
                found = _traced(pair, plans[0], Path(path))
        if isinstance(found, Problem):
            problems.append(found)
            continue
        plans.append(found)
        if path:
            known.setdefault(path, found)
    return tuple(problems) if problems else Plans((plans[0], *variants), plans[1], said)


def _size(path: str) -> int:
    """Return the size of a regular file; 0 for anything else."""
    try:
        information = os.stat(path)
    except (OSError, ValueError):
        return 0
    return information.st_size if stat.S_ISREG(information.st_mode) else 0


def _traced(pair: Pair, parallel: Plan | None, graph: Path | None = None) -> Plan | Problem:
    """Return the traced graph `graph`, else the one that lies beside generated code, with the batch of the whole plan.

    nnScaler traces with the batch of one micro-batch of one replica, whatever the file is called.
    """
    from tvlint.readers.document import ReadError
    from tvlint.readers.nnscaler.gencode.folder import is_folder, reference_of_folder

    folder = pair.parallel
    place = folder if os.path.isdir(folder) else os.path.dirname(folder) or os.curdir
    try:
        found = reference_of_folder(place, parallel, pair.operators, graph) if is_folder(place) else None
    except ReadError as error:
        return error.problem
    if found is None:
        help = "name one with --reference; only a folder of generated code brings its own (`graph.ckp`)"
        return Problem("no reference plan is given", Location(folder), help)
    return found
