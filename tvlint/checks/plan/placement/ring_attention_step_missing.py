"""ring-attention-step-missing: queries never meet the keys of some rank of the ring."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.ring_attention import ring_defects
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Rings of attention steps that end before every rank's keys came by."""
    for found in ring_defects(facts):
        if found.kind != "step":
            continue
        twice, help = "", "rotate the keys and values once more for every rank but the own"
        if found.again >= 0:
            twice = f"meets those of rank {found.again} twice, here as `{found.name}`, and "
            help = "send on the keys and values that the step before received"
        yield rule.finding(
            f"the queries of {facts.who(found.ranks)} meet the keys of {found.other} ranks of the ring; "
            f"rank {found.ranks[0]} {twice}never sees those of {describe(found.missing)}",
            facts.place(*found.where),
            help,
            ranks=facts.fold.everywhere(found.ranks),
            about=(),
        )
