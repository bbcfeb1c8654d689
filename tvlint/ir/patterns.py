"""Regular expressions that are compiled when they are first used.

A check of one configuration loads a hundred of them and uses twenty; to compile the others is a tenth of its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Pattern"]

if TYPE_CHECKING:
    from re import compile as Pattern
else:
    import re

    class Pattern:
        """What `re.compile` returns, as far as modules use it."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._made_of = (text, flags)

        def __getattr__(self, name: str) -> Any:
            if name not in _USED:
                raise AttributeError(name)
            compiled = re.compile(*self._made_of)
            self.__dict__.update((used, getattr(compiled, used)) for used in _USED)
            return self.__dict__[name]


_USED = ("findall", "finditer", "flags", "fullmatch", "match", "pattern", "search", "split", "sub")
