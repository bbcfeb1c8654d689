"""Commands of a GitHub workflow in its log, and a log in which there are none."""

from __future__ import annotations

from os import urandom
from typing import Literal, TypeAlias

from tvlint.ir.values import dataclass
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible

Level: TypeAlias = Literal["error", "warning", "notice"]

Properties: TypeAlias = tuple[tuple[Literal["file", "line", "endLine", "col", "endColumn", "title"], "str | int | None"], ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """A remark that GitHub shows; of its properties those without a value are left out."""

    level: Level
    lines: tuple[str, ...]
    properties: Properties


def annotation(remark: Annotation) -> Escaped:
    """Return the command that shows the remark."""
    known = ",".join(f"{name}={_property(str(value))}" for name, value in remark.properties if value is not None)
    return Escaped(f"::{remark.level} {known}::{'%0A'.join(map(_data, remark.lines))}\n")


def folded(title: str, log: Escaped) -> Escaped:
    """Return the log in a group that opens on demand, with all commands in it switched off."""
    token = urandom(16).hex()
    return Escaped(f"::group::{_data(title)}\n::stop-commands::{token}\n{log.text}::{token}::\n::endgroup::\n")


def _data(text: str) -> str:
    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
