"""Plans in neutral JSON (docs/plan-json.md, schemas/plan.schema.json)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from typing import Any, NoReturn

from tvlint.ir.lines import Lines
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError
from tvlint.readers.plan_json import positions as places
from tvlint.readers.plan_json.lower import build
from tvlint.readers.plan_json.schema_checker import FormError, form, further_errors

_KEY = re.compile(r'"tvlint_plan"\s*:')
_MOST_DIGITS = 310
_SHORT = 1 << 18
"""Documents of so many characters are looked at again after the first error, for all others."""
_MOST_OTHERS = 20


class _NotStrictError(ValueError):
    """Something that Python's JSON accepts and JSON, or a plan, does not."""


def recognise(text: str) -> bool:
    """Return whether `text` is a JSON object that calls itself a plan of tvlint."""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and _KEY.search(text) is not None


def read(path: str, text: str) -> Document:
    """Return the plan that `text` states; raises ReadError at the first place that is wrong.

    Operators without a `source` have their JSON pointer as location; `locate` gives it a line.
    """
    text = text.removeprefix("\ufeff")
    document: Any = None
    try:
        document = _load(path, text)
        form()(document, None)
        return Document(path, "plan-json", plan=build(path, document))
    except FormError as error:
        place = places.place_of(path, text, error.path, error.of_key)
        help = "; ".join(filter(None, (error.help, _others(path, text, document, error))))
        raise ReadError(error.message, place, help) from None
    except RecursionError:
        raise ReadError("the JSON nests too deeply", Location(path, 1, 1)) from None


def _others(path: str, text: str, document: Any, first: FormError) -> str:
    """Return where else a short document does not fit the schema, as the end of a help line."""
    if len(text) > _SHORT:
        return ""
    paths = further_errors(document, first, _MOST_OTHERS)
    if not paths:
        return ""
    lines = sorted({line for each_path in paths if (line := places.place_of(path, text, each_path, False).line) is not None})
    where = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
    return f"{len(paths)} more place{'s' if len(paths) > 1 else ''} that the schema does not allow: {where}"


def locate(text: str, locations: Collection[Location]) -> dict[str, Location]:
    """Return the `locations` in one plan that have a JSON pointer and no line, by pointer, with their line and column in
    `text`.
    """
    return places.locate(text.removeprefix("\ufeff"), locations)


def _load(path: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, strict=True)
    except json.JSONDecodeError as error:
        start, end = Lines(text).bounds(error.lineno)
        row = text[start:end].rstrip("\n")[: places.MOST_SHOWN]
        place = Location(path, error.lineno, error.colno, error.lineno, error.colno + 1, text=row)
        raise ReadError(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", place) from None
    except _NotStrictError as error:
        _fail_strict(path, text, error)


def _fail_strict(path: str, text: str, error: _NotStrictError) -> NoReturn:
    kind, word = error.args
    if kind == "duplicate":
        duplicate = places.first_duplicate(path, text)
        if duplicate is not None:
            key, place, first = duplicate
            raise ReadError(f"the key `{key[:80]}` stands twice in one object", place, f"the first is in line {first.line}")
        raise ReadError(f"the key `{word[:80]}` stands twice in one object", Location(path, 1, 1))
    found = re.search(rf"(?<![\w\"]){re.escape(word)}(?![\w\"])", text)
    offset = found.start() if found else 0
    place = Lines(text).location(path, offset, offset + min(len(word), 60))
    if kind == "constant":
        raise ReadError(f"`{word}` is not JSON", place, f'write {{"float": "{word.replace("Infinity", "inf").lower()}"}}')
    raise ReadError(f"a number of {len(word)} digits; at most {_MOST_DIGITS} are read", place)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _NotStrictError("duplicate", next(key for key, count in counts.items() if count > 1))
    return found


def _constant(word: str) -> Any:
    raise _NotStrictError("constant", word)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _NotStrictError("digits", digits)
    return int(digits)
