"""Change modules as they are imported, where the program imports them at all."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then changes it."""

    def __init__(self, loader: importlib.abc.Loader, change: Change) -> None:
        self.loader, self.change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then change it."""
        self.loader.exec_module(module)
        self.change(module)


class Changes(importlib.abc.MetaPathFinder):
    """Finds the modules that are changed, by their names."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self.changes = changes
        self.found: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own specification, with a loader that changes it; None for any other module."""
        if name not in self.changes or name in self.found:
            return None
        self.found.add(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self.changes[name])
        return spec


def change_when_imported(changes: Mapping[str, Change]) -> None:
    """Let modules be changed once they are imported."""
    sys.meta_path.insert(0, Changes(changes))
