"""nnScaler's partition constraints: a YAML list of operators and the dimensions along which each may be split."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvlint.findings import Finding, Related, Severity
from tvlint.readers.document import Document, refuse_larger
from tvlint.readers.nnscaler.trainer.constraints_against_graph import Constraint, constraint_misfits
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence, only_document

FORMAT = "nnscaler-constraints"
LARGEST = 4 << 20
KEYS = ("name", "parent_module", "allowed_partition_dims", "replica_allowed")
NAMES = re.compile(rb"^[ \t]*(?:- )?[ \t]*allowed_partition_dims[ \t]*:", re.MULTILINE)
OPENS = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:#[^\n]*|---[ \t]*)?\r?\n)*[ \t]*(?:- |\[)")
DIMS = re.compile(r"\s*[-+]?[0-9]+\s*(?:,\s*[-+]?[0-9]+\s*)*", re.ASCII)
PAIR = re.compile(r"\s*[0-9]{1,6}\s*,\s*[0-9]{1,6}\s*", re.ASCII)
DROPPED = "nnScaler logs the error and goes on without any of the file's constraints"


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` begins with a list and has a key of partition constraints."""
    return OPENS.match(data) is not None and NAMES.search(data) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return what is wrong with the constraints of the file; None where it is no list of constraints."""
    refuse_larger(path, data, LARGEST)
    root = only_document(path, data)
    if not isinstance(root, YamlSequence):
        return None
    entries = [item for item in root.items if isinstance(item, YamlMapping)]
    tables = [{key.text: value for key, value in item.entries if isinstance(key, YamlScalar)} for item in entries]
    if len(entries) != len(root.items) or not any(len(set(KEYS) & set(table)) >= 3 for table in tables):
        return None
    findings = [finding for item, table in zip(entries, tables, strict=True) for finding in _entry(item, table)]
    findings += _repeated(tables)
    findings += constraint_misfits(path, [constraint for table in tables if (constraint := _constraint(table)) is not None])
    return Document(path, FORMAT, findings=tuple(findings))


def _entry(item: YamlMapping, table: dict[str, YamlNode]) -> Iterator[Finding]:
    for key in KEYS:
        if key not in table:
            message = f"a partition constraint has no `{key}`, so that the file is not read"
            yield Finding("constraints-unreadable", Severity.WARNING, message, item.location, f"{DROPPED}; add `{key}`")
    dims = table.get("allowed_partition_dims")
    if dims is None:
        return
    if not isinstance(dims, YamlSequence):
        message = "`allowed_partition_dims` is no list, so that the file is not read"
        if isinstance(dims, YamlMapping) or not isinstance(_value(dims), str) or not DIMS.fullmatch(dims.text):
            yield Finding("constraints-unreadable", Severity.WARNING, message, dims.location, f"{DROPPED}; write `- 0,1`")
        elif "," in dims.text or len(dims.text) > 1:
            yield Finding(
                "constraints-unreadable", Severity.WARNING, message, dims.location, f"{DROPPED}; write `- {dims.text}`"
            )
        return
    for dim in dims.items:
        if not isinstance(dim, YamlScalar) or not isinstance(_value(dim), str) or not DIMS.fullmatch(dim.text):
            shown = f"`{dim.text[:40]}`" if isinstance(dim, YamlScalar) else "a list"
            message = f"{shown} is no dimension of an input in quotes or as `0,1`, so that the file is not read"
            yield Finding(
                "constraints-unreadable", Severity.WARNING, message, dim.location, f"{DROPPED}; write `input,dimension`"
            )
    replica = table.get("replica_allowed")
    if not dims.items and isinstance(replica, YamlScalar) and _value(replica) is False:
        message = "the constraint allows neither a split nor replication of its operators"
        help = "allow a dimension, or set `replica_allowed: true`"
        related = (Related("replication is forbidden here", replica.location),)
        yield Finding("constraint-allows-nothing", Severity.WARNING, message, dims.location, help, related)


def _constraint(table: dict[str, YamlNode]) -> Constraint | None:
    """Return the constraint of an entry that nnScaler can read."""
    name, dims = table.get("name"), table.get("allowed_partition_dims")
    if not isinstance(name, YamlScalar) or not isinstance(dims, YamlSequence):
        return None
    allowed = []
    for dim in dims.items:
        if not isinstance(dim, YamlScalar) or not PAIR.fullmatch(dim.text):
            return None
        index, position = (int(number) for number in dim.text.split(","))
        allowed.append((index, position, dim.location))
    return Constraint(name.text, name.location, tuple(allowed))


def _value(node: YamlScalar) -> object:
    """Return the value as YAML has it."""
    return yaml_typed(None, node.text, node.plain)


def _repeated(tables: list[dict[str, YamlNode]]) -> Iterator[Finding]:
    first: dict[tuple[str, str], YamlScalar] = {}
    for table in tables:
        name, module = table.get("name"), table.get("parent_module")
        if not isinstance(name, YamlScalar) or not isinstance(module, YamlScalar):
            continue
        key = (name.text, module.text)
        if key not in first:
            first[key] = name
            continue
        yield Finding(
            "constraint-repeated",
            Severity.WARNING,
            f"a second constraint of `{name.text[:80]}` in `{module.text[:80]}` is left out",
            name.location,
            "join the two",
            (Related("the first stands here", first[key].location),),
        )
