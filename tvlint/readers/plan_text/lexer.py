"""One line of plan text as tokens, and the errors that point at them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from tvlint.ir.location import Location
from tvlint.ir.operators import Value
from tvlint.ir.reductions import reduction_named
from tvlint.near_names import did_you_mean
from tvlint.readers.document import ReadError

_WORD = r"[^\W\d][\w.]*(?:-[^\W\d][\w.]*)*"
_QUOTED = r"`(?:[^`\\]|\\.)*`"
TOKEN = re.compile(
    rf"\s*(?:#.*|(grad\((?:{_WORD}|{_QUOTED})\)|{_WORD}|->|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    rf'|-inf\b|"(?:[^"\\]|\\.)*"|{_QUOTED}|\S))'
)
CONSTANTS: dict[str, Value] = {
    "None": None, "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip
LARGEST = 2**64
MOST_DIGITS = 310
DEEPEST = 96


def begins_word(token: str) -> bool:
    """Return whether the token or text starts as a word does: with `_`, or with a letter or number of any script that is no
    digit.
    """
    return token[:1] == "_" or (token[:1].isalnum() and not token[0].isdecimal())


def _matches(text: str) -> Iterator[re.Match[str]]:
    """Yield what stands in a line, up to a quote that nothing closes: each escape behind it would open it again."""
    for match in TOKEN.finditer(text.rstrip()):
        yield match
        if match[1] in ('"', "`"):
            return


class Line:
    """The tokens of one line, read from left to right."""

    __slots__ = ("index", "number", "path", "text", "tokens")

    def __init__(self, path: str, number: int, text: str) -> None:
        self.path = path
        self.number = number
        self.text = text
        self.tokens: list[str] = [match[1] for match in _matches(text) if match[1]]
        self.tokens.append("")
        self.index = 0

    def peek(self) -> str:
        """Return the next token; empty at the end of the line."""
        return self.tokens[self.index]

    def after(self) -> str:
        """Return the token after the next one."""
        return self.tokens[self.index + 1] if self.index + 1 < len(self.tokens) else ""

    def accept(self, token: str) -> bool:
        """Step over `token` when it is next."""
        if self.tokens[self.index] != token:
            return False
        self.index += 1
        return True

    def expect(self, token: str, what: str = "") -> None:
        """Step over `token`, which must be next."""
        if self.tokens[self.index] != token:
            self.fail(f"expected `{token}`{f' {what}' if what else ''}, found {self.found()}")
        self.index += 1

    def is_name(self) -> bool:
        """Return whether a name is next."""
        token = self.tokens[self.index]
        return (begins_word(token) or (token[:1] == "`" and len(token) > 1)) and token not in CONSTANTS

    def name(self, what: str = "a name") -> str:
        """Return the name that must be next."""
        token = self.tokens[self.index]
        if not self.is_name():
            self.fail(f"expected {what}, found {self.found()}")
        self.index += 1
        if token[0] == "`":
            return self.unquote(token)
        if "`" in token:
            return f"grad({self.unquote(token[5:-1])})"
        return token

    def optional_name(self, what: str) -> str:
        """Return the name that must be next, or nothing where `_` stands."""
        if self.accept("_"):
            return ""
        return self.name(what)

    def word(self, what: str) -> str:
        """Return the bare word that must be next."""
        token = self.tokens[self.index]
        if not begins_word(token):
            self.fail(f"expected {what}, found {self.found()}")
        self.index += 1
        return token

    def reduction(self) -> str:
        """Return the name of a reduction, quoted or not, and go on behind it."""
        return reduction_named(self.string("a reduction") if self.peek()[:1] == '"' else self.name("a reduction"))

    def string(self, what: str) -> str:
        """Return the string that must be next."""
        token = self.tokens[self.index]
        if len(token) < 2 or token[0] != '"':
            self.fail(f"expected {what} in double quotes, found {self.found()}")
        self.index += 1
        return self.unquote(token)

    def unquote(self, token: str) -> str:
        """Return the text of a quoted token."""
        body = token[1:-1]
        if "\\" not in body and '"' not in body and body.isprintable():
            return body
        if token[0] == "`":
            body = body.replace("\\`", "`").replace('"', '\\"')
        try:
            text = json.loads(f'"{body}"', strict=False)
        except ValueError:
            self.index = max(self.index - 1, 0)
            self.fail(f"{token} has an escape that is not one of JSON", 'use `\\\\`, `\\"`, `\\n`, `\\t` or `\\u0000`')
        return str(text)

    def integer(self, what: str, least: int = 0, most: int = 2**31) -> int:
        """Return the integer that must be next, between `least` and `most`."""
        token = self.tokens[self.index]
        if not token or not token.lstrip("+-").isascii() or not token.lstrip("+-").isdigit():
            self.fail(f"expected {what}, found {self.found()}")
        value = int(token) if len(token) < 24 else LARGEST
        if not least <= value <= most:
            self.fail(f"{what} {token[:40]} is not between {least} and {most}")
        self.index += 1
        return value

    def value(self, depth: int = 0) -> Value:
        """Return the constant that must be next."""
        token = self.tokens[self.index]
        if token in CONSTANTS:
            self.index += 1
            return CONSTANTS[token]
        if token[:1] == '"':
            return self.string("a string")
        if token in ("[", "("):
            if depth > DEEPEST:
                self.fail(f"lists nest deeper than {DEEPEST}")
            self.index += 1
            items: list[Value] = []
            end = "]" if token == "[" else ")"
            while not self.accept(end):
                items.append(self.value(depth + 1))
                if self.peek() != end:
                    self.expect(",", f"or `{end}`")
            return tuple(items)
        if not token or not (token[-1].isdigit() or token[-1] == "."):
            self.fail(f"expected a constant, found {self.found()}", "strings stand in double quotes")
        if token.lstrip("+-").isdigit() and token.isascii():
            if len(token) > MOST_DIGITS:
                self.fail(f"a number of more than {MOST_DIGITS} digits")
            self.index += 1
            return int(token)
        try:
            number = float(token)
        except ValueError:
            self.fail(f"expected a constant, found {self.found()}")
        self.index += 1
        return number

    def integers(self, what: str, least: int = 0) -> tuple[int, ...]:
        """`[1, 2, ...]`."""
        self.expect("[", f"before {what}s")
        found: list[int] = []
        while not self.accept("]"):
            found.append(self.integer(what, least, 2**62))
            if self.peek() != "]":
                self.expect(",", "or `]`")
        return tuple(found)

    def rank_list(self, what: str, most: int) -> tuple[int, ...]:
        """`0,2,4-7`, every one of them below `most`."""
        found: list[int] = []
        while True:
            first = self.integer(what, 0, most - 1)
            last = first
            if self.peek()[:1] == "-" and self.peek()[1:].isdigit():
                self.tokens[self.index] = self.peek()[1:]
                last = self.integer(what, first, most - 1)
            found.extend(range(first, last + 1))
            if len(found) > most:
                self.fail(f"lists more than {most} {what}s")
            if not self.accept(","):
                return tuple(found)

    def end(self) -> None:
        """Nothing more may stand in the line."""
        if self.tokens[self.index]:
            self.fail(f"unexpected {self.found()}")

    def found(self) -> str:
        """Return the next token, for a message."""
        token = self.tokens[self.index]
        return f"`{token[:60]}`" if token else "the end of the line"

    def location(self, index: int | None = None) -> Location:
        """Return where token `index` (the next one) stands."""
        position = self.index if index is None else index
        spans = [match.span(1) for match in _matches(self.text) if match[1]]
        start, end = spans[position] if position < len(spans) else (len(self.text.rstrip()), len(self.text.rstrip()) + 1)
        return Location(self.path, self.number, start + 1, self.number, end + 1, text=self.text)

    def whole(self) -> Location:
        """Return where the statement stands."""
        text = self.text
        start = len(text) - len(text.lstrip())
        end = text.find(" #")
        body = text[: end if end > 0 and '"' not in text and "`" not in text else None].rstrip()
        return Location(self.path, self.number, start + 1, self.number, len(body) + 1, text=text)

    def fail(self, message: str, help: str = "", index: int | None = None) -> NoReturn:
        """Say that the line cannot be read, pointing at the next token or at token `index`."""
        raise ReadError(message, self.location(index), help)

    def fail_unknown(self, what: str, word: str, known: list[str], index: int | None = None) -> NoReturn:
        """Say that `word` is no known `what`, with the nearest one that is."""
        self.fail(f"`{word}` is not {what}", did_you_mean(word, known), index)
