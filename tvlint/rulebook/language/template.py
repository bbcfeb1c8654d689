"""Message templates: text with `{expression}` in it."""

from __future__ import annotations

from collections.abc import Callable

from tvlint.ir.configuration import Unknown
from tvlint.ir.patterns import Pattern
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import Expression, parse
from tvlint.rulebook.language.functions import show

_SLOT = Pattern(r"\{([^{}]*)\}")


def expressions(template: str) -> tuple[Expression, ...]:
    """Return the expressions that `template` shows."""
    return tuple(parse(slot) for slot in _SLOT.findall(template))


def fill(template: str, evaluate: Callable[[Expression], Result]) -> str:
    """`template` with the values of its expressions; `?` for an unknown one."""
    return _SLOT.sub(lambda slot: show(evaluate(parse(slot[1]))), template)


def fill_known(template: str, evaluate: Callable[[Expression], Result]) -> str:
    """`template` with the values of its expressions; empty where one is unknown."""
    if any(isinstance(evaluate(expression), Unknown) for expression in expressions(template)):
        return ""
    return fill(template, evaluate)
