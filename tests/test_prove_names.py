"""Plans in which a name means another thing than it seems to: none is proved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.certificates import certified, objection
from tests.test_certificate_attacks import plan
from tests.test_certificate_names import RIGHT, WRONG
from tvlint.findings import Outcome
from tvlint.proof.prove import prove


@pytest.mark.parametrize("name", list(RIGHT))
def test_names_of_runs_are_followed(name: str) -> None:
    parallel, reference = map(plan, RIGHT[name])
    assert prove(parallel, reference).outcome is Outcome.PROVED


REASONS = {
    "another weight": "unlike-values",
    "inputs exchanged": "unlike-values",
    "another weight later": "unlike-values",
    "inputs exchanged later": "unlike-values",
    "another input": "unlike-values",
    "a loss of another type": "missing-output",
    "loaded twice": "loaded-twice",
    "two gradients of one weight": "gradient-of-two-names",
    "reduced in place": "undefined-value",
    "reduced in place and not given on": "renamed-value",
    "means that are added over replicas": "scaled-output",
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_name_that_means_another_thing_is_not_proved(name: str) -> None:
    pair, before, after, _ = WRONG[name]
    parallel, reference = RIGHT[pair]
    verdict = prove(plan(parallel.replace(before, after)), plan(reference))
    assert verdict.outcome is not Outcome.PROVED
    assert REASONS[name] in [reason.name for reason in verdict.reasons]


@pytest.mark.parametrize("kind", ["identity(l)", "all-reduce avg(l) over dp"])
def test_a_replica_returns_its_mean_or_that_of_all(kind: str) -> None:
    parallel, reference = RIGHT["a mean of each replica"]
    assert prove(plan(parallel.replace("identity(l)", kind)), plan(reference)).outcome is Outcome.PROVED


def test_inputs_with_other_names_are_matched_by_order_which_is_said() -> None:
    parallel, reference = RIGHT["named"]
    renamed = parallel.replace("input x", "input a").replace("input y", "input b").replace("(x, y,", "(a, b,")
    renamed = renamed.replace("linear(x,", "linear(a,").replace("sub(g, y)", "sub(g, b)")
    verdict = prove(plan(renamed), plan(reference))
    assert verdict.outcome is Outcome.PROVED
    assert any("in the order of their first use: `a` is `x`, `b` is `y`" in text for text in verdict.assumptions)
    own = certified(plan(renamed), plan(reference))
    assert own is not None
    assert not objection(own, plan(renamed), plan(reference))
    unsaid = replace(own, assumptions=tuple(text for text in own.assumptions if "order of their first use" not in text))
    assert objection(unsaid, plan(renamed), plan(reference))


def test_nothing_is_assumed_of_inputs_with_the_same_names() -> None:
    parallel, reference = RIGHT["named"]
    assert not any("first use" in text for text in prove(plan(parallel), plan(reference)).assumptions)
