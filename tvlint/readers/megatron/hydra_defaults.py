"""Configurations that are composed of others: the `defaults:` of Hydra, and the parent files of NeMo-RL and Primus."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from tvlint.checkout.opening import real_path
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, replace
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.composed_files import (
    DEEPEST,
    Composing,
    Uncertain,
    at,
    composing,
    content_of,
    doubted,
    found_at,
    joined,
)
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, merged

KEY = "defaults"
PARENTS = "extends"
"""What Primus calls the parent files, which are of any name; the file itself always comes last."""
SELF = "_self_"
OVERRIDE = "override"
HERE = "_here_"
GLOBAL = "_global_"
FOLDERS = ("hydra", "searchpath")
"""Where a topmost configuration names further folders, from the top of the repository."""
FOLDER = Pattern(r"(?P<kind>file|pkg)://(?P<path>[\w./-]+)")
NAME = Pattern(r"(?P<absolute>/?)(?P<group>(?:\.{1,2}|[\w.-]+)(?:/(?:\.\.|[\w.-]+))*)(?:@(?P<package>[\w.]+))?")
OPTION = Pattern(r"[\w.-]+(?:/[\w.-]+)*")
CHOICE = Pattern(r"\$\{(\w+)\}")
"""The option that is chosen of another group, as a part of the name of an option."""


@dataclass(frozen=True, slots=True)
class Part:
    """One entry of a list of defaults.

    `file` has no ending unless it is `whole`; of a group, it is the group alone and `options` say what is chosen of it.
    """

    file: str
    package: tuple[str, ...]
    options: YamlNode | None = None
    written: str = ""
    """The package as written."""
    optional: bool = False
    absolute: bool = False
    """Whether the file is looked for from the folder of the topmost configuration."""
    whole: bool = False
    overrides: bool = False
    """Whether it only says what another entry chooses."""


def compose(path: str, root: YamlMapping) -> YamlMapping | None:
    """Return the configuration that `root`, the content of the file at `path`, is when composed; every node keeps its own
    place.

    None where it has no defaults, or uses them in a form that is not followed.
    """
    if not is_composed(root):
        return None
    return composed_alone(composing(path), path, root)


def is_composed(root: YamlMapping) -> bool:
    """Return whether the mapping names files that it is composed of."""
    return any(isinstance(key, YamlScalar) and key.text in (KEY, PARENTS) for key, _ in root.entries)


def composed_alone(known: Composing, path: str, root: YamlMapping) -> YamlMapping | None:
    """Return the content of the file at `path`, joined with its own defaults; None where that is not known."""
    known.searched = tuple(_folders(known, root))
    try:
        found = _composed(known, path, root, (), ())
    except (Uncertain, ReadError):
        return None
    if known.overrides.keys() - known.overridden:
        return None
    return found if isinstance(found, YamlMapping) else None


def composed_wholly(path: str, chosen: Mapping[str, str]) -> YamlMapping | None:
    """Return the configuration that the file at `path` is when composed; None where a part of it is not known.

    `chosen` is what a command line chooses of groups, by their names and packages as Hydra writes them (`db@backup`).
    """
    known = composing(path)
    for name, option in chosen.items():
        group, _, package = name.partition("@")
        known.overrides[os.path.normpath(os.path.join(known.folder, group)), package] = YamlScalar(option, True, Location(path))
    try:
        read = content_of(replace(known, open=[]), path)
    except (Uncertain, ReadError):
        return None
    if read is None:
        return None
    found = composed_alone(known, path, read[0]) if is_composed(read[0]) else read[0]
    return None if known.missing else found


def groups_of(path: str) -> frozenset[str]:
    """Return the groups of which the file at `path` chooses parts, each with its package as written."""
    known = composing(path)
    try:
        read = content_of(replace(known, open=[]), path)
        listed = [value for key, value in merged(read[0], known.visits) if key.text == KEY] if read is not None else []
        parts = [part for each in listed for part in _parts(each, topmost=True)[0]]
    except (Uncertain, ReadError):
        return frozenset()
    return frozenset(f"{part.file}@{part.written}" if part.written else part.file for part in parts if part.options is not None)


def _folders(known: Composing, root: YamlMapping) -> Iterator[str]:
    """Yield the further folders that a topmost configuration names."""
    node: YamlNode = root
    for name in FOLDERS:
        if not isinstance(node, YamlMapping):
            return
        entries = {key.text: value for key, value in node.entries if isinstance(key, YamlScalar)}
        if name not in entries:
            return
        node = entries[name]
    for item in node.items if isinstance(node, YamlSequence) else ():
        match = FOLDER.fullmatch(item.text) if isinstance(item, YamlScalar) else None
        if match is not None:
            place = match["path"].replace(".", os.sep) if match["kind"] == "pkg" else match["path"]
            yield os.path.join(known.project, place)


def _composed(known: Composing, path: str, root: YamlMapping, package: tuple[str, ...], base: tuple[str, ...]) -> YamlNode:
    """Return the content of one file, joined with its own defaults, at its package."""
    if len(known.open) > DEEPEST:
        raise Uncertain
    entries = merged(root, known.visits)
    kept: list[tuple[YamlNode, YamlNode]] = [(key, value) for key, value in entries if key.text not in (KEY, PARENTS)]
    mine: YamlNode = at(YamlMapping(kept, root.location), package)
    listed = [value for key, value in entries if key.text in (KEY, PARENTS)]
    if not listed:
        return mine
    if len(listed) > 1:
        raise Uncertain
    parts, place = _parts(listed[0], not base)
    folder = os.path.dirname(path) or os.curdir
    for part in parts:
        if part.overrides and part.options is not None:
            known.overrides.setdefault(_group(known, folder, part), part.options)
    if not base:
        known.choices = {**dict(_choices(known, folder, parts)), **known.choices}
    found: YamlNode | None = None
    for number, part in enumerate(parts):
        if number == place:
            found = joined(found, mine, known.visits)
        if not part.overrides:
            for option in _options(known, folder, part):
                found = _with_part(known, folder, found, part, option, base)
    if place is None:
        for missing in known.missing:
            mine = doubted(mine, missing, known.visits)
        return joined(found, mine, known.visits, settled=False)
    return found if place < len(parts) and found is not None else joined(found, mine, known.visits)


def _choices(known: Composing, folder: str, parts: list[Part]) -> Iterator[tuple[str, str]]:
    """Yield what is chosen of each group of a file that has no package of its own."""
    for part in parts:
        option = known.overrides.get(_group(known, folder, part), part.options)
        if isinstance(option, YamlScalar) and not part.written:
            yield part.file, option.text


def _group(known: Composing, folder: str, part: Part) -> tuple[str, str]:
    return os.path.normpath(os.path.join(known.folder if part.absolute else folder, part.file)), part.written


def _options(known: Composing, folder: str, part: Part) -> Iterator[str]:
    """Yield the files that an entry names, without their ending: its own, or those that it or an outer file chooses of its
    group.
    """
    if part.options is None:
        yield part.file
        return
    group = _group(known, folder, part)
    chosen = known.overrides.get(group, part.options)
    if group in known.overrides:
        known.overridden.add(group)
    if isinstance(chosen, YamlScalar) and chosen.plain and chosen.text in ("null", "~", ""):
        return
    for option in chosen.items if isinstance(chosen, YamlSequence) else (chosen,):
        name = CHOICE.sub(lambda match: known.choices.get(match[1], "$"), option.text) if isinstance(option, YamlScalar) else ""
        if not OPTION.fullmatch(name):
            raise Uncertain
        yield f"{part.file}/{name.removesuffix('.yaml')}"


def _with_part(
    known: Composing, folder: str, found: YamlNode | None, part: Part, file: str, base: tuple[str, ...]
) -> YamlNode | None:
    folder = known.folder if part.absolute else folder
    package = part.package[1:] if part.package[:1] == (GLOBAL,) else base + part.package
    wanted = os.path.normpath(os.path.join(folder, file if part.whole else file + ".yaml"))
    wanted = found_at(known, wanted)
    read = content_of(known, wanted)
    if read is None:
        if part.optional:
            return found
        known.missing.append(package)
        return doubted(found, package, known.visits) if found is not None else None
    root, header = read
    if header is not None:
        package = _stated(header, package)
    known.open.append(real_path(wanted))
    other = _composed(known, wanted, root, package, package)
    known.open.pop()
    return joined(found, other, known.visits)


def _stated(header: str, package: tuple[str, ...]) -> tuple[str, ...]:
    """Return the package that a file's own header names."""
    if header == GLOBAL:
        return ()
    if header.startswith("_") or not re.fullmatch(r"[\w.]+", header):
        raise Uncertain
    return tuple(header.split("."))


def _parts(listed: YamlNode, topmost: bool) -> tuple[list[Part], int | None]:
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
            parts.append(_config(item.text))
        else:
            parts.extend(_chosen(item, topmost))
    return parts, place


def _file(item: YamlScalar) -> Part:
    if "$" in item.text or not item.text.endswith((".yaml", ".yml")):
        raise Uncertain
    return Part(item.text, (), whole=True)


def _chosen(item: YamlNode, topmost: bool) -> Iterator[Part]:
    """Yield the entry `group: option`, with the words before it; none of Hydra's own groups."""
    if not isinstance(item, YamlMapping) or len(item.entries) != 1:
        raise Uncertain
    key, value = item.entries[0]
    if not isinstance(key, YamlScalar):
        raise Uncertain
    *words, name = key.text.split() or [""]
    if name.lstrip("/").partition("/")[0] == "hydra":
        return
    if words not in ([], ["optional"], [OVERRIDE]):
        raise Uncertain
    group, absolute, written = _named(name)
    steps = tuple(group.split("/"))
    if not written and (any(step in (".", "..") for step in steps) or (absolute and not topmost)) and words != [OVERRIDE]:
        raise Uncertain
    package = _package(written) if written else steps
    yield Part(group, package, value, written, words == ["optional"], absolute, overrides=words == [OVERRIDE])


def _config(name: str) -> Part:
    """Return the entry that is the name of a configuration."""
    group, absolute, written = _named(name)
    folder, _, _ = group.rpartition("/")
    if not written and (folder or absolute):
        raise Uncertain
    return Part(group.removesuffix(".yaml"), _package(written) if written else (), absolute=absolute)


def _named(name: str) -> tuple[str, bool, str]:
    match = NAME.fullmatch(name)
    if match is None:
        raise Uncertain
    return match["group"], bool(match["absolute"]), match["package"] or ""


def _package(written: str) -> tuple[str, ...]:
    if written == HERE:
        return ()
    package = tuple(written.split("."))
    if any(part.startswith("_") and part != GLOBAL for part in package):
        raise Uncertain
    return package
