"""The form of plan JSON and of captures, checked by the schemas themselves, compiled to functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NoReturn, TypeAlias

from tvlint.data import data_path
from tvlint.near_names import did_you_mean
from tvlint.plurals import counted

At: TypeAlias = "tuple[At, str | int] | None"
"""A place in the document: the place that holds it and the key in there; None is the whole document."""

Check: TypeAlias = Callable[[Any, At], None]

_JSON_TYPES = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int, float), "number": (int, float),
}  # fmt: skip
DEEPEST = 96


class FormError(Exception):
    """The document does not have the form of a plan, or refers to something that is not there."""

    def __init__(self, message: str, at: At, help: str = "", of_key: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.of_key = of_key
        found: list[str | int] = []
        while at is not None:
            at, key = at
            found.append(key)
        self.path = tuple(reversed(found))


@cache
def form(name: str = "plan") -> Check:
    """Return the check of a whole document; it raises FormError at the first place that the schema `name` does not allow."""
    schema = json.loads((data_path("schemas") / f"{name}.schema.json").read_text(encoding="utf-8"))
    return _Compiler(schema.get("$defs", {})).compile(schema)


def further_errors(document: Any, first: FormError, most: int) -> list[tuple[str | int, ...]]:
    """Return the paths of up to `most` other places that the schema of plans forbids; none in a document of deep nesting.

    The compiled check is fast and ends at the first place; whoever writes an exporter wants to see all of them.
    """
    from jsonschema import Draft202012Validator

    schema = json.loads((data_path("schemas") / "plan.schema.json").read_text(encoding="utf-8"))
    found: dict[tuple[str | int, ...], None] = {}
    try:
        for error in Draft202012Validator(schema).iter_errors(document):
            path = tuple(error.absolute_path)
            if path != first.path[: len(path)]:
                found[path] = None
            if len(found) == most:
                break
    except RecursionError:
        return []
    return list(found)


class _Compiler:
    """Schemas of the kind that the plan schema is made of, as functions; any other keyword is our mistake."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self.compiled: dict[str, Check] = {}

    def compile(self, schema: dict[str, Any]) -> Check:
        """Return the check that `schema` states."""
        if "$ref" in schema:
            return self.reference(schema["$ref"])
        if "oneOf" in schema:
            return self.one_of(schema["oneOf"])
        if "const" in schema:
            return _enumerated([schema["const"]])
        if "enum" in schema:
            return _enumerated(schema["enum"])
        match schema.get("type"):
            case "object":
                return self.object(schema)
            case "array":
                return self.array(schema)
            case "string":
                return _string(schema.get("minLength", 0))
            case "boolean":
                return _of_type("boolean")
            case "null":
                return _of_type("null")
            case "integer" | "number":
                return _number(schema["type"] == "integer", schema["minimum"], schema["maximum"])
            case ["string", "null"]:
                text = _string(schema.get("minLength", 0))
                return lambda value, at: None if value is None else text(value, at)
        raise AssertionError(f"a schema of a kind that is not read: {schema}")

    def reference(self, reference: str) -> Check:
        """Return the check of a definition, compiled once; definitions may contain themselves."""
        name = reference.removeprefix("#/$defs/")
        if name not in self.compiled:
            self.compiled[name] = lambda value, at: self.compiled[name](value, at)
            self.compiled[name] = self.compile(self.definitions[name])
        return self.compiled[name]

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema behind a reference."""
        while "$ref" in schema:
            schema = self.definitions[schema["$ref"].removeprefix("#/$defs/")]
        return schema

    def one_of(self, alternatives: list[dict[str, Any]]) -> Check:
        """Alternatives, distinguished by `kind`, by JSON type, or by a key that only one of them has."""
        resolved = [self.resolve(alternative) for alternative in alternatives]
        checks = [self.compile(alternative) for alternative in alternatives]
        kinds = [_kinds(schema) for schema in resolved]
        if all(kinds):
            return _by_kind({kind: check for check, names in zip(checks, kinds, strict=True) for kind in names})
        if len({schema["type"] for schema in resolved}) == len(resolved):
            return _by_type({schema["type"]: check for check, schema in zip(checks, resolved, strict=True)})
        keys = [schema["required"][0] for schema in resolved]
        return _by_key(list(zip(keys, checks, strict=True)))

    def object(self, schema: dict[str, Any]) -> Check:
        """Return an object with known keys, or a mapping of one kind of value."""
        properties = {key: self.compile(part) for key, part in schema.get("properties", {}).items()}
        additional = schema.get("additionalProperties", False)
        rest = self.compile(additional) if additional else None
        required = tuple(schema.get("required", ()))
        dependent = tuple((key, needed) for key, part in schema.get("dependentRequired", {}).items() for needed in part)
        empty_key = schema.get("propertyNames", {}).get("minLength", 0) == 0

        def check(value: Any, at: At) -> None:
            if type(value) is not dict:
                _wrong_type(value, "an object", at)
            for key, item in value.items():
                checker = properties.get(key, rest)
                if checker is None:
                    raise FormError(f"unknown key `{key[:80]}`", (at, key), _nearest(key, list(properties)), True)
                if not key and not empty_key:
                    raise FormError("an empty name", (at, key), "", True)
                checker(item, (at, key))
            for key in required:
                if key not in value:
                    raise FormError(f"the key `{key}` is missing", at)
            for key, needed in dependent:
                if key in value and needed not in value:
                    raise FormError(f"`{key}` without `{needed}`", (at, key), "", True)

        return check

    def array(self, schema: dict[str, Any]) -> Check:
        """Return an array of one kind of value."""
        item_check = self.compile(schema["items"])
        least, most = schema.get("minItems", 0), schema.get("maxItems")

        def check(value: Any, at: At) -> None:
            if type(value) is not list:
                _wrong_type(value, "an array", at)
            if len(value) < least or (most is not None and len(value) > most):
                bounds = f"{least} to {most}" if most is not None else f"at least {least}"
                raise FormError(f"an array of {counted(len(value), 'element')} where {bounds} belong", at)
            for index, item in enumerate(value):
                item_check(item, (at, index))

        return check


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("properties", {}).get("kind", {})
    return list(kind.get("enum", [kind["const"]] if "const" in kind else []))


def _by_kind(checks: dict[str, Check]) -> Check:
    def check(value: Any, at: At) -> None:
        if type(value) is not dict:
            _wrong_type(value, "an object", at)
        if "kind" not in value:
            raise FormError("the key `kind` is missing", at)
        kind = value["kind"]
        checker = checks.get(kind) if isinstance(kind, str) else None
        if checker is None:
            raise FormError(f"{show(kind)} is no `kind` that belongs here", (at, "kind"), _nearest(kind, list(checks)))
        checker(value, at)

    return check


def _by_type(checks: dict[str, Check]) -> Check:
    by_class = {cls: check for name, check in checks.items() for cls in _JSON_TYPES[name]}
    expected = " or ".join(f"{'an' if name[0] in 'aoi' else 'a'} {name}" for name in checks if name != "null")

    def check(value: Any, at: At) -> None:
        checker = by_class.get(type(value))
        if checker is None:
            _wrong_type(value, expected, at)
        if type(value) is list and _depth(at) > DEEPEST:
            raise FormError(f"nests deeper than {DEEPEST} levels", at)
        checker(value, at)

    return check


def _depth(at: At) -> int:
    depth = 0
    while at is not None and depth <= DEEPEST:
        at = at[0]
        depth += 1
    return depth


def _by_key(checks: list[tuple[str, Check]]) -> Check:
    def check(value: Any, at: At) -> None:
        if type(value) is not dict:
            _wrong_type(value, "an object", at)
        for key, checker in checks:
            if key in value:
                checker(value, at)
                return
        raise FormError(f"one of the keys {', '.join(f'`{key}`' for key, _ in checks)} is missing", at)

    return check


def _enumerated(allowed: list[Any]) -> Check:
    def check(value: Any, at: At) -> None:
        if not any(
            value == checker and type(value) is not bool and isinstance(value, str | int | float) for checker in allowed
        ):
            expected = " or ".join(show(checker) for checker in allowed) if len(allowed) < 4 else "a word that belongs here"
            raise FormError(f"{show(value)} is not {expected}", at, _nearest(value, allowed))

    return check


def _string(least: int) -> Check:
    def check(value: Any, at: At) -> None:
        if type(value) is not str:
            _wrong_type(value, "a string", at)
        if len(value) < least:
            raise FormError("an empty string where a name belongs", at)

    return check


def _of_type(name: str) -> Check:
    classes = _JSON_TYPES[name]

    def check(value: Any, at: At) -> None:
        if type(value) not in classes:
            _wrong_type(value, f"a {name}", at)

    return check


def _number(integer: bool, least: float, most: float) -> Check:
    def check(value: Any, at: At) -> None:
        kind = type(value)
        if kind is not int and (kind is not float or (integer and not value.is_integer())):
            _wrong_type(value, "an integer" if integer else "a number", at)
        if not least <= value <= most:
            raise FormError(f"{show(value)} is not between {least} and {most}", at)

    return check


def _wrong_type(value: Any, expected: str, at: At) -> NoReturn:
    raise FormError(f"expected {expected}, found {show(value)}", at)


def _nearest(word: Any, known: Iterable[Any]) -> str:
    return did_you_mean(word, (each for each in known if isinstance(each, str))) if isinstance(word, str) else ""


def show(value: Any) -> str:
    """Return a JSON value, short enough for a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return f"`{value[:60]}`"
    return str(json.dumps(value))[:60]
