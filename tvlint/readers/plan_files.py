"""List the files that a plan is read from."""

from __future__ import annotations

import os

from tvlint.checkout.opening import is_folder, names_in
from tvlint.readers.read import GENERATED_FILE

BESIDE_GENERATED = ("compute_config.pt", "graph.ckp")
"""What is read beside generated code."""


def files_of(path: str) -> tuple[str, ...]:
    """Every file that `read(path)` opens where it holds a plan, and those of the traced graph beside generated code.

    For a file of generated code those of the folder around it. Configurations may read more. Raises OSError where the folder
    cannot be listed.
    """
    if is_folder(path):
        return _generated(path)
    folder, name = os.path.split(path)
    if GENERATED_FILE.fullmatch(name):
        return tuple(dict.fromkeys((path, *_generated(folder or os.curdir))))
    return (path,)


def _generated(folder: str) -> tuple[str, ...]:
    names = [name for name in names_in(folder) if GENERATED_FILE.fullmatch(name) or name in BESIDE_GENERATED]
    return tuple(os.path.join(folder, name) for name in names)
