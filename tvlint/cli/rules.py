"""`tvlint rules`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable

from tvlint.cli.session import outputs, write
from tvlint.rule import Rule
from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import CLEAN


def run(options: argparse.Namespace) -> int:
    """List every rule: a line each, or JSON."""
    wanted = outputs(options)
    rules = load_rules().values()
    write(wanted, lambda output: _json(rules) if output.format == "json" else _text(rules))
    if sys.stdout.isatty():
        print(f"\n{len(rules)} rules; `tvlint explain RULE` says more", file=sys.stderr)
    return CLEAN


def _text(rules: Iterable[Rule]) -> str:
    width = max((len(rule.name) for rule in rules), default=0)
    lines = (f"{rule.name:<{width}}  {rule.severity.value:<7}  {rule.kind.value:<6}  {rule.summary}" for rule in rules)
    return "".join(f"{line}\n" for line in lines)


def _json(rules: Iterable[Rule]) -> str:
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
    return json.dumps({"rules": listed}, indent=2) + "\n"
