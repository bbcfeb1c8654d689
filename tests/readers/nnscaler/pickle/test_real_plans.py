"""Real nnScaler plans: their degrees, that correct ones are well formed, and that each mutation of a broken one shows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from shared import SHARED, needs_shared

from tests.sampling import sampled
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Literal, Operator, Receive, Send
from tvlint.ir.plan import Plan, Role, Segment
from tvlint.readers.nnscaler.pickle.reader import EXCHANGED, read

PLANS = (SHARED or Path("absent")) / "plans"

DEGREES = {
    "good/llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128": ((2, 2, 2), 2),
    "good/llama3_default_dp2_pp2_tp2_nm4_gbs512_ly2_h32_hi4096_sq128": ((2, 2, 2), 4),
    "good/llama3_default_dp1_pp1_tp2_nm1_gbs512_ly2_h32_hi4096_sq128": ((1, 1, 2), 1),
    "good/llama3_default_dp1_pp2_tp1_nm2_gbs512_ly2_h32_hi4096_sq128": ((1, 2, 1), 2),
    "good/llama3_default_dp4_pp1_tp1_nm1_gbs512_ly2_h32_hi4096_sq128": ((4, 1, 1), 1),
    "good/mlp_default_dp1_pp1_tp4_nm1_gbs16_dim1024_ly4": ((1, 1, 4), 1),
    "good/llama3_flexmr_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128": ((2, 2, 2), 2),
    "good/moe_default_dp2_pp2_tp2_nm2_gbs1024_ly2_h16_hi512_sq128_a2_r16": ((2, 2, 2), 2),
    "piece-order/llama3_default_dp16_pp4_tp8_nm8_gbs512_ly2_h32_hi4096_sq128": ((16, 4, 8), 8),
    "piece-order/moe_default_dp16_pp2_tp4_nm16_gbs1024_ly2_h16_hi512_sq128_a6_r64": ((16, 2, 4), 16),
}


def shared_plan(name: str) -> Plan:
    """A real plan, read under a name that tells nothing."""
    document = read("x", (PLANS / f"{name}.pkl.xz").read_bytes())
    assert document.findings == ()
    assert document.plan is not None
    return document.plan


@needs_shared
@pytest.mark.parametrize("name", DEGREES)
def test_the_degrees_come_from_the_content(name: str) -> None:
    plan = shared_plan(name)
    degrees, micro_batches = DEGREES[name]
    assert [(axis.name, axis.size) for axis in plan.mesh.axes] == list(zip(("dp", "pp", "tp"), degrees, strict=True))
    assert plan.micro_batches == micro_batches
    assert len(plan.outputs) == micro_batches
    assert {segment.pipeline_stage for segment in plan.segments.values()} == set(range(degrees[1]))


def reads_and_writes(node: Operator) -> tuple[list[str], list[str]]:
    """The tensors that an operator reads and makes."""
    if isinstance(node, Send):
        return [node.tensor], []
    if isinstance(node, Receive):
        return [], [node.tensor]
    if isinstance(node, (Compute, Backward, Communicate)):
        inputs = [name for name in node.inputs if isinstance(name, str) and name]
        return inputs, [name for name in node.outputs if name]
    return [], []


def undefined(plan: Plan, part: Segment) -> set[str]:
    """Names that a segment reads, or gives, and that are neither its inputs, nor weights, nor made before."""
    known = set(part.inputs) | {name for name, t in plan.tensors.items() if t.role in (Role.WEIGHT, Role.BUFFER)}
    missing = set()
    for node in part.operators:
        inputs, outputs = reads_and_writes(node)
        missing |= {name for name in inputs if name not in known}
        again = {name for name in outputs if name in known and plan.tensors[name].role is not Role.GRADIENT}
        assert again == set(), f"{part.name} makes {again} twice"
        known |= set(outputs)
    return missing | (set(part.outputs) - known)


def placed(plan: Plan) -> set[tuple[str, str]]:
    """Gradients at the place of another tensor than their own, with that tensor."""
    wrong = set()
    for part in plan.segments.values():
        for node in part.operators:
            if isinstance(node, Backward):
                operands = [name for name in node.forward.inputs if isinstance(name, str)]
                for gradient, name in zip(node.outputs, operands, strict=True):
                    if gradient and plan.tensors[gradient].gradient_of != name:
                        wrong.add((gradient, name))
    return wrong


def resized(plan: Plan) -> set[str]:
    """Results of collectives whose declared shape is not the one that the collective gives."""
    wrong = set()
    for part in plan.segments.values():
        for node in part.operators:
            if isinstance(node, Communicate) and node.inputs and node.outputs:
                shape = list(plan.tensors[node.inputs[0]].shape)
                size = len(node.group.ranks)
                if node.kind is Collective.ALL_GATHER:
                    shape[node.dim or 0] *= size
                elif node.kind in (Collective.CHUNK, Collective.REDUCE_SCATTER):
                    shape[node.dim or 0] //= size
                elif node.kind is Collective.ALL_TO_ALL:
                    shape[node.dim or 0] //= size
                    shape[node.concat_dim or 0] *= size
                if tuple(shape) != plan.tensors[node.outputs[0]].shape:
                    wrong.add(node.outputs[0])
    return wrong


GOOD = sorted(path.name.removesuffix(".pkl.xz") for path in PLANS.glob("good/*.xz"))


@needs_shared
@pytest.mark.parametrize("name", sampled(GOOD, 3))
def test_a_correct_plan_is_well_formed(name: str) -> None:
    plan = shared_plan(f"good/{name}")
    missing = {name for segment in plan.segments.values() for name in undefined(plan, segment)}
    assert {name for name in missing if plan.tensors[name].role is not Role.GRADIENT} == set()
    assert placed(plan) == set()
    assert resized(plan) == set()


def flat(plan: Plan, device: int) -> list[tuple[str, Operator]]:
    """The operators of one device by segment."""
    own = [segment for name, segment in plan.segments.items() if name.startswith(f"device {device}/")]
    return [(segment.name, operator) for segment in own for operator in segment.operators]


def differences(name: str) -> dict[int, list[tuple[Operator | None, Operator | None]]]:
    """Where the operators of a broken plan differ from those of the unbroken one, by device: (unbroken, broken)."""
    broken, control = shared_plan(f"broken/{name}"), shared_plan("broken/unbroken-control")
    found: dict[int, list[tuple[Operator | None, Operator | None]]] = {}
    for device in range(4):
        pairs = itertools.zip_longest(flat(control, device), flat(broken, device))
        both = [(a[1] if a else None, b[1] if b else None) for a, b in pairs if a != b]
        if both:
            found[device] = both
    return found


def only(name: str, devices: tuple[int, ...], index: int = 0) -> tuple[Any, Any]:
    """The difference `index` of a broken plan on the first of the devices that differ, which are `devices`."""
    found = differences(name)
    assert tuple(found) == devices
    return found[devices[0]][index]


@needs_shared
@pytest.mark.parametrize("name", ["br1", "br1r"])
def test_br1_has_an_identity_where_a_sum_belongs(name: str) -> None:
    before, after = only(name, (0, 1))
    assert (before.kind, before.outputs) == (Collective.ALL_REDUCE, ("t550",))
    assert isinstance(after, Compute)
    assert (after.op, after.outputs) == ("nnscaler.runtime.function.identity", ("t550",))


@needs_shared
def test_br2_makes_nothing_of_the_partial_sum() -> None:
    plan = shared_plan("broken/br2")
    assert {segment.name: missing for segment in plan.segments.values() if (missing := undefined(plan, segment))} == {
        "device 0/segment 217": {"t550"},
        "device 1/segment 217": {"t550"},
    }


@needs_shared
@pytest.mark.parametrize("name", ["br3", "br3r"])
def test_br3_gathers_where_a_sum_belongs(name: str) -> None:
    before, after = only(name, (0, 1))
    assert (before.kind, after.kind, after.dim, after.outputs) == (Collective.ALL_REDUCE, Collective.ALL_GATHER, 0, ("t550",))
    assert ("t550" in resized(shared_plan(f"broken/{name}"))) == (name == "br3r")
    assert after.group.ranks == ((0,) if name == "br3" else (0, 1))


@needs_shared
@pytest.mark.parametrize("name", ["br4", "br4r"])
def test_br4_sums_where_pieces_are_gathered(name: str) -> None:
    before, after = only(name, (2, 3))
    assert (before.kind, after.kind, after.outputs) == (Collective.ALL_GATHER, Collective.ALL_REDUCE, ("t551",))


@needs_shared
@pytest.mark.parametrize("name", ["br5", "br5r"])
def test_br5_sums_forward_and_not_backward(name: str) -> None:
    before, after = only(name, (2, 3))
    assert isinstance(before, Compute)
    assert (after.kind, after.inputs, after.outputs) == (Collective.ALL_REDUCE, ("t598",), ("t598.1",))
    before, after = only(name, (2, 3), 1)
    while not isinstance(before, Communicate):
        before, after = next((b, a) for b, a in differences(name)[2] if isinstance(b, Communicate))
    assert (before.kind, before.inputs, before.outputs) == (Collective.ALL_REDUCE, ("g750",), ("g749",))
    assert isinstance(after, Compute)


@needs_shared
def test_br5b_does_not_sum_backward() -> None:
    before, after = only("br5b", (2, 3))
    assert (before.kind, before.inputs, before.outputs) == (Collective.ALL_REDUCE, ("g750",), ("g749",))
    assert isinstance(after, Compute)
    assert (after.inputs, after.outputs) == (("g750",), ("g749",))


@needs_shared
def test_br6_crosses_the_moves() -> None:
    found = differences("br6")
    pairs = {device: [(b.peer.rank, a.peer.rank) for b, a in both] for device, both in found.items()}  # type: ignore[union-attr]
    assert pairs == {0: [(2, 3)], 1: [(3, 2)], 2: [(0, 1)], 3: [(1, 0)]}


@needs_shared
@pytest.mark.parametrize(
    ("name", "devices", "old", "new"),
    [
        ("br7", (0,), 1e-05, 2),
        ("br8", (0,), 2, 1),
        ("br9", (0, 1), 1e-05, 2),
        ("br12", (0,), 2.0, 4),
        ("br13", (0, 1), 2.0, 4),
    ],
)
def test_changed_constants(name: str, devices: tuple[int, ...], old: float, new: float) -> None:
    before, after = only(name, devices)
    assert (before.inputs[1], after.inputs[1]) == (Literal(old), Literal(new))


@needs_shared
def test_br10_takes_one_gradient_twice() -> None:
    before, after = only("br10", (2,))
    assert before.inputs == ("g1423", "g1427")
    assert after.inputs.count("g1423") == 2


@needs_shared
def test_br11_swaps_two_gradients() -> None:
    before, after = only("br11", (2,))
    assert (before.inputs, after.inputs) == (("g718", "g719"), ("g719", "g718"))
    assert before.outputs == after.outputs
    plan = shared_plan("broken/br11")
    assert [plan.tensors[name].gradient_of for name in after.inputs] == list(reversed(after.forward.outputs))


@needs_shared
@pytest.mark.parametrize("name", ["br14", "br14r"])
def test_br14_changes_the_schedule(name: str) -> None:
    steps = [[step.segment for step in shared_plan(f"broken/{n}").programs[0].steps] for n in ("unbroken-control", name)]
    before, after = (names.count("device 0/segment 269") for names in steps)
    assert (before, after) == ((2, 1) if name == "br14" else (2, 2))
    assert steps[0] != steps[1]
    assert (steps[1][-1].startswith("device 0/reducer")) == (name == "br14")


@needs_shared
@pytest.mark.heavy
@pytest.mark.parametrize("path", sorted(PLANS.glob("ladder/*.xz")), ids=lambda path: path.name.split("_gbs")[0])
def test_the_large_plans(path: Path) -> None:
    document = read("x", path.read_bytes())
    assert document.findings == ()
    assert document.plan is not None
    degrees = dict(
        zip(("dp", "pp", "tp"), [int("".join(filter(str.isdigit, p))) for p in path.name.split("_")[2:5]], strict=True)
    )
    assert {axis.name: axis.size for axis in document.plan.mesh.axes} == degrees
    assert resized(document.plan) == set()


@needs_shared
@pytest.mark.parametrize("name", sampled(DEGREES, 3))
def test_backward_collectives_inside_a_segment_are_an_assumption(name: str) -> None:
    plan = shared_plan(name)
    inside = [own for own in plan.segments.values() if {Backward, Communicate} <= set(map(type, own.operators))]
    assert plan.assumed == ((EXCHANGED,) if inside else ())
    assert bool(inside) == (DEGREES[name][0][2] > 1)
