"""Configurations to findings: config rules judged in three values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping

from tvlint.findings import Finding, NotEvaluated, Related, Severity
from tvlint.frameworks.kin import FRAMEWORKS, MEGATRON
from tvlint.ir.configuration import IN_DEVELOPMENT, Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.as_written import as_written
from tvlint.rulebook.judge import judge, judge_all, version_range
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import Expression, conjuncts, names, parse
from tvlint.rulebook.language.functions import show
from tvlint.rulebook.language.template import fill, fill_known
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.language.version import is_assumed, is_of_fresh_release, shown_by
from tvlint.topology.role import Role, role_of

HAS_FORKS = frozenset({"megatron-lm", "megatron-core"})
"""Frameworks of which versions of many years are in use."""


def evaluate(
    configuration: Configuration, rules: Mapping[str, Rule] | Iterable[Rule], *, repairs: bool = True
) -> Iterator[Finding | NotEvaluated]:
    """Yield what each config rule says of `configuration`: a finding where it is violated, nothing where it holds.

    A rule whose answer depends on an unknown gives `NotEvaluated`. Rules of other kinds and frameworks are passed over. With
    `repairs`, the help of findings about sizes names the nearest settings that satisfy all rules, which takes a search; notes
    have none.
    A rule of some versions of Megatron is no more than a warning where nothing tells that one of them is used, and a note where
    those refuse an option whatever else is given, which tells of an earlier one, and where those came out lately, as in a tree
    that is developed towards the first of them. What is a warning is a note in every tree that may not have come so far. Of a
    command of which words are not known, what is written is judged as written: an error that only those words could prevent is
    found, and says so.
    """
    values = Values(configuration)
    known = [rule for rule in (rules.values() if isinstance(rules, Mapping) else rules) if rule.kind is RuleKind.CONFIG]
    outcomes = judge_all(known, values)
    unless: Mapping[str, str] = {}
    if configuration.elsewhere and not configuration.complete and role_of(configuration) is not Role.SERVES:
        undecided = [rule for rule, holds in outcomes if holds not in (True, False) and rule.severity is Severity.ERROR]
        unless = {rule.name: condition for rule, condition in as_written(configuration, undecided)}
    if unless:
        configuration = replace(configuration, supposed=True)
        supposed = Values(configuration)
        outcomes = [(rule, False if rule.name in unless else holds) for rule, holds in outcomes]
    outcomes = _by_what_is_left(outcomes, supposed if unless else values)
    violated = [rule for rule, holds in outcomes if holds is False and rule.severity is not Severity.NOTE]
    changes: dict[str, str] = {}
    if violated and repairs:
        from tvlint.rulebook.repair.demands import demanded
        from tvlint.rulebook.repair.nearest import nearest

        changes = {rule.name: str(repair) for rule, repair in nearest(configuration, known, violated)}
        for rule in violated:
            this_values = supposed if rule.name in unless else values
            if rule.name not in changes and not fill_known(rule.help, this_values.evaluate):
                changes[rule.name] = demanded(rule, this_values, known)
    for rule, holds in outcomes:
        if holds is False:
            this_values = supposed if rule.name in unless else values
            yield _finding(rule, this_values, changes.get(rule.name, ""), unless.get(rule.name, ""))
        elif holds is not True:
            reason = holds.reason if isinstance(holds, Unknown) else f"{show(holds)} is neither true nor false"
            more = fill_known(rule.unknown, values.evaluate)
            yield NotEvaluated(rule.name, _whole(configuration), f"{reason}; {more}" if more else reason)
    if configuration.cases:
        yield from _in_cases(configuration, [rule for rule, holds in outcomes if holds is not False], repairs)


def _by_what_is_left(outcomes: list[tuple[Rule, Result]], values: Values) -> list[tuple[Rule, Result]]:
    """Return the outcomes without rules that hold with what violated rules say is left of settings."""
    violated = [rule for rule, holds in outcomes if holds is False]
    left = {name: values.evaluate(parse(text)) for rule in violated for name, text in rule.leaves.items()}
    if not left:
        return outcomes
    settings = dict(values.configuration.settings)
    settings |= {
        name: replace(settings[name], value=size) for name, size in left.items() if name in settings and isinstance(size, int)
    }
    what_is_left = Values(replace(values.configuration, settings=settings))
    held = {rule.name for rule in violated if not rule.leaves and judge(rule, what_is_left) is True}
    return [(rule, holds) for rule, holds in outcomes if rule.name not in held]


def _in_cases(configuration: Configuration, rules: Iterable[Rule], repairs: bool) -> Iterator[Finding]:
    """Yield the errors of the cases of a configuration, each of the first case that has it."""
    left = {rule.name: rule for rule in rules if rule.severity is Severity.ERROR}
    for case in configuration.cases:
        this_configuration = replace(case, version=configuration.version, framework=configuration.framework)
        for result in [*evaluate(this_configuration, left, repairs=repairs)]:
            if isinstance(result, Finding) and result.severity is Severity.ERROR:
                left.pop(result.rule, None)
                yield result


def _finding(rule: Rule, values: Values, repair: str, unless: str) -> Finding:
    path = values.configuration.path
    given = [setting for name in rule.location if (setting := values.setting(name)) is not None]
    blamed = _blamed(rule, values)
    given.sort(key=lambda setting: (setting.location.path != path, setting.name != blamed))
    location = given[0].location if given else _whole(values.configuration)
    related = tuple(Related(_stands(setting), setting.location) for setting in given[1:])
    message = fill(rule.message, _shown(values)) + values.configuration.condition + unless
    help = fill_known(rule.help, values.evaluate)
    if repair:
        help = f"{help}; {repair}" if help else repair
    elif not help:
        help = fill_known(rule.help, _shown(values))
    severity = rule.severity
    framework = values.configuration.framework
    versions = version_range(rule, values.configuration) or ""
    if is_assumed(versions, values.configuration.version):
        shown = shown_by(versions, values.configuration)
        assumption = f"holds for {framework} {versions}, {f'as `{shown}` shows' if shown else 'taken as given'}"
        help = f"{help} ({assumption})" if help else assumption
        if not shown and (_refuses_options(rule) or is_of_fresh_release(versions, values.configuration.version)):
            severity = Severity.NOTE
        elif severity is Severity.ERROR and framework in HAS_FORKS and not shown:
            severity = Severity.WARNING
        elif severity is Severity.WARNING and values.configuration.version.endswith(IN_DEVELOPMENT):
            severity = Severity.NOTE
    elif framework != MEGATRON and framework in FRAMEWORKS:
        judged = f"judged as {framework}"
        help = f"{help} ({judged})" if help else judged
    return Finding(rule.name, severity, message, location, help, related, about=(), section=values.configuration.section)


def _shown(values: Values) -> Callable[[Expression], Result]:
    """Return how expressions are shown in the text of what is surely broken.

    Of several causes the first that is known is reported; what unknown words could give is taken as launches usually have it.
    """
    usual = Values(replace(values.configuration, supposed=True)) if values.configuration.elsewhere else values

    def evaluate(expression: Expression) -> Result:
        value, cause = values.evaluate(expression), expression
        if not isinstance(value, Unknown):
            return value
        while isinstance(cause, ast.IfExp):
            if values.evaluate(cause.test) is True:
                return evaluate(cause.body)
            cause = cause.orelse
        value = usual.evaluate(expression)
        return values.evaluate(cause) if isinstance(value, Unknown) else value

    return evaluate


def _refuses_options(rule: Rule) -> bool:
    """Return whether the rule is that some options are not given, whatever else is."""
    demands = conjuncts(parse(rule.require))
    return not rule.when and all(isinstance(demand, ast.UnaryOp) and isinstance(demand.op, ast.Not) for demand in demands)


def _blamed(rule: Rule, values: Values) -> str:
    """Return the setting that breaks a page of several demands, each on its own setting; empty where the page's order stands.

    It is the only place that the broken demand asks about, where the page's first place belongs to another demand and is no
    condition of the page that this one is not.
    """
    demands = [(conjunct, set(names(conjunct))) for conjunct in conjuncts(parse(rule.require))]
    broken, asks = next((demand for demand in demands if values.evaluate(demand[0]) is False), (None, set()))
    asked = [name for name in rule.location if name in asks]
    first = next((name for name in rule.location if values.setting(name) is not None), "")
    elsewhere = any(first in others for node, others in demands if node is not broken)
    conditions = set(names(parse(rule.when))) if rule.when else set()
    alike = first not in conditions or asked[:1] == [name for name in asked if name in conditions]
    return asked[0] if len(asked) == 1 and first not in asks and elsewhere and alike else ""


def _stands(setting: Setting) -> str:
    if setting.value is True:
        return f"`{setting.written}` is set here"
    if isinstance(setting.value, Unknown):
        return f"`{setting.written}` is given here"
    return f"`{setting.written}` is {show(setting.value)} here"


def _whole(configuration: Configuration) -> Location:
    return configuration.location or Location(configuration.path)
