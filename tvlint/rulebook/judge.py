"""Judge whether a configuration satisfies a rule, in three-valued logic."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tvlint.frameworks.kin import lineage, own_ways, replaces
from tvlint.ir.configuration import Configuration
from tvlint.rule import Rule
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import parse
from tvlint.rulebook.language.reads import read_by
from tvlint.rulebook.language.values import ENVIRONMENT, Values
from tvlint.rulebook.language.version import holds_for

ANY_FRAMEWORK = "any"


def version_range(rule: Rule, configuration: Configuration) -> str | None:
    """Return the versions of the configuration's framework that the rule holds for; None where it does not hold for the
    framework.

    What holds for Megatron core holds for what runs it, unless that does it in its own way.
    """
    for name in lineage(configuration.framework):
        if name in rule.frameworks:
            break
    else:
        name = ANY_FRAMEWORK
    if name not in rule.frameworks or replaces(configuration.framework, rule.name, configuration.settings):
        return None
    return rule.frameworks[name]


def is_applicable(rule: Rule, configuration: Configuration) -> bool:
    """Return whether the rule is about what the configuration's framework is, in its version as far as that is known."""
    versions = version_range(rule, configuration)
    return versions is not None and holds_for(versions, configuration.version) is not False


class Judged:
    """What rules said of configurations of one kind, as far as they ask for no setting that these give.

    Most rules ask for settings that most files leave out, and say the same of all of these.
    """

    def __init__(self) -> None:
        self.configurations = 0
        self._rules: list[Rule] = []
        self._said: list[Result] = []
        self._open: set[int] = set()
        self._readers: dict[str, list[tuple[int, Result]]] = {}

    def judge_all(self, rules: list[Rule], values: Values) -> list[tuple[Rule, Result]]:
        """Return what `judge` says of each rule, of another configuration of the kind."""
        configuration = values.configuration
        if rules != self._rules:
            self._begin(rules, configuration)
        said = self._said.copy()
        given = (*configuration.settings, *(ENVIRONMENT + name for name in configuration.environment))
        asked = {place: is_its_version for name in given for place, is_its_version in self._readers.get(name, ())}
        for place, is_its_version in asked.items():
            said[place] = _judge(rules[place], values, is_its_version)
        for place in self._open - asked.keys():
            said[place] = self._said[place] = judge(rules[place], values)
        self._open &= asked.keys()
        return list(zip(rules, said, strict=True))

    def _begin(self, rules: list[Rule], configuration: Configuration) -> None:
        """Forget what other rules said; of these, those that do not apply to the kind are satisfied."""
        self._rules, self._said, self._open, self._readers = rules, [True] * len(rules), set(), {}
        for place, rule in enumerate(rules):
            versions = version_range(rule, configuration)
            is_its_version: Result = versions is not None and holds_for(versions, configuration.version)
            if is_its_version is not False:
                self._open.add(place)
                for name in read_by(rule):
                    self._readers.setdefault(name, []).append((place, is_its_version))


@lru_cache(maxsize=64)
def _judged(kind: tuple[object, ...]) -> Judged:
    return Judged()


def judge_all(rules: Iterable[Rule], values: Values) -> list[tuple[Rule, Result]]:
    """Return what each rule says; of a second configuration of a kind, what those for settings that it leaves out said before.

    To find out what all rules ask for takes longer than to judge one configuration.
    """
    configuration = values.configuration
    judged = _judged((values.kind, own_ways(configuration.framework, configuration.settings)))
    judged.configurations += 1
    listed = list(rules)
    return [(rule, judge(rule, values)) for rule in listed] if judged.configurations == 1 else judged.judge_all(listed, values)


def judge(rule: Rule, values: Values) -> Result:
    """True where the rule is satisfied or does not apply, False where it is violated; else what it depends on."""
    configuration = values.configuration
    versions = version_range(rule, configuration)
    if versions is None:
        return True
    is_its_version = holds_for(versions, configuration.version)
    return True if is_its_version is False else _judge(rule, values, is_its_version)


def _judge(rule: Rule, values: Values, is_its_version: Result) -> Result:
    """Return what a rule says that applies to the framework, in its version as far as that is known."""
    applies: Result = values.evaluate(parse(rule.when)) if rule.when else True
    if applies is not True:
        return applies is False or applies
    holds = values.evaluate(parse(rule.require))
    return holds if is_its_version is True or holds is True else is_its_version
