"""Captured programs against their captured reference: right ones are proved, wrong ones never."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from shared import ROOT

from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.prove import is_proved
from tvlint.findings import Outcome, Problem, Verdict
from tvlint.ir.operators import Compute
from tvlint.run.proof.captures import different_gradients, read_captures
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

RECORDED = ROOT / "fixtures" / "capture" / "recorded"
Line = dict[str, Any]


def path_of(name: str) -> str:
    return str(RECORDED / f"{name}.capture.jsonl.gz")


def proof(parallel: str, reference: str = "mlp") -> Verdict:
    report = prove_pair(Pair(parallel, path_of(reference)))
    assert not report.problems, report.problems
    return report.verdicts[0]


def lines_of(name: str) -> list[Line]:
    return [json.loads(line) for line in gzip.decompress(Path(path_of(name)).read_bytes()).splitlines()]


def written(folder: Path, lines: list[Line]) -> str:
    path = folder / "mutant.capture.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    return str(path)


def count_unproved(folder: Path, mutants: Iterable[tuple[str, list[Line]]], reference: str) -> int:
    """Return how many mutants there are, none of which the plans prove.

    A reference that a mutant leaves as it is stays one plan, which is derived once.
    """
    count, whole = 0, None
    for name, lines in mutants:
        found = read_captures(written(folder, lines), path_of(reference))
        count += 1
        if not isinstance(found, Problem):
            parallel, own = (each.plan for each in found)
            whole = whole if repr(whole) == repr(own) else own
            assert not is_proved(parallel, whole), name
    return count


@pytest.mark.parametrize("name", ["tensor_parallel_mlp", "data_parallel_2_micro_batches"])
def test_a_weight_is_one_also_where_it_is_named_behind_its_first_use(name: str, tmp_path: Path) -> None:
    lines = lines_of(name)
    last = [index for index, line in enumerate(lines) if "op" in line and line["phase"] == "forward"][-1]
    for index in [index for index, line in enumerate(lines[:last]) if line.get("role") == "weight"][::-1]:
        behind = next(later for later, line in enumerate(lines) if later > index and "root" in line)
        lines.insert(behind - 1, lines.pop(index))
    assert (
        proof(written(tmp_path, lines), "mlp" if name == "tensor_parallel_mlp" else "data_parallel_reference").outcome
        is Outcome.PROVED
    )


def test_what_is_given_in_no_line_of_the_program_is_assumed_too(tmp_path: Path) -> None:
    lines = [{key: value for key, value in line.items() if key != "at"} for line in lines_of("token_counts")]
    said = proof(written(tmp_path, lines), "token_counts_reference").assumptions
    assert "what the step is given at a line outside of the program is 0 throughout, as recorded" in said


def test_a_tensor_parallel_program_is_proved() -> None:
    verdict = proof(path_of("tensor_parallel_mlp"))
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    facts = dict(verdict.facts)
    assert facts["mesh"] == "tp 2"
    assert facts["gradients"] == "12"
    assert facts["replay of the parallel plan"].startswith("24 gradients agree with the program")
    assert facts["replay of the reference plan"].startswith("12 gradients agree with the program")
    assert facts["recorded gradients"] == "agree with the reference's"
    assert "the step of the optimizer itself (`SGD`) is compared by the weights behind it, not proved" in verdict.assumptions
    assert "later steps do what the recorded one does" in verdict.assumptions


@pytest.mark.parametrize(
    ("name", "reference", "mesh", "micro_batches"),
    [
        ("data_parallel", "data_parallel_reference", "dp 2", "1"),
        ("data_parallel_2_micro_batches", "data_parallel_reference", "dp 2", "2"),
        ("dtensor_mlp", "dtensor_mlp_reference", "tp 2", "1"),
        ("fully_sharded", "fully_sharded_reference", "dp 2", "1"),
        ("sharded_heads", "sharded_heads_reference", "dp 2", "1"),
        ("sharded_heads_half", "sharded_heads_half_reference", "dp 2", "2"),
        ("accumulation_ddp", "accumulation_reference", "dp 2", "2"),
        ("accumulation_fsdp", "accumulation_reference", "dp 2", "2"),
        ("accumulation_kept", "accumulation_reference", "dp 2", "2"),
        ("accumulation_each", "accumulation_reference", "dp 2", "2"),
        ("accumulation_ddp", "accumulation_alone_4", "dp 2", "2"),
        ("accumulation_fsdp", "accumulation_alone_8", "dp 2", "2"),
        ("dtensor_llama", "dtensor_llama_reference", "tp 2", "1"),
        ("loss_parallel", "loss_parallel_reference", "tp 2", "1"),
        ("context_parallel", "context_parallel_reference", "dp 2", "1"),
        ("single_samples", "single_samples_reference", "dp 2", "3"),
        ("sampled_batches", "sampled_batches_reference", "dp 2", "2"),
        ("dealt_samples", "dealt_samples_reference", "dp 2", "1"),
        ("two_axes", "two_axes_reference", "dp 2 x tp 2", "1"),
        ("token_counts", "token_counts_reference", "dp 2", "2"),
        ("pipeline_1f1b", "pipeline_reference", "pp 2", "4"),
        ("pipeline_interleaved", "pipeline_reference", "pp 2", "4"),
        ("pipeline_zero_bubble", "pipeline_reference", "pp 2", "4"),
        ("pipeline_v_shaped", "pipeline_reference", "pp 2", "4"),
        ("pipeline_both_ways", "pipeline_reference", "pp 2", "4"),
        ("pipeline_looped", "pipeline_reference", "pp 2", "4"),
        ("pipeline_messages", "pipeline_messages_reference", "pp 2", "4"),
        ("staged_samples", "staged_samples_reference", "pp 2", "2"),
        ("exchanged_heads", "exchanged_heads_reference", "dp 2", "1"),
        ("flat_gradients", "flat_gradients_reference", "dp 2", "1"),
        ("vocabulary_parallel", "vocabulary_parallel_reference", "tp 2", "1"),
        ("causal_lm", "causal_lm_reference", "dp 2", "1"),
        ("loss_scaling", "loss_scaling_reference", "dp 2", "1"),
        ("sequence_parallel", "sequence_parallel_reference", "tp 2", "1"),
        ("mixed_precision", "mixed_precision_reference", "dp 2", "1"),
        ("ring_attention", "ring_attention_reference", "dp 2", "1"),
        ("normed_heads", "normed_heads_reference", "tp 2", "1"),
        ("images", "images_reference", "dp 2", "1"),
        ("filled_shards", "filled_shards_reference", "dp 2", "1"),
        ("padded_sentences", "padded_sentences_reference", "dp 2", "1"),
        ("few_rows", "few_rows_reference", "dp 3", "2"),
        ("flexible_attention", "flexible_attention_reference", "dp 2", "1"),
        ("contrastive", "contrastive_reference", "dp 2", "1"),
        ("two_losses", "two_losses_reference", "dp 2", "1"),
        ("owned_steps", "owned_steps_reference", "dp 2", "1"),
        ("chunked_loss", "chunked_loss_reference", "dp 2", "2"),
        ("rotary_heads", "rotary_heads_reference", "dp 2", "1"),
        ("zigzag", "zigzag_reference", "dp 2", "1"),
        ("preferences", "preferences_reference", "dp 2", "1"),
        ("preferences_2", "preferences_reference", "dp 2", "2"),
        ("next_tokens", "next_tokens_reference", "dp 2", "1"),
        ("preferred_texts", "preferred_texts_reference", "dp 2", "1"),
        ("pairs_of_fields", "pairs_of_fields_reference", "dp 2", "1"),
        ("soft_experts", "soft_experts_reference", "dp 2", "1"),
        ("dispatched_experts", "dispatched_experts_reference", "dp 2", "1"),
        ("grouped_shards", "grouped_shards_reference", "dp 2 x tp 2", "1"),
        ("sequence_parts", "sequence_parts_reference", "cp 2", "1"),
        ("uneven_batches", "uneven_batches_reference", "dp 2", "1"),
    ],
)
def test_programs_of_torch_are_proved(name: str, reference: str, mesh: str, micro_batches: str) -> None:
    verdict = proof(path_of(name), reference)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    facts = dict(verdict.facts)
    assert (facts["mesh"], facts["micro-batches"]) == (mesh, micro_batches)
    assert facts["recorded gradients"] == "agree with the reference's"


MEANS: dict[str, Callable[[Line], Line]] = {
    "not divided": lambda line: {"arguments": {**line["arguments"], "other": 1.0}} if "op" in line else {},
    "the greatest": lambda line: {"reduce": "max"} if "reduce" in line else {},
    "averaged twice": lambda line: {"reduce": "avg"} if "reduce" in line else {},
    "not reduced": lambda line: {"group": [], "communication": ""} if "reduce" in line else {},
}


@pytest.mark.parametrize("ranks", [{0, 1}, {1}])
@pytest.mark.parametrize("mean", MEANS)
def test_gradients_of_the_first_micro_batch_that_are_no_mean_before_the_second_are_not_proved(
    mean: str, ranks: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of both gradients takes the place of the first mean where that is one, and on every rank."""
    prover_alone(monkeypatch)
    found, rank = list[Line](), -1
    for line in lines_of("accumulation_each"):
        rank = line.get("rank", rank)
        is_first = line.get("micro_batch") == 0 and line.get("node") == "torch::autograd::AccumulateGrad"
        is_mean = is_first and (line.get("op") == "aten.mul.out" or "reduce" in line)
        changed = {**line, **MEANS[mean](line)} if rank in ranks and is_mean else line
        found += [changed] if changed.get("communication") != "" else []
    report = prove_pair(Pair(written(tmp_path, found), path_of("accumulation_reference")))
    assert not any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)
    assert ranks != {0, 1} or mean == "the greatest" or report.verdicts[0].outcome is Outcome.REFUTED


@pytest.mark.parametrize("place", [0, 1])
def test_tokens_that_are_rolled_to_the_other_end_are_not_proved(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("next_tokens")
    rolled = [line for line in lines if line.get("op", "") == "aten.roll.default"]
    assert len(rolled) == 4
    for line in rolled[place::2]:
        line["arguments"] = {**line["arguments"], "shifts": [1]}
    verdict = proof(written(tmp_path, lines), "next_tokens_reference")
    assert verdict.outcome is not Outcome.PROVED
    assert any("`roll`" in reason.message for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("ranks", [slice(None), slice(1), slice(1, None)])
def test_preferences_for_the_rejected_texts_are_not_proved(
    ranks: slice, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The margin of the trained model is the first difference, that to the frozen one's the second."""
    prover_alone(monkeypatch)
    lines = lines_of("preferred_texts")
    subtracted = [line for line in lines if line.get("op", "") == "aten.sub.Tensor" and line["phase"] == "forward"]
    assert len(subtracted) == 4
    for line in subtracted[place::2][ranks]:
        line["arguments"] = {"self": line["arguments"]["other"], "other": line["arguments"]["self"]}
    assert proof(written(tmp_path, lines), "preferred_texts_reference").outcome is not Outcome.PROVED


@pytest.mark.parametrize("ranks", [slice(None), slice(1), slice(1, None)])
def test_gradients_of_chosen_and_rejected_texts_that_are_exchanged_are_not_proved(
    ranks: slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("preferred_texts")
    cut = [line for line in lines if line.get("op", "").startswith("aten.slice_backward") and line["arguments"]["dim"] == 0]
    assert len(cut) == 4
    for one, other in list(zip(cut[::2], cut[1::2], strict=True))[ranks]:
        gradients = [line["arguments"]["grad_output"] for line in (other, one)]
        for line, gradient in zip((one, other), gradients, strict=True):
            line["arguments"] = {**line["arguments"], "grad_output": gradient}
    assert proof(written(tmp_path, lines), "preferred_texts_reference").outcome is not Outcome.PROVED


@pytest.mark.parametrize("place", [0, 1, 2])
def test_another_token_or_mask_at_the_end_of_a_sequence_is_not_proved(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("next_tokens")
    filled = [line for line in lines if line.get("op", "") == "aten.fill_.Tensor"]
    assert len(filled) == 6
    for line in filled[place::3]:
        line["op"], line["arguments"] = "aten.fill_.Scalar", {**line["arguments"], "value": 1}
    verdict = proof(written(tmp_path, lines), "next_tokens_reference")
    assert verdict.outcome is not Outcome.PROVED
    assert any("`pad`" in reason.message for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("parts", [slice(None), slice(1), slice(1, None)])
@pytest.mark.parametrize("phases", [{"forward", "backward"}, {"backward"}])
def test_parts_of_a_loss_that_are_divided_by_another_number_are_not_proved(
    phases: set[str], parts: slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("chunked_loss")
    for phase in phases:
        divided = [line for line in lines if line.get("op", "").startswith("aten.div.") and line["phase"] == phase]
        assert len(divided) == 8
        for line in divided[parts]:
            line["arguments"] = {name: 8 if value == 16 else value for name, value in line["arguments"].items()}
    assert proof(written(tmp_path, lines), "chunked_loss_reference").outcome is not Outcome.PROVED


def test_a_loss_whose_gradient_is_that_of_another_part_is_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("chunked_loss")
    first, second = [line for line in lines if line.get("op") == "aten.copy_.default"][:2]
    second["arguments"] = {**second["arguments"], "src": first["arguments"]["src"]}
    assert proof(written(tmp_path, lines), "chunked_loss_reference").outcome is not Outcome.PROVED


@pytest.mark.parametrize("phases", [{"forward", "backward"}, {"backward"}])
def test_losses_that_are_added_with_another_weight_are_not_proved(
    phases: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("two_losses")
    weighted = [line for line in lines if line.get("phase") in phases and 0.1 in line.get("arguments", {}).values()]
    assert len(weighted) == 2 * len(phases)
    for line in weighted:
        line["arguments"] = {name: 0.3 if value == 0.1 else value for name, value in line["arguments"].items()}
    verdict = proof(written(tmp_path, lines), "two_losses_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons if reason.refutes]


def test_gradients_that_are_unscaled_by_another_factor_are_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("loss_scaling")
    at = next(i for i, line in enumerate(lines) if "unscale" in line.get("op", ""))
    factor = lines[at]["arguments"]["inv_scale"]
    given = {"self": factor, "other": 2.0}
    doubled = {**lines[at], "op": "aten.mul_.Tensor", "arguments": given, "writes": [factor["t"]]}
    verdict = proof(written(tmp_path, [*lines[:at], doubled, *lines[at:]]), "loss_scaling_reference")
    assert verdict.outcome is Outcome.REFUTED


def test_a_mean_over_the_samples_of_each_rank_is_refuted_where_they_are_given_unequal_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [own.message for own in proof(path_of("uneven_batches_own"), "uneven_batches_reference").reasons]
    assert any("the program computed is not the reference's: off by" in text for text in said)
    assert not any("everywhere" in text for text in said)
    prover_alone(monkeypatch)
    verdict = proof(path_of("uneven_batches_own"), "uneven_batches_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert any("`div` on rank 0 uses 3.0 where the reference uses 8.0" in reason.message for reason in verdict.reasons)


def test_a_mean_over_targets_of_which_one_does_not_count_is_a_sum_over_their_number(tmp_path: Path) -> None:
    lines = lines_of("padded_sentences_reference")
    (targets,) = [line for line in lines if line.get("bytes") == 32 and line.get("dtype") == "int64"]
    targets["values"] = b64encode(np.array([1, -100, 1, 1]).tobytes()).decode()
    found = read_captures(written(tmp_path, lines), written(tmp_path, lines))
    assert not isinstance(found, Problem)
    operators = [each for segment in found[0].plan.segments.values() for each in segment.operators]
    computed = {each.op: each.attributes for each in operators if isinstance(each, Compute)}
    assert computed["torch.nn.functional.nll_loss"] == {"reduction": "sum", "ignore_index": -100}
    assert {"torch.ne", "torch.sum", "torch.div"} <= computed.keys()
    assert is_proved(*(each.plan for each in found))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_sums_of_gradients_of_few_rows_that_are_no_means_are_refuted(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("few_rows")
    heads = [at for at, line in enumerate(lines) if "rank" in line]
    at = next(i for i in range(heads[rank], len(lines)) if lines[i].get("communication") == "reduce-scatter")
    summed = {**lines[at], "reduce": "sum"}
    verdict = proof(written(tmp_path, [*lines[:at], summed, *lines[at + 1 :]]), "few_rows_reference")
    assert verdict.outcome is not Outcome.PROVED
    every = [{**line, "reduce": "sum"} if line.get("communication") == "reduce-scatter" else line for line in lines]
    assert proof(written(tmp_path, every), "few_rows_reference").outcome is Outcome.REFUTED


def test_that_no_gradient_is_infinite_is_assumed_where_a_loss_is_scaled() -> None:
    said = proof(path_of("loss_scaling"), "loss_scaling_reference").assumptions
    assert "no gradient from which the scaler of the loss takes its factor is infinite on any rank, as recorded" in said


@pytest.mark.parametrize("name", ["pipeline_zero_bubble", "pipeline_v_shaped", "pipeline_both_ways"])
def test_gradients_of_a_pipeline_without_bubbles_that_are_not_divided_are_refuted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of(name)
    kept = [line for line in lines if not line.get("op", "").startswith("aten.div_")]
    assert len(kept) < len(lines)
    assert proof(written(tmp_path, kept), "pipeline_reference").outcome is Outcome.REFUTED


def test_programs_that_cannot_be_replayed_are_refuted_where_their_gradients_differ_and_else_unknown(tmp_path: Path) -> None:
    found = {}
    for name in ("data_parallel", "undivided_loss"):
        lines = lines_of(name)
        at = next(i for i, line in enumerate(lines) if line.get("op", "").startswith("aten.gelu."))
        other = {**lines[at], "op": "aten.unknown.default"}
        verdict = proof(written(tmp_path, [*lines[:at], other, *lines[at + 1 :]]), "data_parallel_reference")
        line = next((own.location.line for own in verdict.reasons if own.name == "other-recorded-gradient"), None)
        assert line == (None if name == "data_parallel" else 28)
        messages = [own.message for own in verdict.reasons if own.name == "unsupported-operator"]
        assert any("`aten.unknown` is captured and not lifted" in message for message in messages)
        found[name] = verdict.outcome, [own.name for own in verdict.reasons if own.name.startswith(("replay", "other-rec"))]
    assert found["data_parallel"] == (Outcome.UNKNOWN, [])
    assert found["undivided_loss"] == (Outcome.REFUTED, ["other-recorded-gradient", "replay-differs"])
    assert any("2 times the reference's everywhere" in own.message for own in verdict.reasons)


def test_gradients_of_a_second_optimizer_that_are_not_reduced_are_refuted() -> None:
    verdict = proof(path_of("sampled_batches_unreduced"), "sampled_batches_reference")
    assert verdict.outcome is Outcome.REFUTED
    found = [own.message for own in verdict.reasons if own.name == "missing-gradient-reduction"]
    assert any("`head.bias`" in message for message in found)
    assert not any("`table.weight`" in message for message in found)


def test_targets_of_samples_that_another_rank_reads_are_refuted() -> None:
    verdict = proof(path_of("dealt_samples_crossed"), "dealt_samples_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert {own.location.line for own in verdict.reasons if own.name == "mismatched-shards"} == {25}


def test_targets_that_another_rank_reads_in_a_micro_batch_are_an_error_where_they_are_read(tmp_path: Path) -> None:
    lines = lines_of("sampled_batches")
    one, other = (at for at, line in enumerate(lines) if line.get("given") == 31 and line["bytes"] == 64)
    lines[one], lines[other] = (
        {**lines[one], "values": lines[other]["values"]},
        {**lines[other], "values": lines[one]["values"]},
    )
    (problem,) = prove_pair(Pair(written(tmp_path, lines), path_of("sampled_batches_reference"))).problems
    assert problem.message == "ranks read `input1` in other samples than `input0`"
    assert problem.location.line == 41


def test_what_a_rank_receives_before_it_uses_a_weight_is_in_the_step() -> None:
    lines = lines_of("pipeline_messages")
    counts = {kind: sum(line.get("communication") == kind for line in lines) for kind in ("send", "receive")}
    assert counts == {"send": 8, "receive": 8}
    assert not any("early" in line for line in lines)


def test_a_pipeline_that_lacks_its_first_receive_is_not_proved(tmp_path: Path) -> None:
    lines = lines_of("pipeline_messages")
    start = lines.index({"rank": 1})
    at = next(i for i, line in enumerate(lines) if i > start and line.get("communication") == "receive")
    kept = [line for i, line in enumerate(lines) if i != at and (i < start or line.get("wait") != lines[at]["work"])]
    report = prove_pair(Pair(written(tmp_path, kept), path_of("pipeline_messages_reference")))
    assert all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts)


def test_gradients_are_compared_before_they_are_clipped() -> None:
    said = proof(path_of("accumulation_fsdp"), "accumulation_reference").assumptions
    assert "captured with the gradients that the program has before it clips them" in said


def test_an_average_over_ranks_that_is_a_sum_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("accumulation_fsdp")
    changed = [{**line, "reduce": "sum"} if line.get("communication") == "reduce-scatter" else line for line in lines]
    assert changed != lines
    verdict = proof(written(tmp_path, changed), "accumulation_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert "wrong-gradient-scale" in {own.name for own in verdict.reasons if own.refutes}


@pytest.mark.heavy
@pytest.mark.parametrize("reference", ["accumulation_alone_4", "accumulation_alone_8"])
def test_wrong_programs_are_refuted_by_a_reference_that_accumulates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    never = proof(path_of("accumulation_never_reduced"), reference)
    assert "missing-gradient" in {own.name for own in never.reasons if own.refutes}
    prover_alone(monkeypatch)
    lines = lines_of("accumulation_fsdp")
    changed = [{**line, "reduce": "sum"} if line.get("communication") == "reduce-scatter" else line for line in lines]
    verdict = proof(written(tmp_path, changed), reference)
    assert "wrong-gradient-scale" in {own.name for own in verdict.reasons if own.refutes}


def test_a_reference_that_divides_by_another_number_of_micro_batches_refutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    changed = [
        {**line, "arguments": {**line["arguments"], "other": 2}} if line.get("op") == "aten.div.Tensor" else line
        for line in lines_of("accumulation_alone_4")
    ]
    assert changed != lines_of("accumulation_alone_4")
    report = prove_pair(Pair(path_of("accumulation_ddp"), written(tmp_path, changed)))
    (verdict,) = report.verdicts
    assert verdict.outcome is Outcome.REFUTED
    assert "is 1/2 times the reference's" in " ".join(own.message for own in verdict.reasons)


def test_a_broadcast_of_equal_buffers_that_one_rank_leaves_out_is_not_proved(tmp_path: Path) -> None:
    lines = lines_of("accumulation_ddp")
    at = next(i for i, line in enumerate(lines) if line.get("communication") == "broadcast")
    del lines[at]
    report = prove_pair(Pair(written(tmp_path, lines), path_of("accumulation_reference")))
    assert all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts)


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [
        ("missing_gradient_reduction", "missing-gradient-reduction", "is a partial sum over dp"),
        ("undivided_loss", "wrong-gradient-scale", "is 2 times the reference's"),
    ],
)
def test_a_fault_in_data_parallelism_is_refuted(name: str, reason: str, message: str) -> None:
    verdict = proof(path_of(name), "data_parallel_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert [own.name for own in verdict.reasons if own.refutes][:1] == [reason]
    assert message in verdict.reasons[0].message


@pytest.mark.parametrize(
    ("name", "reason", "line"),
    sampled_tuples(
        [
            ("missing_forward_sum", "missing-allreduce", "return x + y + self.down_bias"),
            (
                "missing_gradient_sum",
                "missing-gradient-reduction",
                "h = nn.functional.gelu(nn.functional.linear(h, self.up, self.up_bias))",
            ),
            ("doubled_gradient", "other-recorded-gradient", "gradient = gradient * 2 if WORLD > 1 else gradient.clone()"),
        ],
        3,
    ),
)
def test_a_fault_in_the_program_is_refuted_at_its_line(name: str, reason: str, line: str) -> None:
    verdict = proof(path_of(name))
    assert verdict.outcome is Outcome.REFUTED
    first = next(own for own in verdict.reasons if own.refutes)
    assert (first.name, first.location.text) == (reason, line)


def test_a_plan_that_is_not_what_the_program_computed_is_unknown(tmp_path: Path) -> None:
    lines = lines_of("tensor_parallel_mlp")
    for line in lines:
        if line.get("op") == "aten.gelu.default":
            line["op"] = "aten.silu.default"
        if line.get("op") == "aten.gelu_backward.default":
            line["op"] = "aten.silu_backward.default"
    verdict = proof(written(tmp_path, lines))
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0].name == "replay-differs"
    assert "gives another gradient of" in verdict.reasons[0].message
    assert not any(reason.refutes for reason in verdict.reasons)


def test_a_plan_without_numbers_is_not_proved(tmp_path: Path) -> None:
    lines = [{key: own for key, own in line.items() if key != "values"} for line in lines_of("tensor_parallel_mlp")]
    report = prove_pair(Pair(written(tmp_path, lines), path_of("mlp")))
    outcomes = [verdict.outcome for verdict in report.verdicts]
    assert report.problems or outcomes == [Outcome.UNKNOWN]


def without(lines: list[Line], at: int) -> list[Line]:
    """Return the lines without a communication and its wait."""
    work = lines[at]["work"]
    end = next(i for i in range(at, len(lines)) if lines[i].get("wait") == work)
    return [line for i, line in enumerate(lines) if i not in (at, end)]


def mutants(lines: list[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Yield captures in which one event is another one on every rank, or on one."""
    for at, line in enumerate(lines):
        if "communication" in line:
            yield f"no {line['communication']} {at}", without(lines, at)
            if line.get("reduce") not in (None, "", "max"):
                yield f"a maximum {at}", [{**own, "reduce": "max"} if i == at else own for i, own in enumerate(lines)]
            if line.get("reduce") not in (None, "", "avg"):
                yield (
                    f"an average {at}",
                    [{**own, "reduce": "avg"} if own.get("work") == line["work"] else own for own in lines],
                )
            yield f"another group {at}", [{**own, "group": [0]} if i == at else own for i, own in enumerate(lines)]
        if line.get("op") == "aten.add.Tensor" and line["arguments"]["other"] != 0:
            yield f"a difference {at}", [{**own, "op": "aten.sub.Tensor"} if i == at else own for i, own in enumerate(lines)]
        if line.get("op") == "aten.sum.dim_IntList":
            yield f"a mean {at}", [{**own, "op": "aten.mean.dim"} if i == at else own for i, own in enumerate(lines)]


LONG = frozenset({"loss_parallel", "exchanged_heads", "normed_heads", "rotary_heads", "preferences"})
"""Programs of which every second mutant is tried."""


def prover_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge by the plans alone, as if the recorded numbers were those of the mutant, and search no repair."""
    monkeypatch.setattr("tvlint.run.proof.prove.judged", lambda verdict, parallel, reference: verdict)
    monkeypatch.setattr("tvlint.equivalence.verdict.prove._with_repair", lambda case, verdict: verdict)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("program", "reference"),
    [
        ("tensor_parallel_mlp", "mlp"),
        ("loss_parallel", "loss_parallel_reference"),
        ("flat_gradients", "flat_gradients_reference"),
        ("exchanged_heads", "exchanged_heads_reference"),
        ("vocabulary_parallel", "vocabulary_parallel_reference"),
        ("staged_samples", "staged_samples_reference"),
        ("normed_heads", "normed_heads_reference"),
        ("rotary_heads", "rotary_heads_reference"),
        ("preferences", "preferences_reference"),
        ("joined_weights", "joined_weights_reference"),
        ("pipeline_v_shaped", "pipeline_reference"),
        ("sharded_heads_half", "sharded_heads_half_reference"),
    ],
)
def test_no_mutant_of_a_capture_is_proved(tmp_path: Path, program: str, reference: str) -> None:
    """The recorded numbers only take proofs away: what the plans alone do not prove, nothing does."""
    every = 2 if program in LONG else 1
    assert count_unproved(tmp_path, islice(mutants(lines_of(program)), 0, None, every), reference) > 10


def test_a_gradient_of_a_norm_of_one_head_a_rank_that_is_not_summed_is_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("normed_heads")
    sums = [at for at, line in enumerate(lines) if line.get("communication") == "all-reduce" and "node" not in line]
    kept = without(without(lines, sums[-1]), sums[len(sums) // 2 - 1])
    assert len(kept) == len(lines) - 4
    assert proof(written(tmp_path, kept), "normed_heads_reference").outcome is not Outcome.PROVED


@pytest.mark.heavy
@pytest.mark.parametrize("alone", [True, False])
def test_scores_of_a_head_that_are_scaled_otherwise_are_refuted(
    alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if alone:
        prover_alone(monkeypatch)
    lines = lines_of("dtensor_llama")
    scaled = [own.get("phase") == "forward" and own.get("arguments", {}).get("other") == 0.5 for own in lines]
    assert sum(scaled) == 2
    changed = [
        {**own, "arguments": {**own["arguments"], "other": 0.25}} if at else own for at, own in zip(scaled, lines, strict=True)
    ]
    verdict = proof(written(tmp_path, changed), "dtensor_llama_reference")
    assert verdict.outcome is (Outcome.REFUTED if alone else Outcome.UNKNOWN)


def test_gradients_that_no_rank_has_do_not_agree_with_the_references() -> None:
    """In `accumulation_never_reduced` the sharded weights get no gradient: `is_last` is never true."""
    verdict = proof(path_of("accumulation_never_reduced"), "accumulation_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert {own.name for own in verdict.reasons if own.refutes} == {"missing-gradient"}
    assert dict(verdict.facts)["recorded gradients"] == "not comparable with the reference's"


def test_gradients_agree_only_where_every_rank_and_element_has_one() -> None:
    found = read_captures(path_of("data_parallel"), path_of("data_parallel_reference"))
    assert not isinstance(found, Problem)
    parallel, reference = found
    weight = next(name for rank, name in parallel.gradients if rank == 1)
    left_out = {key: own for key, own in parallel.gradients.items() if key != (1, weight)}
    assert different_gradients(replace(parallel, gradients=left_out), reference) is None
    for ranks, expected in (({0}, {}), ({0, 1}, None)):
        sharded = dict(parallel.gradients)
        for rank in ranks:
            elsewhere = np.zeros_like(sharded[rank, weight], dtype=bool)
            elsewhere.flat[0] = True
            sharded[rank, weight] = np.ma.array(sharded[rank, weight], mask=elsewhere)
        assert different_gradients(replace(parallel, gradients=sharded), reference) == expected


def test_joined_gradients_of_a_sharded_optimizer_are_compared_element_by_element() -> None:
    """In `pretrain_gpt_llama_tp2_dp2` gradients of norms are joined, summed over `tp`, and cut apart again."""
    found = read_captures(path_of("pretrain_gpt_llama_tp2_dp2"), path_of("pretrain_gpt_llama_reference"))
    assert not isinstance(found, Problem)
    assert different_gradients(*found) == {}
    norms = [own for (_, name), own in found[0].gradients.items() if name.endswith("norm_weight")]
    assert {bool(np.ma.getmaskarray(own).all()) for own in norms} == {True, False}


def test_a_gradient_that_is_zero_but_for_rounding_is_compared_to_the_rounding() -> None:
    found = read_captures(path_of("dtensor_llama"), path_of("dtensor_llama_reference"))
    assert not isinstance(found, Problem)
    parallel, reference = found
    name = "norm.weight"
    for size, differs in ((1e-9, set()), (1e-2, {name})):
        noisy = {key: own if key[1] != name else np.asarray(own) * 0 + size for key, own in parallel.gradients.items()}
        still = {**reference.gradients, (0, name): np.zeros_like(reference.gradients[0, name])}
        different = different_gradients(replace(parallel, gradients=noisy), replace(reference, gradients=still))
        assert different is not None
        assert different.keys() == differs


def other_reductions(lines: list[Line]) -> list[Line]:
    return [{**line, "reduce": "sum"} if line.get("communication") == "reduce-scatter" else line for line in lines]


def other_divisions(lines: list[Line]) -> list[Line]:
    undivided = [line for line in lines if not line.get("op", "").startswith("aten.div_") or line["phase"] == "optimizer"]
    assert len(undivided) < len(lines)
    return undivided


def counts_of_one_rank(lines: list[Line]) -> list[Line]:
    """Return the lines with the greatest count of tokens of a rank in place of their sum."""
    counts = {line["tensor"] for line in lines if line.get("dtype") == "int32" and "tensor" in line}
    found = [line for line in lines if line.get("communication") == "all-reduce" and counts.issuperset(line["inputs"])]
    assert len(found) == 2
    return [{**line, "reduce": "max"} if line in found else line for line in lines]


@pytest.mark.parametrize(
    ("name", "reference", "change", "message"),
    sampled_tuples(
        [
            ("token_counts", "token_counts_reference", counts_of_one_rank, "is 2 times the reference's"),
            ("sharded_heads", "sharded_heads_reference", other_reductions, "is 2 times the reference's"),
            ("fully_sharded", "fully_sharded_reference", other_reductions, "is 2 times the reference's"),
            ("mixed_precision", "mixed_precision_reference", other_reductions, "is 2 times the reference's"),
            ("pipeline_1f1b", "pipeline_reference", other_divisions, "is 4 times the reference's"),
        ],
        3,
    ),
)
def test_another_scale_of_gradients_is_refuted_by_the_plan_alone(
    name: str,
    reference: str,
    change: Callable[[list[Line]], list[Line]],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prover_alone(monkeypatch)
    verdict = proof(written(tmp_path, change(lines_of(name))), reference)
    assert verdict.outcome is Outcome.REFUTED
    assert message in verdict.reasons[0].message


@pytest.mark.parametrize("name", ["tensor_parallel_mlp", "dtensor_mlp"])
@pytest.mark.parametrize("phases", [{"forward"}, {"forward", "backward"}])
def test_a_missing_wait_is_refuted(name: str, phases: set[str], tmp_path: Path) -> None:
    reference = {"tensor_parallel_mlp": "mlp"}.get(name, f"{name}_reference")
    lines = [line for line in lines_of(name) if "wait" not in line or line["phase"] not in phases]
    verdict = proof(written(tmp_path, lines), reference)
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name == "missing-wait"


def test_a_read_before_the_wait_is_refuted_though_the_numbers_are_others(tmp_path: Path) -> None:
    """What a program computes that does not wait, its plan cannot compute again."""
    lines = lines_of("tensor_parallel_mlp")
    work = next(line["work"] for line in lines if line.get("communication") == "all-reduce")
    kept = [{**line, "op": "aten.silu.default"} if line.get("op") == "aten.gelu.default" else line for line in lines]
    verdict = proof(written(tmp_path, [line for line in kept if line.get("wait") != work]))
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons if reason.refutes] == ["missing-wait"]
    assert "replay-differs" in {reason.name for reason in verdict.reasons}


def other_dimensions(lines: list[Line]) -> list[Line]:
    """Return the lines with gradients of softmax along another dimension than the softmax."""
    found = [own for own in lines if own.get("op") == "aten._softmax_backward_data.default"]
    assert found
    return [{**own, "arguments": {**own["arguments"], "dim": -2}} if own in found else own for own in lines]


def other_orders(lines: list[Line]) -> list[Line]:
    """Return the lines with groups whose ranks are not in order."""
    return [{**own, "group": own["group"][::-1]} if "group" in own else own for own in lines]


@pytest.mark.heavy
@pytest.mark.parametrize("change", [other_dimensions, other_orders])
def test_what_a_gradient_or_a_group_is_not_is_unknown_by_the_plan_alone(
    change: Callable[[list[Line]], list[Line]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    verdict = proof(written(tmp_path, change(lines_of("megatron_gpt_tp2_sp"))), "megatron_gpt_reference")
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unsupported-operator" in {reason.name for reason in verdict.reasons}


def ends_of_messages(lines: list[Line]) -> Iterator[tuple[int, Line]]:
    yield from ((at, line) for at, line in enumerate(lines) if line.get("communication") in ("send", "receive"))


def with_another_end(lines: list[Line], at: int, **changed: Any) -> list[Line]:
    """Return the lines with one event changed, of which the other ranks know nothing."""
    return [{**own, **changed} if i == at else own for i, own in enumerate(lines)]


@pytest.mark.heavy
def test_an_end_of_a_message_in_another_communicator_meets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("pipeline_1f1b")
    for at, _ in ends_of_messages(lines):
        verdict = proof(written(tmp_path, with_another_end(lines, at, communicator="another")), "pipeline_reference")
        assert verdict.outcome is Outcome.REFUTED
        assert verdict.reasons[0].name in ("send-recv-deadlock", "crossed-micro-batches"), verdict.reasons


def without_a_wait_for_what_is_sent(lines: list[Line]) -> tuple[list[Line], int, int]:
    """Return the lines, the number of the tensor that is sent, and where its wait stood."""
    sent = next(line for line in lines if line.get("communication") == "send")
    at = next(at for at, line in enumerate(lines) if line.get("wait") == sent["work"])
    return [line for i, line in enumerate(lines) if i != at], sent["inputs"][0], at


def test_what_is_sent_needs_no_wait_as_long_as_it_is_not_overwritten(tmp_path: Path) -> None:
    lines, tensor, at = without_a_wait_for_what_is_sent(lines_of("pipeline_1f1b"))
    verdict = proof(written(tmp_path, lines), "pipeline_reference")
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    assert any(said.startswith("torch keeps what is sent at pipeline.py:") for said in verdict.assumptions)
    arguments = {"self": {"t": tensor}}
    zeroed = {"op": "aten.zero_.default", "arguments": arguments, "outputs": [tensor], "writes": [tensor], "phase": "forward"}
    verdict = proof(written(tmp_path, [*lines[:at], zeroed, *lines[at:]]), "pipeline_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert {"buffer-in-flight", "handle-never-waited"} <= {reason.name for reason in verdict.reasons}


@pytest.mark.parametrize("group", [[1, 0], [0], [1]])
def test_ranks_must_agree_on_the_members_of_a_communicator(group: list[int], tmp_path: Path) -> None:
    lines = lines_of("pipeline_1f1b")
    for at, _ in ends_of_messages(lines):
        changed = with_another_end(lines, at, group=group)
        report = prove_pair(Pair(written(tmp_path, changed), path_of("pipeline_reference")))
        assert not report.verdicts
        (problem,) = report.problems
        assert "communicator" in problem.message
        assert problem.help is not None


def with_another_all_reduce(changed: Line) -> list[Line]:
    lines = lines_of("megatron_gpt_tp2_sp")
    at = next(at for at, line in enumerate(lines) if line.get("communication") == "all-reduce")
    changed_lines = with_another_end(lines, at, **changed)
    return [{key: own for key, own in line.items() if own is not None} for line in changed_lines]


def test_ranks_must_use_several_communicators_of_a_group_in_the_same_order(tmp_path: Path) -> None:
    changed = with_another_all_reduce({"communicator": "another"})
    (problem,) = prove_pair(Pair(written(tmp_path, changed), path_of("megatron_gpt_reference"))).problems
    assert problem.message.startswith("rank 0 runs "), problem


@pytest.mark.parametrize("changed", [{"communication": "broadcast", "root": 0, "reduce": None}, {"reduce": "avg"}])
def test_ranks_that_run_different_collectives_together_are_refuted_where_they_do(changed: Line, tmp_path: Path) -> None:
    verdict = proof(written(tmp_path, with_another_all_reduce(changed)), "megatron_gpt_reference")
    assert verdict.outcome is Outcome.REFUTED
    first = verdict.reasons[0]
    assert (first.name, first.ranks, first.location.line is not None) == ("mismatched-collective", (0, 1), True), first


def test_a_result_of_another_size_than_was_recorded_is_an_error_at_its_line(tmp_path: Path) -> None:
    lines = lines_of("megatron_gpt_tp2_sp")
    at = next(at for at, line in enumerate(lines) if line.get("op") == "aten.cat.default" and at > 700)
    joined = {**lines[at], "arguments": {**lines[at]["arguments"], "dim": 2 * lines[at]["arguments"]["dim"]}}
    path = written(tmp_path, [joined if i == at else line for i, line in enumerate(lines)])
    report = prove_pair(Pair(path, path_of("megatron_gpt_reference")))
    (problem,) = report.problems
    assert problem.message.startswith("`torch.cat` gives no tensor of shape ")
    assert not report.verdicts


def test_waits_that_nothing_shows_are_assumed() -> None:
    said = "torch waits for the collectives that its own code issues outside of Python, as in its reducer"
    assert said in proof(path_of("data_parallel"), "data_parallel_reference").assumptions
    assert said not in proof(path_of("tensor_parallel_mlp")).assumptions


def test_a_reference_must_be_a_capture_of_one_rank() -> None:
    report = prove_pair(Pair(path_of("tensor_parallel_mlp"), path_of("tensor_parallel_mlp")))
    assert [problem.message for problem in report.problems] == ["the reference was captured on 2 ranks"]
    report = prove_pair(Pair(path_of("tensor_parallel_mlp"), "plan.json"))
    assert [problem.message for problem in report.problems] == ["the reference of a captured program is a capture too"]


@pytest.mark.parametrize(
    ("op", "argument"),
    [
        ("aten.mm.default", {"out_dtype": {"dtype": "bfloat16"}}),
        ("aten.gelu.default", {"of_later": 1}),
        ("aten.ones_like.default", {"dtype": {"dtype": "int64"}}),
    ],
)
def test_an_argument_that_no_equation_reads_is_an_error_at_its_line(op: str, argument: Line, tmp_path: Path) -> None:
    lines = lines_of("tensor_parallel_mlp")
    changed = [{**line, "arguments": {**line["arguments"], **argument}} if line.get("op") == op else line for line in lines]
    report = prove_pair(Pair(written(tmp_path, changed), path_of("mlp")))
    (problem,) = report.problems
    assert not report.verdicts
    assert problem.message == f"no equation says what `{op}` does with `{next(iter(argument))}`"
    assert problem.location.line is not None


def test_a_program_that_never_updates_its_weights_is_not_proved(tmp_path: Path) -> None:
    lines = [line for line in lines_of("tensor_parallel_mlp") if "update" not in line]
    verdict = proof(written(tmp_path, lines))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "no-updates" in {own.name for own in verdict.reasons}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["tensor_parallel_mlp", "accumulation_fsdp"])
def test_shapes_and_results_that_fit_nothing_end_in_a_verdict_or_in_an_error(name: str, tmp_path: Path) -> None:
    reference = "mlp" if name == "tensor_parallel_mlp" else "accumulation_reference"
    lines = lines_of(name)
    random = Random(0)
    of_shape = [at for at, line in enumerate(lines) if line.get("shape")]
    of_aten = [at for at, line in enumerate(lines) if line.get("op", "").startswith("aten.") and line["outputs"]]
    of_results = [at for at in of_aten if "empty" not in lines[at]["op"]]
    given = [argument for at in of_aten for argument in lines[at]["arguments"].values() if isinstance(argument, dict)]
    read = min(argument["t"] for argument in given if "t" in argument)
    for at in random.sample(of_shape, 25):
        own = lines[at]
        changed = {**own, "shape": [random.choice((0, 1, size + 1, 2**31)) for size in own["shape"]]}
        report = prove_pair(Pair(written(tmp_path, [*lines[:at], changed, *lines[at + 1 :]]), path_of(reference)))
        assert report.problems or report.verdicts
    for at in random.sample(of_results, 25):
        for outputs in ([], [*lines[at]["outputs"], read]):
            changed = {**lines[at], "outputs": outputs}
            report = prove_pair(Pair(written(tmp_path, [*lines[:at], changed, *lines[at + 1 :]]), path_of(reference)))
            assert all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts) or not outputs, lines[at]


def test_shards_of_unequal_size_are_refused_at_the_line_that_reads_them(tmp_path: Path) -> None:
    lines = lines_of("fully_sharded")
    start = lines.index({"rank": 1})
    weight = next(line for line in lines[start:] if line.get("placements") and line.get("name") == "1.weight")
    window = next(line for line in lines[start:] if line.get("tensor") == weight["of"])
    window["shape"] = [window["shape"][0] - 1, *window["shape"][1:]]
    problem = read_captures(written(tmp_path, lines), path_of("fully_sharded_reference"))
    assert isinstance(problem, Problem)
    assert problem.message.startswith("the shards of `1.weight`, of shape (16, 8), are of unequal sizes, (8, 8) and (7, 8)")
    assert problem.location.line is not None


def test_accumulated_gradients_that_are_scaled_by_others_are_refused_at_their_line(tmp_path: Path) -> None:
    lines = lines_of("accumulation_alone_4")
    windows = {line["gradient"]: line["of"] for line in lines if "gradient" in line}
    at = next(number for number, line in enumerate(lines) if "gradient" in line)
    place = next(line for line in reversed(lines[:at]) if "place" in line)
    scaled = {
        "op": "aten.mul_.Tensor",
        "arguments": {"self": {"t": windows["norm.weight"]}, "other": {"t": windows["norm.bias"]}},
        "outputs": [windows["norm.weight"]],
        "writes": [windows["norm.weight"]],
        "phase": "forward",
        "micro_batch": 3,
        "at": place["place"],
    }
    path = written(tmp_path, [*lines[:at], scaled, *lines[at:]])
    problem = read_captures(path_of("accumulation_ddp"), path)
    assert isinstance(problem, Problem)
    assert problem.message.startswith("a value of one micro-batch is read in another one")
    assert (problem.location.path, problem.location.line) == (place["path"], place["line"])
