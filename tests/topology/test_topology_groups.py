"""The process groups of a topology against their definition: ranks that differ in the named coordinates only."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.topologies import known, topology
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.run.judge.topology import configuration_topology
from tvlint.topology.topology import Topology

SIZES = st.sampled_from([1, 2, 3, 4])
DENSE = {"tp": ("tp",), "cp": ("cp",), "dp": ("dp",), "pp": ("pp",), "tp-pp": ("tp", "pp"), "dp-cp": ("dp", "cp")}
EXPERT = {"ep": ("ep",), "expert-tp": ("tp",), "expert-dp": ("dp",), "expert-tp-ep": ("tp", "ep")}


def defined(order: str, sizes: dict[str, int], varying: tuple[str, ...]) -> list[list[int]]:
    """All groups: number the points of the grid, the first axis fastest, and put those together that agree elsewhere."""
    names = [name for name in order.split("-") if name in sizes]
    points = [dict(zip(reversed(names), place, strict=True)) for place in product(*(range(sizes[n]) for n in reversed(names)))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, point in enumerate(points):
        groups.setdefault(tuple(point[name] for name in names if name not in varying), []).append(rank)
    return sorted(groups.values())


@settings(max_examples=60)
@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.integers(1, 3), st.booleans())
def test_groups_are_what_their_definition_says(
    tp: int, cp: int, pp: int, ep: int, expert_tp: int, copies: int, stages_before_data: bool
) -> None:
    world = math.lcm(tp * cp * pp, expert_tp * ep * pp) * copies
    order = "tp-cp-ep-pp-dp" if stages_before_data else "tp-cp-ep-dp-pp"
    dense = {"tp": tp, "cp": cp, "dp": world // (tp * cp * pp), "pp": pp}
    expert = {"tp": expert_tp, "ep": ep, "dp": world // (expert_tp * ep * pp), "pp": pp}
    found = topology(
        tensor_model_parallel_size=tp,
        context_parallel_size=cp,
        pipeline_model_parallel_size=pp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=expert_tp,
        num_experts=12,
        world_size=world,
        use_tp_pp_dp_mapping=stages_before_data,
    )
    if defined(order, dense, ("pp",)) != defined(order, expert, ("pp",)):
        assert isinstance(found.grid, Unknown)
        return
    if isinstance(found.grid, Unknown):
        assert stages_before_data
        assert dense["dp"] != expert["dp"]
        return
    for kind in found.groups:
        if kind.name in DENSE or kind.name in EXPERT:
            inside = kind.name in DENSE
            expected = defined(order, dense if inside else expert, (DENSE if inside else EXPERT)[kind.name])
            assert sorted(list(kind.group(index)) for index in range(kind.count)) == expected
            assert all(kind.of(rank) == tuple(group) for group in expected for rank in group)
    embedding = next(kind for kind in found.groups if kind.name == "embedding")
    pipelines = defined(order, dense, ("pp",))
    assert [list(embedding.group(index)) for index in range(embedding.count)] == [
        [ranks[0], ranks[-1]] if pp > 1 else ranks for ranks in pipelines
    ]
    middle = pipelines[0][1] if pp > 2 else None
    assert middle is None or embedding.of(middle) == ()
    positions = next(kind for kind in found.groups if kind.name == "position-embedding")
    assert [positions.group(index) for index in range(positions.count)] == [(ranks[0],) for ranks in pipelines]


def test_two_named_worlds_have_the_groups_of_their_papers() -> None:
    """16 ranks with tp 2 and pp 4: the example that Megatron's documentation writes out."""
    found = topology(tensor_model_parallel_size=2, pipeline_model_parallel_size=4, world_size=16)
    groups = {kind.name: [kind.group(index) for index in range(kind.count)] for kind in found.groups}
    assert groups["tp"] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)]
    assert groups["dp"] == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert groups["pp"] == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]


def test_weights_that_are_gathered_again_take_an_axis_of_their_own() -> None:
    found = topology(tensor_model_parallel_size=2, tensor_parallel_num_weight_shards=4, world_size=8)
    groups = {kind.name: [kind.group(index) for index in range(kind.count)] for kind in found.groups}
    assert groups["gtp"] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert groups["dp"] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert found.batch.data_parallel == 4


def test_a_model_without_experts_has_no_groups_of_them() -> None:
    names = {kind.name for kind in topology(tensor_model_parallel_size=2, world_size=4).groups}
    assert not names & set(EXPERT)


def test_a_world_that_is_not_given_is_the_smallest_that_fits() -> None:
    grid = {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2}
    found = topology(**grid, expert_model_parallel_size=6, num_experts=6, expert_tensor_parallel_size=1)
    world = known(found.world)
    assert (world.size, world.minimal, world.smallest) == (24, True, 24)
    assert "world_size" in world.reason


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tensor_model_parallel_size": 8, "world_size": 12}, "not a multiple of 8"),
        ({"tensor_model_parallel_size": Unknown("depends on `$1`"), "world_size": 8}, "depends on `$1`"),
        ({"tensor_model_parallel_size": 10**9}, "more than any cluster"),
        ({"tensor_model_parallel_size": "two", "world_size": 8}, "not a number"),
        ({"tensor_model_parallel_size": 0, "world_size": 8}, "0"),
        ({"tensor_model_parallel_size": -2, "world_size": 8}, "-2"),
    ],
)
def test_a_grid_that_does_not_fit_says_why(settings: dict[str, object], reason: str) -> None:
    found = topology(**settings)
    assert isinstance(found.grid, Unknown)
    assert reason in found.grid.reason
    assert found.groups == ()


@pytest.mark.parametrize("framework", ["nemo", "verl", "megatron-bridge", "mindspeed"])
def test_frameworks_on_megatron_core_split_by_its_defaults_and_say_so(framework: str) -> None:
    at = Location("train.yaml")
    tp = Setting("tensor_model_parallel_size", 4, "tensor_model_parallel_size", at, at)
    found = configuration_topology(Configuration("train.yaml", "megatron-yaml", framework, {tp.name: tp}))
    assert isinstance(found, Topology)
    assert known(found.world).size == 4
    assert [kind.group(0) for kind in found.groups if kind.name == "tp"] == [(0, 1, 2, 3)]
    assert any("defaults of Megatron core" in note for note in found.notes)


def test_a_file_that_may_be_completed_elsewhere_is_told_with_its_defaults_and_says_so() -> None:
    at = Location("train.sh")
    tp = Setting("tensor_model_parallel_size", 4, "--tensor-model-parallel-size", at, at)
    found = configuration_topology(Configuration("train.sh", "megatron-shell", "megatron-lm", {tp.name: tp}, complete=False))
    assert isinstance(found, Topology)
    assert known(found.world).size == 4
    assert any("may also come from elsewhere" in note for note in found.notes)
