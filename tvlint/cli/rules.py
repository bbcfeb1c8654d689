"""`tvlint rules`."""

from __future__ import annotations

import argparse
import json
import sys

from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import CLEAN
from tvlint.run.outputs import write_stdout


def run(options: argparse.Namespace) -> int:
    """List every rule: a line each, or JSON."""
    rules = load_rules().values()
    if options.output == "json":
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
        write_stdout(json.dumps({"rules": listed}, indent=2) + "\n")
        return CLEAN
    width = max((len(rule.name) for rule in rules), default=0)
    lines = [f"{rule.name:<{width}}  {rule.severity.value:<7}  {rule.kind.value:<6}  {rule.summary}" for rule in rules]
    write_stdout("".join(f"{line}\n" for line in lines))
    if sys.stdout.isatty():
        print(f"\n{len(lines)} rules; `tvlint explain RULE` says more", file=sys.stderr)
    return CLEAN
