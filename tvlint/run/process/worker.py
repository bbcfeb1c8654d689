"""The steps of a run, and the process that does them and is ended where one takes more than its budget.

The work is a sequence of steps, each about one file. What a step finds is put down in a journal that both processes hold.
Where the system ends the worker in the middle of a step, for time, memory or stack, another worker takes up the journal: what
is in it is not done again, the step that failed is a problem of its file, and the rest is done.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO, TypeAlias, TypeVar

from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.run.process.budget import Budget, words
from tvlint.run.process.child import OUT_OF_MEMORY

T = TypeVar("T")
Unfinished: TypeAlias = Callable[[list[Any], Problem], T]
"""What a step that comes to no end gives: of what it has kept, in order, and of what it would need more of."""


class Steps:
    """Steps of a run in this process, where nothing ends them: memory and nesting are as large as they are."""

    def __init__(self) -> None:
        self._kept: list[object] = []

    def set_budget(self, budget: Budget) -> None:
        """Give all further steps another budget."""

    def do(
        self, path: str, work: Callable[[], T], what: str = "the file", unfinished: Unfinished[T] | None = None
    ) -> T | Problem:
        """Return what `work` finds about the file, or that `what` needs more than there is.

        Where the work has kept something, that is what `unfinished` makes of all that it kept, and of what is needed.
        """
        self._kept = []
        try:
            return work()
        except MemoryError:
            problem = Problem(f"{what} needs more memory than there is", Location(path), unfinished=True)
        except RecursionError:
            problem = _nested(path, what)
        return _as_far_as(self._kept, problem, unfinished)

    def keep(self, value: object) -> None:
        """Keep what the step under way has found so far: it is not lost where the step comes to no end."""
        self._kept.append(value)

    def conclude(self, path: str, work: Callable[[], T], what: str = "the report") -> T | Problem:
        """Do what the report needs once the files are read: it has the time of one file, also where the run has none left."""
        return self.do(path, work, what)


@dataclass(frozen=True, slots=True)
class Past:
    """The history of workers: how the last one ended, the processor time of all, and when the first began."""

    death: int
    seconds: float
    started: float


@dataclass(frozen=True, slots=True)
class _Limit:
    """A part of the budget, and how much of it is left for a step."""

    name: str
    amount: float
    left: float

    def problem(self, path: str, what: str) -> Problem:
        """Return that a step about `what` has reached the limit."""
        help = f"`--budget {self.name}={2 * self.amount:g}` gives more, or `budget` in the project file"
        needing = "the run" if self.of_run else what
        return Problem(f"{needing} needs more than {words(self.name, self.amount)}", Location(path), help, unfinished=True)

    @property
    def of_run(self) -> bool:
        return self.name.startswith("run")


@dataclass(frozen=True, slots=True)
class Begun:
    """A step is under way, within these limits."""

    path: str
    what: str
    cpu: _Limit
    wall: _Limit
    memory: _Limit
    first: bool
    """Whether the worker has done nothing before."""

    def reached(self, death: int) -> tuple[_Limit, ...]:
        """Return the limit that a worker reached that ended so; none where it ended otherwise."""
        if death in (OUT_OF_MEMORY, -signal.SIGKILL):
            return (self.memory,)
        return {-signal.SIGPROF: (self.cpu,), -signal.SIGALRM: (self.wall,)}.get(death, ())


@dataclass(frozen=True, slots=True)
class Kept:
    """The step under way has found something, which holds also where it comes to no end."""

    value: object


@dataclass(frozen=True, slots=True)
class Done:
    """A step has come to its end with a value."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """A step has come to its end with an exception; another worker runs it again."""


class Journal:
    """The journal of all steps so far, in a file that its processes share."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, entry: Begun | Kept | Done | Raised) -> None:
        pickle.dump(entry, self._file, pickle.HIGHEST_PROTOCOL)
        self._file.flush()

    def entries(self) -> list[Begun | Kept | Done | Raised]:
        """Return all entries; a last one that was not written to its end is cut off."""
        found = []
        self._file.seek(0)
        whole = 0
        while True:
            try:
                found.append(pickle.load(self._file))
            except (EOFError, pickle.UnpicklingError):
                self._file.seek(whole)
                self._file.truncate()
                return found
            whole = self._file.tell()

    def is_open(self) -> bool:
        """Return whether a step has begun and not come to its end."""
        return any(isinstance(entry, Begun | Kept) for entry in self.entries()[-1:])


class Worker(Steps):
    """Steps in a process that the system ends at the limits of the budget."""

    def __init__(self, journal: Journal, budget: Budget, past: Past) -> None:
        self._journal, self._budget, self._past = journal, budget, past
        entries = journal.entries()
        last = next((place for place in reversed(range(len(entries))) if not isinstance(entries[place], Kept)), 0)
        self._failed = next((entry for entry in entries[last : last + 1] if isinstance(entry, Begun)), None)
        self._kept = [entry.value for entry in entries[last + 1 :] if isinstance(entry, Kept)]
        self._known = deque(entry for entry in entries if isinstance(entry, Done | Raised))
        self._first, self._again = True, False
        self._spent: _Limit | None = None
        for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGVTALRM):
            signal.signal(number, signal.SIG_DFL)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    def set_budget(self, budget: Budget) -> None:
        self._budget = budget

    def do(
        self, path: str, work: Callable[[], T], what: str = "the file", unfinished: Unfinished[T] | None = None
    ) -> T | Problem:
        return self._step(path, work, what, self._limits_of_run, unfinished)

    def keep(self, value: object) -> None:
        super().keep(value)
        if not self._again:
            self._journal.add(Kept(value))

    def conclude(self, path: str, work: Callable[[], T], what: str = "the report") -> T | Problem:
        return self._step(path, work, what, tuple)

    def _step(
        self,
        path: str,
        work: Callable[[], T],
        what: str,
        of_run: Callable[[], tuple[_Limit, ...]],
        unfinished: Unfinished[T] | None = None,
    ) -> T | Problem:
        known = self._known.popleft() if self._known else None
        if isinstance(known, Done):
            return known.value  # type: ignore[return-value]
        if known is None and self._failed is not None:
            failed, self._failed = self._failed, None
            self._spent = next((limit for limit in failed.reached(self._past.death) if limit.of_run), None)
            problem = _problem(failed, self._past.death)
            if problem is not None:
                return self._said(_as_far_as(self._kept, problem, unfinished))
        begun = self._begin(path, what, of_run())
        if isinstance(begun, Problem):
            return self._said(begun)
        if known is None:
            self._journal.add(begun)
        return self._run(begun, work, known is not None, unfinished)

    def _limits_of_run(self) -> tuple[_Limit, ...]:
        """Return what is left of the run's time; only the limit that was reached, where one was."""
        budget = self._budget
        if self._spent is not None:
            return (self._spent,)
        return (
            _Limit("run-cpu", budget.run_cpu, budget.run_cpu - self._past.seconds - time.process_time()),
            _Limit("run-wall", budget.run_wall, budget.run_wall - (time.monotonic() - self._past.started)),
        )

    def _begin(self, path: str, what: str, of_run: tuple[_Limit, ...]) -> Begun | Problem:
        """Return the limits of a step that begins now, or that the run has no more time for it."""
        budget, first, self._first = self._budget, self._first, False
        for limit in of_run:
            if limit.left <= 0 or limit is self._spent:
                return limit.problem(path, what)
        return Begun(
            path,
            what,
            min((_Limit("file-cpu", budget.file_cpu, budget.file_cpu), *of_run[:1]), key=_left),
            min((_Limit("file-wall", budget.file_wall, budget.file_wall), *of_run[1:]), key=_left),
            _Limit("memory", budget.memory, budget.memory),
            first,
        )

    def _run(self, begun: Begun, work: Callable[[], T], again: bool, unfinished: Unfinished[T] | None) -> T | Problem:
        from tvlint.readers.sources.resource_limits import bounded_memory

        self._kept, self._again = [], again
        signal.setitimer(signal.ITIMER_REAL, begun.wall.left)
        signal.setitimer(signal.ITIMER_PROF, begun.cpu.left)
        try:
            with bounded_memory(int(begun.memory.left * (1 << 20))):
                value: T | Problem = work()
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except RecursionError:
            value = _as_far_as(self._kept, _nested(begun.path, begun.what), unfinished)
        except BaseException:
            self._stop()
            if not again:
                self._journal.add(Raised())
            raise
        self._stop()
        return value if again else self._said(value)

    def _stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _said(self, value: T) -> T:
        self._journal.add(Done(value))
        return value


def of_the_run(death: int) -> Problem:
    """Return that a worker was ended before a step began, or the same step again."""
    return Problem(f"the run needs more {_what_of(death)} than there is", Location(os.curdir))


def _problem(begun: Begun, death: int) -> Problem | None:
    """Return why the step came to no end; None where a worker that has done nothing before may still do it."""
    for limit in begun.reached(death):
        return None if limit is begun.memory and not begun.first else limit.problem(begun.path, begun.what)
    if death == -signal.SIGVTALRM:
        help = "what it reads is corrupt or hostile; nothing of this size that is neither needs so much"
        return Problem(f"{begun.what} needs far more time than the size of what it reads explains", Location(begun.path), help)
    return Problem(f"{begun.what} needs more {_what_of(death)} than there is", Location(begun.path), unfinished=True)


def _what_of(death: int) -> str:
    """Return what a process lacked that ended so."""
    if -death in (signal.SIGPROF, signal.SIGALRM, signal.SIGVTALRM):
        return "time"
    if death in (OUT_OF_MEMORY, -signal.SIGKILL):
        return "memory"
    return f"stack ({signal.Signals(-death).name})"


def _nested(path: str, what: str) -> Problem:
    return Problem(f"{what} is nested more deeply than tvlint follows", Location(path))


def _as_far_as(kept: list[object], problem: Problem, unfinished: Unfinished[T] | None) -> T | Problem:
    """Return what a step gives that came to no end."""
    return unfinished(kept, problem) if kept and unfinished is not None else problem


def _left(limit: _Limit) -> float:
    return limit.left
