"""Bindings of names at one point of a script; a branch starts with all of them and costs what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Bindings(MutableMapping[str, T], Generic[T]):
    """A mapping that `fork` copies without walking it, and that knows which names were set since.

    The layers below the last one are shared by forks and never change. A layer that is not much larger than the one above it
    is merged with it before they are shared, so that n names lie in O(log n) layers.
    """

    def __init__(self, initial: Mapping[str, T] | None = None) -> None:
        self._layers: list[dict[str, T | None]] = [dict(initial or {})]
        self._set: list[str] = []

    def fork(self) -> Bindings[T]:
        """Return a copy that a branch may change."""
        self._share()
        copy: Bindings[T] = Bindings()
        copy._layers = [*self._layers[:-1], {}]
        return copy

    def now(self) -> int:
        """Return the present moment, for `set_since`."""
        return len(self._set)

    def set_since(self, moment: int = 0) -> Iterator[str]:
        """Yield the names that were set or removed since `moment`, by default since the fork."""
        yield from self._set[moment:]

    def _share(self) -> None:
        """Put an empty layer on top."""
        if self._layers[-1]:
            while len(self._layers) > 1 and len(self._layers[-2]) <= 2 * len(self._layers[-1]):
                self._layers[-2:] = [{**self._layers[-2], **self._layers[-1]}]
            self._layers.append({})

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        for layer in reversed(self._layers):
            if name in layer:
                value = layer[name]
                return default if value is None else value
        return default

    def __getitem__(self, name: str) -> T:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __setitem__(self, name: str, value: T) -> None:
        self._layers[-1][name] = value
        self._set.append(name)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._layers[-1][name] = None
        self._set.append(name)

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys(name for layer in self._layers for name in layer)
        return (name for name in names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
