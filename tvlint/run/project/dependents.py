"""Files that depend on others: those that tvlint opens these for, as it reads them.

Reading every file of a project to find out takes as long as judging it. Read are the files that mention one of the others, or
a file that does: what is opened is named somewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from tvlint.checkout.opening import content, recording
from tvlint.readers.document import ReadError
from tvlint.readers.read import read

LARGEST = 1 << 20
"""Bytes of the largest file that is searched for names."""
_NAMED_WITHOUT_ENDING = (".yaml", ".yml")
_NAME = re.compile(rb"[\w.-]+")
_COMPUTED = re.compile(rb"^\s*(?:source|\.)\s[^\n]*\$", re.MULTILINE)
"""A name that is put together when the script runs."""


def dependents(files: Iterable[str], others: Collection[str]) -> list[str]:
    """Return those of the files that depend on one of `others`, themselves left out."""
    wanted = {os.path.realpath(path) for path in others}
    texts = {path: text for path in files if os.path.realpath(path) not in wanted and (text := _text(path))}
    return [path for path in _mentioning(texts, others) if not wanted.isdisjoint(_opened(path))]


def _mentioning(texts: dict[str, bytes], others: Collection[str]) -> list[str]:
    """Return the files that mention one of the others, or one that does; and those that compute what they name."""
    names, known = _names(others), _names((*texts, *others))
    more = [path for path, text in texts.items() if _COMPUTED.search(text)]
    if not more and not any(name in text for text in texts.values() for name in names):
        return []
    odd = [name for name in known if _NAME.fullmatch(name) is None]
    left = {path: _mentioned(text, known, odd) for path, text in texts.items()}
    while more or names:
        more += [path for path, value in left.items() if not value.isdisjoint(names)]
        for path in more:
            left.pop(path, None)
        names, more = _names(more), []
    return [path for path in texts if path not in left]


def _mentioned(text: bytes, known: set[bytes], odd: Iterable[bytes]) -> set[bytes]:
    """Return those of the known names that the text mentions, with or without what follows a dot."""
    found = {name for name in odd if name in text}
    for word in set(_NAME.findall(text)):
        while word:
            if word in known:
                found.add(word)
            word = word.rpartition(b".")[0]
    return found


def _names(paths: Iterable[str]) -> set[bytes]:
    """Return what files are called by those who name them."""
    names = {os.path.basename(path) for path in paths}
    names |= {os.path.splitext(name)[0] for name in names if name.lower().endswith(_NAMED_WITHOUT_ENDING)}
    return {os.fsencode(name) for name in names}


def _opened(path: str) -> set[str]:
    """Return what reading each of the files asks of the disk."""
    with recording() as asked, suppress(ReadError, OSError):
        read(path)
    return {os.path.realpath(path) for name, path, *_ in asked.all() if name in ("content", "is_file")}


def _text(path: str) -> bytes:
    """Return the text of the file; empty for one that is none, or too large to name files."""
    try:
        data = content(path, LARGEST)
    except OSError:
        return b""
    return b"" if b"\0" in data[:1024] else data
