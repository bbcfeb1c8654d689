"""The pairs among the shipped clean inputs are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared import ROOT

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

PAIRS = sorted(path.parent for path in (ROOT / "fixtures" / "clean").glob("*/parallel.plan"))


@pytest.mark.parametrize("folder", PAIRS, ids=lambda path: path.name)
def test_a_clean_pair_is_proved(folder: Path) -> None:
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("parallel.plan", "reference.plan")]
    verdict = verdict_on(*texts)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
