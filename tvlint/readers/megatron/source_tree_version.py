"""Read the version of Megatron of the source tree around a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tvlint.checkout.opening import is_file, is_folder, is_there, kept
from tvlint.frameworks.kin import BEFORE_RELEASES, FRAMEWORKS, parses_like_megatron
from tvlint.ir.configuration import IN_DEVELOPMENT, Configuration
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.sources.sibling_files import content_within

DEEPEST = 24
LARGEST = 64 << 10
PART = Pattern(rb"^(MAJOR|MINOR)[ \t]*=[ \t]*([0-9]{1,4})[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)


def with_version_of_tree(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """Return the configurations; those of Megatron-LM and its forks have the version of the tree around them, where they say
    none.
    """
    return tuple(
        replace(each, version=_version(each)) if parses_like_megatron(each.framework) and not each.version else each
        for each in configurations
    )


def _version(configuration: Configuration) -> str:
    found = _developed(version_of_tree(os.path.dirname(os.path.abspath(configuration.path))))
    return found or FRAMEWORKS[configuration.framework].version


def _developed(version: str) -> str:
    return version + IN_DEVELOPMENT if version else ""


@kept
def version_of_tree(folder: str, depth: int = DEEPEST) -> str:
    """Return the version of the Megatron source tree that `folder` lies in (`0.11`); empty where it lies in none.

    The search for the tree ends at the root of a repository.
    """
    found = _version_at(folder)
    above = os.path.dirname(folder)
    if found or depth == 0 or above == folder or is_there(os.path.join(folder, ".git")):
        return found
    return version_of_tree(above, depth - 1)


def _version_at(folder: str) -> str:
    package = os.path.join(folder, "megatron")
    if not is_folder(package):
        return ""
    file = os.path.join(package, "core", "package_info.py")
    information = content_within(folder, file, file, LARGEST)
    if information is not None:
        parts = {name: int(number) for name, number in PART.findall(information[1])}
        return f"{parts[b'MAJOR']}.{parts[b'MINOR']}" if len(parts) == 2 else ""
    old = not is_there(os.path.join(package, "training", "arguments.py"))
    return BEFORE_RELEASES if old and is_file(os.path.join(package, "arguments.py")) else ""
