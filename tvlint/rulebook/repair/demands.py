"""Changes of settings that could satisfy a rule, as its condition and its demand suggest them.

They are proposals: that the rule holds afterwards, and every other rule as before, is for the rules to judge.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from tvlint.frameworks.megatron import option_of
from tvlint.ir.configuration import Change, Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.near_names import nearest
from tvlint.rule import Rule
from tvlint.rulebook.judge import judge
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.expression import Constant, Expression, constant_of, is_constant, name_of, parse
from tvlint.rulebook.language.reads import read_by
from tvlint.rulebook.language.values import ENVIRONMENT, Values
from tvlint.rulebook.repair.sizes import MODEL, WEIGHTS

MOST = 12
"""So many changes are proposed for one rule."""
MOST_SHOWN = 2
"""Of more changes that satisfy a rule, only the first are shown."""
_MOST_ITEMS = 4
_TRAINS = frozenset({"train_iters", "train_samples"})
"""What says that a launch trains, and how long: without it most rules are satisfied, and nothing is repaired."""
_FLIPPED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE,
}  # fmt: skip
_OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt,
}  # fmt: skip

Changes = tuple[Change, ...]


def proposed(rule: Rule, values: Values) -> Iterator[Changes]:
    """Yield changes that could satisfy the rule: what it demands, then to leave out what makes it demand that.

    Left out is only what the rule points at, and nothing that says what the model is.
    """
    found = [*_made(parse(rule.require), True, values)]
    if rule.when:
        found += (
            changes
            for changes in _made(parse(rule.when), False, values)
            if {change.name for change in changes} <= {*rule.location}
        )
    distinct = (tuple(dict.fromkeys(changes)) for changes in found)
    settings = values.configuration.settings
    sensible = (each for each in dict.fromkeys(distinct) if _is_sensible(each) and not _ends_training(each, settings))
    yield from islice(sensible, MOST)


def demanded(rule: Rule, values: Values, rules: Sequence[Rule]) -> str:
    """Return the changes in words that satisfy the rule and break no other; empty where none that is proposed does."""
    configuration = values.configuration
    found = []
    for changes in proposed(rule, values):
        after = Values(_changed(configuration, changes))
        names = {change.name for change in changes}
        touched = [other for other in rules if read_by(other) & names and judge(other, values) is not False]
        if judge(rule, after) is True and not any(judge(other, after) is False for other in touched):
            found.append(" and ".join(words(change, configuration.settings.get(change.name)) for change in changes))
    return ", or ".join(found[:MOST_SHOWN])


def _changed(configuration: Configuration, changes: Changes) -> Configuration:
    settings = {**configuration.settings}
    nowhere = Location(configuration.path)
    for change in changes:
        before = settings.pop(change.name, Setting(change.name, None, change.name, nowhere, nowhere))
        if change.value is not None:
            settings[change.name] = replace(before, value=change.value)
    return replace(configuration, settings=settings)


def words(change: Change, setting: Setting | None) -> str:
    """Return what the change does, in the imperative."""
    known = option_of(change.name)
    name = setting.written if setting is not None else known.flags[0] if known is not None else change.name
    if change.value is None:
        return f"remove `{name}`"
    if setting is not None and setting.written.startswith("--") and isinstance(change.value, bool):
        return f"remove `{name}`"
    if setting is None:
        flag = isinstance(change.value, bool) and known is not None and known.kind in ("true", "false")
        return f"add `{name}`" if flag else f"add `{name} {_shown(change.value)}`"
    return f"set `{name}` to {_shown(change.value)}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_sensible(changes: Changes) -> bool:
    names = {change.name for change in changes}
    removed = [change.name for change in changes if change.value is None]
    return 0 < len(names) == len(changes) and all(WEIGHTS.get(name, 0) < MODEL for name in removed)


def _ends_training(changes: Changes, settings: Mapping[str, Setting]) -> bool:
    """Return whether the changes leave out all that says how long the launch trains."""
    removed = {change.name for change in changes if change.value is None}
    return bool(removed & _TRAINS) and not (_TRAINS - removed) & settings.keys()


def _made(expression: Expression, wanted: bool, values: Values) -> Iterator[Changes]:
    """Yield changes that could give the expression the truth that is wanted; an empty one where it has it."""
    if values.evaluate(expression) is wanted:
        yield ()
        return
    match expression:
        case ast.Name() | ast.Attribute() if name_of(expression):
            yield from _truth(name_of(expression), wanted, values)
        case ast.UnaryOp(ast.Not(), operand):
            yield from _made(operand, not wanted, values)
        case ast.BoolOp(word, parts) if isinstance(word, ast.And) is wanted:
            yield from _all_made(parts, wanted, values)
        case ast.BoolOp(_, parts):
            for part in parts:
                yield from _made(part, wanted, values)
        case ast.IfExp(condition, then, otherwise):
            holds = values.evaluate(condition)
            if holds is not False:
                yield from _made(then, wanted, values)
            if holds is not True:
                yield from _made(otherwise, wanted, values)
        case ast.Call(ast.Name("set"), [argument]) if not wanted:
            yield from _removed(name_of(argument), values)
        case ast.Compare(left, [ast.In() | ast.NotIn() as order], [ast.List(items)]):
            if isinstance(order, ast.In) is wanted:
                yield from _member(left, items, values)
        case ast.Compare(left, [order], [right]) if type(order) in _OPPOSITE:
            kind = type(order) if wanted else _OPPOSITE[type(order)]
            if is_constant(left):
                yield from _compared(_FLIPPED.get(kind, kind), right, constant_of(left), values)
            elif is_constant(right):
                yield from _compared(kind, left, constant_of(right), values)


def _all_made(parts: list[Expression], wanted: bool, values: Values) -> Iterator[Changes]:
    if not parts:
        yield ()
        return
    for one in _made(parts[0], wanted, values):
        yield from ((*one, *other) for other in _all_made(parts[1:], wanted, values))


def _truth(name: str, wanted: bool, values: Values) -> Iterator[Changes]:
    if name in DERIVED:
        yield from _made(parse(DERIVED[name]), wanted, values)
    elif not name.startswith(ENVIRONMENT):
        yield (Change(name, wanted),)


def _removed(name: str, values: Values) -> Iterator[Changes]:
    if values.setting(name) is not None and not name.startswith(ENVIRONMENT):
        yield (Change(name, None),)


def _member(expression: Expression, items: list[Expression], values: Values) -> Iterator[Changes]:
    """Yield the value as one of the items, the nearest by its letters first; nothing of a list."""
    name = _plain(expression)
    texts = [constant_of(item) for item in items if is_constant(item)]
    now = values.value(name) if name else Unknown("no setting")
    if not name or isinstance(now, tuple):
        return
    near = nearest(str(now), [str(item) for item in texts])
    ordered = sorted(texts, key=lambda item: str(item) != near)
    for item in ordered[:_MOST_ITEMS]:
        yield (Change(name, item),)


def _compared(kind: type[ast.cmpop], left: Expression, value: Constant, values: Values) -> Iterator[Changes]:
    name = _plain(left)
    if not name or name in DERIVED:
        return
    if kind is ast.Eq and value is None:
        yield from _removed(name, values)
    elif kind is ast.Eq:
        yield (Change(name, value),)
    if kind in (ast.Eq, ast.NotEq, ast.Lt, ast.LtE) and name not in WEIGHTS:
        yield from _removed(name, values)
    if isinstance(value, int) and not isinstance(value, bool) and kind in _FLIPPED:
        yield (Change(name, value + {ast.Lt: -1, ast.Gt: 1}.get(kind, 0)),)


def _plain(expression: Expression) -> str:
    """Return the setting that an expression is the value of; empty where it is more than that.

    The number of ranks is none: it follows from several.
    """
    match expression:
        case ast.Call(ast.Name("text"), [inner]) | ast.Call(ast.Name("default"), [inner, _]):
            name = name_of(inner)
        case _:
            name = name_of(expression)
    return "" if name.startswith(ENVIRONMENT) or name == "world_size" else name
