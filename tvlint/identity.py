"""Identity of findings, independent of line, file and value.

A finding is its rule and what it is about: the section of the file that a configuration stands in, or the operators, tensors
and settings that its message names. Where several are equal, a count tells them apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256

from tvlint.findings import Finding, Reason

_NAME = re.compile(r"`([^`]*)`")
_GENERATED = re.compile(r"(?<![.\d])(?:_?\d+)+$")
"""The number at the end of a name that a tracer made: `t550`, `linear_25_1`; the next trace gives another one."""
_LINE = re.compile(r"line \d+")
"""A section that has no name but the line at which it starts."""


def fingerprint(finding: Finding) -> str:
    """Return the print of the finding; equal findings of a file have the same."""
    return _printed((finding.rule, *_about(finding.about, finding.message)))


def reason_fingerprint(reason: Reason) -> str:
    """Return the print of a reason of a verdict."""
    return _printed((reason.name, reason.operator, *_about(None, reason.message)))


def numbered(prints: Iterable[str]) -> Sequence[str]:
    """Return each print with `:1`, `:2` and so on, for the first, second and so on of its equals."""
    seen: Counter[str] = Counter()
    found = []
    for each in prints:
        seen[each] += 1
        found.append(f"{each}:{seen[each]}")
    return found


def _about(about: tuple[str, ...] | None, message: str) -> Iterable[str]:
    if about is None:
        return (_GENERATED.sub("", name) for name in _NAME.findall(message))
    return (name for name in about if not _LINE.fullmatch(name))


def _printed(parts: Iterable[str]) -> str:
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
