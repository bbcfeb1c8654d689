"""The language of `when:`, `require:` and of the `{...}` in templates: its syntax tree and parser.

Only rule pages and tvlint itself write expressions, so a wrong one is our mistake and raises `ExpressionError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

MAX_TOKENS = 400
MAX_DEPTH = 40

Constant: TypeAlias = "int | float | str | bool | None"


class ExpressionError(ValueError):
    """An expression that does not parse; says where."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Constant


@dataclass(frozen=True, slots=True)
class Name:
    """A setting, a derived value, or a variable of the environment (`env.NAME`)."""

    name: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of expressions."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    """`not x` or `-x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands around an operator."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Choice:
    """`then if condition else otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to arguments."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = "Literal | Name | ListOf | Unary | Binary | Choice | Call"

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<text>'[^']*')|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)"
    r"|(?P<symbol>==|!=|<=|>=|//|[-+*/%<>()\[\],])|(?P<bad>\S))"
)
_CONSTANTS: dict[str, Constant] = {"true": True, "false": False, "none": None}
_WORDS = frozenset({"and", "or", "not", "in", "if", "else"})
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """The syntax tree of `text`."""
    tokens = tuple(_tokens(text))
    if len(tokens) > MAX_TOKENS:
        raise ExpressionError(f"more than {MAX_TOKENS} tokens in `{text[:60]}...`")
    parser = _Parser(text, tokens)
    tree = parser.choice(0)
    if parser.kind != "end":
        raise parser.error("an operator")
    return tree


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The parts that `and` joins, in order; the expression itself where it is no conjunction."""
    if isinstance(expression, Binary) and expression.operator == "and":
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression


def names(expression: Expression) -> Iterator[str]:
    """The names that `expression` reads, in order, with repetitions."""
    match expression:
        case Name(name):
            yield name
        case Unary(_, operand):
            yield from names(operand)
        case Binary(_, left, right):
            yield from names(left)
            yield from names(right)
        case ListOf(items) | Call(_, items):
            for item in items:
                yield from names(item)
        case Choice(condition, then, otherwise):
            for part in (condition, then, otherwise):
                yield from names(part)
        case Literal():
            return


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "bad":
            raise ExpressionError(f"`{value}` has no meaning at column {match.start(kind) + 1} of `{text}`")
        if kind == "name" and value in _WORDS:
            kind = "symbol"
        yield kind, value


class _Parser:
    """Precedence climbing over tokens; each method parses one level and what binds tighter."""

    def __init__(self, text: str, tokens: tuple[tuple[str, str], ...]) -> None:
        self.text = text
        self.tokens = (*tokens, ("end", ""))
        self.position = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.position][0]

    def error(self, wanted: str) -> ExpressionError:
        found = self.tokens[self.position][1] or "the end"
        return ExpressionError(f"expected {wanted} but found `{found}` in `{self.text}`")

    def accept(self, *symbols: str) -> str:
        kind, value = self.tokens[self.position]
        if kind != "symbol" or value not in symbols:
            return ""
        self.position += 1
        return value

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.error(f"`{symbol}`")

    def choice(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH} in `{self.text[:60]}...`")
        then = self.disjunction(depth)
        if not self.accept("if"):
            return then
        condition = self.disjunction(depth)
        self.expect("else")
        return Choice(condition, then, self.choice(depth + 1))

    def disjunction(self, depth: int) -> Expression:
        left = self.conjunction(depth)
        while self.accept("or"):
            left = Binary("or", left, self.conjunction(depth))
        return left

    def conjunction(self, depth: int) -> Expression:
        left = self.negation(depth)
        while self.accept("and"):
            left = Binary("and", left, self.negation(depth))
        return left

    def negation(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH} in `{self.text[:60]}...`")
        if self.accept("not"):
            return Unary("not", self.negation(depth + 1))
        return self.comparison(depth)

    def comparison(self, depth: int) -> Expression:
        left = self.sum(depth)
        operator = self.accept(*_COMPARISONS, "in", "not")
        if not operator:
            return left
        if operator == "not":
            self.expect("in")
            return Unary("not", Binary("in", left, self.sum(depth)))
        return Binary(operator, left, self.sum(depth))

    def sum(self, depth: int) -> Expression:
        left = self.product(depth)
        while operator := self.accept("+", "-"):
            left = Binary(operator, left, self.product(depth))
        return left

    def product(self, depth: int) -> Expression:
        left = self.factor(depth)
        while operator := self.accept("*", "/", "//", "%"):
            left = Binary(operator, left, self.factor(depth))
        return left

    def factor(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH} in `{self.text[:60]}...`")
        if self.accept("-"):
            return Unary("-", self.factor(depth + 1))
        if self.accept("("):
            inner = self.choice(depth + 1)
            self.expect(")")
            return inner
        if self.accept("["):
            return ListOf(self.arguments("]", depth))
        kind, value = self.tokens[self.position]
        if kind not in ("number", "text", "name"):
            raise self.error("a value")
        self.position += 1
        if kind == "number":
            return Literal(float(value) if "." in value else int(value))
        if kind == "text":
            return Literal(value[1:-1])
        if self.accept("("):
            return Call(value, self.arguments(")", depth))
        if value in _CONSTANTS:
            return Literal(_CONSTANTS[value])
        return Name(value)

    def arguments(self, closing: str, depth: int) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while not self.accept(closing):
            if found:
                self.expect(",")
            found.append(self.choice(depth + 1))
        return tuple(found)
