"""Compose configurations of several files: which files may be opened, and how two contents merge.

What cannot be found makes everything unknown that it could have set; nothing outside the project is opened.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

from tvlint.checkout.opening import is_file, real_path
from tvlint.checkout.top import folder_around
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.sources.sibling_files import content_within
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, YamlSequence, merged, only_document

LARGEST = 1 << 20
DEEPEST = 12
MOST_FILES = 64
MOST_ENTRIES = 100_000
UNKNOWN = "???"
"""OmegaConf's own word for a value that is not there yet."""
PACKAGE = Pattern(r"^#[ \t]*@package[ \t]+(\S+)", re.MULTILINE)


class Uncertain(Exception):
    """The way in which the parts are joined cannot be seen in the files."""


@dataclass(slots=True)
class Composing:
    """One composition: its topmost file, the folder that bounds it, and what it has met."""

    path: str
    project: str
    visits: Visits
    files: int = 0
    open: list[str] = field(default_factory=list)
    missing: list[tuple[str, ...]] = field(default_factory=list)
    """The packages of what was not found."""
    overrides: dict[tuple[str, str], YamlNode] = field(default_factory=dict)
    """What outer files choose of a group: by its folder and its package as written, empty where none is."""
    overridden: set[tuple[str, str]] = field(default_factory=set)
    """The groups of which an override was taken."""
    choices: dict[str, str] = field(default_factory=dict)
    """What is chosen of groups without a package, by their names, which other choices may be made of."""
    searched: tuple[str, ...] = ()
    """Further folders in which parts are looked for."""

    @property
    def folder(self) -> str:
        """The folder of the topmost file."""
        return os.path.dirname(self.path) or os.curdir


def composing(path: str) -> Composing:
    """Return a composition that starts with the file at `path`."""
    found = Composing(path, folder_around(path), Visits(path, MOST_ENTRIES))
    found.open.append(real_path(path))
    return found


def found_at(composing: Composing, wanted: str) -> str:
    """Return where a part is: where it is named, else in the first further folder that has it."""
    name = os.path.relpath(wanted, composing.folder)
    places = (os.path.normpath(os.path.join(folder, name)) for folder in composing.searched)
    return wanted if is_file(wanted) else next(filter(is_file, places), wanted)


def content_of(composing: Composing, wanted: str) -> tuple[YamlMapping, str | None] | None:
    """Return the topmost mapping of a file and the package of its header; None where it is not there, or no single mapping."""
    composing.files += 1
    if composing.files > MOST_FILES or real_path(wanted) in composing.open:
        raise Uncertain
    content = content_within(composing.project, wanted, composing.path, LARGEST)
    if content is None:
        return None
    root = _parsed(*content)
    if root is None:
        return None
    header = PACKAGE.search(content[1][:4096].decode(errors="replace"))
    return root, header[1] if header else None


@lru_cache(maxsize=24)
def _parsed(path: str, data: bytes) -> YamlMapping | None:
    """Return the mapping that a file is; an empty one of an empty file, as Hydra takes it."""
    if not data.strip():
        return YamlMapping([], Location(path))
    root = only_document(path, data)
    return root if isinstance(root, YamlMapping) else None


def at(node: YamlMapping, package: tuple[str, ...]) -> YamlMapping:
    """Return the mapping below the names of its package."""
    for name in reversed(package):
        node = YamlMapping([(YamlScalar(name, False, node.location), node)], node.location)
    return node


def joined(found: YamlNode | None, later: YamlNode, visits: Visits, settled: bool = True) -> YamlNode:
    """Both, where `later` wins; where it is not settled which one does, values that both give are unknown."""
    if not isinstance(found, YamlMapping) or not isinstance(later, YamlMapping):
        return later if settled or found is None or not isinstance(later, YamlScalar) else _unknown(later)
    entries = {key.text: (key, value) for key, value in merged(found, visits)}
    replaces = False
    news = merged(later, visits)
    for key, value in news:
        if key.text == "_override_" and isinstance(value, YamlScalar) and value.text.lower() == "true":
            replaces = True
    if replaces:
        return later
    for key, value in news:
        old = entries.get(key.text)
        entries[key.text] = (key, joined(old[1], value, visits, settled) if old is not None else value)
    return YamlMapping([(key, value) for key, value in entries.values()], later.location)


def _unknown(node: YamlScalar) -> YamlScalar:
    return YamlScalar(UNKNOWN, False, node.location)


def doubted(node: YamlNode, package: tuple[str, ...], visits: Visits) -> YamlNode:
    """Return the node with every value at and below `package` unknown."""
    visits.visit(node.location)
    if isinstance(node, YamlScalar):
        return node if package else _unknown(node)
    if isinstance(node, YamlSequence):
        return node if package else YamlScalar(UNKNOWN, False, node.location)
    entries: list[tuple[YamlNode, YamlNode]] = []
    for key, value in node.entries:
        within = not package or (isinstance(key, YamlScalar) and key.text == package[0])
        entries.append((key, doubted(value, package[1:], visits) if within else value))
    return YamlMapping(entries, node.location)
