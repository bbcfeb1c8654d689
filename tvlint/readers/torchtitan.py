"""torchtitan's job configuration: TOML or JSON with a section `parallelism`."""

from __future__ import annotations

import re

from tvlint.frameworks.torchtitan import SECTIONS
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.sources.json_nodes import NotJson, parse
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.toml_text import NotToml, TooLarge
from tvlint.readers.sources.toml_text import parse as parse_toml
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlScalar

FORMAT = "torchtitan"
LARGEST = 1 << 20
NAMES = re.compile(rb"\b(?:data_parallel_(?:shard|replicate)|tensor_parallel|pipeline_parallel|context_parallel)_degree\b")
TABLE = re.compile(rb"^[ \t]*\[[ \t]*parallelism[ \t]*\]", re.MULTILINE)
OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
HEADER = re.compile(r"[ \t]*\[[ \t]*([A-Za-z0-9_.-]+)[ \t]*\][ \t]*(?:#.*)?")
ENTRY = re.compile(r"[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*([^\s#]*)")


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` has the table `[parallelism]`, or is a JSON object, and names one of its degrees."""
    return NAMES.search(data) is not None and (TABLE.search(data) is not None or OBJECT.match(data) is not None)


def read(path: str, data: bytes) -> Document | None:
    """Return the configuration of the file, never complete; None where it is none of torchtitan."""
    refuse_larger(path, data, LARGEST)
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    settings = _json(path, text) if OBJECT.match(data) else _toml(path, text)
    if not any(name in SECTIONS["parallelism"] for name in settings):
        return None
    first = min(settings.values(), key=lambda each: (each.name_location.line or 0, each.name_location.column or 0))
    configuration = Configuration(path, FORMAT, "torchtitan", settings, {}, "", False, first.name_location)
    return Document(path, FORMAT, configurations=(configuration,))


def _toml(path: str, text: str) -> dict[str, Setting]:
    try:
        tables = parse_toml(text)
    except TooLarge as error:
        raise ReadError(f"not read as TOML: {error.message}", Location(path, error.line, error.column)) from None
    except NotToml:
        return {}
    places = _places(path, text)
    found: dict[str, Setting] = {}
    for section, names in SECTIONS.items():
        table = tables.get(section)
        for name, value in table.items() if isinstance(table, dict) else ():
            if name in names and (section, name) in places:
                key, place = places[section, name]
                found[name] = Setting(name, _value(value), f"{section}.{name}", place, key)
    return found


def _value(value: object) -> SettingValue | Unknown:
    if isinstance(value, bool | int | float | str):
        return value
    return Unknown("not a plain value", given=True)


def _places(path: str, text: str) -> dict[tuple[str, str], tuple[Location, Location]]:
    """Return where the keys and values of one-line entries stand, by table and key."""
    found: dict[tuple[str, str], tuple[Location, Location]] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), 1):
        if header := HEADER.match(line):
            table = header[1]
        elif entry := ENTRY.match(line):
            key = Location(path, number, entry.start(1) + 1, number, entry.end(1) + 1)
            place = Location(path, number, entry.start(2) + 1, number, entry.end(2) + 1)
            found.setdefault((table, entry[1]), (key, place))
    return found


def _json(path: str, text: str) -> dict[str, Setting]:
    try:
        root = parse(path, text)
    except NotJson:
        return {}
    found: dict[str, Setting] = {}
    for section, node in root.entries if isinstance(root, YamlMapping) else ():
        if not isinstance(section, YamlScalar) or not isinstance(node, YamlMapping):
            continue
        for key, value in node.entries:
            if isinstance(key, YamlScalar) and key.text in SECTIONS.get(section.text, ()):
                known = (
                    yaml_typed(None, value.text, value.plain) if isinstance(value, YamlScalar) else Unknown("not a plain value")
                )
                found[key.text] = Setting(key.text, known, f"{section.text}.{key.text}", value.location, key.location)
    return found
