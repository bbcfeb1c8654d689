"""Whether a configuration satisfies a rule, in three values."""

from __future__ import annotations

from tvlint.rule import Rule
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import parse
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.language.version import holds_for

ANY_FRAMEWORK = "any"


def version_range(rule: Rule, framework: str) -> str | None:
    """The versions of the framework that the rule holds for; None where it does not hold for the framework."""
    return rule.frameworks.get(framework) or rule.frameworks.get(ANY_FRAMEWORK)


def judge(rule: Rule, values: Values) -> Result:
    """True where the rule is satisfied or does not apply, False where it is violated; else what it depends on."""
    configuration = values.configuration
    versions = version_range(rule, configuration.framework)
    if versions is None:
        return True
    applies: Result = holds_for(versions, configuration.version)
    if applies is True and rule.when:
        applies = values.evaluate(parse(rule.when))
    if applies is False:
        return True
    return values.evaluate(parse(rule.require)) if applies is True else applies
