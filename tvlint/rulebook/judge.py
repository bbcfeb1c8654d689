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
        self._said: dict[str, tuple[Rule, Result]] = {}

    def judge(self, rule: Rule, values: Values, given: frozenset[str]) -> Result:
        """Return what `judge` does, of a configuration that gives the settings `given`."""
        if not given.isdisjoint(read_by(rule)):
            return judge(rule, values)
        said = self._said.get(rule.name)
        if said is None or said[0] is not rule:
            said = self._said[rule.name] = (rule, judge(rule, values))
        return said[1]


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
    if judged.configurations == 1:
        return [(rule, judge(rule, values)) for rule in rules]
    given = frozenset({*configuration.settings, *(ENVIRONMENT + name for name in configuration.environment)})
    return [(rule, judged.judge(rule, values, given)) for rule in rules]


def judge(rule: Rule, values: Values) -> Result:
    """True where the rule is satisfied or does not apply, False where it is violated; else what it depends on."""
    configuration = values.configuration
    versions = version_range(rule, configuration)
    if versions is None:
        return True
    is_its_version = holds_for(versions, configuration.version)
    if is_its_version is False:
        return True
    applies: Result = values.evaluate(parse(rule.when)) if rule.when else True
    if applies is not True:
        return applies is False or applies
    holds = values.evaluate(parse(rule.require))
    return holds if is_its_version is True or holds is True else is_its_version
