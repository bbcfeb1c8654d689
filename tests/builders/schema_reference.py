"""The reference of plan JSON, made from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

HEAD = """\
# Every key of plan JSON

Made from `schemas/plan.schema.json` by the tests (`pytest --update-golden`); [plan JSON](plan-json.md) explains the format.
"""


def reference(schema: dict[str, Any]) -> str:
    """Return the reference as Markdown: a table for the plan and for each part of it."""
    parts = [HEAD, *_section("plan", schema)]
    for name, part in schema["$defs"].items():
        parts += _section(name, part)
    return "\n".join(parts).rstrip() + "\n"


def _section(name: str, part: dict[str, Any]) -> Iterator[str]:
    kinds = [each for each in part.get("oneOf", [part]) if "properties" in each]
    if not kinds and part.get("oneOf") is None:
        return
    yield f"## {name.replace('_', ' ')}\n"
    yield f"{part.get('description', '')}\n"
    if not kinds:
        yield "\n".join(f"- {_type(each)}" for each in part["oneOf"]) + "\n"
    for kind in kinds:
        if kind is not part and "description" in kind:
            yield f"{kind['description']}\n"
        yield from _table(kind)


def _table(part: dict[str, Any]) -> Iterator[str]:
    rows = ["| key | holds | |", "|---|---|---|"]
    for key, value in part["properties"].items():
        need = "" if key in part.get("required", ()) else ", optional"
        rows.append(f"| `{key}` | {_type(value)}{need} | {_cell(value.get('description', ''))} |")
    yield "\n".join(rows) + "\n"


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return "name" if name == "name" else f"[{name.replace('_', ' ')}](#{name.replace('_', '-')})"
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{json.dumps(each)}`" for each in value["enum"])
    if "oneOf" in value:
        return " or ".join(dict.fromkeys(_type(each) for each in value["oneOf"]))
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}" if isinstance(value.get("items"), dict) else "list"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object of {_type(value['additionalProperties'])}"
    if value.get("type") == "object" and "properties" in value:
        return "{" + ", ".join(f"`{key}`: {_type(own)}" for key, own in value["properties"].items()) + "}"
    kind = value.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
