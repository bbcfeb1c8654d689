"""What is wrong with a captured program stands at the line where one mends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.capture.test_capture_proofs import lines_of, path_of, proof, without, written
from tvlint.findings import Outcome, Problem, Reason, Verdict
from tvlint.ir.location import Location
from tvlint.readers.capture.reader import Recorded
from tvlint.run.proof.blame import differing, placed
from tvlint.run.proof.captures import judged, read_captures

EVERY = {"0.weight", "0.bias", "1.router.weight", "1.weight"}


def recorded(name: str, reference: str) -> tuple[Recorded, Recorded]:
    found = read_captures(path_of(name), path_of(reference))
    assert not isinstance(found, Problem)
    return found


@pytest.mark.parametrize(
    ("name", "defect", "words"),
    [
        ("missing_gradient_reduction", "missing-gradient-reduction", "that nothing completes; so it is with the other"),
        ("undivided_loss", "wrong-gradient-scale", "is 2 times the reference's; so it is with the other"),
    ],
)
def test_what_is_wrong_with_all_gradients_is_said_once_where_the_backward_pass_starts(
    name: str, defect: str, words: str
) -> None:
    verdict = proof(path_of(name), "data_parallel_reference")
    (reason,) = (each for each in verdict.reasons if each.name == defect)
    assert words in reason.message
    assert reason.location.text.endswith(".backward()"), reason.location


@pytest.mark.parametrize(("module", "line"), [("layers.0.attention", "loss.backward()"), ("", "scaled(loss)")])
def test_one_factor_on_all_gradients_is_blamed_on_no_module(module: str, line: str) -> None:
    place = Location("net.py", 7, pointer=module, text="scaled(loss)")
    gap = Reason("other-operator", False, "`div` is another operator", place)
    verdict = replace(proof(path_of("data_parallel"), "data_parallel_reference"), outcome=Outcome.UNKNOWN, reasons=(gap,))
    found = judged(verdict, *recorded("undivided_loss", "data_parallel_reference"))
    assert found.reasons[0].name == "other-recorded-gradient"
    assert "2 times the reference's everywhere" in found.reasons[0].message
    assert found.reasons[0].location.text == line


@pytest.mark.parametrize(
    ("different", "line", "text"),
    [
        ({"0.weight", "0.bias"}, "(mse_loss(model(x.chunk(WORLD)[RANK]), y.chunk(WORLD)[RANK]) / WORLD).backward()",
         "; that of `0.bias` is the first, those of 2 weights behind it agree"),
        (EVERY, "(mse_loss(model(x.chunk(WORLD)[RANK]), y.chunk(WORLD)[RANK]) / WORLD).backward()", ""),
        (EVERY | {"of no plan"}, "(mse_loss(model(x.chunk(WORLD)[RANK]), y.chunk(WORLD)[RANK]) / WORLD).backward()", ""),
    ],
)  # fmt: skip
def test_gradients_differ_from_where_their_cause_is(different: set[str], line: str, text: str) -> None:
    found = differing(different, *recorded("chosen_experts_grouped", "chosen_experts_grouped_reference"))
    assert found.place is not None
    assert (found.place.text, found.text) == (line, text)


def test_a_gradient_that_alone_is_not_reduced_is_blamed_where_the_others_are(tmp_path: Path) -> None:
    lines = lines_of("chosen_experts_grouped")
    for rank in (1, 0):
        reduced = [at for at, line in enumerate(lines) if line.get("communication") == "all-reduce"]
        lines = without(lines, reduced[len(reduced) // 2 - 1] if rank == 0 else reduced[-1])
    found = read_captures(written(tmp_path, lines), path_of("chosen_experts_grouped_reference"))
    assert not isinstance(found, Problem)
    blamed = differing({"1.weight"}, *found)
    assert blamed.place is not None
    assert blamed.place.text == "dist.all_reduce(weight.grad)"
    parallel, reference = recorded("chosen_experts_grouped", "chosen_experts_grouped_reference")
    assert differing({"1.weight"}, parallel, reference).place is None


def test_weights_that_no_operator_uses_are_somewhere_in_the_capture() -> None:
    parallel, reference = recorded("chosen_experts_grouped", "chosen_experts_grouped_reference")
    found = differing({"of no plan"}, parallel, reference)
    assert found.text == ""
    assert found.place is None or found.place.line is not None
    without_programs = replace(parallel, plan=replace(parallel.plan, programs=()))
    assert differing({"1.weight"}, without_programs, reference).place is None


def test_a_step_that_moves_weights_otherwise_is_blamed_where_the_optimizer_steps() -> None:
    parallel, _ = recorded("data_parallel", "data_parallel_reference")
    assert parallel.behind[-1].text == "optimizer.step()"


@pytest.mark.parametrize("twice", [True, False])
def test_samples_that_no_rank_reads_are_counted(twice: bool) -> None:
    parallel, reference = recorded("data_parallel", "data_parallel_reference")
    mine = {(name, batch): numbers for (rank, name, batch), numbers in parallel.given.items() if rank == 0}
    given = {key: mine.get(key[1:], numbers) for key, numbers in parallel.given.items()} if twice else parallel.given
    gap = Reason("other-batch", False, "the reference's batch is 2 local batches", Location("a"))
    verdict = Verdict("a", "b", Outcome.REFUTED, reasons=(gap,))
    (reason,) = placed(verdict, None, replace(parallel, given=given), reference).reasons
    assert ("samples of the reference's batch are read by no rank" in reason.message) is twice
    assert (reason.location.line is not None) is twice
