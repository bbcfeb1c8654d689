"""Captures that no run of a program gives, and of programs that do not wait: none is proved, and each ends in words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared import ROOT

from tests.sampling import sampled_tuples
from tvlint.findings import Outcome, Report
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

RECORDED = ROOT / "fixtures" / "capture" / "recorded"
Line = dict[str, Any]
Change = Callable[[Line], Line]


def path_of(name: str) -> str:
    return str(RECORDED / f"{name}.capture.jsonl.gz")


def lines_of(name: str) -> list[Line]:
    return [json.loads(line) for line in gzip.decompress(Path(path_of(name)).read_bytes()).splitlines()]


def report_on(lines: list[Line], reference: str, folder: Path) -> Report:
    path = folder / "mutant.capture.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    return prove_pair(Pair(str(path), path_of(reference)))


def messages_of(report: Report) -> str:
    return " ".join([problem.message for problem in report.problems] + [str(verdict.reasons) for verdict in report.verdicts])


def is_compute(line: Line) -> bool:
    return "op" in line or ("communication" in line)


def with_waits_behind_what_follows(lines: list[Line], kind: str) -> list[Line]:
    """Let each collective of a kind be waited for behind the next operator."""
    works, moved, held = set[int](), list[Line](), list[Line]()
    for line in lines:
        if "rank" in line:
            works.clear()
        if line.get("communication") == kind:
            works.add(line["work"])
        if "wait" in line and line["wait"] in works:
            held.append(line)
            continue
        moved.append(line)
        if is_compute(line):
            moved += held
            held.clear()
    return moved


@pytest.mark.parametrize(
    ("program", "reference", "kind"),
    [
        ("exchanged_heads", "exchanged_heads_reference", "all-to-all"),
        ("uneven_shards", "uneven_shards_reference", "all-gather"),
        ("tensor_parallel_mlp", "mlp", "all-reduce"),
    ],
)
def test_what_is_read_before_the_program_waits_for_it_is_refuted(
    program: str, reference: str, kind: str, tmp_path: Path
) -> None:
    """Passes that lift a capture put a collective and what reads it together, so that a plan does not show the order."""
    changed = with_waits_behind_what_follows(lines_of(program), kind)
    assert changed != lines_of(program)
    (verdict,) = report_on(changed, reference, tmp_path).verdicts
    assert verdict.outcome is Outcome.REFUTED
    (reason, *_) = [reason for reason in verdict.reasons if reason.refutes]
    assert reason.name == "missing-wait"
    assert reason.location.line is not None


def test_what_is_overwritten_before_the_program_waits_for_it_is_refuted(tmp_path: Path) -> None:
    lines = lines_of("exchanged_heads")
    at = next(at for at, line in enumerate(lines) if line.get("communication") == "all-to-all")
    sent = lines[at]["inputs"][0]
    zeroed = {"op": "aten.zero_.default", "arguments": {"self": {"t": sent}}, "outputs": [sent], "writes": [sent]}
    changed = [*lines[: at + 1], {**zeroed, "phase": "forward"}, *lines[at + 1 :]]
    (verdict,) = report_on(changed, "exchanged_heads_reference", tmp_path).verdicts
    assert verdict.outcome is Outcome.REFUTED
    assert "buffer-in-flight" in {reason.name for reason in verdict.reasons if reason.refutes}


def test_a_work_that_two_collectives_share_is_waited_for_where_the_program_waits_for_it(tmp_path: Path) -> None:
    lines = lines_of("tensor_parallel_mlp")
    shared = [{**line, "work": 2} if "communication" in line and line["work"] == 3 else line for line in lines]
    changed = [line for line in shared if line.get("wait") != 3]
    (verdict,) = report_on(changed, "mlp", tmp_path).verdicts
    assert verdict.outcome is Outcome.REFUTED
    assert "missing-wait" in {reason.name for reason in verdict.reasons if reason.refutes}


@pytest.mark.parametrize(("mark", "rule"), [({"node": "MulBackward0"}, "missing-wait"), ({}, "")])
def test_what_torch_reduces_in_a_backward_pass_is_left_alone_until_its_end(mark: Line, rule: str, tmp_path: Path) -> None:
    """What the reducer of torch issues it waits for behind the last node; no line of the program says so."""
    lines = list[Line]()
    for line in lines_of("data_parallel"):
        lines.append(line)
        if line.get("completes"):
            (bucket,) = line["outputs"]
            scaled = {"op": "aten.mul_.Tensor", "arguments": {"self": {"t": bucket}, "other": 1.0}, "outputs": [bucket]}
            lines.append({**scaled, "writes": [bucket], "phase": "backward", "micro_batch": 0, **mark})
    (verdict,) = report_on(lines, "data_parallel_reference", tmp_path).verdicts
    assert (verdict.outcome is Outcome.REFUTED) is bool(rule)
    assert rule in {"", *(reason.name for reason in verdict.reasons if reason.refutes)}


def test_what_torch_reduces_in_a_pass_within_a_node_is_free_where_the_node_goes_on(tmp_path: Path) -> None:
    """A checkpoint that is reentrant runs a pass of its own, at whose end the reducer waits and writes the gradients."""
    lines = list[Line]()
    for line in lines_of("data_parallel"):
        if not line.get("completes"):
            lines.append(line)
            continue
        (bucket,) = line["outputs"]
        scaled = {"op": "aten.mul_.Tensor", "arguments": {"self": {"t": bucket}, "other": 1.0}, "outputs": [bucket]}
        checkpoint = {
            **scaled,
            "writes": [bucket],
            "phase": "backward",
            "micro_batch": 0,
            "node": "CheckpointBackward",
            "of": 0,
        }
        lines += [checkpoint, line, checkpoint]
    (verdict,) = report_on(lines, "data_parallel_reference", tmp_path).verdicts
    assert verdict.outcome is not Outcome.REFUTED


def window(is_meant: Callable[[Line], bool], **changed: Any) -> Change:
    """Return a change of each window that is meant."""
    return lambda line: {**line, **changed} if "tensor" in line and is_meant(line) else line


def argument(op: str, name: str, value: Any) -> Change:
    """Return a change of an argument of each operator `op`; none is left where the value is a `...`."""

    def changed(line: Line) -> Line:
        if line.get("op") != op:
            return line
        rest = {key: known for key, known in line["arguments"].items() if key != name}
        return {**line, "arguments": rest if value is ... else {**rest, name: value}}

    return changed


def into_another(line: Line) -> Line:
    """Return a line whose activation is put into a weight, which the line does not say."""
    if line.get("op") != "aten.gelu.default":
        return line
    return {**line, "op": "aten.gelu.out", "arguments": {**line["arguments"], "out": {"t": 0}}}


def in_place_on_the_other(line: Line) -> Line:
    """Return a line with the operands of an addition in place exchanged, which overwrites the same tensor as before."""
    if line.get("op") != "aten.add_.Tensor" or line["phase"] == "optimizer":
        return line
    one, other = line["arguments"]["self"], line["arguments"]["other"]
    return {**line, "arguments": {**line["arguments"], "self": other, "other": one}}


@pytest.mark.parametrize(
    ("program", "reference", "change", "message"),
    sampled_tuples([
        (
            "pipeline_messages", "pipeline_messages_reference",
            window(lambda line: (line["tensor"], line["storage"], line["shape"]) == (56, 42, [8]), dtype="int64"),
            "memory that is held as float32 and as int64",
        ),
        (
            "accumulation_ddp", "accumulation_reference",
            window(lambda line: line["shape"] == [16, 8] and line["offset"] == 16, stride=[0, 1]),
            "overwrites are in one place",
        ),
        (
            "uneven_shards", "uneven_shards_reference",
            window(lambda line: line["shape"] == [2, 44], stride=[44, 0]), "",
        ),
        ("few_rows", "few_rows_reference", window(lambda line: line["shape"] == [3, 27], stride=[54, 1]), ""),
        (
            "staged_samples", "staged_samples_reference",
            window(lambda line: line["shape"] == [1, 2, 4, 4], shape=[1, 1, 2, 4, 4], stride=[1, 32, 4, 8, 1]), "",
        ),
        (
            "tensor_parallel_mlp", "mlp",
            window(lambda line: line["tensor"] == 70 and line["shape"] == [6, 8], shape=[8, 6]),
            "what is recorded as float32 of shape (8, 6) is float32 of shape (6, 8)",
        ),
        (
            "padded_sentences", "padded_sentences_reference",
            argument("aten.copy_.default", "src", ...), "`aten.copy_.default` is recorded without `src`",
        ),
        ("padded_sentences", "padded_sentences_reference", argument("aten.copy_.default", "self", 3), ""),
        ("accumulation_ddp", "accumulation_reference", in_place_on_the_other, "another tensor than the one that it works on"),
        (
            "flat_gradients", "flat_gradients_reference", window(lambda line: line["tensor"] == 27, dtype="int64"),
            "a `reduce-scatter` of numbers of one type gives those of another",
        ),
        (
            "tensor_parallel_mlp", "mlp",
            lambda line: {**line, "wait": 99} if line.get("wait") == 0 else line, "nothing was issued that work 99 is",
        ),
        (
            "tensor_parallel_mlp", "mlp",
            lambda line: {**line, "gradient": "0.up"} if line.get("gradient") == "1.up" else line, "`0.up` has two gradients",
        ),
        (
            "tensor_parallel_mlp", "mlp",
            lambda line: {**line, "of": 0} if line.get("gradient") == "0.up_bias" else line, "number of dimensions",
        ),
        (
            "loss_scaling", "loss_scaling_reference",
            argument("aten._amp_foreach_non_finite_check_and_unscale_.default", "inv_scale", ...), "without `inv_scale`",
        ),
        (
            "accumulation_ddp", "accumulation_reference",
            lambda line: {**line, "op": "add_"} if line.get("op") == "aten.add_.Tensor" else line, "",
        ),
        ("normed_heads", "normed_heads_reference", argument("aten.mm.default", "mat2", ...), ""),
        ("sharded_heads", "sharded_heads_reference", argument("aten.mm.default", "self", ...), ""),
        ("tensor_parallel_mlp", "mlp", argument("aten.mse_loss_backward.default", "reduction", 7), ""),
        ("tensor_parallel_mlp", "mlp", argument("aten.clone.default", "self", ...), ""),
        ("flat_shards", "flat_shards_reference", argument("aten.cat.default", "tensors", []), ""),
        ("causal_lm", "causal_lm_reference", argument("aten.embedding.default", "weight", -7), ""),
        (
            "data_parallel", "data_parallel_reference", argument("aten.expand.default", "size", [16, 16]),
            "`aten.expand.default` gives another size than it is asked for",
        ),
        (
            "padded_sentences", "padded_sentences_reference",
            argument("aten.embedding_dense_backward.default", "num_weights", 21), "another size than it is asked for",
        ),
        (
            "padded_sentences", "padded_sentences_reference", argument("aten._log_softmax.default", "half_to_float", True),
            "another type than it is asked for",
        ),
        (
            "images", "images_reference", argument("aten.nll_loss_backward.default", "weight", {"t": 7}),
            "`aten.nll_loss_backward` is captured and not lifted",
        ),
        (
            "data_parallel", "data_parallel_reference", into_another,
            "does not say that it overwrites the tensor for its result",
        ),
    ], 3),
)  # fmt: skip
def test_what_no_program_records_is_not_proved(
    program: str, reference: str, change: Change, message: str, tmp_path: Path
) -> None:
    lines = lines_of(program)
    changed = [change(line) for line in lines]
    assert changed != lines
    report = report_on(changed, reference, tmp_path)
    assert all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts)
    assert message in messages_of(report)


@pytest.mark.parametrize("key", ["whole", "placements"])
def test_a_rank_that_does_not_say_what_its_shard_is_of_is_not_followed(key: str, tmp_path: Path) -> None:
    lines = lines_of("few_rows")
    at = [at for at, line in enumerate(lines) if line.get("name") == "score.bias"][1]
    changed = [*lines[:at], {name: value for name, value in lines[at].items() if name != key}, *lines[at + 1 :]]
    report = report_on(changed, "few_rows_reference", tmp_path)
    assert all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts)


@pytest.mark.parametrize(
    ("program", "op", "argument", "before", "after"),
    [
        ("preferred_texts", "aten.slice_backward.default", "grad_output", 52, 36),
        ("preferred_texts", "aten.copy_.default", "src", 71, 19),
        ("normed_heads", "aten.mm.default", "self", 5, 15),
        ("staged_samples", "aten._scaled_dot_product_flash_attention_for_cpu.default", "key", 25, 17),
    ],
)
def test_operands_of_other_shapes_than_an_operator_takes_are_answered(
    program: str, op: str, argument: str, before: int, after: int, tmp_path: Path
) -> None:
    lines = lines_of(program)
    for line in lines:
        if line.get("op") == op and line["arguments"][argument] == {"t": before}:
            line["arguments"][argument] = {"t": after}
    report = report_on(lines, f"{program}_reference", tmp_path)
    assert report.problems or all(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts)
