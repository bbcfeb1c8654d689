"""Recorded steps of an unmodified Megatron-Core: right ones are proved, wrong ones never."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from capture.test_capture_proofs import Line, count_unproved, lines_of, proof, prover_alone, without, written

from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.prove import is_proved
from tvlint.findings import Outcome, Problem, Verdict
from tvlint.run.proof.captures import read_captures
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

PROGRAMS = {
    "megatron_gpt_tp2_sp": ("megatron_gpt_reference", "tp 2", "29"),
    "megatron_gpt_dp2_distributed_optimizer": ("megatron_gpt_reference", "dp 2", "29"),
    "megatron_gpt_dp2_overlap": ("megatron_gpt_reference", "dp 2", "29"),
    "megatron_gpt_dp4_instances": ("megatron_gpt_llama_reference", "dp 2 x axis1 2", "15"),
    "megatron_gpt_pp2_tied": ("megatron_gpt_tied_reference", "pp 2", "28"),
    "megatron_gpt_pp2_tied_scattered": ("megatron_gpt_tied_reference", "pp 2 x dp 2", "28"),
    "megatron_gpt_llama_tp2_sp_recompute": ("megatron_gpt_llama_reference", "tp 2", "15"),
    "megatron_gpt_tp2_sp_norms_again": ("megatron_gpt_reference", "tp 2", "29"),
    "megatron_gpt_router_bias_pp2": ("megatron_gpt_router_bias_reference", "pp 2", "29"),
    "megatron_gpt_groups_tp2_sp": ("megatron_gpt_groups_reference", "tp 2", "15"),
    "megatron_gpt_tp2_sp_bf16": ("megatron_gpt_bf16_reference", "tp 2", "29"),
    "megatron_gpt_cp2_tp2": ("megatron_gpt_cp_reference", "cp 2 x tp 2", "29"),
    "megatron_gpt_llama_cp2": ("megatron_gpt_llama_cp_reference", "cp 2", "15"),
    "megatron_gpt_latent_pp2": ("megatron_gpt_latent_reference", "pp 2", "33"),
    "megatron_gpt_experts_allgather": ("megatron_gpt_experts_reference", "dp 2", "29"),
    "megatron_gpt_experts_alltoall": ("megatron_gpt_experts_reference", "dp 2", "29"),
    "megatron_main_experts_allgather_tp2": ("megatron_main_experts_reference", "tp 2", "29"),
    "megatron_main_experts_alltoall_tp2": ("megatron_main_experts_reference", "tp 2", "29"),
    "megatron_main_experts_parts_tp2": ("megatron_main_experts_parts_reference", "tp 2", "29"),
    "megatron_main_experts_cp2": ("megatron_main_experts_cp2_reference", "cp 2", "19"),
    "megatron_main_eight_experts_tp2_dp2": ("megatron_main_eight_experts_reference", "dp 2 x tp 2", "45"),
    "pretrain_gpt_llama_tp2_dp2": ("pretrain_gpt_llama_reference", "dp 2 x tp 2", "9"),
}


def path_of(name: str) -> str:
    return str(Path(__file__).parents[2] / "fixtures" / "capture" / "recorded" / f"{name}.capture.jsonl.gz")


@cache
def proof_of(name: str, reference: str) -> Verdict:
    """Return the verdict on a capture as it is, which several tests read."""
    return proof(path_of(name), reference)


@pytest.mark.parametrize("name", sampled(PROGRAMS, 3))
def test_a_step_of_megatron_is_proved(name: str) -> None:
    reference, mesh, gradients = PROGRAMS[name]
    verdict = proof_of(name, reference)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    facts = dict(verdict.facts)
    assert (facts["mesh"], facts["gradients"]) == (mesh, gradients)
    assert facts["recorded gradients"] == "agree with the reference's"
    assert "captured with the weights filled with numbers that their names give" in verdict.assumptions


def test_the_bias_of_a_router_of_another_layer_is_not_taken_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("megatron_gpt_router_bias_pp2")
    own = [line for line in lines if line.get("name") == "decoder.layers.1.mlp.router.expert_bias"]
    assert own
    for line in own:
        line["name"] = "decoder.layers.0.mlp.router.expert_bias"
    verdict = proof(written(tmp_path, lines), "megatron_gpt_router_bias_reference")
    assert verdict.outcome is not Outcome.PROVED
    assert {"other-operator"} <= {reason.name for reason in verdict.reasons}, verdict.reasons


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_another_norm_where_a_module_is_computed_again_is_not_proved(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time is in the backward pass, and what it gives takes the place of what was released."""
    prover_alone(monkeypatch)
    lines = lines_of("megatron_gpt_tp2_sp_norms_again")
    norms = [line for line in lines if line.get("op", "").startswith("aten.native_layer_norm.") and line["phase"] == phase]
    assert norms
    for line in norms[:: len(norms) // 2]:
        line["arguments"] = {**line["arguments"], "eps": 0.5}
    assert proof(written(tmp_path, lines), "megatron_gpt_reference").outcome is not Outcome.PROVED


def test_what_a_launch_replaces_and_reduces_stands_in_the_verdict() -> None:
    verdict = proof_of("pretrain_gpt_llama_tp2_dp2", "pretrain_gpt_llama_reference")
    said = {assumed.removeprefix("captured with the ") for assumed in verdict.assumptions}
    assert {"`bf16` switched off", "`--hidden-dropout 0.1` replaced by `0.0`"} <= said
    assert {"`--num-layers` 32 reduced to 1", "`--hidden-size` 4096 reduced to 16", "`--seq-length` 8192 reduced to 8"} <= said


def test_layers_of_a_stage_that_each_keep_a_table_read_one_and_another_table_is_not_taken_for_it(tmp_path: Path) -> None:
    """The second layer has the table of the first, under no name: the stage that holds it alone finds it by its numbers."""
    verdict = proof_of("megatron_gpt_latent_pp2", "megatron_gpt_latent_reference")
    assert [text for text in verdict.assumptions if text.startswith("the constants with the numbers of")]
    lines = lines_of("megatron_gpt_latent_pp2")
    rank = lines.index({"rank": 1})
    table = base64.b64encode(struct.pack("<ff", 1.0, 0.01)).decode()
    places = [at for at, line in enumerate(lines) if at > rank and line.get("values") == table]
    other = base64.b64encode(struct.pack("<ff", 1.0, 0.02)).decode()
    assert places
    changed = [{**line, "values": other} if at in places else line for at, line in enumerate(lines)]
    report = prove_pair(Pair(written(tmp_path, changed), path_of("megatron_gpt_latent_reference")))
    assert [problem.message for problem in report.problems] == [
        "a value of shape (2,) that the step is given is no part of what the reference is given"
    ]


@pytest.mark.parametrize(
    ("op", "changed"),
    sampled_tuples(
        [
            ("aten.sort.stable", {"descending": False}),
            ("aten.sort.stable", {"stable": False}),
            ("aten.remainder.Scalar", {"other": 8}),
            ("aten.remainder.Scalar", {"other": 17}),
        ],
        4,
    ),
)
def test_places_of_flags_sorted_otherwise_are_not_followed(op: str, changed: dict[str, object], tmp_path: Path) -> None:
    lines = [
        {**line, "arguments": {**line["arguments"], **changed}} if line.get("op") == op else line
        for line in lines_of("megatron_main_experts_alltoall_tp2")
    ]
    found = read_captures(written(tmp_path, lines), path_of("megatron_main_experts_reference"))
    assert isinstance(found, Problem) or not is_proved(found[0].plan, found[1].plan)


@pytest.mark.heavy
@pytest.mark.parametrize("reduce", ["avg", "max"])
def test_what_experts_on_two_axes_give_is_summed(reduce: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = [
        {**line, "reduce": reduce} if line.get("communication") == "reduce-scatter" and len(line["group"]) == 4 else line
        for line in lines_of("megatron_main_eight_experts_tp2_dp2")
    ]
    report = prove_pair(Pair(written(tmp_path, lines), path_of("megatron_main_eight_experts_reference")))
    assert not any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)


def is_of_parts(line: Line, kind: str) -> bool:
    """Return whether a line is a collective of parts of several lengths, each a tensor of its own."""
    return line.get("communication") == kind and max(len(line["inputs"]), len(line["outputs"])) == 2


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("reduce-scatter", lambda line: {"reduce": "avg"}),
        ("reduce-scatter", lambda line: {"reduce": "max"}),
        ("reduce-scatter", lambda line: {"inputs": line["inputs"][::-1]}),
        ("all-gather", lambda line: {"outputs": line["outputs"][::-1]}),
    ],
    ids=["averaged", "greatest", "parts exchanged", "gathered in another order"],
)
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_parts_of_several_lengths_are_put_together_as_their_ranks_hold_them(
    kind: str, changed: Callable[[Line], Line], phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = [
        {**line, **changed(line)} if is_of_parts(line, kind) and line["phase"] == phase else line
        for line in lines_of("megatron_main_experts_parts_tp2")
    ]
    assert lines != list(lines_of("megatron_main_experts_parts_tp2"))
    report = prove_pair(Pair(written(tmp_path, lines), path_of("megatron_main_experts_parts_reference")))
    assert not any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)


def collectives(lines: list[Line], kind: str) -> list[int]:
    wanted = [at for at, line in enumerate(lines) if line.get("communication") == kind and len(line["group"]) > 1]
    return [at for at in wanted if lines[at].get("phase") != "optimizer"]


def dropped(lines: list[Line], places: list[int]) -> list[Line]:
    """Return the lines without these communications and their waits."""
    works = set()
    rank = -1
    for at, line in enumerate(lines):
        rank = line.get("rank", rank)
        if at in places:
            works.add((rank, line["work"]))
    kept, rank = [], -1
    for at, line in enumerate(lines):
        rank = line.get("rank", rank)
        if at not in places and (rank, line.get("wait")) not in works:
            kept.append(line)
    return kept


def on_both_ranks(lines: list[Line], kind: str, number: int) -> list[int]:
    """Return the places of the collective with that number among its kind, on each of the two ranks."""
    places = collectives(lines, kind)
    half = len(places) // 2
    return [places[number], places[half + number]]


def last(lines: list[Line], kind: str) -> int:
    return len(collectives(lines, kind)) // 2 - 1


FAULTS: dict[str, tuple[str, Callable[[list[Line]], list[Line]], str]] = {
    "norms are not synchronised": (
        "megatron_gpt_tp2_sp",
        lambda lines: dropped(lines, on_both_ranks(lines, "all-reduce", last(lines, "all-reduce"))),
        "missing-gradient-reduction",
    ),
    "scores are not summed over the vocabulary": (
        "megatron_gpt_tp2_sp", lambda lines: dropped(lines, on_both_ranks(lines, "all-reduce", 3)), "missing-allreduce",
    ),
    "shards of gradients are averaged twice": (
        "megatron_gpt_dp2_distributed_optimizer",
        lambda lines: [{**line, "reduce": "avg"} if line.get("communication") == "reduce-scatter" else line for line in lines],
        "wrong-gradient-scale",
    ),
    "shards of gradients are averaged twice, while weights are gathered": (
        "megatron_gpt_dp2_overlap",
        lambda lines: [{**line, "reduce": "avg"} if line.get("communication") == "reduce-scatter" else line for line in lines],
        "wrong-gradient-scale",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", sampled(FAULTS, 3))
def test_a_fault_is_refuted_by_the_plan_alone(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change, reason = FAULTS[fault]
    prover_alone(monkeypatch)
    verdict = proof(written(tmp_path, change(lines_of(name))), PROGRAMS[name][0])
    assert verdict.outcome is Outcome.REFUTED, verdict.reasons
    assert reason in {own.name for own in verdict.reasons if own.refutes}


def test_weights_that_are_gathered_and_were_others_before_are_not_proved(tmp_path: Path) -> None:
    """The gather of the first step changes nothing where all ranks begin with equal numbers, and nowhere else."""
    lines = lines_of("megatron_gpt_dp2_overlap")
    gather = next(line for line in reversed(lines) if line.get("communication") == "all-gather")
    windows = {line["tensor"]: line for line in lines[lines.index({"rank": 1}) :] if "tensor" in line}
    storage = windows[gather["outputs"][0]]["storage"]
    at = max(place for place, line in enumerate(lines) if line.get("given") == storage)
    numbers = bytearray(base64.b64decode(lines[at]["values"]))
    numbers[:4] = struct.pack("<f", 0.25 + struct.unpack("<f", numbers[:4])[0])
    lines[at] = {**lines[at], "values": base64.b64encode(bytes(numbers)).decode()}
    report = prove_pair(Pair(written(tmp_path, lines), path_of("megatron_gpt_reference")))
    assert [problem.message for problem in report.problems] == [
        "a value of shape (1280,) that the step is given is no part of what the reference is given"
    ]


def between_instances(lines: list[Line]) -> list[int]:
    """Return the places of the sums of parts of gradients between instances of the distributed optimizer."""
    scattered = next(at for at, line in enumerate(lines) if line.get("communication") == "reduce-scatter")
    group = lines[scattered]["group"]
    sums = [at for at in collectives(lines, "all-reduce") if not set(lines[at]["group"]) <= set(group)]
    return [at for at in sums if len(lines[at]["group"]) == 2 and lines[at]["group"] not in ([0, 1], [2, 3])]


PARTS: dict[str, Callable[[list[Line], list[int]], list[Line]]] = {
    "not summed": dropped,
    "not summed by the first part's ranks": lambda lines, places: dropped(
        lines, [at for at in places if lines[at]["group"] == lines[places[0]]["group"]]
    ),
    "summed with the other ranks of their own instance": lambda lines, places: [
        {**line, "group": [line["group"][0], line["group"][0] + 1]} if at in places else line for at, line in enumerate(lines)
    ],
    "averaged again": lambda lines, places: [
        {**line, "reduce": "avg"} if at in places else line for at, line in enumerate(lines)
    ],
    "the greatest": lambda lines, places: [
        {**line, "reduce": "max"} if at in places else line for at, line in enumerate(lines)
    ],
}


@pytest.mark.parametrize("fault", sampled(reversed(PARTS), 5))
def test_parts_of_gradients_that_instances_do_not_sum_are_not_proved(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan alone finds them: a rank that is left nothing of a weight says nothing of what the others do with it."""
    prover_alone(monkeypatch)
    lines = lines_of("megatron_gpt_dp4_instances")
    places = between_instances(lines)
    assert len({tuple(lines[at]["group"]) for at in places}) == 2
    report = prove_pair(Pair(written(tmp_path, PARTS[fault](lines, places)), path_of("megatron_gpt_llama_reference")))
    assert not any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)
    if fault in ("not summed", "averaged again"):
        assert [verdict.outcome for verdict in report.verdicts] == [Outcome.REFUTED]


@pytest.mark.heavy
def test_tied_embeddings_that_are_not_summed_are_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("megatron_gpt_pp2_tied")
    verdict = proof(written(tmp_path, dropped(lines, on_both_ranks(lines, "all-reduce", 0))), "megatron_gpt_tied_reference")
    assert verdict.outcome is not Outcome.PROVED


def between_stages(lines: list[Line]) -> list[int]:
    """Return the places of the sums of tied embeddings, of which the ranks of a stage were left parts before."""
    (group,) = {tuple(lines[at]["group"]) for at in collectives(lines, "reduce-scatter")} & {(0, 1)}
    return [at for at in collectives(lines, "all-reduce") if len({*lines[at]["group"]} & {*group}) == 1]


def without_last_waits(lines: list[Line]) -> list[Line]:
    """Return the lines without the last wait of each rank for a reduction."""
    last, rank = dict[int, int](), -1
    for line in lines:
        rank = line.get("rank", rank)
        if line.get("communication") in ("all-reduce", "reduce-scatter") and line.get("phase") != "optimizer":
            last[rank] = line["work"]
    kept, rank = [], -1
    for line in lines:
        rank = line.get("rank", rank)
        if "wait" not in line or line["wait"] != last[rank]:
            kept.append(line)
    return kept


def test_a_reduction_that_is_never_waited_for_is_refuted_though_the_program_is_no_plan(tmp_path: Path) -> None:
    """Gradients that are read in flight are not followed through micro-batches; that they are is a mistake by itself."""
    lines = without_last_waits(lines_of("megatron_gpt_dp2_distributed_optimizer"))
    verdict = proof(written(tmp_path, lines), "megatron_gpt_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons] == ["missing-wait", "unsupported-operator"]


def with_gradients_times(factor: float, lines: list[Line]) -> list[Line]:
    """Return the lines with multiples of the recorded gradients."""
    found = []
    for line in lines:
        if "gradient" in line and "values" in line:
            numbers = [factor * number for (number,) in struct.iter_unpack("<f", base64.b64decode(line["values"]))]
            line = {**line, "values": base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()}
        found.append(line)
    return found


def test_recorded_gradients_refute_a_program_that_is_no_plan_and_nothing_proves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvlint.readers.capture.reader.first_race", lambda capture: None)
    lines = without_last_waits(lines_of("megatron_gpt_dp2_distributed_optimizer"))
    pair = Pair(written(tmp_path, lines), path_of("megatron_gpt_reference"))
    report = prove_pair(pair)
    assert not report.verdicts
    assert [problem.message[:35] for problem in report.problems] == ["a value of one micro-batch is read "]
    rounded = Pair(written(tmp_path, with_gradients_times(1.1, lines)), path_of("megatron_gpt_reference"))
    assert prove_pair(rounded).problems == report.problems
    lines = with_gradients_times(2, lines)
    verdict = proof(written(tmp_path, lines), "megatron_gpt_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons] == ["other-recorded-gradient", "unsupported-operator"]


def test_recorded_gradients_refute_replicas_that_read_some_samples_twice(tmp_path: Path) -> None:
    lines = lines_of("data_parallel")
    second = next(at for at, line in enumerate(lines) if line.get("rank") == 1)
    inputs = [at for at, line in enumerate(lines) if at > second and "tensor" in line and line["offset"] == 32]
    for at in inputs:
        lines[at]["offset"] = 16
    report = prove_pair(Pair(written(tmp_path, lines), path_of("data_parallel_reference")))
    assert inputs
    assert [problem.message for problem in report.problems] == [
        "the placement of `input0` on the ranks does not follow axes of a mesh"
    ]
    verdict = proof(written(tmp_path, with_gradients_times(2, lines)), "data_parallel_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons] == ["other-recorded-gradient", "unsupported-operator"]


@pytest.mark.parametrize("fault", sampled(reversed(PARTS), 5))
def test_tied_embeddings_in_parts_that_stages_do_not_sum_are_not_proved(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of("megatron_gpt_pp2_tied_scattered")
    places = between_stages(lines)
    assert {tuple(lines[at]["group"]) for at in places} == {(0, 2), (1, 3)}
    report = prove_pair(Pair(written(tmp_path, PARTS[fault](lines, places)), path_of("megatron_gpt_tied_reference")))
    assert not any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)


def mutants(lines: list[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Yield captures in which one collective is another one, or not there."""
    for kind in ("all-reduce", "reduce-scatter", "all-gather"):
        for number in range(len(collectives(lines, kind)) // 2):
            both = on_both_ranks(lines, kind, number)
            if kind == "all-reduce":
                yield f"no {kind} {number}", dropped(lines, both)
            if lines[both[0]].get("reduce") == "sum":
                yield f"a greatest {number}", [{**own, "reduce": "max"} if at in both else own for at, own in enumerate(lines)]
            yield f"{kind} {number} on one rank", without(lines, both[0]) if "wait" in str(lines) else lines
    for at, line in enumerate(lines):
        if line.get("op") == "aten.add.Tensor" and line.get("phase") == "backward" and "rank" not in line and at % 7 == 0:
            yield f"a difference {at}", [{**own, "op": "aten.sub.Tensor"} if i == at else own for i, own in enumerate(lines)]


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["megatron_gpt_tp2_sp"])
def test_no_mutant_of_a_step_of_megatron_is_proved(name: str, tmp_path: Path) -> None:
    assert count_unproved(tmp_path, list(mutants(lines_of(name)))[::4], PROGRAMS[name][0]) >= 8


def test_a_weight_that_is_not_where_it_is_said_to_be_is_an_error(tmp_path: Path) -> None:
    lines = lines_of("megatron_gpt_tp2_sp")
    at = next(i for i, line in enumerate(lines) if line.get("name", "").endswith("linear_qkv.weight"))
    start = [8 - own if own else 8 - 8 for own in lines[at]["start"]]
    moved = [own + (12 if place == 0 and not own else 0) for place, own in enumerate(start)]
    changed = [{**line, "start": moved} if i == at else line for i, line in enumerate(lines)]
    report = prove_pair(Pair(written(tmp_path, changed), path_of("megatron_gpt_reference")))
    assert any("is said to be piece" in problem.message for problem in report.problems)


def test_a_mask_that_is_read_is_assumed_to_be_what_was_recorded(tmp_path: Path) -> None:
    lines = lines_of("megatron_gpt_tp2_sp")
    one = base64.b64encode(struct.pack("<f", 1.0)).decode()
    assert any(line.get("values") == one for line in lines)
    verdict = proof_of("megatron_gpt_tp2_sp", "megatron_gpt_reference")
    said = [text for text in verdict.assumptions if text.endswith(" throughout, as recorded")]
    assert [text.rsplit(" is ", 1)[1] for text in said if not text.startswith("of the reference: ")] == [
        "0 throughout, as recorded",
        "1 throughout, as recorded",
    ]
