"""YAML as nodes that know where they stand: composed from the parser's events within bounds, never constructed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.ir.lines import Lines
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, field
from tvlint.readers.document import ReadError

DEEPEST = 64
MOST_EVENTS = 400_000
MOST_ENTRIES = 50_000
"""The most entries that merging and walking may visit, aliases counted each time."""


@dataclass(frozen=True, slots=True, eq=False)
class YamlScalar:
    """A scalar as written; `plain` says that it stands without quotes, so that YAML gives it a type."""

    text: str
    plain: bool
    location: Location


@dataclass(frozen=True, slots=True, eq=False)
class YamlSequence:
    """A list."""

    items: list[YamlNode]
    location: Location


@dataclass(frozen=True, slots=True, eq=False)
class YamlMapping:
    """A mapping with its entries as written: duplicates and merge keys included."""

    entries: list[tuple[YamlNode, YamlNode]]
    location: Location


YamlNode: TypeAlias = YamlScalar | YamlSequence | YamlMapping


@dataclass(slots=True)
class Visits:
    """Counts what is visited, so that aliases of aliases cannot multiply without end."""

    path: str
    left: int = MOST_ENTRIES

    def visit(self, location: Location) -> None:
        self.left -= 1
        if self.left < 0:
            raise ReadError("aliases expand to more entries than a configuration has", location, "write the values out")


@dataclass(slots=True)
class _Open:
    node: YamlSequence | YamlMapping
    key: YamlNode | None = None


@dataclass(slots=True)
class _Composing:
    path: str
    lines: Lines
    anchors: dict[str, YamlNode] = field(default_factory=dict)
    opened: list[_Open] = field(default_factory=list)
    root: YamlNode | None = None

    def add(self, node: YamlNode) -> None:
        if not self.opened:
            self.root = node
            return
        top = self.opened[-1]
        if isinstance(top.node, YamlSequence):
            top.node.items.append(node)
        elif top.key is None:
            top.key = node
        else:
            top.node.entries.append((top.key, node))
            top.key = None


def only_document(path: str, data: bytes) -> YamlNode | None:
    """Return the root of the one document in `data`; None where that is not UTF-8, no YAML, or not one document."""
    try:
        roots = list(documents(path, data.decode().removeprefix("\ufeff")))
    except (ReadError, UnicodeDecodeError):
        return None
    return roots[0] if len(roots) == 1 else None


def documents(path: str, text: str) -> Iterator[YamlNode]:
    """Yield the root node of every document in `text`; raises ReadError where a place is no YAML or passes a bound."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    lines = Lines(text)
    composing = _Composing(path, lines)
    try:
        for count, event in enumerate(yaml.parse(text, Loader=loader)):
            if count > MOST_EVENTS:
                raise ReadError("the document has too many nodes", _location(composing, event))
            if isinstance(event, yaml.DocumentStartEvent):
                composing = _Composing(path, lines)
            elif isinstance(event, yaml.DocumentEndEvent) and composing.root is not None:
                yield composing.root
            else:
                _compose(composing, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Location(path, *lines.place(mark.index)) if mark is not None else Location(path)
        raise ReadError(f"not valid YAML: {_flat(error.problem or error.context or 'syntax error')}", place) from None
    except yaml.reader.ReaderError as error:
        place = Location(path, *lines.place(error.position if isinstance(error.position, int) else 0))
        raise ReadError(f"not valid YAML: {_flat(str(error.reason))}", place) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ReadError(f"not valid YAML: {_flat(str(error))}", Location(path)) from None


def position(path: str, text: str, offset: int) -> Location:
    """Return the place of the code point `offset` of `text`."""
    return Location(path, *Lines(text).place(offset))


def _flat(message: str) -> str:
    return " ".join(message.split())[:200]


def _compose(composing: _Composing, event: Any) -> None:
    import yaml

    node: YamlNode
    if isinstance(event, yaml.AliasEvent):
        found = composing.anchors.get(event.anchor or "")
        if found is None:
            raise ReadError(f"the alias `*{(event.anchor or '')[:80]}` has no anchor before it", _location(composing, event))
        composing.add(found)
    elif isinstance(event, yaml.ScalarEvent):
        node = YamlScalar(event.value, event.style in (None, "") and event.implicit[0], _scalar_location(composing, event))
        _anchor(composing, event, node)
        composing.add(node)
    elif isinstance(event, yaml.CollectionStartEvent):
        if len(composing.opened) >= DEEPEST:
            raise ReadError(f"nested deeper than {DEEPEST} levels", _location(composing, event))
        place = _location(composing, event)
        node = YamlMapping([], place) if isinstance(event, yaml.MappingStartEvent) else YamlSequence([], place)
        _anchor(composing, event, node)
        composing.opened.append(_Open(node))
    elif isinstance(event, yaml.CollectionEndEvent):
        composing.add(composing.opened.pop().node)


def _anchor(composing: _Composing, event: Any, node: YamlNode) -> None:
    if event.anchor is not None:
        composing.anchors[event.anchor] = node


def _location(composing: _Composing, event: Any) -> Location:
    return Location(composing.path, *composing.lines.place(event.start_mark.index))


def _scalar_location(composing: _Composing, event: Any) -> Location:
    """Return the place of a scalar without its quotes; YAML counts more characters as ends of lines than those who show it."""
    start, end = event.start_mark, event.end_mark
    if event.style in ("|", ">"):
        return _location(composing, event)
    quotes = 1 if event.style in ("'", '"') and start.line == end.line else 0
    return composing.lines.location(composing.path, start.index + quotes, end.index - quotes)


def merged(mapping: YamlMapping, visits: Visits, depth: int = 0) -> list[tuple[YamlScalar, YamlNode]]:
    """Return the entries that a mapping has once it is loaded: the last of a key that stands twice, then those of merge keys
    (`<<`) that it does not name itself.
    """
    if depth > DEEPEST:
        raise ReadError("merge keys lead in a circle", mapping.location, "merge a mapping that does not merge this one")
    entries: dict[str, tuple[YamlScalar, YamlNode]] = {}
    inherited: list[tuple[YamlScalar, YamlNode]] = []
    for key, value in mapping.entries:
        visits.visit(mapping.location)
        if not isinstance(key, YamlScalar):
            continue
        if key.text != "<<" or not key.plain:
            entries[key.text] = key, value
            continue
        for source in value.items if isinstance(value, YamlSequence) else (value,):
            if not isinstance(source, YamlMapping):
                raise ReadError("a merge key does not name a mapping", key.location)
            inherited.extend(merged(source, visits, depth + 1))
    for key, value in inherited:
        entries.setdefault(key.text, (key, value))
    return list(entries.values())


def mappings(root: YamlNode, visits: Visits) -> Iterator[tuple[tuple[str, ...], YamlMapping]]:
    """Yield every mapping that a document has once it is loaded, each once, at the path where it first stands."""
    seen: set[int] = set()
    pending: list[tuple[tuple[str, ...], YamlNode]] = [((), root)]
    while pending:
        where, node = pending.pop()
        if isinstance(node, YamlScalar) or id(node) in seen:
            continue
        seen.add(id(node))
        visits.visit(node.location)
        if isinstance(node, YamlSequence):
            pending.extend(reversed([((*where, str(place)), item) for place, item in enumerate(node.items)]))
            continue
        yield where, node
        children = {key.text: value for key, value in node.entries if isinstance(key, YamlScalar)}
        pending.extend(((*where, name), value) for name, value in reversed(children.items()))


def plain_values(node: YamlNode, value: Callable[[YamlScalar], SettingValue | Unknown]) -> SettingValue | Unknown:
    """Return what a scalar or a list of scalars holds, each as `value` says; unknown for anything else, and with an unknown
    in it.
    """
    if isinstance(node, YamlScalar):
        return value(node)
    if isinstance(node, YamlSequence):
        items = [value(item) for item in node.items if isinstance(item, YamlScalar)]
        known = tuple(item for item in items if not isinstance(item, Unknown))
        if len(known) == len(node.items):
            return known
    return Unknown("holds more than plain values", given=True)
