"""The oracle itself: its gradients are those of its functions, its collectives and its errors are what they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracle.compare import compare
from oracle.functions import FORWARD, forward
from oracle.generate import Way, pair, random_pair
from oracle.gradients import backward
from oracle.mutate import mutants
from oracle.pieces import box_of
from tests.equivalence.models.test_attention import plans
from tests.oracle.test_oracle_layers_and_losses import CASES as FURTHER_CASES
from tests.sampling import sampled
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Communicate, Group, Peer, Send
from tvlint.ir.placement import Placement, Shard
from tvlint.ir.plan import Plan, Program, Role, Tensor

NUMBERS = np.random.default_rng(5)


def _real(*shape: int) -> Any:
    return NUMBERS.uniform(0.4, 1.6, shape)


GATE = {"score_func": "sigmoid", "bias": None, "n_groups": 2, "topk_groups": 1, "topk": 2, "route_scale": 2.5}
EXPERTS = {"n_routed_experts": 4, "local_expert_start": 1, "local_expert_end": 3}
ROUTED = np.array([[[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 0.0], [2.0, 0.0]]])
POSITIONS = {"query_start": 2, "query_stop": 5, "key_start": 2, "key_stop": 4}
CHOSEN = np.array([[0.0, 1.0], [2.0, 3.0], [1.0, 2.0]])
CASES: list[tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = [
    ("linear", [_real(2, 3, 4), _real(5, 4)], {"bias": None}, (0, 1)),
    ("linear", [_real(3, 4), _real(5, 4), _real(5)], {}, (0, 1, 2)),
    ("matmul", [_real(2, 3, 4), _real(2, 4, 5)], {}, (0, 1)),
    ("matmul", [_real(2, 3, 4), _real(4, 5)], {}, (0, 1)),
    ("add", [_real(2, 3), _real(3)], {"alpha": 2}, (0, 1)),
    ("sub", [_real(2, 1), _real(2, 3)], {"alpha": 3}, (0, 1)),
    ("mul", [_real(2, 3, 4), _real(2, 3, 1)], {}, (0, 1)),
    ("div", [_real(2, 3), _real(3)], {}, (0, 1)),
    ("pow", [_real(2, 3), 3], {}, (0,)),
    ("pow", [_real(2, 3), _real(2, 3)], {}, (0, 1)),
    ("sum", [_real(2, 3)], {}, (0,)),
    ("sum", [_real(2, 3, 2)], {"dim": (0, 2)}, (0,)),
    ("mean", [_real(2, 3)], {"dim": (1,), "keepdim": True}, (0,)),
    ("softmax", [_real(2, 3)], {"dim": -1}, (0,)),
    ("log_softmax", [_real(2, 3)], {"dim": 0}, (0,)),
    ("gelu", [_real(2, 3) - 1], {}, (0,)),
    ("silu", [_real(2, 3) - 1], {}, (0,)),
    ("multiref", [_real(2, 3)], {"times": 3}, (0,)),
    ("to", [_real(2, 3)], {"dtype_or_device": "float32"}, (0,)),
    ("transpose", [_real(2, 3, 4)], {"dim0": 0, "dim1": 2}, (0,)),
    ("permute", [_real(2, 3, 4)], {"dims": (2, 0, 1)}, (0,)),
    ("view", [_real(2, 6)], {"size": (4, -1)}, (0,)),
    ("reshape", [_real(2, 6)], {"shape": (3, 4)}, (0,)),
    ("embedding", [np.array([[0.0, 3.0], [5.0, 3.0]]), _real(3, 2)], {"start": 2, "stop": 5}, (1,)),
    ("apply_rotary_emb", [_real(2, 3, 2, 4), _real(2, 3, 2, 4), _real(3, 2)], {}, (0, 1)),
    ("create_mask", [_real(2, 3), _real(2, 3, 4)], {}, ()),
    ("apply_mask", [_real(2, 2, 3, 3), _real(1, 1, 3, 3)], {}, (0,)),
    ("scaled_dot_product_attention", [_real(2, 3, 2), _real(2, 3, 2), _real(2, 3, 2)], {"is_causal": True}, (0, 1, 2)),
    ("attention", [_real(3, 2), _real(4, 2), _real(4, 3)], {"scale": 0.7}, (0, 1, 2)),
    ("attention", [_real(3, 2), _real(2, 2), _real(2, 3)], {"is_causal": True, **POSITIONS}, (0, 1, 2)),
    ("merge_by_log_sum_exp", [_real(3, 2), _real(3), _real(3, 2), _real(3)], {}, (0, 1, 2, 3)),
    ("masked_gather", [_real(3, 2), np.array([0.0, 3.0, 2.0])], {"dim": 1, "start": 2, "stop": 4}, (0,)),
    ("dropout", [_real(3, 4)], {"p": 0.5, "training": False}, (0,)),
    ("amax", [_real(3, 4)], {"dim": 1}, (0,)),
    ("amax", [_real(3, 4)], {"dim": (1,), "keepdim": True}, (0,)),
    ("unsqueeze", [_real(3, 4)], {"dim": 1}, (0,)),
    ("einsum", [_real(2, 3, 4), _real(3, 5, 4)], {"equation": "gec, efc -> gef"}, (0, 1)),
    ("topk", [_real(2, 3, 4)], {"k": 2}, (0,)),
    ("moe_dispatch", [_real(2, 3, 2), ROUTED], {"experts": 3, "capacity": 2}, (0,)),
    ("moe_combine", [_real(2, 3, 2, 2), ROUTED, _real(2, 3, 2)], {}, (0, 2)),
    ("gate_fw", [_real(3, 4), _real(4, 4)], GATE, (0, 1)),
    (
        "nnscaler_moe_gmm",
        [_real(3, 4), _real(3, 2), CHOSEN, _real(2, 2, 4), _real(2, 2, 4), _real(2, 4, 2)],
        EXPERTS,
        (0, 1, 3, 4, 5),
    ),
    ("sgd_step", [_real(2, 3), _real(2, 3)], {"lr": 0.1, "weight_decay": 0.2}, (0, 1)),
    ("momentum_step", [_real(2, 3), _real(2, 3), _real(2, 3)], {"lr": 0.1, "momentum": 0.5}, (0, 1, 2)),
    *[
        (name, [_real(2, 3) for _ in range(4)], {"lr": 0.1, "betas": (0.5, 0.3), "weight_decay": 0.2, "step": 2}, (0, 1, 2, 3))
        for name in ("adam_step", "adamw_step")
    ],
    *[(name, [_real(2, 3)], {}, (0,)) for name in ("rsqrt", "sqrt", "exp", "log", "neg", "relu", "sigmoid", "tanh")],
    *[(name, [_real(2, 3)], {}, (0,)) for name in ("float", "contiguous", "identity", "clone")],
]


def test_every_operator_has_a_case() -> None:
    assert {case[0] for case in CASES} | {case.name for case in FURTHER_CASES} == set(FORWARD)


def test_what_dropout_keeps_its_gradient_keeps() -> None:
    values, incoming = _real(6, 7), _real(6, 7)
    (kept,) = forward("dropout", [values], {"p": 0.5})
    assert 0 < np.count_nonzero(kept) < kept.size
    (gradient,) = backward("dropout", [values], (kept,), [incoming], {"p": 0.5})
    assert gradient is not None
    assert np.array_equal(gradient, np.where(kept == 0, 0, 2 * incoming))


@pytest.mark.parametrize(("op", "values", "attributes", "differentiable"), CASES, ids=[case[0] for case in CASES])
def test_gradients_are_finite_differences(
    op: str, values: list[Any], attributes: dict[str, Any], differentiable: tuple[int, ...]
) -> None:
    outputs = forward(op, values, attributes)
    incoming = [NUMBERS.uniform(-1, 1, output.shape) for output in outputs]
    if op in ("gate_fw", "topk"):
        incoming[1] = np.zeros_like(incoming[1])
    found = backward(op, values, outputs, incoming, attributes)

    def total(changed: list[Any]) -> float:
        return sum(float((g * y).sum()) for g, y in zip(incoming, forward(op, changed, attributes), strict=True))

    for position in differentiable:
        gradient = found[position]
        assert gradient is not None
        assert gradient.shape == values[position].shape
        for index in np.ndindex(*values[position].shape):
            step = np.zeros_like(values[position])
            step[index] = 1e-6
            up = [value + step if i == position else value for i, value in enumerate(values)]
            down = [value - step if i == position else value for i, value in enumerate(values)]
            assert (total(up) - total(down)) / 2e-6 == pytest.approx(gradient[index], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("seed", sampled(range(40), 3))
def test_generated_plans_train_the_model_of_their_reference(seed: int) -> None:
    made = random_pair(seed)
    found = compare(made.reference, made.parallel)
    assert (found.outcome, found.claims) == ("equal", ()), (made.name, found.difference)


SMALL = pair("mlp", Way(dp=2, pp=2, tp=2, nm=2), seed=3)


def _program(plan: Plan, at: int, program: Program) -> Plan:
    return replace(plan, programs=(*plan.programs[:at], program, *plan.programs[at + 1 :]))


def test_a_step_that_is_left_out_is_noticed() -> None:
    program = SMALL.parallel.programs[0]
    steps = tuple(step for step in program.steps if not (step.segment.endswith("/backward") and step.micro_batch == 1))
    outcome = compare(SMALL.reference, _program(SMALL.parallel, 0, replace(program, steps=steps))).outcome
    assert outcome in ("different", "fails", "deadlocks")


def test_a_send_without_its_receive_deadlocks() -> None:
    program = SMALL.parallel.programs[2]
    steps = tuple(step for step in program.steps if not (step.segment.endswith("/receive") and step.micro_batch == 1))
    assert compare(SMALL.reference, _program(SMALL.parallel, 2, replace(program, steps=steps))).outcome in (
        "deadlocks",
        "fails",
    )


def test_two_ranks_that_send_to_each_other_first_are_safe_only_with_buffers() -> None:
    made = pair("mlp", Way(pp=2, nm=2), seed=1)
    program = made.parallel.programs[1]
    steps = list(program.steps)
    at = next(i for i, step in enumerate(steps) if step.segment == "device 1/send gradient")
    assert steps[at - 1].segment == "device 1/receive"
    steps[at - 1 : at + 1] = [steps[at], steps[at - 1]]
    crossed = _program(made.parallel, 1, replace(program, steps=tuple(steps)))
    assert compare(made.reference, crossed).outcome == "deadlocks"
    assert compare(made.reference, crossed, buffered=True).outcome == "equal"


def test_a_send_to_the_wrong_rank_does_not_pass() -> None:
    name = "device 0/send"
    segment = SMALL.parallel.segments[name]
    wrong = tuple(replace(o, peer=Peer(3)) if isinstance(o, Send) else o for o in segment.operators)
    plan = replace(SMALL.parallel, segments={**SMALL.parallel.segments, name: replace(segment, operators=wrong)})
    assert compare(SMALL.reference, plan).outcome in ("deadlocks", "fails")


def test_the_order_of_ranks_in_a_group_means_nothing() -> None:
    segments = {
        name: replace(
            segment,
            operators=tuple(
                replace(o, group=Group(ranks=o.group.ranks[::-1])) if isinstance(o, Communicate) else o
                for o in segment.operators
            ),
        )
        for name, segment in SMALL.parallel.segments.items()
    }
    assert compare(SMALL.reference, replace(SMALL.parallel, segments=segments)).outcome == "equal"


def test_most_mutants_are_wrong_and_some_are_not() -> None:
    made = pair("mlp", Way(tp=2, nm=2), seed=2)
    outcomes = [compare(made.reference, mutant.plan).outcome for mutant in list(mutants(made.parallel))[::7]]
    assert outcomes.count("equal") > 3
    assert sum(outcome != "equal" for outcome in outcomes) > len(outcomes) / 2


@pytest.mark.parametrize("order", [("dp", "tp"), ("tp", "dp")])
def test_axes_that_split_one_dimension_do_so_in_the_order_of_the_mesh(order: tuple[str, ...]) -> None:
    plan = replace(SMALL.parallel, mesh=Mesh((Axis("dp", 2), Axis("tp", 2))))
    placements: dict[str, Placement] = {name: Shard(-1) for name in order}
    tensor = Tensor("w", (3, 2), "float32", Role.WEIGHT, whole=(3, 8), placements=placements)
    assert [box_of(tensor, plan, rank)[1][1] for rank in range(4)] == [(0, 2), (2, 4), (4, 6), (6, 8)]


MEAN = """
weight w f32[4,4]
input x f32[16,4]
loss l f32[]
program
  h = linear(x, w)
  l = {0}(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""

PARTS = """
mesh dp=2
replicate dp
micro-batches 2
weight w f32[4,4]
input x f32[4,4]
loss l f32[]
segment f forward (x) -> (l)
  h = linear(x, w)
  l = {0}(h)
segment b backward mirror f () -> ()
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
segment r reduce () -> ()
  reduce-gradients w over dp {1}
program
  run f micro-batch 0
  run b micro-batch 0
  run f micro-batch 1
  run b micro-batch 1
  run r
"""


@pytest.mark.parametrize(
    ("loss", "clauses", "outcome"),
    [
        ("mean", "by avg divide 2", "equal"),
        ("mean", "divide 4", "equal"),
        ("mean", "by avg", "different"),
        ("mean", "divide 2", "different"),
        ("sum", "", "equal"),
        ("sum", "by avg divide 2", "different"),
    ],
)
def test_a_mean_over_replicas_and_micro_batches_is_the_mean_of_their_means(loss: str, clauses: str, outcome: str) -> None:
    """Two replicas with two micro-batches each: the gradient of the mean of 16 rows is a quarter of the sum of four."""
    reference, parts = plans(MEAN.format(loss), PARTS.format(loss, clauses))
    assert compare(reference, parts).outcome == outcome
    assert (prove(parts, reference).outcome is Outcome.PROVED) is (outcome == "equal")
