"""What shows a launch script, apart from its reader: most files that name settings of Megatron are none."""

from __future__ import annotations

from tvlint.ir.patterns import Pattern
from tvlint.readers.languages import is_shell

TELLING = Pattern(
    rb"--(?:(?:tensor|pipeline|context|expert)[-_](?:model[-_]|tensor[-_])?parallel[-_]size|num[-_]attention[-_]heads"
    rb"|(?:micro|global)[-_]batch[-_]size|sequence[-_]parallel)"
)
OVERRIDES = Pattern(rb"\.(?:tensor|pipeline|context|expert)_(?:model_|tensor_)?parallel_size=")


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that names options of Megatron."""
    telling = [found.end() for found in (TELLING.search(data), OVERRIDES.search(data)) if found is not None]
    return bool(telling) and is_shell(path, data, min(telling))
