"""Configurations that are composed of others: the `defaults:` of Hydra, and the parent files of NeMo-RL and Primus.

What cannot be found makes everything unknown that it could have set; nothing outside the project is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tvlint.readers.beside import content_within
from tvlint.readers.document import ReadError
from tvlint.readers.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, YamlSequence, documents, merged

LARGEST = 1 << 20
DEEPEST = 12
MOST_FILES = 64
MOST_ENTRIES = 100_000
KEY = "defaults"
PARENTS = "extends"
"""What Primus calls the parent files, which are of any name; the file itself always comes last."""
SELF = "_self_"
UNKNOWN = "???"
"""OmegaConf's own word for a value that is not there yet."""
PACKAGE = re.compile(r"^#[ \t]*@package[ \t]+(\S+)", re.MULTILINE)
NAME = re.compile(r"(?P<absolute>/?)(?P<group>(?:\.{1,2}|[\w.-]+)(?:/(?:\.\.|[\w.-]+))*)(?:@(?P<package>[\w.]+))?")


class Uncertain(Exception):
    """The way in which the parts are joined cannot be told from the files."""


@dataclass(frozen=True, slots=True)
class Part:
    """One entry of a list of defaults: a file without its ending, the package below its parent's, whether it may be absent."""

    file: str
    package: tuple[str, ...]
    optional: bool = False
    absolute: bool = False
    """Whether the file is looked for from the folder of the topmost configuration."""
    whole: bool = False
    """Whether `file` is a path with its ending."""


@dataclass(slots=True)
class _Composing:
    folder: str
    project: str
    visits: Visits
    files: int = 0
    open: list[str] = field(default_factory=list)
    missing: list[tuple[str, ...]] = field(default_factory=list)
    """The packages of what was not found."""


def compose(path: str, root: YamlMapping) -> YamlMapping | None:
    """The configuration that `root`, the content of the file at `path`, is when composed; every node keeps its own place.

    None where it has no defaults, or uses them in a form that is not followed.
    """
    if not any(isinstance(key, YamlScalar) and key.text in (KEY, PARENTS) for key, _ in root.entries):
        return None
    composing = _Composing(os.path.dirname(path) or os.curdir, _project(path), Visits(path, MOST_ENTRIES))
    composing.open.append(os.path.realpath(path))
    try:
        found = _composed(composing, path, root, (), ())
    except (Uncertain, ReadError):
        return None
    return found if isinstance(found, YamlMapping) else None


def _project(path: str) -> str:
    """The folder beyond which no file is opened: the git work tree, else the current folder where it holds the file."""
    try:
        start = Path(os.path.realpath(path)).parent
        for folder in (start, *start.parents):
            if (folder / ".git").exists():
                return str(folder)
        current = Path.cwd()
    except OSError:
        return os.path.dirname(path) or os.curdir
    return str(current) if current in (start, *start.parents) else str(start)


def _composed(composing: _Composing, path: str, root: YamlMapping, package: tuple[str, ...], base: tuple[str, ...]) -> YamlNode:
    """The content of one file, joined with its own defaults, at its package."""
    if len(composing.open) > DEEPEST:
        raise Uncertain
    entries = merged(root, composing.visits)
    own: list[tuple[YamlNode, YamlNode]] = [(key, value) for key, value in entries if key.text not in (KEY, PARENTS)]
    mine: YamlNode = _at(YamlMapping(own, root.location), package)
    listed = [value for key, value in entries if key.text in (KEY, PARENTS)]
    if not listed:
        return mine
    if len(listed) > 1:
        raise Uncertain
    parts, place = _parts(listed[0])
    found: YamlNode | None = None
    for number, part in enumerate(parts):
        if number == place:
            found = _joined(found, mine, composing.visits)
        found = _with_part(composing, path, found, part, base)
    if place is None:
        for missing in composing.missing:
            mine = _doubted(mine, missing, composing.visits)
        return _joined(found, mine, composing.visits, settled=False)
    return found if place < len(parts) and found is not None else _joined(found, mine, composing.visits)


def _with_part(composing: _Composing, path: str, found: YamlNode | None, part: Part, base: tuple[str, ...]) -> YamlNode | None:
    folder = composing.folder if part.absolute else os.path.dirname(path) or os.curdir
    package = part.package[1:] if part.package[:1] == ("_global_",) else base + part.package
    wanted = os.path.normpath(os.path.join(folder, part.file if part.whole else part.file + ".yaml"))
    read = _read(composing, wanted)
    if read is None:
        if part.optional:
            return found
        composing.missing.append(package)
        return _doubted(found, package, composing.visits) if found is not None else None
    root, header = read
    if header is not None:
        package = _stated(header, package)
    composing.open.append(os.path.realpath(wanted))
    other = _composed(composing, wanted, root, package, package)
    composing.open.pop()
    return _joined(found, other, composing.visits)


def _stated(header: str, package: tuple[str, ...]) -> tuple[str, ...]:
    """The package that a file's own header names."""
    if header == "_global_":
        return ()
    if header.startswith("_") or not re.fullmatch(r"[\w.]+", header):
        raise Uncertain
    return tuple(header.split("."))


def _read(composing: _Composing, wanted: str) -> tuple[YamlMapping, str | None] | None:
    """The topmost mapping of a file and its header; None where it is not there, or no single mapping."""
    composing.files += 1
    if composing.files > MOST_FILES or os.path.realpath(wanted) in composing.open:
        raise Uncertain
    content = content_within(composing.project, wanted, LARGEST)
    if content is None:
        return None
    root = _parsed(*content)
    if root is None:
        return None
    header = PACKAGE.search(content[1][:4096].decode(errors="replace"))
    return root, header[1] if header else None


@lru_cache(maxsize=24)
def _parsed(path: str, data: bytes) -> YamlMapping | None:
    try:
        roots = list(documents(path, data.decode().removeprefix("\ufeff")))
    except (ReadError, UnicodeDecodeError):
        return None
    return roots[0] if len(roots) == 1 and isinstance(roots[0], YamlMapping) else None


def _parts(listed: YamlNode) -> tuple[list[Part], int | None]:
    """The parts of a list of defaults in order, and before which of them the file itself stands; None where it does not say."""
    if isinstance(listed, YamlScalar):
        return [_file(listed)], 1
    if not isinstance(listed, YamlSequence):
        raise Uncertain
    names = [item.text for item in listed.items if isinstance(item, YamlScalar)]
    if len(names) == len(listed.items) and names and all(name.endswith((".yaml", ".yml")) for name in names):
        return [_file(item) for item in listed.items if isinstance(item, YamlScalar)], len(names)
    parts: list[Part] = []
    place: int | None = None
    for item in listed.items:
        if isinstance(item, YamlScalar) and item.text == SELF:
            place = len(parts)
        elif isinstance(item, YamlScalar):
            parts.append(_entry(item.text, None))
        else:
            parts.extend(_chosen(item))
    return parts, place


def _file(item: YamlScalar) -> Part:
    if "$" in item.text or not item.text.endswith((".yaml", ".yml")):
        raise Uncertain
    return Part(item.text, (), whole=True)


def _chosen(item: YamlNode) -> Iterator[Part]:
    """The parts of an entry `group: option`."""
    if not isinstance(item, YamlMapping) or len(item.entries) != 1:
        raise Uncertain
    key, value = item.entries[0]
    if not isinstance(key, YamlScalar):
        raise Uncertain
    words = key.text.split()
    if words and words[-1].lstrip("/").partition("/")[0] == "hydra":
        return
    if not words or words[0] == "override" or len(words) > 2 or (len(words) == 2 and words[0] != "optional"):
        raise Uncertain
    if isinstance(value, YamlScalar) and value.plain and value.text in ("null", "~", ""):
        return
    for option in value.items if isinstance(value, YamlSequence) else (value,):
        if not isinstance(option, YamlScalar):
            raise Uncertain
        part = _entry(words[-1], option.text)
        yield Part(part.file, part.package, len(words) == 2, part.absolute)


def _entry(name: str, option: str | None) -> Part:
    match = NAME.fullmatch(name)
    if match is None or (option is not None and not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*", option)):
        raise Uncertain
    group = match["group"]
    package = tuple(match["package"].split(".")) if match["package"] else None
    if package is not None and any(part.startswith("_") and part != "_global_" for part in package):
        raise Uncertain
    absolute = bool(match["absolute"])
    if option is None:
        folder, _, _ = group.rpartition("/")
        if package is None and (folder or absolute):
            raise Uncertain
        return Part(group.removesuffix(".yaml"), package or (), absolute=absolute)
    steps = group.split("/")
    if package is None and (absolute or any(step in (".", "..") for step in steps)):
        raise Uncertain
    return Part(f"{group}/{option.removesuffix('.yaml')}", package or tuple(steps), absolute=absolute)


def _at(node: YamlMapping, package: tuple[str, ...]) -> YamlMapping:
    """The mapping below the names of its package."""
    for name in reversed(package):
        node = YamlMapping([(YamlScalar(name, False, node.location), node)], node.location)
    return node


def _joined(found: YamlNode | None, later: YamlNode, visits: Visits, settled: bool = True) -> YamlNode:
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
        entries[key.text] = (key, _joined(old[1], value, visits, settled) if old is not None else value)
    return YamlMapping([(key, value) for key, value in entries.values()], later.location)


def _unknown(node: YamlScalar) -> YamlScalar:
    return YamlScalar(UNKNOWN, False, node.location)


def _doubted(node: YamlNode, package: tuple[str, ...], visits: Visits) -> YamlNode:
    """The node with every value at and below `package` unknown."""
    visits.visit(node.location)
    if isinstance(node, YamlScalar):
        return node if package else _unknown(node)
    if isinstance(node, YamlSequence):
        return node if package else YamlScalar(UNKNOWN, False, node.location)
    entries: list[tuple[YamlNode, YamlNode]] = []
    for key, value in node.entries:
        within = not package or (isinstance(key, YamlScalar) and key.text == package[0])
        entries.append((key, _doubted(value, package[1:], visits) if within else value))
    return YamlMapping(entries, node.location)
