"""shape-mismatch: an operator is given shapes that it cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.inference.misfits import first_misfits, in_words, names_of
from tvlint.findings import Finding
from tvlint.ops.spec import DtypeError
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Operators that no framework runs on operands of these shapes; those of generated code are judged where it is read."""
    if facts.plan.format == "nnscaler-gencode":
        return
    for misfit in first_misfits(facts):
        if not isinstance(misfit.why, DtypeError):
            yield rule.finding(
                in_words(facts, misfit),
                facts.place(misfit.segment, misfit.index),
                "give operands of sizes that fit, or add the exchange or view that is missing before",
                ranks=facts.fold.everywhere(facts.ranks_running(misfit.segment)),
                about=names_of(facts, misfit),
            )
