"""torchtitan's job configuration: TOML or JSON with a section `parallelism`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.torchtitan import DEGREES, SECTIONS
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.near_names import nearest
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.sources.json_nodes import NotJson, parse
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.toml_text import NotToml, TooLarge
from tvlint.readers.sources.toml_text import parse as parse_toml
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlScalar

Tables: TypeAlias = Mapping[str, object]
Places: TypeAlias = dict[tuple[str, str], tuple[Location, Location]]
"""Where the key and the value of each entry stand, by table and name."""

FORMAT = "torchtitan"
NUMBERS = {"int": "an integer", "float": "a number"}
LONGEST = 80
EXTENDED_BY = (("job", "custom_config_module"), ("experimental", "custom_args_module"))
"""Where a file names a module that changes the dataclasses."""
ALIKE = 0.9
"""A name that shares so much with a field, by difflib, is no other one."""
MOST_ENTRIES = 1000
LARGEST = 1 << 20
NAMES = re.compile(rb"\b(?:data_parallel_(?:shard|replicate)|tensor_parallel|pipeline_parallel|context_parallel)_degree\b")
TABLE = re.compile(rb"^[ \t]*\[[ \t]*(?:parallelism|training|experimental)[ \t]*\]", re.MULTILINE)
OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
HEADER = re.compile(r"[ \t]*\[[ \t]*([A-Za-z0-9_.-]+)[ \t]*\][ \t]*(?:#.*)?")
ENTRY = re.compile(r"[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*([^\s#]*)")


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` has a table that degrees may stand in, or is a JSON object, and names one of them."""
    return NAMES.search(data) is not None and (TABLE.search(data) is not None or OBJECT.match(data) is not None)


def read(path: str, data: bytes) -> Document | None:
    """Return the configuration of the file, never complete; None where it is none of torchtitan."""
    refuse_larger(path, data, LARGEST)
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    tables = None if OBJECT.match(data) else _tables(path, text)
    places = _places(path, text) if tables else {}
    settings = _json(path, text) if tables is None else _toml(tables, places)
    if DEGREES.isdisjoint(settings):
        return None
    first = min(settings.values(), key=lambda each: (each.name_location.line or 0, each.name_location.column or 0))
    configuration = Configuration(path, FORMAT, "torchtitan", settings, {}, "", False, first.name_location)
    findings = () if tables is None else tuple(_mistaken(path, tables, places))
    return Document(path, FORMAT, configurations=(configuration,), findings=findings)


def _mistaken(path: str, tables: Tables, places: Places) -> Iterator[Finding]:
    """Yield what the dataclasses of the tree around a file do not take: names near to a field, and values of another kind.

    A module that the file or the command line names may add fields, so that other names are left alone.
    """
    from tvlint.readers.torchtitan_source import WHOLE, declared_tables

    if len(places) > MOST_ENTRIES or any(_value_at(tables, *module) for module in EXTENDED_BY):
        return
    declared = declared_tables(path)
    for (table, name), (key, place) in places.items():
        fields = declared.get(table, {})
        value = _value_at(tables, table, name)
        field = fields.get(name)
        if value is None:
            continue
        if field is None:
            near = nearest(name, fields, ALIKE) if len(name) <= LONGEST else ""
            if near and _value_at(tables, table, near) is None:
                message = f"`{WHOLE}` has no field `{table[:LONGEST]}.{name[:LONGEST]}`"
                fixes = (Fix(f"write `{near}`", (Edit(key, near),), is_safe=True),)
                yield Finding("unknown-option", Severity.ERROR, message, key, f"did you mean `{near}`?", fixes=fixes)
        elif field.choices and isinstance(value, str) and value not in field.choices:
            message = f"`{table}.{name}` does not take `{value[:LONGEST]}`"
            help = f"one of {', '.join(f'`{choice}`' for choice in field.choices)}"
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, place, help)
        elif field.type in NUMBERS and isinstance(value, str):
            message = f"`{table}.{name}` takes {NUMBERS[field.type]}, not `{value[:LONGEST]}` in quotes"
            yield Finding("option-value-not-a-number", Severity.ERROR, message, place, f"write {NUMBERS[field.type]}")


def _value_at(root: object, table: str, name: str) -> object:
    for step in (*table.split("."), name):
        root = root.get(step) if isinstance(root, dict) else None
    return root


def _tables(path: str, text: str) -> Tables:
    """Return the tables of a text in TOML; none where it is no such text."""
    try:
        return parse_toml(text)
    except TooLarge as error:
        raise ReadError(f"not read as TOML: {error.message}", Location(path, error.line, error.column)) from None
    except NotToml:
        return {}


def _toml(tables: Tables, places: Places) -> dict[str, Setting]:
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


def _places(path: str, text: str) -> Places:
    """Return where the keys and values of one-line entries stand, by table and key."""
    found: Places = {}
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
