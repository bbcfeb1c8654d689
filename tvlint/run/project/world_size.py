"""The number of ranks that a comment states: `# tvlint: world-size=64`."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.checkout.opening import content
from tvlint.findings import Problem
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass

MAXIMAL_SIZE = 4 << 20
"""Bytes of the largest file in which comments are looked for."""
MAXIMAL_RANKS = 10**7
_COMMENT = Pattern(r"(?:^|\s)#\s*tvlint:\s*(world-size)\b\s*=?\s*([^\s#]*)")


@dataclass(frozen=True, slots=True)
class Stated:
    """The world sizes that comments of one file state, in order, and the comments that state none."""

    settings: tuple[Setting, ...] = ()
    problems: tuple[Problem, ...] = ()


def stated(path: str) -> Stated:
    """Return the world sizes in the comments of a text file; none where it is no text or too large."""
    try:
        data = content(path, MAXIMAL_SIZE)
        if b"world-size" not in data or b"tvlint:" not in data or b"\0" in data:
            return Stated()
        lines = data.decode("utf-8-sig").splitlines()
    except (OSError, ValueError):
        return Stated()
    settings: list[Setting] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.search(line)
        if comment is None:
            continue
        name = Location(path, number, comment.start(1) + 1, number, comment.end(1) + 1)
        place = Location(path, number, comment.start(2) + 1, number, comment.end(2) + 1)
        text = comment[2]
        if not text.isascii() or not text.isdigit() or len(text) > 8 or not 0 < int(text) <= MAXIMAL_RANKS:
            help = f"write `# tvlint: world-size=N`, with a number of ranks from 1 to {MAXIMAL_RANKS}"
            problems.append(Problem(f"`{text[:40]}` is no number of ranks", place, help))
            continue
        settings.append(Setting("world_size", int(text), "world-size", place, name))
    return Stated(tuple(settings), tuple(problems))


def lacks_world_size(configuration: Configuration) -> bool:
    """Return whether the configuration itself does not say how many ranks run."""
    setting = configuration.settings.get("world_size")
    return setting is None or isinstance(setting.value, Unknown)


def nearest(settings: Sequence[Setting], configuration: Configuration) -> Setting | None:
    """Return the comment that is about the configuration: the last one above where it begins, or else the first of the file."""
    line = configuration.location.line if configuration.location is not None else None
    above = [setting for setting in settings if line is not None and (setting.location.line or 0) <= line]
    return above[-1] if above else settings[0] if settings else None
