"""Changes of settings that could satisfy a rule, as its condition and its demand suggest them.

They are proposals: that the rule holds afterwards, and every other rule as before, is for the rules to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice

from tvlint.ir.configuration import Change, Unknown
from tvlint.rule import Rule
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.expression import Binary, Call, Choice, Expression, ListOf, Literal, Name, Unary, parse
from tvlint.rulebook.language.values import ENVIRONMENT, Values
from tvlint.rulebook.repair.sizes import MODEL, WEIGHTS

MOST = 12
"""So many changes are proposed for one rule."""
_MOST_ITEMS = 4
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}

Changes = tuple[Change, ...]


def proposed(rule: Rule, values: Values) -> Iterator[Changes]:
    """Yield changes that could satisfy the rule: what it demands, then to leave out what makes it demand that.

    Left out is only what the rule points at, and nothing that says what the model is.
    """
    found = [*_made(parse(rule.require), True, values)]
    if rule.when:
        found += (own for own in _made(parse(rule.when), False, values) if {change.name for change in own} <= {*rule.location})
    distinct = (tuple(dict.fromkeys(own)) for own in found)
    yield from islice((own for own in dict.fromkeys(distinct) if _is_sensible(own)), MOST)


def _is_sensible(changes: Changes) -> bool:
    names = {change.name for change in changes}
    removed = [change.name for change in changes if change.value is None]
    return 0 < len(names) == len(changes) and all(WEIGHTS.get(name, 0) < MODEL for name in removed)


def _made(expression: Expression, wanted: bool, values: Values) -> Iterator[Changes]:
    """Yield changes that could give the expression the truth that is wanted; an empty one where it has it."""
    if values.evaluate(expression) is wanted:
        yield ()
        return
    match expression:
        case Name(name):
            yield from _truth(name, wanted, values)
        case Unary("not", operand):
            yield from _made(operand, not wanted, values)
        case Binary("and" | "or" as word, left, right) if (word == "and") is wanted:
            for one in _made(left, wanted, values):
                yield from ((*one, *other) for other in _made(right, wanted, values))
        case Binary("and" | "or", left, right):
            yield from _made(left, wanted, values)
            yield from _made(right, wanted, values)
        case Choice(condition, then, otherwise):
            holds = values.evaluate(condition)
            if holds is not False:
                yield from _made(then, wanted, values)
            if holds is not True:
                yield from _made(otherwise, wanted, values)
        case Call("set", (Name(name),)) if not wanted:
            yield from _removed(name, values)
        case Binary("in", left, ListOf(items)) if wanted:
            yield from _member(left, items, values)
        case Binary(operator, Literal() as left, right) if operator in _OPPOSITE:
            yield from _compared(_FLIPPED.get(operator, operator), right, left, wanted, values)
        case Binary(operator, left, Literal() as right) if operator in _OPPOSITE:
            yield from _compared(operator, left, right, wanted, values)


def _truth(name: str, wanted: bool, values: Values) -> Iterator[Changes]:
    if name in DERIVED:
        yield from _made(parse(DERIVED[name]), wanted, values)
    elif not name.startswith(ENVIRONMENT):
        yield (Change(name, wanted),)


def _removed(name: str, values: Values) -> Iterator[Changes]:
    if values.setting(name) is not None and not name.startswith(ENVIRONMENT):
        yield (Change(name, None),)


def _member(expression: Expression, items: tuple[Expression, ...], values: Values) -> Iterator[Changes]:
    """Yield the value as one of the items, the nearest by its letters first; nothing of a list."""
    name = _plain(expression)
    texts = [item.value for item in items if isinstance(item, Literal)]
    now = values.value(name) if name else Unknown("no setting")
    if not name or isinstance(now, tuple):
        return
    near = get_close_matches(str(now), [str(item) for item in texts], 1)
    ordered = sorted(texts, key=lambda item: str(item) not in near)
    for item in ordered[:_MOST_ITEMS]:
        yield (Change(name, item),)


def _compared(operator: str, left: Expression, right: Literal, wanted: bool, values: Values) -> Iterator[Changes]:
    name, value = _plain(left), right.value
    operator = operator if wanted else _OPPOSITE[operator]
    if not name:
        return
    if name in DERIVED:
        return
    if operator == "==" and value is None:
        yield from _removed(name, values)
    elif operator == "==":
        yield (Change(name, value),)
    if operator in ("==", "!=", "<", "<=") and name not in WEIGHTS:
        yield from _removed(name, values)
    if isinstance(value, int) and not isinstance(value, bool) and operator in ("<=", ">=", "<", ">"):
        yield (Change(name, value + {"<": -1, ">": 1}.get(operator, 0)),)


def _plain(expression: Expression) -> str:
    """Return the setting that an expression is the value of; empty where it is more than that."""
    match expression:
        case Name(name) if not name.startswith(ENVIRONMENT):
            return name
        case Call("text", (Name(name),)) if not name.startswith(ENVIRONMENT):
            return name
        case Call("default", (Name(name), _)) if not name.startswith(ENVIRONMENT):
            return name
    return ""
