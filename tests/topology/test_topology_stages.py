"""Layers on pipeline stages, micro-batches, bubbles."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.topologies import known, topology
from tvlint.ir.configuration import Unknown
from tvlint.topology.schedule import bubble, in_flight
from tvlint.topology.stages import Ends, split_layers


def letters(**named: object) -> list[list[str]]:
    return [[chunk.letters for chunk in held] for held in known(topology(**named).pipeline).stages]


def test_layers_are_dealt_out_evenly_and_virtual_stages_in_turn() -> None:
    assert letters(num_layers=8, pipeline_model_parallel_size=2) == [["Etttt"], ["ttttL"]]
    found = letters(num_layers=8, pipeline_model_parallel_size=2, num_virtual_stages_per_pipeline_rank=2)
    assert found == [["Ett", "tt"], ["tt", "ttL"]]
    stages = known(
        topology(num_layers=8, pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=2).pipeline
    ).stages
    assert [[chunk.first for chunk in held] for held in stages] == [[0, 4], [2, 6]]


def test_an_uneven_first_or_last_stage_leaves_the_rest_to_the_middle() -> None:
    uneven = {"num_layers": 10, "pipeline_model_parallel_size": 4}
    assert letters(**uneven, decoder_first_pipeline_num_layers=1) == [["Et"], ["ttt"], ["ttt"], ["tttL"]]
    assert letters(**uneven, decoder_first_pipeline_num_layers=2, decoder_last_pipeline_num_layers=4) == [
        ["Ett"], ["tt"], ["tt"], ["ttttL"],
    ]  # fmt: skip


def test_an_embedding_or_a_loss_that_counts_takes_the_place_of_a_layer() -> None:
    counted = {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
    assert letters(num_layers=6, pipeline_model_parallel_size=2, **counted) == [["Ettt"], ["tttL"]]
    assert letters(num_layers=6, pipeline_model_parallel_size=4, **counted) == [["Et"], ["tt"], ["tt"], ["tL"]]


def test_a_layout_is_followed_to_the_letter() -> None:
    layout = {"pipeline_model_parallel_size": 2, "pipeline_model_parallel_layout": "Et*3|(tt|)*2,tmL"}
    assert letters(num_layers=8, mtp_num_layers=1, **layout) == [["Ettt", "tt"], ["tt", "tmL"]]
    uneven = topology(pipeline_model_parallel_size=2, pipeline_model_parallel_layout="Et|t|tL").pipeline
    assert isinstance(uneven, Unknown)
    assert "3 is not a multiple of 2" in uneven.reason


def test_hybrid_patterns_are_cut_at_their_bars() -> None:
    assert letters(hybrid_layer_pattern="M-M*|M-M-", pipeline_model_parallel_size=2) == [["Etttt"], ["ttttL"]]
    assert letters(hybrid_layer_pattern="M-|M*|M|-/M", pipeline_model_parallel_size=2) == [["Ett", "t"], ["tt", "tmL"]]
    assert letters(hybrid_layer_pattern="M-M*M-", pipeline_model_parallel_size=3) == [["Ett"], ["tt"], ["ttL"]]


@settings(max_examples=200)
@given(
    st.integers(1, 40), st.integers(1, 6), st.integers(1, 4), st.none() | st.integers(0, 9), st.none() | st.integers(0, 9),
    st.booleans(), st.booleans(), st.integers(0, 2),
)  # fmt: skip
def test_every_split_holds_every_layer_once(
    layers: int, pp: int, virtual: int, first: int | None, last: int | None, embedding: bool, loss: bool, extra: int
) -> None:
    try:
        found = split_layers(layers, pp, virtual, Ends(first, last, embedding, loss), extra)
    except ValueError:
        return
    text = "".join(found)
    assert len(found) == pp * (virtual if pp > 1 else 1)
    assert (text.count("t"), text.count("m")) == (layers, extra)
    assert (text[0], text[-1]) == ("E", "L")
    counts = [sum(found[number].count("t") for number in range(stage, len(found), pp)) for stage in range(pp)]
    assert first is None or pp == 1 or counts[0] == first
    assert last is None or counts[-1] == last


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"pipeline_model_parallel_size": 2}, "`num_layers` is not given"),
        ({"num_layers": 7, "pipeline_model_parallel_size": 2}, "7 is not a multiple of 2"),
        (
            {"num_layers": 8, "pipeline_model_parallel_size": 2, "num_virtual_stages_per_pipeline_rank": 3},
            "4 is not a multiple of 3",
        ),
        ({"num_layers": 10**9, "pipeline_model_parallel_size": 2}, "none of a real model"),
        ({"hybrid_layer_pattern": "$PATTERN"}, "variable"),
        ({"num_layers": Unknown("depends on `$1`")}, "depends on `$1`"),
    ],
)
def test_layers_that_cannot_be_told_say_why(named: dict[str, object], reason: str) -> None:
    found = topology(**named).pipeline
    assert isinstance(found, Unknown)
    assert reason in found.reason


def simulated(stages: int, micro_batches: int) -> int:
    """Units that 1F1B takes, by playing it: a forward takes 1 and a backward 2."""
    done: dict[tuple[str, int, int], int] = {}
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, micro_batches)
        order = [("F", number) for number in range(warm)]
        for number in range(micro_batches - warm):
            order += [("F", warm + number), ("B", number)]
        orders.append(order + [("B", number) for number in range(micro_batches - warm, micro_batches)])
    free, at = [0] * stages, [0] * stages
    while any(at[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                kind, number = orders[stage][at[stage]]
                before = (kind, stage - 1 if kind == "F" else stage + 1, number)
                if 0 <= before[1] < stages and before not in done:
                    break
                if kind == "B" and ("F", stage, number) not in done:
                    break
                start = max(free[stage], done.get(before, 0))
                free[stage] = done[kind, stage, number] = start + (1 if kind == "F" else 2)
                at[stage] += 1
    return max(free)


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 2, 5, 16])
def test_the_bubble_is_what_playing_the_schedule_shows(stages: int, micro_batches: int) -> None:
    found = bubble(stages, 1, micro_batches)
    whole, work = simulated(stages, micro_batches), 3 * micro_batches
    assert found.of_step == pytest.approx((whole - work) / whole)
    assert found.of_work == pytest.approx((whole - work) / work)


def test_virtual_stages_divide_the_bubble() -> None:
    assert bubble(4, 2, 8).of_work == pytest.approx(3 / 16)
    assert bubble(1, 1, 8).of_work == 0


def played(stage: int, stages: int, virtual: int, micro_batches: int) -> list[int]:
    """Forwards of each virtual stage before the first backward, one by one as the interleaved schedule orders them."""
    order = []
    for start in range(0, micro_batches, stages):
        for chunk in range(virtual):
            order += [chunk] * min(stages, micro_batches - start)
    taken = order[: 2 * (stages - stage - 1) + (virtual - 1) * stages + 1]
    return [taken.count(chunk) for chunk in range(virtual)]


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("virtual", [2, 3])
@pytest.mark.parametrize("micro_batches", [4, 8, 16])
def test_forwards_in_flight_are_those_that_the_schedule_runs_first(stage: int, virtual: int, micro_batches: int) -> None:
    assert list(in_flight(stage, 4, virtual, 4, micro_batches)) == played(stage, 4, virtual, micro_batches)


def test_micro_batches_follow_from_the_batch_and_a_ramp_is_told_size_by_size() -> None:
    batch = topology(micro_batch_size=2, global_batch_size=64, world_size=8, rampup_batch_size=("16", "16", "1000")).batch
    assert (batch.whole, batch.micro_batches) == (64, 4)
    assert batch.sizes == ((16, 1), (32, 2), (48, 3), (64, 4))
    alone = topology(micro_batch_size=2, world_size=8).batch
    assert (alone.whole, alone.micro_batches) == (16, 1)
    missing = topology(world_size=8, global_batch_size=64).batch.micro_batches
    assert isinstance(missing, Unknown)
    assert "micro_batch_size" in missing.reason
