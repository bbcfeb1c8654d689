"""Rules that a command breaks as it is written, of which words that are not known could still decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvlint.frameworks.core_defaults import CANONICAL
from tvlint.frameworks.kin import parses_like_megatron
from tvlint.frameworks.megatron import option_of
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.ir.values import replace
from tvlint.rule import Rule
from tvlint.rulebook.judge import judge
from tvlint.rulebook.language.derived import DERIVED
from tvlint.rulebook.language.reads import read_by
from tvlint.rulebook.language.values import Values

FIELD_OF = {name: field for field, name in CANONICAL.items()}
MOST_NAMED = 2
"""Of more options that could decide otherwise, only the first are named."""


def as_written(configuration: Configuration, rules: Iterable[Rule]) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that is broken where `configuration.elsewhere` gives nothing unusual, with the condition in words.

    A setting that launches usually give is not supposed to be left out.
    """
    supposed = Values(replace(configuration, supposed=True))
    plain = Values(configuration)
    for rule in rules:
        if judge(rule, supposed) is False:
            yield rule, f", unless {configuration.elsewhere} sets {_options(rule, plain, supposed)}"


def _options(rule: Rule, plain: Values, supposed: Values) -> str:
    """Return the options by which the rule could hold all the same."""
    is_command = parses_like_megatron(plain.configuration.framework)
    decisive = [
        known.flags[0] if is_command else FIELD_OF.get(name, name)
        for name in sorted(read_by(rule))
        if name not in DERIVED
        and isinstance(plain.value(name), Unknown)
        and not isinstance(supposed.value(name), Unknown)
        and (known := option_of(name)) is not None
    ]
    named = [f"`{flag}`" for flag in decisive[:MOST_NAMED]]
    if not named:
        return "something else"
    return " or ".join(named) if len(decisive) <= MOST_NAMED else ", ".join(named) + " or the like"
