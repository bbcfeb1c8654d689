"""Configurations to findings: config rules judged in three values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tvlint.findings import Finding, NotEvaluated, Related
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.evaluation import Result
from tvlint.rulebook.expression import parse
from tvlint.rulebook.functions import show
from tvlint.rulebook.template import fill, fill_known
from tvlint.rulebook.values import Values
from tvlint.rulebook.version import holds_for, is_assumed

ANY_FRAMEWORK = "any"


def evaluate(configuration: Configuration, rules: Mapping[str, Rule] | Iterable[Rule]) -> Iterator[Finding | NotEvaluated]:
    """What each config rule says of `configuration`: a finding where it is violated, nothing where it holds.

    A rule whose answer depends on an unknown gives `NotEvaluated`. Rules of other kinds and frameworks are passed over.
    """
    values = Values(configuration)
    for rule in rules.values() if isinstance(rules, Mapping) else rules:
        if rule.kind is RuleKind.CONFIG:
            yield from _judge(rule, values)


def _judge(rule: Rule, values: Values) -> Iterator[Finding | NotEvaluated]:
    configuration = values.configuration
    version_range = rule.frameworks.get(configuration.framework) or rule.frameworks.get(ANY_FRAMEWORK)
    if version_range is None:
        return
    applies: Result = holds_for(version_range, configuration.version)
    if applies is True and rule.when:
        applies = values.evaluate(parse(rule.when))
    if applies is False:
        return
    holds = values.evaluate(parse(rule.require)) if applies is True else applies
    if holds is True:
        return
    if holds is False:
        yield _finding(rule, values, version_range)
        return
    reason = holds.reason if isinstance(holds, Unknown) else f"{show(holds)} is neither true nor false"
    known = fill_known(rule.unknown, values.evaluate)
    yield NotEvaluated(rule.name, _whole(configuration), f"{reason}; {known}" if known else reason)


def _finding(rule: Rule, values: Values, version_range: str) -> Finding:
    given = [setting for name in rule.location if (setting := values.setting(name)) is not None]
    location = given[0].location if given else _whole(values.configuration)
    related = tuple(Related(_stands(setting), setting.location) for setting in given[1:])
    message = fill(rule.message, values.evaluate)
    help = fill_known(rule.help, values.evaluate)
    if is_assumed(version_range, values.configuration.version):
        assumption = f"holds for {values.configuration.framework} {version_range}, taken as given"
        help = f"{help} ({assumption})" if help else assumption
    return Finding(rule.name, rule.severity, message, location, help, related)


def _stands(setting: Setting) -> str:
    if setting.value is True:
        return f"`{setting.written}` is set here"
    if isinstance(setting.value, Unknown):
        return f"`{setting.written}` is given here"
    return f"`{setting.written}` is {show(setting.value)} here"


def _whole(configuration: Configuration) -> Location:
    return configuration.location or Location(configuration.path)
