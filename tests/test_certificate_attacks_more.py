"""Certificates made up for plans that once were proved do not hold, and those of their right twins do."""

from __future__ import annotations

import pytest

from tests.certificates import certified, forged, objection
from tests.test_prove_attacks_more import (
    LOOKUP,
    MEAN_OF_SUM,
    ON_TWO_REPLICAS,
    ROUNDED,
    ROUNDED_BEFORE_THE_SUM,
    attention,
    plans,
    skipping,
)

WRONG = {
    "a sum over the batch, twice": (ON_TWO_REPLICAS.replace("KIND", "sum"), MEAN_OF_SUM),
    "parts that are rounded": (ROUNDED_BEFORE_THE_SUM.replace("TYPE", "i64"), ROUNDED.replace("TYPE", "i64")),
    "rows that are stated in part": (LOOKUP.replace("embedding(x, w)", "embedding(x, w, start=4)"), LOOKUP),
}

RIGHT = {
    "a sum over the batch, once": (ON_TWO_REPLICAS.replace("KIND", "avg"), MEAN_OF_SUM),
    "keys that are hidden": ("".join(skipping().values()), attention(causal=True)),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_certificates_made_up_for_wrong_plans_do_not_hold(name: str) -> None:
    parallel, reference = plans(*WRONG[name])
    own = forged(parallel, reference)
    assert own is not None
    assert objection(own, parallel, reference)


@pytest.mark.parametrize("name", list(RIGHT))
def test_certificates_of_right_plans_hold(name: str) -> None:
    parallel, reference = plans(*RIGHT[name])
    own = certified(parallel, reference)
    assert own is not None
    assert not objection(own, parallel, reference)
