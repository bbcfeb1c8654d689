"""Replicas that a plan writes out are folded only where nothing tells them apart, and folding changes no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from oracle.generate import Pair, Way, pair, random_pair
from oracle.mutate import mutants

from tests.equivalence.attacks.test_wrong_plans import changed
from tests.sampling import sampled, sampled_tuples
from tvlint.analyses.relations.derivation.derive import derive
from tvlint.analyses.relations.derivation.given.equal_replicas import equal_replicas
from tvlint.analyses.relations.derivation.given.trusted_inputs import inputs_of
from tvlint.analyses.relations.derivation.state import Derived, Machine
from tvlint.equivalence.verdict import derivation, judge
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Communicate, Group, Operator, Peer, Receive, ReduceGradients, Send
from tvlint.ir.placement import Partial, Replicate, Shard
from tvlint.ir.plan import Plan, Program, Replication, Role, Tensor
from tvlint.readers.plan_text.reader import read

REFERENCE = """
weight w1 f32[16,8]
weight w2 f32[8,16]
input  x  f32[16,8]
input  t  f32[16,8]
loss l
program
  h = linear(x, w1)
  a = gelu(h)
  y = linear(a, w2)
  z = mul(y, t)
  l = sum(z)
  dz = backward l (grad(l))
  dy, _ = backward z (dz)
  da, grad(w2) = backward y (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  update w1, w2
"""

WRITTEN = """
mesh dp=4 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input  x  f32[16,8] dp:S(0)
input  t  f32[16,8] dp:S(0)
loss l
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  z = mul(y, t)
  s = sum(z)
  l = all-reduce(s) over dp
  dz = backward s (grad(l))
  dy, _ = backward z (dz)
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  reduce-gradients w1, w2 over dp
  update w1, w2
"""

OTHERS = "program ranks 2-7\n" + WRITTEN[WRITTEN.index("program\n") + 8 :]


def plan_of(text: str) -> Plan:
    plan = read("own.plan", text).plan
    assert plan is not None
    return plan


def spread(plan: Plan, loss: str) -> Plan:
    """A folded plan with every rank written out: groups, peers and placements by axis, every rank with a program."""
    if plan.replication.count == 1:
        return plan
    axis, count, stride = plan.replication.axis, plan.replication.count, plan.replication.stride
    tensors = {name: _spread_tensor(plan, tensor, loss) for name, tensor in plan.tensors.items()}
    users = {step.segment: program.ranks[0] for program in plan.programs for step in program.steps}
    segments = {
        name: replace(segment, operators=tuple(_by_axis(plan, own, users.get(name, 0)) for own in segment.operators))
        for name, segment in plan.segments.items()
    }
    programs = tuple(
        Program(tuple(sorted(rank + r * stride for rank in program.ranks for r in range(count))), program.steps)
        for program in plan.programs
    )
    return replace(plan, tensors=tensors, segments=segments, programs=programs, replication=Replication(axis))


def _spread_tensor(plan: Plan, tensor: Tensor, loss: str) -> Tensor:
    axis, count = plan.replication.axis, plan.replication.count
    if tensor.role is Role.INPUT and tensor.whole is not None:
        whole = (tensor.whole[0] * count, *tensor.whole[1:])
        return replace(tensor, whole=whole, region=None, placements={axis: Shard(0)})
    return replace(tensor, whole=tensor.shape, placements={axis: Partial(loss)}) if tensor.name in plan.outputs else tensor


def _by_axis(plan: Plan, operator: Operator, rank: int) -> Operator:
    """The operator as `rank` runs it, without numbers of ranks."""
    if isinstance(operator, Communicate):
        return replace(operator, group=_group(plan, operator.group, rank))
    if isinstance(operator, ReduceGradients):
        group = _group(plan, operator.group, rank)
        more = (plan.replication.axis,) if operator.replicated else ()
        return replace(operator, group=Group((*more, *group.axes)), replicated=False)
    if isinstance(operator, Send | Receive) and operator.peer.rank is not None:
        own, other = plan.mesh.coordinates(rank), plan.mesh.coordinates(operator.peer.rank)
        (axis,) = [name for name in own if own[name] != other[name]]
        return replace(operator, peer=Peer(axis=axis, offset=other[axis] - own[axis]))
    return operator


def _group(plan: Plan, group: Group, rank: int) -> Group:
    names = [axis.name for axis in plan.mesh.axes if axis.name != plan.replication.axis]
    for size in range(len(names) + 1):
        for axes in combinations(names, size):
            if not group.ranks or plan.mesh.along(rank, axes) == tuple(sorted(group.ranks)):
                return Group(group.axes or axes)
    raise AssertionError(group)


def is_folded(plan: Plan) -> bool:
    return equal_replicas(plan, inputs_of(plan)) is not None


def both(parallel: Plan, reference: Plan) -> tuple[Verdict, Verdict]:
    """The verdict, and the one that is found on every rank as it is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tvlint.equivalence.verdict.replica_folding.equal_replicas", lambda plan, inputs: None)
        written = prove(parallel, reference)
    return prove(parallel, reference), written


def axis_mutants(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans with one group, reduction, placement, program or order of axes changed."""
    names = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    groups = [Group(axes) for size in range(len(names) + 1) for axes in combinations(names, size)]
    for key, segment in plan.segments.items():
        for at, own in enumerate(segment.operators):
            if not isinstance(own, Communicate | ReduceGradients):
                continue
            others: list[Operator] = [replace(own, group=group) for group in groups if set(group.axes) != set(own.group.axes)]
            others += [replace(own, reduce=kind) for kind in ("sum", "avg", "max") if (own.reduce or "sum") != kind]
            for other in others:
                operators = (*segment.operators[:at], other, *segment.operators[at + 1 :])
                yield f"{key} {other}", replace(plan, segments={**plan.segments, key: replace(segment, operators=operators)})
    for key, tensor in plan.tensors.items():
        if tensor.role not in (Role.INPUT, Role.WEIGHT) and key not in plan.outputs:
            continue
        for placement in (Replicate(), Shard(0), Shard(1), Partial("sum"), Partial("avg")):
            changed_tensor = replace(tensor, placements={**(tensor.placements or {}), plan.replication.axis: placement})
            yield f"{key} {placement}", replace(plan, tensors={**plan.tensors, key: changed_tensor})
    for number, program in enumerate(plan.programs):
        halves = Program(program.ranks[:1], program.steps[:-1]), Program(program.ranks[1:], program.steps)
        programs = (*plan.programs[:number], *halves, *plan.programs[number + 1 :])
        yield f"program {number} cut on its first rank", replace(plan, programs=programs)
        without = Program(program.ranks, program.steps[:-1])
        yield f"program {number} cut", replace(plan, programs=(*plan.programs[:number], without, *plan.programs[number + 1 :]))
    for shift in range(1, len(plan.mesh.axes)):
        yield f"axes {shift}", replace(plan, mesh=Mesh((*plan.mesh.axes[shift:], *plan.mesh.axes[:shift])))


def named(value: object) -> str:
    return value.name if isinstance(value, Pair) else str(value)


PAIRS = (
    pair("mlp", Way(dp=2, tp=2, nm=2), seed=1),
    pair("mlp", Way(dp=3, pp=2, nm=2, pieces=True), seed=2),
    pair("moe", Way(dp=2, tp=2), seed=1),
)


@pytest.fixture
def of_one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small plans are refuted by one replica too."""
    monkeypatch.setattr(judge, "_LARGEST_EXPLAINED_ON_ALL_RANKS", 0)


@pytest.mark.parametrize("seed", sampled(range(100, 130), 3))
def test_correct_plans_are_proved_folded_as_they_are_written(seed: int) -> None:
    made = random_pair(seed)
    plan = spread(made.parallel, "sum")
    assert is_folded(plan) == (made.parallel.replication.count > 1)
    folded_, written = both(plan, made.reference)
    assert folded_.outcome is Outcome.PROVED
    assert folded_ == written


@pytest.mark.heavy
@pytest.mark.usefixtures("of_one_replica", "without_repairs")
@pytest.mark.parametrize(("made", "every"), [(PAIRS[0], 61), (PAIRS[1], 83), (PAIRS[2], 97)], ids=named)
def test_broken_plans_have_the_verdict_of_the_written_plan(made: Pair, every: int) -> None:
    plan = spread(made.parallel, "sum")
    for number, mutant in enumerate(mutants(plan)):
        if number % every == 0:
            one, all_ranks = both(mutant.plan, made.reference)
            assert one.outcome is all_ranks.outcome, f"{mutant.kind}: {mutant.description}"


@pytest.mark.heavy
@pytest.mark.usefixtures("of_one_replica", "without_repairs")
@pytest.mark.parametrize("made", PAIRS, ids=named)
def test_plans_with_another_axis_somewhere_have_the_verdict_of_the_written_plan(made: Pair) -> None:
    every = 7
    for number, (what, plan) in enumerate(axis_mutants(spread(made.parallel, "sum"))):
        if number % every == 0:
            one, all_ranks = both(plan, made.reference)
            assert one.outcome is all_ranks.outcome, what


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranks each derivation runs."""
    ranks: list[int] = []

    def counted(machine: Machine) -> Derived:
        ranks.append(sum(len(program.ranks) for program in machine.plan.programs))
        return derive(machine)

    monkeypatch.setattr(derivation, "derive", counted)
    return ranks


def with_replicas(replicas: int, *changes: tuple[str, str]) -> Verdict:
    rows = f"f32[{4 * replicas},8]"
    plan = plan_of(changed(WRITTEN, *changes, ("dp=4", f"dp={replicas}"), ("f32[16,8] dp", f"{rows} dp")))
    return prove(plan, plan_of(REFERENCE.replace("x  f32[16,8]", f"x  {rows}").replace("t  f32[16,8]", f"t  {rows}")))


@pytest.mark.usefixtures("without_repairs")
@pytest.mark.parametrize(
    ("changes", "outcome", "reason"),
    sampled_tuples(
        [
            (
                [("  l = all-reduce(s) over dp\n", ""), ("loss l", "loss s"), ("(l)", "(s)")],
                Outcome.UNKNOWN,
                "own-part-returned",
            ),
            ([("gelu(h)", "tanh(h)")], Outcome.REFUTED, "other-operator"),
            (
                [
                    ("  z = mul", "  q = relu(y)\n  z = mul"),
                    ("mul(y", "mul(q"),
                    ("backward z (dz)", "backward z (dz)\n  dr = backward q (dy)"),
                    ("backward p (dy)", "backward p (dr)"),
                ],
                Outcome.REFUTED,
                "other-operator",
            ),
            ([("reduce-gradients w1, w2", "reduce-gradients w1")], Outcome.REFUTED, "missing-gradient-reduction"),
        ],
        3,
    ),
)
def test_the_time_to_tell_what_is_wrong_does_not_grow_with_replicas(
    changes: list[tuple[str, str]], outcome: Outcome, reason: str, derived: list[int]
) -> None:
    verdict = with_replicas(256, *changes)
    assert verdict.outcome is outcome
    assert reason in {own.name for own in verdict.reasons}
    assert max(derived) == 2


def test_the_time_of_a_proof_does_not_grow_with_replicas(derived: list[int]) -> None:
    for replicas in (4, 64, 1024):
        verdict = with_replicas(replicas)
        assert verdict.outcome is Outcome.PROVED
        assert ("ranks", str(2 * replicas)) in verdict.facts
        assert verdict.stages.proved == verdict.stages.total == 2 * replicas * 4
    assert max(derived) == 2


@pytest.mark.parametrize(
    "changes",
    {
        "replicas inside": [("dp=4 tp=2", "tp=2 dp=4")],
        "another axis within": [("mesh dp=4", "mesh dp=4 cp=2"), ("dp:S(0)", "dp:S(0) cp:S(0)"), ("over dp", "over dp,cp")],
        "rows by columns": [("t  f32[16,8] dp:S(0)", "t  f32[16,8] dp:S(0) tp:R")],
        "averages": [("w2 over dp", "w2 over dp by avg")],
        "a loss that is averaged": [("l = all-reduce(s)", "l = all-reduce avg(s)")],
        "a loss that is declared partial": [
            ("  l = all-reduce(s) over dp\n", ""),
            ("loss l", "loss s f32[] dp:P(sum)"),
            ("(l)", "(s)"),
        ],
    }.values(),
)
def test_what_is_folded(changes: list[tuple[str, str]]) -> None:
    plan = plan_of(everywhere_changed(WRITTEN, changes))
    assert is_folded(plan)
    one, written = both(plan, plan_of(REFERENCE))
    assert one == written


@pytest.mark.parametrize(
    "changes",
    sampled(
        {
            "a weight in pieces": [("w2 f32[8,16] tp:S(1)", "w2 f32[8,16] tp:S(1) dp:S(0)")],
            "an input that all have": [("t  f32[16,8] dp:S(0)", "t  f32[16,8]")],
            "pieces in another order": [("t  f32[16,8] dp:S(0)", "t  f32[16,8] dp:S(0, order=[[3],[2],[1],[0]])")],
            "a gather": [("  l = all", "  gz = all-gather(z, dim=0) over dp\n  l = all")],
            "a piece of its own": [("  l = all", "  cz = chunk(z, dim=1) over dp\n  l = all")],
            "a maximum": [("  l = all", "  mz = all-reduce max(z) over dp\n  l = all")],
            "a root": [("  l = all", "  bz = broadcast(z, root=0) over tp\n  l = all")],
            "numbers of ranks": [("reduce-gradients w1, w2 over dp", "reduce-gradients w1, w2 over ranks 0,2,4,6")],
            "a peer": [("  l = all", "  send z to dp+1\n  l = all")],
            "a program of its own": [("program\n", "program dp=0\n"), ("  update w1, w2\n", "  update w1, w2\n" + OTHERS)],
            "folded already": [("dp=4 tp=2", "dp=4 tp=2\nreplicate dp"), ("f32[16,8] dp:S(0)", "f32[4,8]")],
        }.values(),
        4,
    ),
)
def test_what_is_not_folded(changes: list[tuple[str, str]]) -> None:
    plan = plan_of(everywhere_changed(WRITTEN, changes))
    assert not is_folded(plan)
    one, written = both(plan, plan_of(REFERENCE))
    assert one == written


def test_of_two_axes_that_cut_one_dimension_the_outer_one_is_folded() -> None:
    changes = [("mesh dp=4", "mesh cp=2 dp=4"), ("dp:S(0)", "dp:S(0) cp:S(0)"), ("over dp", "over cp,dp")]
    plan = plan_of(everywhere_changed(WRITTEN, changes))
    found = equal_replicas(plan, inputs_of(plan))
    assert found is not None
    assert found[0] == "cp"
    one, written = both(plan, plan_of(REFERENCE))
    assert one == written


def test_inputs_have_to_be_cut_as_the_reference_has_them() -> None:
    """A batch of another shape with as many elements to a replica is another batch."""
    plan = plan_of(everywhere_changed(WRITTEN, [("f32[16,8] dp:S(0)", "f32[4,32] dp:S(1)")]))
    one, written = both(plan, plan_of(REFERENCE))
    assert one.outcome is Outcome.UNKNOWN
    assert one == written


@pytest.mark.usefixtures("of_one_replica")
@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ([("w2 over dp", "w2 over dp by avg")], "every rank"),
        ([("y = all-reduce(p) over tp", "y = identity(p)")], "every rank"),
        ([("  l = all-reduce(s) over dp\n", ""), ("loss l", "loss s"), ("(l)", "(s)")], "every rank"),
        ([("loss l", "loss l\noutput z f32[16,8]")], "every rank"),
    ],
)
def test_what_is_wrong_is_told_of_all_replicas(changes: list[tuple[str, str]], ranks: str) -> None:
    one, written = both(plan_of(everywhere_changed(WRITTEN, changes)), plan_of(REFERENCE))
    assert one.outcome is written.outcome is not Outcome.PROVED
    assert any(ranks in reason.message for reason in one.reasons), [reason.message for reason in one.reasons]


@pytest.mark.usefixtures("of_one_replica")
@pytest.mark.parametrize(
    ("changes", "repair"),
    [
        (
            [
                ("y = all-reduce(p) over tp", "y = gelu(p)"),
                ("backward p (dy)", "backward p (dp)"),
                ("  da,", "  dp = backward y (dy)\n  da,"),
            ],
            "all-reduce `p` over `tp` after `linear`",
        ),
        ([("a = gelu(h)", "a = relu(h)")], "use `gelu` instead of `relu`"),
    ],
)
def test_a_repair_is_found_for_the_plan_as_it_is_written(changes: list[tuple[str, str]], repair: str) -> None:
    once_more = [
        ("z = mul(y", "b = gelu(y)\n  z = mul(b"),
        ("dy, _ = backward z (dz)", "db, _ = backward z (dz)\n  dy = backward b (db)"),
    ]
    reference = REFERENCE if "relu" in str(changes) else everywhere_changed(REFERENCE, once_more)
    one, written = both(plan_of(everywhere_changed(WRITTEN, changes)), plan_of(reference))
    assert one.reasons[0].repair == written.reasons[0].repair == repair


@pytest.mark.parametrize("key", ["data", "data@1"])
def test_every_micro_batch_has_a_slice_for_each_replica(key: str) -> None:
    made = pair("mlp", Way(dp=2, nm=2), seed=1)
    plan = spread(made.parallel, "sum")
    tensor = plan.tensors[key]
    everything = tuple((0, size) for size in tensor.shape)
    same = replace(tensor, region=everything, placements=None)
    assert prove(plan, made.reference).outcome is Outcome.PROVED
    verdict = prove(replace(plan, tensors={**plan.tensors, key: same}), made.reference)
    assert verdict.outcome is not Outcome.PROVED


TURNED = """
mesh dp=2
weight w f32[8,8]
input  t  f32[8,16] dp:S(1)
input  x  f32[16,8] dp:S(0)
loss l
program
  h = linear(x, w)
  u = transpose(t, dim0=0, dim1=1)
  z = mul(h, u)
  s = sum(z)
  l = all-reduce(s) over dp
  dz = backward s (grad(l))
  dh, _ = backward z (dz)
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
"""
"""Inputs that are cut in different dimensions, in another order than the reference has them."""


@pytest.mark.parametrize(
    ("changes", "proves"),
    [
        ([], True),
        ([("mesh dp=2", "mesh dp=2\nreplicate dp"), ("[8,16] dp:S(1)", "[8,8]"), ("[16,8] dp:S(0)", "[8,8]")], True),
        ([("mesh dp=2", "mesh dp=2\nreplicate dp"), ("[8,16] dp:S(1)", "[4,16]"), ("[16,8] dp:S(0)", "[16,4]")], False),
        ([("[8,16] dp:S(1)", "[8,16] dp:S(0)"), ("[16,8] dp:S(0)", "[16,8] dp:S(1)")], False),
    ],
)
def test_inputs_in_another_order_are_cut_as_their_names_say(changes: list[tuple[str, str]], proves: bool) -> None:
    reference = """
        weight w f32[8,8]
        input  x  f32[16,8]
        input  t  f32[8,16]
        loss s
        program
    """ + TURNED[TURNED.index("program\n") + 8 :].replace("  l = all-reduce(s) over dp\n", "").replace("(grad(l))", "(grad(s))")
    reference = reference.replace("  reduce-gradients w over dp\n", "")
    one, written = both(plan_of(everywhere_changed(TURNED, changes)), plan_of(reference))
    assert one.outcome is written.outcome
    assert (one.outcome is Outcome.PROVED) == proves


def everywhere_changed(text: str, changes: list[tuple[str, str]]) -> str:
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text
