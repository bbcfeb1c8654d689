"""dtype-mismatch: an operator is given types of numbers that it cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.inference.misfits import first_misfits, in_words, names_of
from tvlint.findings import Finding
from tvlint.ops.spec import DtypeError
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield operators that no framework runs on operands of these types."""
    for misfit in first_misfits(facts):
        if isinstance(misfit.why, DtypeError):
            yield rule.finding(
                in_words(facts, misfit),
                facts.place(misfit.segment, misfit.index),
                "cast it before",
                ranks=facts.fold.everywhere(facts.ranks_running(misfit.segment)),
                about=names_of(facts, misfit),
            )
