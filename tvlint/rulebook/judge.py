"""Judge whether a configuration satisfies a rule, in three-valued logic."""

from __future__ import annotations

from tvlint.frameworks.kin import lineage, replaces
from tvlint.ir.configuration import Configuration
from tvlint.rule import Rule
from tvlint.rulebook.language.evaluation import Result
from tvlint.rulebook.language.expression import parse
from tvlint.rulebook.language.values import Values
from tvlint.rulebook.language.version import holds_for

ANY_FRAMEWORK = "any"


def version_range(rule: Rule, configuration: Configuration) -> str | None:
    """The versions of the configuration's framework that the rule holds for; None where it does not hold for the framework.

    What holds for Megatron core holds for what runs it, unless that does it in its own way.
    """
    if replaces(configuration.framework, rule.name, configuration.settings):
        return None
    own = next((name for name in lineage(configuration.framework) if name in rule.frameworks), ANY_FRAMEWORK)
    return rule.frameworks.get(own)


def is_applicable(rule: Rule, configuration: Configuration) -> bool:
    """Return whether the rule is about what the configuration's framework is, in its version as far as that is known."""
    versions = version_range(rule, configuration)
    return versions is not None and holds_for(versions, configuration.version) is not False


def judge(rule: Rule, values: Values) -> Result:
    """True where the rule is satisfied or does not apply, False where it is violated; else what it depends on."""
    configuration = values.configuration
    versions = version_range(rule, configuration)
    if versions is None:
        return True
    applies: Result = holds_for(versions, configuration.version)
    if applies is True and rule.when:
        applies = values.evaluate(parse(rule.when))
    if applies is False:
        return True
    return values.evaluate(parse(rule.require)) if applies is True else applies
