"""The generation of the GPUs that a file is for, where its name, a folder around it or what it asks Slurm for names them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from tvlint.ir.patterns import Pattern

GENERATIONS: Mapping[str, str] = {
    **dict.fromkeys(("v100",), "volta"),
    **dict.fromkeys(("a100", "a800"), "ampere"),
    **dict.fromkeys(("h100", "h200", "h800", "h20", "gh200"), "hopper"),
    **dict.fromkeys(("b100", "b200", "b300", "gb200", "gb300"), "blackwell"),
}
"""What NVIDIA sells -> its architecture, oldest first."""
LAST = "blackwell"
_WORD = Pattern(r"[a-z0-9]+")
_OF_SLURM = Pattern(r"--(?:gres[= ]gpu:|gpus(?:-per-(?:node|task))?[= ])(\w+)(?=:|\s|$)", re.MULTILINE)
PARTS = 3
"""So many last parts of a path belong to the file; those before may be of any machine that it lies on."""


def generation_of(path: str, text: str = "") -> str:
    """Return the generation that the path and the text name; empty where they name none, or Blackwell beside another."""
    near = "/".join(path.replace("\\", "/").lower().split("/")[-PARTS:])
    return one_generation(word for word in (*_WORD.findall(near), *_OF_SLURM.findall(text)) if word in GENERATIONS)


def one_generation(names: Iterable[str]) -> str:
    """Return the generation that all of the names are of, the oldest where all are before Blackwell; empty otherwise."""
    found = {GENERATIONS[name] for name in names}
    return "" if len(found) > 1 and LAST in found else oldest(found)


def oldest(generations: Collection[str]) -> str:
    """Return the oldest of the generations; empty where there is none."""
    return next((name for name in dict.fromkeys(GENERATIONS.values()) if name in generations), "")
