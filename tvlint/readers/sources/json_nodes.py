"""JSON as the nodes of YAML, which know where they stand; strict, and within bounds."""

from __future__ import annotations

import json
import re

from tvlint.ir.lines import Lines
from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.sources.yaml_nodes import DEEPEST, YamlMapping, YamlNode, YamlScalar, YamlSequence

LARGEST = 4 << 20
MOST_TOKENS = 400_000
TOKEN = re.compile(
    r'[ \t\r\n]*("(?:[^"\\\x00-\x1f]|\\.)*"|[\[\]{},:]|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)'
)


class NotJson(Exception):
    """The text is no JSON."""


def parse(path: str, text: str) -> YamlNode:
    """Return the root of the JSON text: words and numbers are plain scalars, strings are not.

    Raises NotJson, and ReadError for what is JSON and beyond the bounds.
    """
    return _Parser(path, text).document()


def topmost_keys(data: bytes) -> frozenset[str]:
    """Return the keys of the object that the JSON text is; none where it is another value, no JSON or too large.

    It takes a hundredth of the time of nodes with their places: most JSON that quotes a configuration is none.
    """
    try:
        root = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(root) if isinstance(root, dict) else frozenset()


class _Parser:
    """One text, read from its beginning to its end."""

    def __init__(self, path: str, text: str) -> None:
        if len(text) > LARGEST:
            raise ReadError(f"the file is {len(text)} characters long, more than the {LARGEST} that are read", Location(path))
        self._path = path
        self._text = text
        self._at = 0
        self._left = MOST_TOKENS
        self._lines = Lines(text)
        self._place = Location(path)

    def document(self) -> YamlNode:
        """Return the one value that the text is."""
        node = self._value(self._next(), 0)
        if self._text[self._at :].strip():
            raise NotJson
        return node

    def _next(self) -> str:
        found = TOKEN.match(self._text, self._at)
        self._left -= 1
        if found is None:
            raise NotJson
        if self._left < 0:
            raise ReadError(f"the JSON holds more than the {MOST_TOKENS} tokens that are read", self._place)
        self._at = found.end()
        quotes = found[1][0] == '"'
        self._place = self._lines.location(self._path, found.start(1) + quotes, found.end(1) - quotes)
        return found[1]

    def _value(self, token: str, depth: int) -> YamlNode:
        if depth > DEEPEST:
            raise ReadError(f"the JSON nests deeper than the {DEEPEST} levels that are read", self._place)
        place = self._place
        if token == "{":
            return self._object(YamlMapping([], place), depth)
        if token == "[":
            return self._array(YamlSequence([], place), depth)
        if token in ("}", "]", ",", ":"):
            raise NotJson
        if token[0] == '"':
            return YamlScalar(_string(token), False, place)
        return YamlScalar(token, True, place)

    def _object(self, node: YamlMapping, depth: int) -> YamlMapping:
        token = self._next()
        while token != "}":
            if token[0] != '"':
                raise NotJson
            key = YamlScalar(_string(token), False, self._place)
            if self._next() != ":":
                raise NotJson
            node.entries.append((key, self._value(self._next(), depth + 1)))
            token = self._next()
            if token == "}":
                break
            token = self._next() if token == "," else token
            if token[0] != '"':
                raise NotJson
        return node

    def _array(self, node: YamlSequence, depth: int) -> YamlSequence:
        token = self._next()
        while token != "]":
            node.items.append(self._value(token, depth + 1))
            token = self._next()
            if token == "]":
                break
            if token != ",":
                raise NotJson
            token = self._next()
        return node


def _string(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise NotJson from None
