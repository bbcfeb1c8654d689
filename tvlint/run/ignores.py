"""Findings that a comment silences: `# tvlint: ignore[rule-name] reason`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.run.suggest import did_you_mean

MAXIMAL_SIZE = 4 << 20
"""Bytes of the largest file in which comments are looked for."""
RULE = "unused-ignore"
_COMMENT = re.compile(r"(?:^|\s)(#\s*tvlint:\s*ignore(-file)?\b(?:\s*\[([^\]\n]*)\])?)(.*)")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One rule that one comment silences, on the lines `first` to `last`."""

    rule: str
    location: Location
    first: int
    last: int


def ignores(path: str) -> tuple[Ignore, ...]:
    """The comments of a text file; none where it is not text, or no regular file, as a plan may name anything as its source.

    A comment at the end of a line is about that line; one on a line of its own about the next statement, which goes on over
    lines that end with a backslash; `ignore-file` about the whole file.
    """
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAXIMAL_SIZE:
            return ()
        content = Path(path).read_bytes()
        if b"tvlint:" not in content or b"\0" in content:
            return ()
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, ValueError):
        return ()
    found: list[Ignore] = []
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        first, last = _span(lines, number, alone=not line[: comment.start(1)].strip())
        if comment[2]:
            first, last = 1, len(lines)
        start = comment.start(1) + 1
        location = Location(path, number, start, number, start + len(comment[1]))
        names = [name.strip() for name in (comment[3] or "").split(",") if name.strip()]
        found += [Ignore(name, location, first, last) for name in names or [""]]
    return tuple(found)


def _span(lines: list[str], number: int, alone: bool) -> tuple[int, int]:
    if not alone:
        return number, number
    first = number + 1
    while first <= len(lines) and (not lines[first - 1].strip() or lines[first - 1].lstrip().startswith("#")):
        first += 1
    last = first
    while last < len(lines) and lines[last - 1].rstrip().endswith("\\"):
        last += 1
    return first, last


def silence(
    findings: Iterable[Finding], checked: Iterable[str], judged: Callable[[str, str], bool], known: Iterable[str]
) -> tuple[Finding, ...]:
    """The findings that no comment silences, and one for each comment that silences nothing.

    A comment counts where the finding or a related place stands. `judged(path, rule)` says whether the rule had the chance
    to speak on the file in this run; a comment about one that had not is left alone.
    """
    kept: list[Finding] = []
    comments: dict[str, tuple[Ignore, ...]] = {path: ignores(path) for path in checked}
    used: set[Ignore] = set()
    for finding in findings:
        places = (finding.location, *(related.location for related in finding.related))
        for path in {place.path for place in places} - comments.keys():
            comments[path] = ignores(path)
        about = [(place, ignore) for place in places for ignore in comments[place.path] if ignore.rule == finding.rule]
        hits = {ignore for place, ignore in about if _on(ignore, place)}
        used |= hits
        if not hits:
            kept.append(finding)
    names = frozenset(known)
    for path, listed in comments.items():
        for ignore in listed:
            if ignore not in used and (ignore.rule not in names or judged(path, ignore.rule)):
                kept.append(_unused(ignore, names))
    return tuple(kept)


def _on(ignore: Ignore, place: Location) -> bool:
    return place.line is not None and place.line <= ignore.last and (place.end_line or place.line) >= ignore.first


def _unused(ignore: Ignore, known: frozenset[str]) -> Finding:
    if not ignore.rule:
        message, help = "the comment names no rule and ignores nothing", "write `# tvlint: ignore[rule-name] reason`"
    elif ignore.rule not in known:
        message, help = f"the comment ignores `{ignore.rule}`, which is no rule", did_you_mean(ignore.rule, known)
    else:
        message, help = f"the comment ignores `{ignore.rule}`, which finds nothing here", "delete the comment"
    return Finding(RULE, Severity.WARNING, message, ignore.location, help)
