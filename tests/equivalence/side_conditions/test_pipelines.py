"""Pipelines as users write them: in plan JSON, with messages that block, and with losses of replicas."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.kinds import micro_batches, pipelines, sharded_data
from tests.kinds.kind import Kind
from tests.kinds.pipelines import Pipe
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.readers.plan_json.reader import read
from tvlint.reporters.plan.json import write

KINDS = (*pipelines.KINDS, *micro_batches.KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_same_pipeline_in_json_is_proved(kind: Kind) -> None:
    reference, parallel = plans(kind.reference, kind.plan)
    again = read("parallel.json", write(parallel)).plan
    assert again is not None
    assert prove(again, reference).outcome is Outcome.PROVED


@pytest.mark.parametrize("way", ["1F1B", "zero bubble"])
def test_sends_that_block_are_left_open_with_advice(way: str) -> None:
    pipe = Pipe(3, 3, 4, way, "none")
    verdict = verdict_on(pipe.plan(), pipe.reference())
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["send-needs-buffering"]
    assert "`async HANDLE`" in verdict.reasons[0].message


def test_a_send_that_nothing_waits_for_is_left_open_with_advice() -> None:
    pipe = Pipe(2, 2, 4)
    text = "".join(line for line in pipe.plan().splitlines(keepends=True) if not line.startswith("run DF0 "))
    verdict = verdict_on(text, pipe.reference())
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["handle-never-waited"]
    assert "`wait sf0`" in verdict.reasons[0].message


def test_a_loss_of_each_replica_is_refuted_unless_it_is_declared_so() -> None:
    pipe = Pipe(2, 2, 4, dp=2, loss="identity(l1)")
    verdict = verdict_on(pipe.plan(), pipe.reference())
    assert [reason.name for reason in verdict.reasons] == ["incomplete-output"]
    assert "`dp:P(avg)`" in verdict.reasons[0].repair
    declared = pipe.plan().replace("loss l\n", "loss l f32[1] dp:P(avg)\n")
    assert verdict_on(declared, pipe.reference()).outcome is Outcome.PROVED
    summed = pipe.plan().replace("loss l\n", "loss l f32[1] dp:P\n")
    assert verdict_on(summed, pipe.reference()).outcome is Outcome.REFUTED


def test_means_of_means_are_not_refuted() -> None:
    kind = micro_batches.KINDS[1]
    reducer = "reduce-gradients w, v over dp by avg\n"
    early = kind.plan.replace("micro-batch 1\n", f"{reducer}micro-batch 1\n")
    assert verdict_on(early, kind.reference).outcome is Outcome.UNKNOWN
    sums = early.replace(" by avg", " divide 2")
    assert verdict_on(sums, kind.reference).outcome is Outcome.UNKNOWN
    assert compare(*plans(kind.reference, sums)).outcome == "equal"


@pytest.mark.parametrize("start", ["identity(grad(l))", "mul(grad(l), 1.0)"])
def test_the_gradient_of_the_loss_may_pass_through_an_operator(start: str) -> None:
    kind = sharded_data.KINDS[0]
    text = kind.plan.replace("  dy, _ = backward l0 (grad(l))", f"  dl = {start}\n  dy, _ = backward l0 (dl)")
    assert start in text
    assert verdict_on(text, kind.reference).outcome is Outcome.PROVED
    twice = text.replace(start, "mul(grad(l), 2.0)")
    assert verdict_on(twice, kind.reference).outcome is Outcome.REFUTED
