"""nnScaler's plan pickles become plans: what every construct says, and located errors for anything else."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.builders.nnscaler_pickles import (
    Global,
    Object,
    adapter,
    backward,
    dumps,
    module,
    operator,
    prim,
    reuse,
    segment,
    small,
    tensor,
)
from tvlint.findings import Problem
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Peer,
    Receive,
    ReduceGradients,
    Send,
)
from tvlint.ir.plan import Phase, Plan, Role
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.pickle.reader import is_nnscaler_plan, read


def plan_of(root: object) -> Plan:
    """The plan in a pickle of `root`."""
    found = read("plan.pkl", dumps(root)).plan
    assert found is not None
    return found


def lowered(*nodes: Object, device: int = 0, devices: int = 2) -> tuple[Operator, ...]:
    """The operators of a segment of `nodes` on one of some devices."""
    sequences: dict[int, list[Any]] = {number: [] for number in range(devices)}
    sequences[device] = [segment(9, list(nodes), [], [])]
    return plan_of(module(sequences, devices)).segments[f"device {device}/segment 9"].operators


def test_a_small_plan() -> None:
    plan = plan_of(small().root)
    assert [(axis.name, axis.size) for axis in plan.mesh.axes] == [("dp", 2), ("pp", 1), ("tp", 1)]
    assert (plan.replication.count, plan.replication.stride, plan.micro_batches, plan.outputs) == (2, 1, 1, ("t4",))
    assert [step.segment for step in plan.programs[0].steps] == [
        "device 0/data 10",
        "device 0/segment 40",
        "device 0/segment 41",
        "device 0/reducer 50",
    ]
    assert [step.micro_batch for step in plan.programs[0].steps] == [0, 0, 0, -1]
    phases = [plan.segments[step.segment].phase for step in plan.programs[0].steps]
    assert phases == [Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.REDUCE]
    assert plan.tensors["t1"].role is Role.INPUT
    weight = plan.tensors["w2"]
    assert (weight.role, weight.logical, weight.dtype, weight.gradient) == (Role.WEIGHT, "layer.weight", "float32", "g14")
    assert plan.tensors["g14"].gradient_of == "w2"
    assert plan.tensors["t3"].logical == "103"
    assert plan.communicators == (Group(ranks=(0, 1)),)


def test_backward_holds_the_forward_operator_itself() -> None:
    plan = plan_of(small().root)
    linear = plan.segments["device 0/segment 40"].operators[0]
    gradient = plan.segments["device 0/segment 41"].operators[1]
    assert isinstance(linear, Compute)
    assert isinstance(gradient, Backward)
    assert gradient.forward is linear
    assert (linear.inputs, linear.outputs) == (("t1", "w2"), ("t3",))
    assert (gradient.inputs, gradient.outputs) == (("g13",), ("", "g14"))
    assert linear.source is not None
    assert (linear.source.path, linear.source.line) == ("model.py", 20)


def test_the_reducer_extends_over_the_replicas() -> None:
    (reducer,) = plan_of(small().root).segments["device 0/reducer 50"].operators
    assert isinstance(reducer, ReduceGradients)
    assert (reducer.weights, reducer.group.ranks, reducer.replicated, reducer.divisor) == (("w2",), (0,), True, 0)


def test_gradients_stand_where_the_plan_puts_them() -> None:
    made = small()
    first, second = tensor(61, (4,), is_gradient=True), tensor(62, (4,), is_gradient=True)
    a, b, c = tensor(51, (4,), gradient=first), tensor(52, (4,), gradient=second), tensor(53, (4,))
    out = tensor(54, (4,), gradient=tensor(64, (4,), is_gradient=True))
    add = operator(70, "f", [a, c, 2, b], [out])
    made.forward.state["_nodes"].append(add)
    made.sequence[2].state["_nodes"][:] = [
        backward(71, add, [out.state["_grad"]], [second, first]),
        backward(72, add, [out.state["_grad"]], [first]),
        backward(73, add, [out.state["_grad"], first], [first, second, first]),
    ]
    found = plan_of(made.root).segments["device 0/segment 41"].operators
    assert [operator.outputs for operator in found if isinstance(operator, Backward)] == [
        ("g62", "", "g61"),
        ("g61", "", ""),
        ("g61", "", "g62", "g61"),
    ]
    assert [operator.inputs for operator in found if isinstance(operator, Backward)] == [("g64",), ("g64",), ("g64", "g61")]


def test_constants_and_keyword_arguments() -> None:
    x, bias = tensor(1, (4,)), tensor(2, (4,), weight="b")
    found = lowered(
        operator(3, "torch.f", [x, 1e-5, None, True], [tensor(5, (4,))], dim=(1, 2), dtype=Global("torch.float32"), bias=bias),
        operator(4, "torch.cat", [[x, bias]], [tensor(6, (8,))], dim=0, parts=[x, [bias, 3]]),
    )
    assert isinstance(found[0], Compute)
    assert isinstance(found[1], Compute)
    assert found[0].inputs == ("t1", Literal(1e-5), Literal(None), Literal(True), "w2")
    assert found[0].attributes == {"dim": (1, 2), "dtype": "torch.float32", "bias": "operand 4"}
    assert found[1].inputs == ("t1", "w2", "t1", "w2")
    assert found[1].attributes == {"dim": 0, "parts": ("operands from 2", ("*", ("*", 3))), "operands": (("*", "*"),)}


def test_every_plain_primitive() -> None:
    x, y = tensor(1, (4, 8)), tensor(2, (4, 8))
    kinds = {
        "AllReducePrim": (Collective.ALL_REDUCE, "sum", None, None),
        "AllGatherPrim": (Collective.ALL_GATHER, "", 1, None),
        "ReduceScatterPrim": (Collective.REDUCE_SCATTER, "sum", 1, None),
        "ChunkPrim": (Collective.CHUNK, "", 1, None),
        "AllToAllPrim": (Collective.ALL_TO_ALL, "", 0, 1),
    }
    for name, expected in kinds.items():
        (found,) = lowered(adapter(8, [prim(name, [x], [y], ranks=[1, 0], dim=1, idim=1, odim=0)], [x], [y]))
        assert isinstance(found, Communicate)
        assert (found.kind, found.reduce, found.dim, found.concat_dim) == expected
        assert (found.inputs, found.outputs, found.group.ranks) == (("t1",), ("t2",), (1, 0))


FUSED = {
    "AllReduceIdentityPrim": (Collective.ALL_REDUCE, None),
    "IdentityAllreducePrim": (None, Collective.ALL_REDUCE),
    "AllGatherSplitPrim": (Collective.ALL_GATHER, Collective.CHUNK),
    "SplitAllGatherPrim": (Collective.CHUNK, Collective.ALL_GATHER),
    "AllGatherReduceScatterPrim": (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    "ReduceScatterAllGatherPrim": (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
    "AllToAllAllToAllPrim": (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
}


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_primitive_acts_in_the_direction_of_its_adapter(name: str) -> None:
    x, y = tensor(1, (4, 8)), tensor(2, (4, 8))
    gx, gy = tensor(3, (4, 8), is_gradient=True), tensor(4, (4, 8), is_gradient=True)
    shared = prim(name, [x], [y], ranks=[0, 1], dim=1, idim=1, odim=0)
    there, back = lowered(adapter(8, [shared], [x], [y]), adapter(7, [shared], [gy], [gx], forward=False))
    for found, meaning, names in zip((there, back), FUSED[name], (("t1", "t2"), ("g4", "g3")), strict=True):
        assert isinstance(found, Compute if meaning is None else Communicate)
        assert (found.inputs, found.outputs) == ((names[0],), (names[1],))  # type: ignore[union-attr]
        assert getattr(found, "kind", None) is meaning
    if name.startswith("AllToAll"):
        assert (there.dim, there.concat_dim, back.dim, back.concat_dim) == (0, 1, 1, 0)  # type: ignore[union-attr]


def test_an_output_with_the_id_of_the_input_gets_a_name_of_its_own() -> None:
    x, y = tensor(1, (4,)), tensor(2, (4,))
    found = lowered(
        adapter(8, [prim("AllReducePrim", [x], [x], ranks=[0, 1])], [x], [x]),
        operator(9, "f", [x], [y]),
        adapter(7, [prim("AllReducePrim", [x], [x], ranks=[0, 1])], [x], [x]),
    )
    names = [(operator.inputs, operator.outputs) for operator in found if isinstance(operator, (Compute, Communicate))]
    assert names == [(("t1",), ("t1.1",)), (("t1.1",), ("t2",)), (("t1.1",), ("t1.2",))]


def test_scratch_values_of_an_adapter_do_not_leave_it() -> None:
    x, scratch, y, z = tensor(1, (4,)), tensor(2, (2,)), tensor(3, (4,)), tensor(5, (2,))
    pieces = [
        prim("ChunkPrim", [x], [scratch], ranks=[0, 1], dim=0),
        prim("AllGatherPrim", [scratch], [y], ranks=[0, 1], dim=0),
    ]
    found = lowered(adapter(8, pieces, [x], [y]), operator(9, "f", [scratch, y], [z]))
    names = [(operator.inputs, operator.outputs) for operator in found if isinstance(operator, (Compute, Communicate))]
    assert names == [(("t1",), ("t2.1",)), (("t2.1",), ("t3",)), (("t2", "t3"), ("t5",))]


def test_moves_are_sends_and_receives() -> None:
    x = tensor(1, (4,))
    away = adapter(8, [prim("MovePrim", [x], [], src=0, dst=1)], [x], [x])
    here = adapter(9, [prim("MovePrim", [], [x], src=0, dst=1)], [], [x])
    plan = plan_of(module({0: [away], 1: [here]}, 2))
    (sent,) = plan.segments["device 0/adapter 8"].operators
    (received,) = plan.segments["device 1/adapter 9"].operators
    assert isinstance(sent, Send)
    assert isinstance(received, Receive)
    assert (sent.tensor, sent.peer, received.tensor, received.peer) == ("t1", Peer(rank=1), "t1", Peer(rank=0))
    assert plan.segments["device 0/adapter 8"].outputs == ()
    assert plan.segments["device 1/adapter 9"].outputs == ("t1",)


def test_a_broadcast_has_an_input_on_its_root_only() -> None:
    x = tensor(1, (4,))
    cells = {
        d: [adapter(8, [prim("BroadcastPrim", [x], [x], src=0, ranks=[0, 1])], [x] if d == 0 else [], [x])] for d in (0, 1)
    }
    plan = plan_of(module(cells, 2))
    (root,) = plan.segments["device 0/adapter 8"].operators
    (other,) = plan.segments["device 1/adapter 8"].operators
    assert isinstance(root, Communicate)
    assert isinstance(other, Communicate)
    assert (root.inputs, root.outputs, root.root) == (("t1",), (), 0)
    assert (other.inputs, other.outputs, other.root) == ((), ("t1",), 0)


def test_an_emptied_adapter_produces_nothing() -> None:
    x, y = tensor(1, (4,)), tensor(2, (4,))
    assert lowered(adapter(8, [], [x], [y])) == ()


def test_an_unknown_primitive_is_kept_under_its_signature() -> None:
    x, y = tensor(1, (4,)), tensor(2, (4,))
    (found,) = lowered(adapter(8, [prim("NewPrim", [x], [y], ranks=[0, 1], how="fast")], [x], [y]))
    assert isinstance(found, Compute)
    assert (found.op, found.attributes) == ("nnscaler.runtime.adapter.NewPrim", {"ranks": (0, 1), "how": "fast"})


def test_micro_batches_are_uses_of_a_cell() -> None:
    x, y, later_x, later_y = (tensor(number, (4,)) for number in (1, 2, 3, 4))
    cell = segment(9, [operator(5, "f", [x], [y])], [x], [y])
    plan = plan_of(module({0: [reuse(cell, [x], [y]), reuse(cell, [later_x], [later_y])]}, 1, [y, later_y]))
    assert [(step.micro_batch, step.inputs, step.outputs) for step in plan.programs[0].steps] == [
        (0, ("t1",), ("t2",)),
        (1, ("t3",), ("t4",)),
    ]
    assert (plan.micro_batches, plan.outputs) == (2, ("t2", "t4"))


def test_uneven_pipeline_stages_give_a_mesh_of_devices() -> None:
    def cell(number: int) -> Object:
        return segment(number, [operator(number + 50, "f", [tensor(number, (4,))], [tensor(number + 20, (4,))])], [], [])

    plan = plan_of(module({0: [cell(1)], 1: [cell(2)], 2: [cell(2)]}, 6))
    assert [(axis.name, axis.size) for axis in plan.mesh.axes] == [("dp", 2), ("device", 3)]
    assert {segment.pipeline_stage for segment in plan.segments.values()} == {-1}


def mutated(path: tuple[Any, ...], value: object) -> bytes:
    """A small plan with one attribute replaced; None removes it."""
    made = small()
    place: Any = {
        "root": made.root,
        **made.tensors,
        "linear": made.linear,
        "backward": made.linear_backward,
        "forward": made.forward,
    }
    for step in path[:-1]:
        place = place[step]
        place = place.state if isinstance(place, Object) else place
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return dumps(made.root)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
WRONG = [..., -1, 1 << 200, "x", 1.5, [[1]], {"a": 1}, Global("os.system"), Object("nnscaler.X"), CYCLE, ("\ud800",), [None]]
PLACES = [
    ("root", "devices"),
    ("root", "runtime_ndevs"),
    ("root", "execplan"),
    ("root", "comm_groups"),
    ("linear", "_id"),
    ("linear", "_inputs"),
    ("linear", "_outputs"),
    ("linear", "_kwargs"),
    ("linear", "signature"),
    ("linear", "_comment"),
    ("backward", "_mirror"),
    ("backward", "_outputs"),
    ("forward", "_nodes"),
    ("forward", "_id"),
    ("forward", "_outputs"),
    ("w", "_id"),
    ("w", "_shape"),
    ("w", "_dtype"),
    ("w", "_grad"),
    ("w", "_indmap"),
    ("w", "_valmap"),
    ("w", "_full_tensor"),
    ("w", "_is_attr"),
]


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_wrong_type_anywhere_is_a_located_error_or_a_plan(place: tuple[str, ...]) -> None:
    refused = 0
    for value in WRONG:
        problem = problem_of(mutated(place, value))
        if problem is not None:
            refused += 1
            assert problem.location.path == "plan.pkl"
            assert "\n" not in problem.message
            assert problem.message.encode()
    assert refused or place[1] == "_comment"


def problem_of(data: bytes) -> Problem | None:
    """What is wrong with a file; None when it is a plan."""
    try:
        read("plan.pkl", data)
    except ReadError as error:
        return error.problem
    return None


def test_an_error_says_where_in_the_plan() -> None:
    with pytest.raises(ReadError) as caught:
        read("plan.pkl", mutated(("linear", "signature"), 3))
    assert caught.value.problem.location.pointer == "device 0/segment 40/operator 0"
    assert "signature" in caught.value.problem.message


def test_lists_that_share_their_parts_do_not_unfold_without_end() -> None:
    bomb: Any = [tensor(1, (4,))]
    for _ in range(20):
        bomb = [bomb] * 10
    for bad in (operator(3, "f", [bomb], []), operator(3, "f", [], [], dim=bomb)):
        with pytest.raises(ReadError):
            lowered(bad)
    constants: Any = [1]
    for _ in range(20):
        constants = [constants] * 10
    with pytest.raises(ReadError):
        lowered(operator(3, "f", [constants], []))


def test_one_tensor_cannot_have_two_shapes() -> None:
    with pytest.raises(ReadError, match="two shapes"):
        lowered(operator(3, "f", [tensor(1, (4,))], [tensor(1, (5,))]))
    with pytest.raises(ReadError, match="two index maps"):
        lowered(operator(3, "f", [tensor(1, (4,), weight="a"), tensor(1, (4,), weight="a", box=((4, 8),))], []))


def test_a_plan_is_known_by_its_content() -> None:
    assert is_nnscaler_plan(dumps(small().root))
    assert not is_nnscaler_plan(dumps({"a": 1}))
    assert not is_nnscaler_plan(b"ModuleCodeGen")
    with pytest.raises(ReadError, match="not nnScaler's"):
        read("plan.pkl", dumps({"a": "ModuleCodeGen"}))
    assert read("plan.txt", gzip.compress(dumps(small().root))).plan is not None
