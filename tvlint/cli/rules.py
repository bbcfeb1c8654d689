"""`tvlint rules`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence

from tvlint.cli.arguments import fail
from tvlint.cli.session import outputs, write
from tvlint.frameworks.kin import KNOWN
from tvlint.ir.configuration import Configuration
from tvlint.near_names import did_you_mean
from tvlint.plurals import counted
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal
from tvlint.rule import Rule
from tvlint.rulebook.judge import version_range
from tvlint.rulebook.pages import explanation_of, load_rules
from tvlint.run.output.exit_code import CLEAN, NOTHING
from tvlint.run.output.outputs import say


def run(options: argparse.Namespace) -> int:
    """List every rule that is asked for, those first whose names hold the words: a line each, or JSON."""
    wanted = outputs(options)
    known = tuple(load_rules().values())
    _refuse_unknown("topic", options.topic, [rule.topic for rule in known])
    _refuse_unknown("framework", options.framework, KNOWN)
    rules = tuple(_found(known, options))
    write({output: _json(rules) if output.format == "json" else _text(rules) for output in wanted})
    if sys.stdout.isatty() or not rules:
        more = "; `tvlint explain RULE` says more" if rules else ""
        say("", f"{counted(len(rules), 'rule')}{more}")
    return CLEAN if rules else NOTHING


def _refuse_unknown(what: str, word: str, known: Collection[str]) -> None:
    if word and not any(name == word or name.startswith(f"{word}/") for name in known):
        fail(f"no rule has the {what} `{word}`", did_you_mean(word, {*known}))


def _found(rules: Sequence[Rule], options: argparse.Namespace) -> Iterator[Rule]:
    words = [word.lower() for word in options.words]
    wanted = Configuration("", "", options.framework, {})
    kept = [
        rule
        for rule in rules
        if options.kind in (None, rule.kind.value)
        and options.severity in (None, rule.severity.value)
        and (not options.topic or f"{rule.topic}/".startswith(f"{options.topic}/"))
        and (not options.framework or version_range(rule, wanted) is not None)
    ]
    named = [rule for rule in kept if all(word in rule.name for word in words)]
    yield from named
    for rule in kept if words else ():
        page = f"{rule.name}\n{rule.summary}\n{rule.message}\n{rule.help}\n{explanation_of(rule)}".lower()
        if rule not in named and all(word in page for word in words):
            yield rule


def _text(rules: Sequence[Rule]) -> Escaped:
    width = max((len(rule.name) for rule in rules), default=0)
    return terminal(f"{rule.name:<{width}}  {rule.severity.value:<7}  {rule.kind.value:<6}  {rule.summary}" for rule in rules)


def _json(rules: Sequence[Rule]) -> Escaped:
    listed = [
        {
            "name": rule.name,
            "kind": rule.kind.value,
            "severity": rule.severity.value,
            "topic": rule.topic,
            "summary": rule.summary,
            "frameworks": dict(rule.frameworks),
            "sources": list(rule.sources),
        }
        for rule in rules
    ]
    return data({"rules": listed})
