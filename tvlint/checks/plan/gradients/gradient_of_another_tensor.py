"""gradient-of-another-tensor: the gradient of one value is used for another."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.misused_gradients import misused_gradients
from tvlint.analyses.relations.scales import place_of
from tvlint.findings import Finding
from tvlint.rule import Rule

_MESSAGES = {
    "given": "backward gives the gradient of `{tensor}` as `{name}`, which is that of `{owner}`",
    "stepped": "`{tensor}` is updated with `{name}`, which is made of the gradient of `{owner}`",
    "recomputed": "the backward of `{tensor}` starts with `{name}`, the gradient of `{owner}`: `{tensor}` comes from `{other}` "
    "where `{owner}` comes from `{one}`",
    "taken": "the backward of `{tensor}` starts with `{name}`, the gradient of `{owner}`",
}
_HELP = {
    "given": "use the gradient of `{tensor}` here, and look where `{name}` should go",
    "stepped": "update `{tensor}` with its own gradient",
    "recomputed": "compute again what the forward pass computes, with `{one}`",
    "taken": "use the gradient of `{tensor}` here, and look where `{name}` should go",
}


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield backward operators that take, or give, a gradient at the place of another tensor, and steps with one."""
    for misused_gradient in misused_gradients(facts):
        words = {"tensor": misused_gradient.tensor, "name": misused_gradient.name, "owner": misused_gradient.owner}
        words |= dict(zip(("one", "other"), misused_gradient.parted, strict=True))
        yield rule.finding(
            _MESSAGES[misused_gradient.how].format_map(words),
            place_of(facts, misused_gradient.operator),
            _HELP[misused_gradient.how].format_map(words),
            ranks=facts.fold.everywhere((misused_gradient.rank,)),
            about=(misused_gradient.tensor, misused_gradient.name, misused_gradient.owner),
        )
