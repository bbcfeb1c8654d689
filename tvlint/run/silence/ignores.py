"""Findings that a comment silences: `# tvlint: ignore[rule-name] reason`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from tvlint.checkout.following import may_be_shown
from tvlint.checkout.opening import content
from tvlint.checkout.top import folder_around
from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.near_names import did_you_mean
from tvlint.run.silence.intervals import Intervals, Lines

MAXIMAL_SIZE = 4 << 20
"""Bytes of the largest file in which comments are looked for."""
RULE = "unused-ignore"
_MOST_NAMED = 3
"""So many names of one comment that are no rules are listed."""
_COMMENT = Pattern(r"(?:^|\s)(#\s*tvlint:\s*ignore(-file)?\b(?:\s*\[([^\]\n]*)\])?)(.*)")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One rule that one comment silences, on the lines `first` to `last`."""

    rule: str
    location: Location
    first: int
    last: int
    removal: Edit | None = None
    """The edit that takes the comment out, where it says nothing else."""


def ignores(path: str) -> tuple[Ignore, ...]:
    """Return the comments of a text file; none where it is not text, or no regular file, as a plan may name anything as its
    source.

    A comment at the end of a line is about that line; one on a line of its own about the next statement, which goes on over
    lines that end with a backslash; `ignore-file` about the whole file.
    """
    try:
        data = content(path, MAXIMAL_SIZE)
        if b"tvlint:" not in data or b"\0" in data:
            return ()
        lines = data.decode("utf-8-sig").splitlines()
    except (OSError, ValueError):
        return ()
    found: list[Ignore] = []
    statements = _statements(lines)
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        alone = not line[: comment.start(1)].strip()
        first, last = statements[number] if alone else (number, number)
        if comment[2]:
            first, last = 1, len(lines)
        start = comment.start(1) + 1
        location = Location(path, number, start, number, start + len(comment[1]))
        names = [name.strip() for name in (comment[3] or "").split(",") if name.strip()]
        removal = _removal(path, number, line, comment, alone) if len(names) < 2 else None
        found += [Ignore(name, location, first, last, removal) for name in names or [""]]
    return tuple(found)


def _removal(path: str, number: int, line: str, comment: re.Match[str], alone: bool) -> Edit | None:
    if "tvlint:" in comment[4]:
        return None
    start = len(line[: comment.start(1)].rstrip())
    span = (number, 1, number + 1, 1) if alone else (number, start + 1, number, len(line) + 1)
    return Edit(Location(path, *span), "")


def first_line(lines: Sequence[str], number: int) -> int:
    """Return the line on which the statement begins that a line belongs to."""
    while number > 1 and lines[number - 2].rstrip().endswith("\\"):
        number -= 1
    return number


def _statements(lines: list[str]) -> list[tuple[int, int]]:
    """Return the first and the last line of the next statement after each line, and before them that of the first one."""
    spans = [(len(lines) + 1, len(lines) + 1)]
    last = len(lines)
    for number in range(len(lines), 0, -1):
        text = lines[number - 1].strip()
        if not text.endswith("\\") or number == len(lines):
            last = number
        spans.append(spans[-1] if not text or text.startswith("#") else (number, last))
    return spans[::-1]


def silence(
    findings: Iterable[Finding], checked: Iterable[str], judged: Callable[[str, str], bool], known: Iterable[str]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that no comment silences, with one for each comment that silences nothing, and the silenced ones.

    A comment counts where the finding or a related place stands, in a file that was checked or whose lines may be shown.
    `judged(path, rule)` says whether the rule had the chance to speak on the file in this run; a comment about one that had
    not is left alone.
    """
    kept: list[Finding] = []
    hidden: list[Finding] = []
    comments = {path: _Comments(ignores(path)) for path in checked}
    folders = {os.path.realpath(os.curdir), *map(folder_around, comments)}
    silenced: dict[tuple[str, str], list[Lines]] = {}
    for finding in findings:
        places = [place for place in (finding.location, *(related.location for related in finding.related)) if place.line]
        for path in {place.path for place in places} - comments.keys():
            shown = any(may_be_shown(path, folder) for folder in folders)
            comments[path] = _Comments(ignores(path) if shown else ())
        hit = [place for place in places if comments[place.path].reach(finding.rule, _lines(place))]
        for place in hit:
            silenced.setdefault((place.path, finding.rule), []).append(_lines(place))
        (hidden if hit else kept).append(finding)
    names = frozenset(known)
    for path, comment in comments.items():
        used = {rule: Intervals(silenced.get((path, rule), ())) for rule in {ignore.rule for ignore in comment.all}}
        unheard: dict[tuple[Location, str | None], list[Ignore]] = {}
        for ignore in comment.all:
            is_rule = not ignore.rule or ignore.rule in names
            hits = used[ignore.rule].meet((ignore.first, ignore.last))
            if not hits and (ignore.rule not in names or judged(path, ignore.rule)):
                unheard.setdefault((ignore.location, ignore.rule if is_rule else None), []).append(ignore)
        kept += [_unused(members, names) for members in unheard.values()]
    return tuple(kept), tuple(hidden)


class _Comments:
    """The comments of one file, and which lines they are about."""

    def __init__(self, all: tuple[Ignore, ...]) -> None:
        self.all = all
        lines: dict[str, list[Lines]] = {}
        for ignore in all:
            lines.setdefault(ignore.rule, []).append((ignore.first, ignore.last))
        self._about = {rule: Intervals(value) for rule, value in lines.items()}

    def reach(self, rule: str, lines: Lines) -> bool:
        """Return whether a comment about the rule is about one of the lines."""
        return rule in self._about and self._about[rule].meet(lines)


def _lines(place: Location) -> Lines:
    return place.line or 0, place.end_line or place.line or 0


def _unused(members: Sequence[Ignore], known: frozenset[str]) -> Finding:
    """Return what is said of a name of a comment that silences nothing, and of all its names at once that are no rules."""
    ignore = members[0]
    if not ignore.rule:
        message, help = "the comment names no rule and ignores nothing", "write `# tvlint: ignore[rule-name] reason`"
    elif ignore.rule not in known:
        more = f" and {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else ""
        listed = ", ".join(f"`{each.rule}`" for each in members[:_MOST_NAMED]) + more
        message = f"the comment ignores {listed}, which {'is no rule' if len(members) == 1 else 'are no rules'}"
        help = did_you_mean(ignore.rule, known)
    else:
        message, help = f"the comment ignores `{ignore.rule}`, which finds nothing here", "delete the comment"
    fix = () if ignore.removal is None else (Fix("delete the comment", (ignore.removal,), is_safe=ignore.rule in known),)
    return Finding(RULE, Severity.WARNING, message, ignore.location, help, fixes=fix)
