"""A schedule with a mistake is found, one without is not: judged by running both on tokens."""

from __future__ import annotations

import pytest

from tests.schedules import families, oracle
from tests.schedules.findings import findings_of
from tests.schedules.lowering import homes, lowered
from tests.schedules.mutants import mutants
from tvlint.findings import Severity

BASES = {
    "gpipe": families.gpipe(3, 4),
    "1f1b": families.one_f_one_b(4, 8),
    "bfs": families.looped_bfs(2, 2, 4),
    "interleaved": families.interleaved(2, 2, 4, 2),
    "overlapped": families.interleaved_overlapped(2, 2, 6, 2),
    "zbh1": families.zb_h1(3, 6),
    "zbh2": families.zb_h2(3, 8),
    "izb": families.interleaved_zero_bubble(2, 2, 4, 2),
    "zbv": families.zbv(2, 6),
    "dualpipev": families.dual_pipe_v(2, 6),
    "dualpipe": families.dual_pipe(4, 12),
    "repetend": families.repetend(2, 6),
    "chimera": families.chimera(4, 8),
    "bitpipe": families.bitpipe(2, 6),
    "hanayo": families.hanayo(2, 2, 4),
    "sequences": families.in_sequences(3, 6, 2),
    "forward": families.forward_only(3, 1, 6),
}
RULES = {
    "drop": {"missing-forward", "missing-backward", "missing-wait", "unmatched-send", "unmatched-receive", "unmatched-wait",
             "compute-on-sharded-stage", "unpaired-unshard", "missing-gradient-reduction"},
    "duplicate": {"repeated-forward", "repeated-backward", "unmatched-send", "unmatched-receive", "unmatched-wait",
                  "unpaired-unshard", "repeated-gradient-reduction", "missing-wait"},
    "move": {"stage-on-two-ranks", "unpaired-unshard", "repeated-gradient-reduction", "unmatched-wait"},
    "stage": {"stage-out-of-range"},
    "range": {"micro-batch-out-of-range"},
}  # fmt: skip


@pytest.mark.parametrize("spelled", ["compute", "communication", "communication without waits"])
@pytest.mark.parametrize("name", BASES)
def test_a_broken_schedule_is_found_by_the_right_rule_and_a_harmless_change_is_not(name: str, spelled: str) -> None:
    home = homes(BASES[name])
    rows = BASES[name] if spelled == "compute" else lowered(BASES[name], spelled == "communication")
    wrong = []
    broken = 0
    for mutant in mutants(rows, seed=len(name), each=8):
        try:
            oracle.run(mutant.rows, home)
            harmless = True
        except oracle.Broken:
            harmless = False
        errors = {finding.rule for finding in findings_of(mutant.rows) if finding.severity is Severity.ERROR}
        short = {rule.removeprefix("schedule-") for rule in errors}
        broken += not harmless
        if harmless == bool(errors) or (mutant.how in RULES and not harmless and not short & RULES[mutant.how]):
            wrong.append((mutant.how, mutant.cell, short))
    assert wrong == []
    assert broken >= 40
