"""What shows a launch script, apart from its reader: most files that name settings of Megatron are none."""

from __future__ import annotations

import re

from tvlint.ir.patterns import Pattern
from tvlint.readers.languages import SHELL_NAMES, is_shell

TELLING = Pattern(
    rb"--(?:(?:tensor|pipeline|context|expert)[-_](?:model[-_]|tensor[-_])?parallel[-_]size|num[-_]attention[-_]heads"
    rb"|(?:micro|global)[-_]batch[-_]size|sequence[-_]parallel)"
)
OVERRIDES = Pattern(rb"\.(?:tensor|pipeline|context|expert)_(?:model_|tensor_)?parallel_size=")


STARTS = Pattern(rb"^[^#\n]*(?:\b(?:(?:ba|z|k|da)?sh|sbatch)\s|[./]/)[^#\n]*\.(?:sh|bash|sbatch|slurm)\b", re.MULTILINE)
"""A line that may start another script in a shell of its own."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that names options of Megatron, or like one that starts others."""
    if starts_others(path, data):
        return True
    telling = [found.end() for found in (TELLING.search(data), OVERRIDES.search(data)) if found is not None]
    return bool(telling) and is_shell(path, data, min(telling))


def starts_others(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that starts another one."""
    return path.lower().endswith(SHELL_NAMES) and STARTS.search(data) is not None
