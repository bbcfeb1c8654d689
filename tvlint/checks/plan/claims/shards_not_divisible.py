"""shards-not-divisible: a dimension is sharded over more ranks than it has equal pieces for."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.inference.uneven_shards import remainders
from tvlint.findings import Finding
from tvlint.ir.plan import Role
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Values whose placement leaves elements over that no rank holds; computed ones only where no weight or input does."""
    for found in remainders(facts.plan):
        tensor, what = found.tensor, found.what
        role = "" if tensor.role is Role.ACTIVATION else f"{tensor.role.value} "
        part = "a packed part of " if what.packed else ""
        nearest = max(what.length // what.pieces, 1) * what.pieces
        yield rule.finding(
            f"{part}dimension {what.dim} of {role}`{tensor.name}` has length {what.length}, which does not divide into "
            f"{what.pieces} pieces over `{what.axis}`",
            facts.place(found.segment, found.index),
            f"use a length of {nearest} or {nearest + what.pieces}, or say each rank's own piece where they are unequal",
            ranks=facts.fold.everywhere(facts.ranks_running(found.segment)),
            about=(tensor.name, what.axis),
        )
