"""Recognise the framework of a program by its imports, where its source lies around the launch script."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tvlint.checkout.opening import is_file, is_there, kept, names_ending, real_path
from tvlint.checkout.top import folder_around, is_within
from tvlint.frameworks.kin import FRAMEWORKS, MEGATRON, framework_of_packages
from tvlint.ir.patterns import Pattern
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
DEEPEST = 24
IMPORT = Pattern(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
NAMES = {folder: name for name, framework in FRAMEWORKS.items() for folder in framework.folders}
PACKAGES = tuple(
    (package.replace(".", os.sep), name)
    for name, framework in FRAMEWORKS.items()
    for package in framework.packages
    if name != MEGATRON and package not in ("deepspeed", "roll", "swift")
)
"""Folders of packages at the top of a repository, or below its `src`, that tell whose it is where they hold Python."""
MAIN = "pretrain_gpt.py"
"""The program that every fork of Megatron-LM has."""


def framework_of_program(program: str, script: str) -> str:
    """Return the framework that `program`, a path or the name of a module, is part of; empty where nothing tells.

    A relative path is looked for in the folders around the script, as programs are started from the top of their repository,
    and from the current folder, for scripts that name their own.
    """
    if not program:
        return ""
    if not program.endswith(".py"):
        return framework_of_packages(frozenset((program,)))
    folder = os.path.abspath(os.path.dirname(script))
    started = from_here(program, script)
    if found := _imported(program.lstrip("./"), folder, script) or (_framework_at(started, script) if started else ""):
        return found
    parts = (re.sub(r"[^a-z]", "", part.lower()) for part in program.split("/")[:-1])
    named = next((NAMES[part] for part in parts if part in NAMES), "")
    return named or _imported(os.path.basename(program), folder, script)


def from_here(program: str, script: str) -> str:
    """Return where the path of a program leads from the current folder, in the checkout of the script; empty if to no file.

    A script that names its own folder names it as the script itself was named: from the current folder, or in full.
    """
    path = os.path.abspath(program)
    return path if is_file(path) and is_within(real_path(path), folder_around(script)) else ""


def _imported(program: str, folder: str, script: str) -> str:
    return next(filter(None, (_framework_at(os.path.join(name, program), script) for name in around(folder))), "")


@kept
def framework_of_tree(script: str) -> str:
    """Return the framework in whose repository the script lies; empty where nothing tells."""
    for folder in around(os.path.abspath(os.path.dirname(script))):
        for package, name in PACKAGES:
            if any(names_ending(os.path.join(folder, below, package), ".py") for below in ("", "src")):
                return name
        if found := _framework_at(os.path.join(folder, MAIN), script):
            return found
    return ""


def around(folder: str) -> Iterator[str]:
    """Yield the folder and those above it, up to the top of its repository."""
    for _ in range(DEEPEST):
        yield folder
        above = os.path.dirname(folder)
        if above == folder or is_there(os.path.join(folder, ".git")):
            return
        folder = above


@kept
def _framework_at(path: str, script: str) -> str:
    if not is_file(path):
        return ""
    content = content_within(folder_around(script), path, script, LARGEST)
    if content is None:
        return ""
    return framework_of_packages(frozenset(name.decode() for name in IMPORT.findall(content[1])))
