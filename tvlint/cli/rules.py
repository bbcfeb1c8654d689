"""`tvlint rules`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from tvlint.cli.session import outputs, write
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal
from tvlint.rule import Rule
from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import CLEAN
from tvlint.run.outputs import say


def run(options: argparse.Namespace) -> int:
    """List every rule: a line each, or JSON."""
    wanted = outputs(options)
    rules = load_rules().values()
    write({output: _json(rules) if output.format == "json" else _text(rules) for output in wanted})
    if sys.stdout.isatty():
        say("", f"{len(rules)} rules; `tvlint explain RULE` says more")
    return CLEAN


def _text(rules: Iterable[Rule]) -> Escaped:
    width = max((len(rule.name) for rule in rules), default=0)
    return terminal(f"{rule.name:<{width}}  {rule.severity.value:<7}  {rule.kind.value:<6}  {rule.summary}" for rule in rules)


def _json(rules: Iterable[Rule]) -> Escaped:
    listed = [
        {
            "name": rule.name,
            "kind": rule.kind.value,
            "severity": rule.severity.value,
            "summary": rule.summary,
            "frameworks": dict(rule.frameworks),
            "sources": list(rule.sources),
        }
        for rule in rules
    ]
    return data({"rules": listed})
