"""A change of a configuration to findings: the derived settings that it alters.

A change rule requires something of two configurations at once: `before.NAME` and `after.NAME` are the same names as in a rule
about one configuration, derived ones included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.findings import Finding, NotEvaluated, Related
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.judge import version_range
from tvlint.rulebook.language.evaluation import Result, evaluate_expression
from tvlint.rulebook.language.expression import Expression, names, parse
from tvlint.rulebook.language.functions import show
from tvlint.rulebook.language.reads import read_by_text
from tvlint.rulebook.language.template import fill, fill_known
from tvlint.rulebook.language.values import Values

BEFORE, AFTER = "before.", "after."


class Both:
    """The values of two configurations, by `before.NAME` and `after.NAME`."""

    def __init__(self, before: Configuration, after: Configuration) -> None:
        self.before, self.after = Values(before), Values(after)

    def evaluate(self, expression: Expression) -> Result:
        """Return the value of `expression` over both."""
        return evaluate_expression(expression, self._value, self._is_set)

    def _value(self, name: str) -> Result:
        values, word = self._side(name)
        return values.value(word)

    def _is_set(self, name: str) -> Result:
        values, word = self._side(name)
        return values.is_set(word)

    def _side(self, name: str) -> tuple[Values, str]:
        if name.startswith(BEFORE):
            return self.before, name[len(BEFORE) :]
        if name.startswith(AFTER):
            return self.after, name[len(AFTER) :]
        raise ValueError(f"`{name}` is of neither configuration")


def changes(before: Configuration, after: Configuration, rules: Mapping[str, Rule]) -> Iterator[Finding | NotEvaluated]:
    """Yield what each change rule says of two configurations of one run; nothing of two frameworks."""
    both = Both(before, after)
    if before.framework != after.framework:
        return
    for rule in rules.values():
        if rule.kind is not RuleKind.CHANGE or version_range(rule, after) is None:
            continue
        holds = both.evaluate(parse(rule.require))
        if holds is False:
            yield _finding(rule, before, after, both)
        elif holds is not True:
            reason = holds.reason if isinstance(holds, Unknown) else f"{show(holds)} is neither true nor false"
            yield NotEvaluated(rule.name, after.location or Location(after.path), reason)


def written(before: Configuration, after: Configuration) -> tuple[tuple[str, Setting | None, Setting | None], ...]:
    """Return the settings that one configuration gives otherwise than the other, in the order of the new one."""
    found = []
    for name in dict.fromkeys((*after.settings, *before.settings)):
        old, new = before.settings.get(name), after.settings.get(name)
        if not _same(old, new):
            found.append((name, old, new))
    return tuple(found)


def _same(old: Setting | None, new: Setting | None) -> bool:
    if old is None or new is None:
        return old is new
    return old.value == new.value and type(old.value) is type(new.value)


def _finding(rule: Rule, before: Configuration, after: Configuration, both: Both) -> Finding:
    """At the changed settings that the rule reads, those that it names first before the others."""
    changed = {name: (old, new) for name, old, new in written(before, after)}
    reads = {
        each_name
        for name in names(parse(rule.require))
        for each_name in read_by_text(name.removeprefix(BEFORE).removeprefix(AFTER))
    }
    causes = [name for name in (*rule.location, *changed) if name in changed and name in reads]
    places = [(name, new.location) for name in dict.fromkeys(causes) if (new := changed[name][1]) is not None]
    removed = [old.written for name in dict.fromkeys(causes) if (old := changed[name][0]) and changed[name][1] is None]
    location = places[0][1] if places else after.location or Location(after.path)
    related = tuple(Related(_became(changed[name]), place) for name, place in places[1:])
    message = fill(rule.message, both.evaluate)
    if removed and not places:
        message = f"{message}: {', '.join(f'`{name}`' for name in removed)} is gone"
    return rule.finding(message, location, fill_known(rule.help, both.evaluate), related)


def _became(pair: tuple[Setting | None, Setting | None]) -> str:
    old, new = pair
    if new is None:
        raise AssertionError(pair)
    before = "was not given" if old is None else f"was {show(old.value)}"
    return f"`{new.written}` {before} and is {show(new.value)} here"
