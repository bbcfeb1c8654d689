"""What shows a launch script, apart from its reader: most files that name settings of Megatron are none."""

from __future__ import annotations

from tvlint.ir.patterns import Pattern
from tvlint.readers.languages import SHELL_NAMES, is_shell

TELLING = Pattern(
    rb"--(?:(?:tensor|pipeline|context|expert)[-_](?:model[-_]|tensor[-_])?parallel[-_]size|num[-_]attention[-_]heads"
    rb"|(?:micro|global)[-_]batch[-_]size|sequence[-_]parallel)"
)
OVERRIDES = Pattern(rb"\.(?:tensor|pipeline|context|expert)_(?:model_|tensor_)?parallel_size=")

LARGEST_STARTER = 1 << 18
STARTER = Pattern(rb"\b(?:(?:ba|z|k|da)?sh|sbatch)[ \t]|[./]/")
SCRIPT = Pattern(rb"\.(?:sh|bash|sbatch|slurm)\b")
"""What stands in a line that starts another script in a shell of its own: the command or a path, and the name of the script."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that names options of Megatron, or like one that starts others."""
    return names_options(path, data) or starts_others(path, data)


def names_options(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that names options of Megatron."""
    telling = [found.end() for found in (TELLING.search(data), OVERRIDES.search(data)) if found is not None]
    return bool(telling) and is_shell(path, data, min(telling))


def starts_others(path: str, data: bytes) -> bool:
    """Return whether `data` looks like a shell script that starts another one, and not like an installer with its payload."""
    if not path.lower().endswith(SHELL_NAMES) or len(data) > LARGEST_STARTER or SCRIPT.search(data) is None or b"\0" in data:
        return False
    lines = (line for line in data.splitlines() if not line.lstrip().startswith(b"#"))
    return any(SCRIPT.search(line) and STARTER.search(line) for line in lines)
