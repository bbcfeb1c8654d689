"""Correct schedules of all known families are clean, are named, and cost what the literature says."""

from __future__ import annotations

import pytest

from tests.schedules import families, oracle
from tests.schedules.families import Rows
from tests.schedules.findings import facts_of, findings_of, rules_of
from tests.schedules.lowering import homes, lowered
from tvlint.analyses.schedule.family import family
from tvlint.analyses.schedule.summary import summary

EXAMPLES = {name: (named, rows) for named, name, rows in families.examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_correct_schedule_is_clean_with_and_without_communication(name: str) -> None:
    rows = EXAMPLES[name][1]
    spelled = lowered(rows, waits=len(name) % 2 == 0)
    for each in (rows, spelled):
        oracle.run(each, homes(rows))
        assert findings_of(each) == []


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.split("-")[0] not in ("1f1b", "zbh2")])
def test_a_family_is_named(name: str) -> None:
    named, rows = EXAMPLES[name]
    if name.startswith("gpipe") and rows[0][0] == rows[0][-2]:
        return
    assert family(facts_of(rows)).startswith(named)
    assert family(facts_of(lowered(rows))).startswith(named)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_families_that_coincide_on_few_micro_batches_are_told_apart_on_more(p: int) -> None:
    assert family(facts_of(families.one_f_one_b(p, 2 * p))) == "1F1B"
    assert family(facts_of(families.zb_h2(p, 4 * p))) == "ZB-H2"
    assert family(facts_of(families.zb_h1(p, 4 * p))) == "ZB-H1"


def test_a_schedule_without_a_pattern_has_no_family() -> None:
    assert family(facts_of([["0F0", "0F1", "0B1", "0F2", "0B0", "0B2"]])) == "unknown"
    assert family(facts_of([row[:-1] for row in families.one_f_one_b(4, 8)])) == "unknown"


def _measured(rows: Rows) -> tuple[tuple[int, ...], tuple[float, ...]]:
    found = summary(facts_of(rows))
    assert found.timing is not None
    return found.timing.idle, found.peaks


@pytest.mark.parametrize("p", [2, 4, 8])
def test_bubbles_and_peaks_are_those_of_the_formulas(p: int) -> None:
    m = 4 * p
    forward, backward, inputs, weights = 1, 2, 1, 1
    assert _measured(families.gpipe(p, m)) == (((p - 1) * (forward + backward),) * p, (float(m),) * p)
    steady = tuple(float(min(m, p - rank)) for rank in range(p))
    assert _measured(families.one_f_one_b(p, m)) == (((p - 1) * (forward + backward),) * p, steady)
    v = 2
    held = tuple((min(m * v, 2 * (p - rank - 1) + (v - 1) * p) + 1) / v for rank in range(p))
    assert _measured(families.interleaved(p, v, m, p)) == (((p - 1) * (forward + backward),) * p, held)
    assert _measured(families.zb_h1(p, m)) == (((p - 1) * (forward + inputs - weights),) * p, (float(p),) * p)
    assert _measured(families.zb_h2(p, m))[1] == (2.0 * p - 1,) * p
    assert set(_measured(families.zb_h2(p, m))[0]) == {(p - 1) * (forward + inputs - 2 * weights) + p - 1}
    assert _measured(families.zbv(p, m)) == ((p - 1,) * p, (float(p),) * p)
    both = forward + backward
    dual = (p - 1) * (both + backward - 3 * weights)
    assert _measured(families.dual_pipe_v(p, m)) == ((dual,) * p, ((2 * p + 1) / 2,) * p)
    assert _measured(families.dual_pipe(2 * p, 2 * m)) == ((dual,) * 2 * p, (2.0 * p + 1,) * 2 * p)


def test_peaks_are_judged_against_a_budget() -> None:
    rows = families.gpipe(4, 8)
    assert rules_of(rows, budget=8) == set()
    assert rules_of(rows, budget=7) == {"schedule-over-activation-budget"}
    assert rules_of(families.interleaved(4, 2, 8, 4), budget=5) == {"schedule-over-activation-budget"}
    assert rules_of(families.interleaved(4, 2, 8, 4), budget=6) == set()
