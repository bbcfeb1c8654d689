"""Pipeline schedules as CSV of `torch.distributed.pipelining`: a row a rank, a cell an action, a blank cell an idle slot."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.location import Location
from tvlint.ir.schedule import COMPUTE, WITHOUT_MICRO_BATCH, Action, ActionKind, Row, Schedule
from tvlint.ir.values import dataclass, field
from tvlint.readers.document import Document, ReadError

MAXIMAL_CELLS = 1_000_000
MAXIMAL_RANKS = 20_000
MAXIMAL_SHOWN = 40
"""Characters of an unreadable cell that a message repeats."""
MAXIMAL_FINDINGS = 20
"""Unreadable cells that are reported one by one."""

_KINDS = "|".join(sorted((kind.value for kind in ActionKind if kind is not ActionKind.OVERLAP), key=len, reverse=True))
_ACTION = re.compile(rf"([0-9]+)(BW|{_KINDS})([0-9]*)")
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_LINE = re.compile(r"\r\n|\n|\r")
_LARGEST = 999_999
_OLD = {"B": "I", "BW": "B"}
"""What the letters of releases before December 2024 are called today."""


def is_action(cell: str) -> bool:
    """Return whether the text of a cell is an action as it is written."""
    match = _ACTION.fullmatch(cell)
    if match is None:
        return _OVERLAP.fullmatch(cell) is not None
    return match[2] == "BW" or bool(match[3]) != (ActionKind(match[2]) in WITHOUT_MICRO_BATCH)


def read(path: str, text: str) -> Document:
    """Return the schedule in `text`, with a finding for each cell that is no action; raises ReadError where it is too large."""
    cells = text.count(",") + text.count("\n") + text.count("\r")
    if cells > MAXIMAL_CELLS:
        raise ReadError(f"the schedule has {cells:,} cells, more than the {MAXIMAL_CELLS:,} that are read", Location(path))
    lines = _LINE.split(text)
    if lines[-1] == "":
        lines.pop()
    if len(lines) > MAXIMAL_RANKS:
        raise ReadError(f"the schedule has {len(lines):,} rows, more than the {MAXIMAL_RANKS:,} that are read", Location(path))
    reading = _Reading(path, old=_is_old(text))
    rows = tuple(
        Row(tuple(reading.row(line, number)), Location(path, number, 1, number, len(line) + 1))
        for number, line in enumerate(lines, 1)
    )
    schedule = Schedule(path, rows, reading.unreadable)
    reading.idle(schedule)
    return Document(path, "schedule-csv", schedule=schedule, findings=tuple(reading.said()))


def _is_old(text: str) -> bool:
    """Return whether `B` is an input gradient: there is a `BW`, or every `B` has a `W` of its own and nothing is called `I`."""
    if re.search(r"[0-9]BW[0-9]", text) is not None:
        return True
    if re.search(r"[0-9]I[0-9]", text) is not None or re.search(r"[0-9]W[0-9]", text) is None:
        return False
    inputs, weights = (set(re.findall(rf"\b([0-9]+){kind}([0-9]+)", text)) for kind in "BW")
    return inputs == weights


@dataclass(slots=True)
class _Reading:
    """The state of reading the cells."""

    path: str
    old: bool
    unreadable: int = 0
    findings: list[Finding] = field(default_factory=list)
    olds: list[tuple[str, Location]] = field(default_factory=list)
    blanks: list[Location] = field(default_factory=list)

    def row(self, line: str, number: int) -> Iterator[Action]:
        """Yield the actions of one row."""
        start = 1
        for cell in line.split(","):
            text = cell.strip()
            column = start + len(cell) - len(cell.lstrip())
            start += len(cell) + 1
            location = Location(self.path, number, column, number, column + len(text))
            if len(text) > 1 and text[0] == text[-1] == '"':
                text = text[1:-1].strip()
            if not text:
                self.blanks.append(location)
                continue
            action = self.overlap(text, location) if text[0] == "(" else self.action(text, location)
            if action is None:
                self.unreadable += 1
            else:
                yield action

    def action(self, text: str, location: Location) -> Action | None:
        """Return the action that `text` is; with a finding, the one that `text` begins with, or None."""
        match = _ACTION.match(text)
        if match is None:
            self.wrong(text, location, "is no action", "write <stage><kind><micro-batch>, such as `0F3` or `1SEND_F0`")
            return None
        stage, name, micro_batch = match.groups()
        if len(stage) > 6 or len(micro_batch) > 6:
            self.wrong(text, location, f"has a number above {_LARGEST:,}", "number pipeline stages and micro-batches from 0")
            return None
        if name == "BW" or (self.old and name in _OLD):
            self.olds.append((text, location))
            name = _OLD[name]
        kind = ActionKind(name)
        alone = kind in WITHOUT_MICRO_BATCH
        if match.end() < len(text):
            help = f"PyTorch reads `{match[0]}` and ignores the rest; separate actions with commas"
            self.wrong(text, location, f"has `{_short(text[match.end() :])}` after the action `{match[0]}`", help)
        elif alone and micro_batch:
            help = f"write `{stage}{kind.value}`"
            self.wrong(text, location, f"names a micro-batch, but `{kind.value}` is about all of them", help)
        elif not alone and not micro_batch:
            self.wrong(text, location, f"names no micro-batch, which `{kind.value}` needs", f"write it: `{text}0`")
        if alone or micro_batch:
            return Action(kind, int(stage), -1 if alone else int(micro_batch), location)
        return None

    def overlap(self, text: str, location: Location) -> Action | None:
        """Return the overlap of a forward and a backward that `text` is, or None with a finding."""
        match = _OVERLAP.fullmatch(text)
        help = "write `(<stage>F<micro-batch>;<stage>B<micro-batch>)OVERLAP_F_B`"
        if match is None:
            self.wrong(text, location, "is no overlap of two actions", help)
            return None
        members = [self.action(part.strip(), location) for part in match[1].split(";") if part.strip()]
        if any(member is None for member in members):
            return None
        known = [member for member in members if member is not None]
        kinds = [member.kind for member in known]
        if kinds.count(ActionKind.FORWARD) != 1 or len(kinds) != 2 or not set(kinds) & _BACKWARD:
            self.wrong(text, location, "does not overlap one forward with one backward", help)
            return None
        return Action(ActionKind.OVERLAP, -1, -1, location, tuple(known))

    def wrong(self, text: str, location: Location, what: str, help: str) -> None:
        """Report a cell."""
        self.findings.append(_unreadable(f"`{_short(text)}` {what}", location, help))

    def idle(self, schedule: Schedule) -> None:
        """Report blank cells of a schedule in which every step is spelled out."""
        if not self.blanks or not schedule.communicates:
            return
        filled = {row.location.line for row in schedule.ranks if row.actions}
        inside = [location for location in self.blanks if location.line in filled]
        if inside:
            more = f" ({len(inside)} of them)" if len(inside) > 1 else ""
            help = "delete it; only schedules without communication may have idle slots"
            self.findings.append(_unreadable(f"a blank cell in a schedule with communication{more}", inside[0], help))

    def said(self) -> Iterator[Finding]:
        """Yield all findings, the unreadable cells cut to the first."""
        yield from self.findings[:MAXIMAL_FINDINGS]
        if len(self.findings) > MAXIMAL_FINDINGS:
            more = len(self.findings) - MAXIMAL_FINDINGS
            yield _unreadable(f"{more:,} more cells are no actions", self.findings[MAXIMAL_FINDINGS].location, "")
        if self.olds:
            text, location = next((old for old in self.olds if "BW" in old[0]), self.olds[0])
            yield Finding(
                "schedule-old-spelling",
                Severity.ERROR,
                f"`{_short(text)}` is the spelling of an old PyTorch, in which `BW` is the whole backward and `B` its input "
                f"gradient ({len(self.olds):,} cells)",
                location,
                "write `I` for `B` and `B` for `BW`; today's PyTorch reads another schedule",
                fixes=tuple(self.respelled()),
            )

    def respelled(self) -> Iterator[Fix]:
        """Yield the fix that writes every cell in today's letters; none where one is part of a longer cell."""
        edits = []
        for text, place in self.olds:
            match = _ACTION.match(text)
            if match is None or (place.end_column or 0) - (place.column or 0) != len(text):
                return
            start, end = match.span(2)
            edits.append(Edit(place, f"{text[:start]}{_OLD[match[2]]}{text[end:]}"))
        yield Fix("write `I` for `B` and `B` for `BW`", tuple(edits), is_safe=True)


_BACKWARD = COMPUTE - {ActionKind.FORWARD, ActionKind.OVERLAP}


def _unreadable(message: str, location: Location, help: str) -> Finding:
    return Finding("schedule-unreadable-action", Severity.ERROR, message, location, help)


def _short(text: str) -> str:
    return text if len(text) <= MAXIMAL_SHOWN else text[: MAXIMAL_SHOWN - 1] + "…"
