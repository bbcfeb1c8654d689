"""`tvlint explain`."""

from __future__ import annotations

import argparse

from tvlint.cli.arguments import fail
from tvlint.cli.session import width
from tvlint.identity import FORMER_NAMES
from tvlint.near_names import did_you_mean
from tvlint.reporters.escape.terminal import terminal
from tvlint.rulebook.explain import explain
from tvlint.rulebook.pages import load_rules
from tvlint.run.output.exit_code import CLEAN
from tvlint.run.output.outputs import write_stdout


def run(options: argparse.Namespace) -> int:
    """Print the rule's page."""
    rules = load_rules()
    name = FORMER_NAMES.get(options.rule, options.rule)
    if name not in rules:
        fail(f"unknown rule `{options.rule}`", did_you_mean(options.rule, rules) or "`tvlint rules` lists them")
    write_stdout(terminal(explain(rules[name], width(40, 100)).removesuffix("\n").split("\n")))
    return CLEAN
