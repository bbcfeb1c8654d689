"""Runs of micro-batches are cut at the same places."""

from __future__ import annotations

from tvlint.ir.operators import Compute
from tvlint.readers.capture.emit import Run
from tvlint.readers.capture.rewriting.equal_runs import with_equal_runs


def run(micro_batch: int, *names: str, message: str = "") -> Run:
    return Run("forward", micro_batch, message, [Compute("torch.neg", (), (name,)) for name in names])


def said(runs: tuple[Run, ...]) -> list[tuple[int, str, list[str]]]:
    return [
        (each.micro_batch, each.message, [name for made in each.operators for name in getattr(made, "outputs", ())])
        for each in runs
    ]


def test_a_run_is_cut_where_that_of_another_micro_batch_ends() -> None:
    runs = [run(0, "a", "b"), run(0, "r", message="receive r"), run(0, "c"), run(1, "a", "b", "c")]
    assert said(with_equal_runs(runs)) == [
        (0, "", ["a", "b"]), (0, "receive r", ["r"]), (0, "", ["c"]), (1, "", ["a", "b"]), (1, "", ["c"]),
    ]  # fmt: skip


def test_micro_batches_that_run_more_than_others_are_left_as_they_are() -> None:
    runs = [run(0, "gathered"), run(0, "a", "b"), run(1, "a", "b")]
    assert with_equal_runs(runs) == tuple(runs)
