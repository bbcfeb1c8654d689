"""Files that a script sources, and what its SBATCH lines say; nothing outside the script's repository is opened."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tvlint.checkout.following import content_named
from tvlint.checkout.top import folder_around
from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.state import State, directory_of
from tvlint.readers.shell.values import Scalar, Source, Span, Text, Value

DEEPEST_SOURCE = 8
MOST_SOURCES = 32
LARGEST = 1 << 20

SBATCH = Pattern(r"^#SBATCH[ \t]+(.*)$", re.MULTILINE)
SBATCH_OPTION = Pattern(
    r"(?:(?<=\s)|^)(?:(--nodes|--ntasks-per-node|--gpus-per-node|--ntasks|--gres)(?:=|[ \t]+)|(-N|-n)[ \t]*)([\w:]+)"
)
NAMES = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "-n": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_ON_NODE",),
}


def sbatch_variables(source: Source) -> dict[str, Value]:
    """Return the SLURM variables whose numbers the `#SBATCH` lines of the script give."""
    found: dict[str, Value] = {}
    if "#SBATCH" not in source.text:
        return found
    for line in SBATCH.finditer(source.text):
        text = line[1].partition(" #")[0]
        for match in SBATCH_OPTION.finditer(text):
            flag = match[1] or match[2]
            number = re.fullmatch(r"(?:gpu(?::[A-Za-z]\w*)?:)?(\d{1,6})", match[3])
            if number is None:
                continue
            start = line.start(1) + match.start(3) + number.start(1)
            value = Scalar((Text(number[1], Span(source, start, start + len(number[1]))),))
            found.update(dict.fromkeys(NAMES[flag], value))
    return found


def find_sourced(state: State, target: str) -> tuple[str, bytes] | None:
    """Return the path and content of the file that `source target` reads; None where it is not found or not to be opened."""
    if state.sources >= DEEPEST_SOURCE or state.trace.sourced >= MOST_SOURCES or not target or "\0" in target:
        return None
    here = directory_of(state.source)
    for folder in (here, folder_around(state.source.path), os.curdir):
        path = str(Path(folder, target))
        try:
            data = content_named(path, state.source.path, LARGEST)
        except OSError:
            continue
        state.trace.sourced += 1
        return path, data
    return None
