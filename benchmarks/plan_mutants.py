"""Breaks exported plans in every way of the family, and prints what `check` finds by its rules and what only by relations.

TVLINT_SHARED=FOLDER python benchmarks/plan_mutants.py [--each N]

The truth is that of `prove` with the plan's reference: refuted, proved or unknown.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent / "tests")]

from oracle.mutate import mutants  # noqa: E402

from tests.shared import SHARED  # noqa: E402
from tvlint.analyses.dataflow.facts import Facts  # noqa: E402
from tvlint.analyses.relations.findings import derived_findings  # noqa: E402
from tvlint.checks import load_check  # noqa: E402
from tvlint.equivalence.verdict.prove import prove  # noqa: E402
from tvlint.findings import Severity  # noqa: E402
from tvlint.ir.plan import Plan  # noqa: E402
from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle  # noqa: E402
from tvlint.rule import RuleKind  # noqa: E402
from tvlint.rulebook.pages import load_rules  # noqa: E402

PAIRS = (
    ("mlp_default_dp2_pp2_tp2_nm2_gbs16_dim1024_ly4", "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim1024_ly4"),
    ("mlp_default_dp1_pp1_tp4_nm1_gbs16_dim1024_ly4", "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim1024_ly4"),
    ("moe_default_dp2_pp2_tp2_nm2_gbs1024_ly1_h16_hi512_sq128_a2_r16",
     "moe_default_dp1_pp1_tp1_nm1_gbs1024_ly1_h16_hi512_sq128_a2_r16"),
    ("llama3_flex_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128", "llama3_default_dp1_pp1_tp1_nm1_gbs512_ly1_h32_hi4096_sq128"),
)  # fmt: skip
RULES = {name: rule for name, rule in load_rules().items() if rule.kind is RuleKind.PLAN}


def main() -> int:
    """1 if relations flag a mutant that is proved and that no rule flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=80, help="take so many mutants of each plan, at random")
    arguments = parser.parse_args()
    table: Counter[tuple[str, str]] = Counter()
    for name, reference in PAIRS:
        plan, single = _plan(name), _plan(reference)
        chosen = set(random.Random(7).sample(range(sum(1 for _ in mutants(plan))), arguments.each))
        for number, mutant in enumerate(mutants(plan)):
            if number in chosen:
                table[prove(mutant.plan, single).outcome.value, _found(mutant.plan)] += 1
    for (outcome, found), count in sorted(table.items()):
        print(f"{outcome:10}{found:10}{count:5}")
    return int(bool(table["proved", "relations"]))


def _found(plan: Plan) -> str:
    """Return who finds an error in the plan: the rules, the relations alone, or none."""
    facts = Facts(plan)
    found = [finding for rule in RULES.values() for finding in load_check(rule)(facts)]
    if any(finding.severity is Severity.ERROR for finding in found):
        return "rules"
    return "relations" if any(True for _ in derived_findings(facts, RULES, found)) else "none"


def _plan(name: str) -> Plan:
    if SHARED is None:
        raise SystemExit("set TVLINT_SHARED to the folder of the shared plans")
    path = SHARED / "plans" / "good" / f"{name}.pkl.xz"
    plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
    if plan is None:
        raise SystemExit(f"{path} is no plan")
    return plan


if __name__ == "__main__":
    sys.exit(main())
