"""tied-gradient-not-reduced: pipeline stages that share a weight do not add up its gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import Tied, tied
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield weights that several pipeline stages update, each with its own gradient."""
    for found in tied(facts):
        yield _finding(facts, found, rule)


def _finding(facts: Facts, found: Tied, rule: Rule) -> Finding:
    return rule.finding(
        f"`{found.weight}` is shared by {facts.who(found.first)} and {facts.who(found.second)}, which update it with different "
        "gradients",
        facts.place(*found.update),
        f"reduce the gradient of `{found.weight}` over the pipeline stages that share it",
        (Related("one of the gradients is produced here", facts.place(*found.produced)),),
        facts.fold.everywhere(tuple(sorted({*found.first, *found.second}))),
        about=(found.weight,),
    )
