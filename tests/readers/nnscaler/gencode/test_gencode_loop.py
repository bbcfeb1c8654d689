"""What the training loop around generated code is taken to do: dividing gradients where the loss is a mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import Group, ReduceGradients
from tvlint.ir.plan import Phase, Plan, Replication, Segment
from tvlint.readers.nnscaler.gencode.lint.training_loop import loss_is_mean, with_loop
from tvlint.run.project.reading import read_plan

REFERENCE = """plan "one rank"
weight w f32[8,8]
input x f32[8,8]
loss l f32[]

program
  p = permute(x, dims=[0, 1])
  a = linear(p, w)
  y: f32[8,8] = view(a, size=[8, 8])
{loss}
  update w
"""
SUM = "  l = sum(y)\n  dy = backward l (grad(l))\n  da = backward y (dy)\n  _, grad(w) = backward a (da)"
MEAN = SUM.replace("sum", "mean")
DIVERGENCE = SUM.replace("l = sum(y)", 't = exp(x)\n  l = kl_div(y, t, reduction="batchmean")').replace("dy =", "dy, _ =")


def plan(tmp_path: Path, said: str) -> Plan:
    (tmp_path / "one.plan").write_text(REFERENCE.format(loss=said))
    found = read_plan(str(tmp_path / "one.plan"))
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(("said", "factor"), [(MEAN, 6), (SUM, 1)])
def test_dividing_by_replicas_and_micro_batches_is_left_to_the_loop_for_means(tmp_path: Path, said: str, factor: int) -> None:
    reference = plan(tmp_path, said)
    parallel = replace(reference, replication=Replication("dp", 2, 1), micro_batches=3)
    assert with_loop(reference, parallel).undivided == factor
    assert with_loop(reference, reference) == reference


def test_reducers_that_average_leave_only_micro_batches_to_divide_by(tmp_path: Path) -> None:
    reference = plan(tmp_path, MEAN)
    reduce = Segment("reduce", Phase.REDUCE, (), (), (ReduceGradients(("w",), Group(ranks=(0,)), "avg"),))
    segments = {**reference.segments, "reduce": reduce}
    parallel = replace(reference, replication=Replication("dp", 2, 1), micro_batches=3, segments=segments)
    assert with_loop(reference, parallel).undivided == 3


def test_gradients_are_asked_to_be_exactly_what_the_loop_divides(tmp_path: Path) -> None:
    parallel = plan(tmp_path, MEAN)
    assert prove(parallel, parallel).outcome is Outcome.PROVED
    verdict = prove(parallel, replace(parallel, undivided=2))
    assert verdict.outcome is Outcome.REFUTED
    assert [(reason.name, reason.actual) for reason in verdict.reasons] == [("wrong-gradient-scale", "1/2")]
    assert any("divides gradients by 2" in assumption for assumption in verdict.assumptions)


@pytest.mark.parametrize(
    ("said", "mean"),
    [
        (MEAN, True),
        (SUM, False),
        (MEAN.replace("mean(y)", "mul(m, 0.5)").replace("  l =", "  m = mean(y)\n  l ="), True),
        (
            MEAN.replace("mean(y)", "add(m, s)")
            .replace("  l =", "  m = mean(y)\n  s = sum(y)\n  l =")
            .replace("  dy =", "  dy, _ ="),
            False,
        ),
        (
            MEAN.replace("mean(y)", "add(m, z)")
            .replace("  l =", "  m = mean(y)\n  s = sum(y)\n  z = mul(s, 0.0)\n  l =")
            .replace("  dy =", "  dy, _ ="),
            True,
        ),
        (MEAN.replace("mean(y)", "sum(m)").replace("  l =", "  m = mean(a, dim=1)\n  l ="), False),
        (
            MEAN.replace("mean(y)", "add(m, s)")
            .replace("  l =", "  m = mean(y)\n  s = sum(w)\n  l =")
            .replace("  dy =", "  dy, _ ="),
            True,
        ),
        (DIVERGENCE, True),
        (DIVERGENCE.replace("batchmean", "sum"), False),
        (MEAN.replace("mean(y)", "sum(w)").replace("  dy = backward l", "  _ = backward l"), False),
    ],
)
def test_a_loss_is_a_mean_where_all_that_adds_up_to_it_is(tmp_path: Path, said: str, mean: bool) -> None:
    assert loss_is_mean(plan(tmp_path, said)) is mean


def test_a_loss_is_a_mean_or_none_in_whatever_order_operators_are_listed(tmp_path: Path) -> None:
    said = MEAN.replace("mean(y)", "add(m, s)").replace("  l =", "  m = mean(y)\n  s = sum(y)\n  l =")
    reference = plan(tmp_path, said.replace("  dy =", "  dy, _ ="))
    forward = reference.segments["forward"]
    late = [own for own in forward.operators if "s" in getattr(own, "outputs", ())]
    listed = replace(forward, operators=(*late, *(own for own in forward.operators if own not in late)))
    assert not loss_is_mean(replace(reference, segments={**reference.segments, "forward": listed}))
