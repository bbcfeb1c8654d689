"""Exported plans with one defect that shows without a reference plan."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_plan
from tests.sampling import sampled
from tests.shared import SHARED, needs_shared
from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle

DEFECTS = {
    "br1": {"missing-allreduce"},
    "br1r": {"missing-allreduce", "doubled-allreduce"},
    "br2": {"use-before-definition"},
    "br3": {"missing-allreduce"},
    "br3r": {"gather-of-partial"},
    "br4": {"unfounded-claim"},
    "br4r": {"allreduce-of-shards"},
    "br5": {"gather-of-partial"},
    "br5b": {"gather-of-partial"},
    "br5r": {"doubled-allreduce", "gather-of-partial"},
    "br6": {"mismatched-message"},
    "br7": {"divergent-replicas"},
    "br8": {"divergent-replicas"},
    "br10": {"gradient-of-another-tensor"},
    "br11": {"gradient-of-another-tensor"},
    "br12": {"divergent-replicas"},
    "br14": {"unbalanced-backward"},
    "br14r": {"reducer-before-last-backward"},
    "unbroken-control": set(),
}
"""The gather of br3 and the all-reduce in the forward pass of br5 go over one rank: they change nothing."""


@needs_shared
@pytest.mark.parametrize("name", sampled(DEFECTS, 3))
def test_the_defect_is_named(name: str) -> None:
    assert SHARED is not None
    path = SHARED / "plans" / "broken" / f"{name}.pkl.xz"
    plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
    assert plan is not None
    assert {finding.rule for finding in findings_of_plan(plan)} == DEFECTS[name]


@needs_shared
def test_pieces_that_an_exporter_put_in_another_order_are_named_once() -> None:
    assert SHARED is not None
    for path in sorted((SHARED / "plans" / "piece-order").glob("*.pkl.xz")):
        plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
        assert plan is not None
        assert [finding.rule for finding in findings_of_plan(plan)] == ["pieces-not-in-rank-order"]
