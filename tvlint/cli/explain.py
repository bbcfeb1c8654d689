"""`tvlint explain`."""

from __future__ import annotations

import argparse

from tvlint.cli.arguments import fail
from tvlint.cli.session import width
from tvlint.identity import FORMER_NAMES
from tvlint.reporters.escape.terminal import terminal
from tvlint.rulebook.explain import explain
from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import CLEAN
from tvlint.run.outputs import write_stdout
from tvlint.run.suggest import did_you_mean


def run(options: argparse.Namespace) -> int:
    """Print the page of the rule, or the ground on which the reason refutes."""
    rules = load_rules()
    name = FORMER_NAMES.get(options.rule, options.rule)
    if name in rules:
        write_stdout(terminal(explain(rules[name], width(40, 100)).removesuffix("\n").split("\n")))
        return CLEAN
    from tvlint.analyses.relations.grounds import REFUTING

    if name not in REFUTING:
        fail(f"unknown rule `{options.rule}`", did_you_mean(options.rule, rules) or "`tvlint rules` lists them")
    ground = f"`tvlint prove` refutes a plan for it: the plan {REFUTING[name].value}"
    write_stdout(terminal([f"{name} (reason of a verdict)", ground, "", "docs/soundness.md has the argument for each reason"]))
    return CLEAN
