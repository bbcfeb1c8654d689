"""Folders of generated code: what they say as plans, which of them are proved, and which single edits are told where."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from shared import ROOT, SHARED, needs_shared

from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Report, Severity
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Operator, ReduceGradients
from tvlint.ir.plan import Phase, Plan, Role
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.folder import opened, read_folder, reference_of_folder
from tvlint.readers.nnscaler.gencode.lower.autograd import differentiated, gradient
from tvlint.readers.nnscaler.gencode.lower.operators import Gradual
from tvlint.readers.nnscaler.gencode.lower.replica_classes import classes_of, in_first_replica, smallest_replica
from tvlint.readers.nnscaler.gencode.lower.shapes import results
from tvlint.readers.read import read
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FOLDER = ROOT / "fixtures" / "clean" / "generated-code"
REFERENCE = str(FOLDER / "reference.plan")
SAMPLES = sorted((SHARED / "plans" / "gencode").iterdir()) if SHARED is not None else []
OF_THE_BRANCH = {
    "verdictAE--mlp_default_dp2_pp2_tp2_nm2_gbs16_dim1024_ly4": "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim1024_ly4",
    "verdictAE--llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128": (
        "llama3_default_dp1_pp1_tp1_nm1_gbs512_ly2_h32_hi4096_sq128"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped folder."""
    return Path(shutil.copytree(FOLDER, tmp_path / "code"))


def change(folder: Path, name: str, old: str, new: str) -> int:
    """Change the first line of a file that holds `old`; its number."""
    lines = (folder / name).read_text().split("\n")
    number = next(number for number, line in enumerate(lines) if old in line)
    lines[number] = lines[number].replace(old, new)
    (folder / name).write_text("\n".join(lines))
    return number + 1


def proved(folder: Path) -> Report:
    return prove_pair(Pair(str(folder), REFERENCE, trials=0))


def test_the_shipped_folder_is_proved_and_without_findings() -> None:
    report = proved(FOLDER)
    assert report.findings == ()
    assert report.problems == ()
    assert [verdict.outcome for verdict in report.verdicts] == [Outcome.PROVED]


def test_a_folder_says_its_mesh_replicas_and_micro_batches() -> None:
    plan = opened(str(FOLDER)).plan
    assert [(axis.name, axis.size) for axis in plan.mesh.axes] == [("dp", 2), ("pp", 2), ("tp", 2)]
    assert (plan.replication.count, plan.replication.stride, plan.micro_batches) == (2, 4, 2)
    assert plan.outputs == ("sum_29", "sum_129")
    assert plan.tensors["data_20"].role is Role.INPUT
    assert plan.tensors["data_20"].shape == (4, 8)
    assert plan.tensors["linear_42"].shape == (4, 8)


def test_an_operator_stands_at_its_generated_line_and_names_the_models() -> None:
    plan = opened(str(FOLDER)).plan
    operator = next(one for one in plan.segments["device 2/segment 11"].operators if "linear_42" in getattr(one, "outputs", ()))
    assert operator.source is not None
    assert operator.source.origin is not None
    assert operator.source.path.endswith("gencode2.py")
    assert operator.source.text.strip().startswith("linear_42 = torch.nn.functional.linear(")
    assert (operator.source.origin.path, operator.source.origin.line) == ("model.py", 13)
    assert operator.source.origin.text == "x = F.silu(self.mid(x))"


def test_fused_collectives_run_backward_reversed() -> None:
    plan = opened(str(FOLDER)).plan
    backward = plan.segments["device 2/segment 11 backward"]
    assert backward.phase is Phase.BACKWARD
    assert backward.mirror == "device 2/segment 11"
    collectives = [one for one in backward.operators if isinstance(one, Communicate)]
    assert [(one.kind, one.group.ranks) for one in collectives] == [(Collective.ALL_REDUCE, (2, 3))]
    assert collectives[0].inputs == (gradient("linear_23.1"),)
    assert collectives[0].outputs == (gradient("linear_23"),)


def test_gradients_of_a_value_used_twice_are_made_twice() -> None:
    body = [
        Gradual(Compute("torch.mul", ("x", "w"), ("a",))),
        Gradual(Compute("torch.mul", ("a", "x"), ("b",))),
        Gradual(Compute("torch.add", ("x", "x"), ("unused",))),
    ]
    found = differentiated(body, ("x", "w"), ("b",))
    assert [(one.inputs, one.outputs) for one in found if isinstance(one, Backward)] == [
        (("g.b",), ("g.a", "g.x")),
        (("g.a",), ("g.x", "g.w")),
    ]


def test_communication_that_autograd_does_not_see_stops_gradients() -> None:
    gather = Communicate(Collective.ALL_GATHER, ("x",), ("y",), Group(ranks=(0, 1)), dim=0)
    body = [Gradual(gather, differentiable=False), Gradual(Compute("torch.relu", ("y",), ("z",)))]
    assert differentiated(body, ("x",), ("z",)) == ()


MUTANTS = [
    ("gencode0.py", "chunk(linear_22, dim=1", "chunk(linear_22, dim=0"),
    ("gencode1.py", "src=1, dst=3", "src=1, dst=2"),
    ("gencode2.py", "all_gather(linear_70, dim=1", "all_gather(linear_70, dim=0"),
    ("gencode2.py", "nn.allreduce_identity", "nn.identity_allreduce"),
    ("gencode3.py", "nn.identity_allreduce(linear_23, ranks=[2, 3])", "nn.identity_allreduce(linear_23, ranks=[3])"),
    ("gencode4.py", "torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)", "torch.sigmoid(data_20)"),
    ("gencode5.py", "ranks=[1, 5], reduce_op", "ranks=[5], reduce_op"),
    ("gencode6.py", "self.wreducer90.add_param(self.mid_weight_40)", "pass"),
    ("gencode7.py", "slice(8, 16, None)", "slice(9, 17, None)"),
    ("gencode7.py", "torch.nn.functional.silu(", "torch.nn.functional.gelu("),
    ("gencode2.py", "_ = nnscaler.runtime.executor.aexecute(model.reducer90, *(), requires_grad=False)", "pass"),
    ("gencode0.py", "model.zero_grad()", "pass"),
    ("gencode6.py", "skip_reducer = True", "skip_reducer = False"),
    ("gencode3.py", "self.init_group(ranks=[2, 3])", "pass"),
    ("gencode0.py", "return sum_29, sum_129", "return sum_129, sum_29"),
    ("gencode2.py", "nn.allreduce_identity(linear_44, ranks=[2, 3])", "nn.allreduce_identity(linear_44, ranks=[2])"),
    (
        "gencode2.py",
        "model.segment11, *(linear_22, ), requires_grad=True)",
        "model.segment11, *(linear_22, ), requires_grad=False)",
    ),
    ("gencode2.py", "('segment11', (linear_22, ), (sum_29, ), (None, ))", "('segment11', (), (sum_29, ), (None, ))"),
]


@pytest.mark.parametrize(("name", "old", "new"), sampled_tuples(MUTANTS, 3))
def test_a_single_edit_is_told_at_its_line(folder: Path, name: str, old: str, new: str) -> None:
    line = change(folder, name, old, new)
    report = prove_pair(Pair(str(folder), REFERENCE))
    errors = [finding.location for finding in report.findings if finding.severity is Severity.ERROR]
    refuted = [reason.location for verdict in report.verdicts for reason in verdict.reasons if reason.refutes]
    places = [*errors, *refuted, *(own.location for own in report.findings if own.rule == "statement-not-understood")]
    assert any(Path(place.path).name == name and place.line in (line, line - 1, line + 1) for place in places), places


@pytest.mark.parametrize(
    ("old", "new"),
    sampled_tuples(
        [
            ("requires_grad=True", "requires_grad=True"),
            ("nn.allreduce_identity(linear_{w4}, ranks={g})", "nn.identity_allreduce(linear_{w4}, ranks={g})"),
            ("torch.nn.functional.silu(", "torch.nn.functional.relu("),
            ("ranks=[{r}, {r4}], reduce_op='sum'", "ranks=[{r}], reduce_op='sum'"),
        ],
        3,
    ),
)
def test_an_edit_in_every_rank_is_refuted_by_the_proof(folder: Path, old: str, new: str) -> None:
    changed = 0
    for rank in (2, 3, 6, 7):
        low = rank // 4 * 4
        words = {"w4": 44 + 10 * (rank % 2), "g": [low + 2, low + 3], "r": rank % 4, "r4": rank % 4 + 4}
        text = (folder / f"gencode{rank}.py").read_text()
        edited = text.replace(old.format(**words), new.format(**words))
        changed += edited != text
        (folder / f"gencode{rank}.py").write_text(edited)
    outcome = prove(opened(str(folder)).plan, _reference()).outcome
    assert outcome is (Outcome.REFUTED if changed else Outcome.PROVED)


def _reference() -> Plan:
    document = read(REFERENCE)
    assert document is not None
    assert document.plan is not None
    return document.plan


def test_an_asynchronous_reducer_runs_where_its_last_gradient_comes_with_reduction_on(folder: Path) -> None:
    for rank in range(8):
        change(folder, f"gencode{rank}.py", "*, async_op=False", "*, async_op=True")
    plan = opened(str(folder)).plan
    order = [step.segment.partition("/")[2] for step in plan.programs[0].steps]
    assert order.index("wreducer 90") == len(order) - 3
    assert order[order.index("wreducer 90") - 1] == "segment 10 backward"
    assert any(isinstance(one, ReduceGradients) for one in plan.segments["device 0/wreducer 90"].operators)
    assert proved(folder).verdicts[0].outcome is Outcome.PROVED
    for rank in range(8):
        change(folder, f"gencode{rank}.py", "skip_reducer = True", "skip_reducer = False")
    report = proved(folder)
    assert report.verdicts[0].outcome is Outcome.REFUTED
    assert {finding.rule for finding in report.findings} == {"reducer-in-wrong-micro-batch"}


def test_replicas_are_folded_exactly() -> None:
    text = "    rank = {r}\nself.init_group(ranks=[0, 2])\nx = chunk(y, ranks=[{r}, {s}])\nmove(x, src={r}, dst={s})\n# src=7\n"
    texts = [text.format(r=2 * k + t, s=2 * k + 1 - t) for k in range(256) for t in (0, 1)]
    assert smallest_replica(texts) == 2
    assert [len(members) for members in classes_of(texts, 2)] == [256]
    assert in_first_replica(texts[7], 6, 2) == texts[1]
    texts[7] = texts[7].replace("dst=6", "dst=7")
    assert [len(members) for members in classes_of(texts, 2)] == [255, 1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gencode3.py", None, "`gencode3.py` is missing"),
        ("gencode0.py", b"\xff\xfe\x00", "UTF-8"),
        ("gencode0.py", b"x = (" * 500, "not Python"),
        ("gencode0.py", b"-" * 100_000 + b"1", "nested"),
        ("gencode0.py", b"a" + b".b" * 100_000, "nested|statement"),
        ("gencode0.py", b"import os\nos.system('true')\n", "ParallelModule"),
        ("gencode0.py", b"", "ParallelModule"),
        ("compute_config.pt", b"PK\x03\x04 no zip", "not a zip file"),
        ("graph.ckp", b"\x80\x04no pickle.", "not a readable pickle"),
    ],
)
def test_what_is_no_generated_code_is_told(folder: Path, name: str, content: bytes | None, said: str) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ReadError, match=said):
        read_folder(str(folder))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("chunk(linear_22, dim=1", "mystery(linear_22, dim=1", "mystery"),
        ("rank = 0", "rank = 1", "rank = 1"),
        ("linear_122, ), (glinear_132, )", "linear_122, )[0], (glinear_132, )", "tuple"),
        ("model.adapter62", "model.adapter99", "no method"),
    ],
)
def test_an_unknown_construct_leaves_the_verdict_open_at_its_line_and_a_missing_method_refutes(
    folder: Path, old: str, new: str, said: str
) -> None:
    line = change(folder, "gencode0.py", old, new)
    verdict = proved(folder).verdicts[0]
    (reason,) = verdict.reasons
    stops = "adapter99" in new
    assert (verdict.outcome, reason.refutes) == ((Outcome.REFUTED, True) if stops else (Outcome.UNKNOWN, False))
    assert said in reason.message
    assert (Path(reason.location.path).name, reason.location.line) == ("gencode0.py", line)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("model.segment11, *(linear_22, )", "model.segment11, *(linear_22, linear_22, )", "given 2 values and takes 1"),
        ("self.add_full_map('mid_weight_40'", "self.add_full_map('mid_weight_41'", "which is not registered"),
        ("self.wreducer90.add_param", "self.wreducer91.add_param", "used before it is made"),
        ("add_param(self.mid_weight_40)", "add_param(self.mid_weight_41)", "is not registered"),
        ("backward('segment11', (linear_22, ), ", "backward('segment11', ", "its four arguments"),
        ("backward('segment11', (linear_22, )", "backward('segment77', (linear_22, )", "no segment of the class"),
        ("segment11, *(linear_22, ), requires_grad=True", "segment11, *(linear_22, ), requires_grad=False", "without"),
        ("dtype=torch.float32, src=0, dst=2", "dtype=torch.float32, src=2, dst=0", "the sender of a move gives no tensor"),
    ],
)
def test_code_that_stops_with_an_error_is_refuted_unless_what_stands_before_may_keep_it_from_that(
    folder: Path, old: str, new: str, said: str
) -> None:
    line = change(folder, "gencode2.py", old, new)
    (verdict,) = proved(folder).verdicts
    (reason,) = verdict.reasons
    assert (verdict.outcome, reason.name, reason.location.line) == (Outcome.REFUTED, "step-fails", line)
    assert said in reason.message
    change(folder, "gencode2.py", "    use_scheduler = True", "    use_scheduler = True\n    globals()['wreducer91'] = 1")
    (verdict,) = proved(folder).verdicts
    assert (verdict.outcome, [own.name for own in verdict.reasons]) == (Outcome.UNKNOWN, ["unsupported-operator"])


def test_a_method_that_never_runs_stops_nothing(folder: Path) -> None:
    lost = "nnscaler.runtime.adapter.move((), shape=(4, 4), dtype=torch.float32, src=2, dst=0)"
    change(
        folder,
        "gencode2.py",
        "    def adapter61(self",
        f"    def adapter99(self):\n        return {lost}\n\n    def adapter61(self",
    )
    report = proved(folder)
    assert report.verdicts[0].outcome is not Outcome.REFUTED
    assert not [found for found in report.findings if found.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("line", "old", "new", "outcome"),
    [
        (32, "(16, 16)", "(8, 16)", Outcome.REFUTED),
        (33, "(slice(0, 16", "(slice(2, 16", Outcome.REFUTED),
        (33, "(slice(0, 16", "(slice(3, 4", Outcome.UNKNOWN),
    ],
    ids=["half a parameter", "too few rows", "a row that is repeated"],
)
def test_a_slice_that_cannot_be_copied_into_its_parameter_stops_the_run(
    tmp_path: Path, line: int, old: str, new: str, outcome: Outcome
) -> None:
    folder = Path(shutil.copytree(ROOT / "fixtures" / "nnscaler" / "folders" / "hidden--tp2", tmp_path / "code"))
    lines = (folder / "gencode1.py").read_text().split("\n")
    assert "down_weight_26" in lines[line - 1]
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    (folder / "gencode1.py").write_text("\n".join(lines))
    (verdict,) = prove_pair(Pair(str(folder), "", trials=0)).verdicts
    assert (verdict.outcome, verdict.reasons[0].location.line) == (outcome, line)
    assert (verdict.reasons[0].name == "step-fails") is (outcome is Outcome.REFUTED)


LINE = "        sum_29 = torch.sum(linear_28)\n"
NOT_UNDERSTOOD = {
    "an argument": (LINE, LINE.replace("linear_28", "linear_28 @ linear_28"), "neither a tensor nor a constant"),
    "arguments": (LINE, LINE.replace("linear_28", "linear_28, **{}"), "`**` arguments"),
    "a method of a value": (LINE, LINE.replace("torch.sum(linear_28)", "linear_28.sum()"), "is a method of a value"),
    "what is called": (LINE, LINE.replace("torch.sum", "(lambda x: x)"), "no plain name"),
    "an expression": (LINE, LINE.replace("torch.sum(linear_28)", "linear_28 + 1"), "(`BinOp`)"),
    "a choice": (LINE, f"        if linear_28 is None:\n            linear_28 = 0\n{LINE}", "(`If`)"),
    "a loop": (LINE, f"        for _ in range(1):\n    {LINE}", "(`For`)"),
    "a context": (LINE, f"        with torch.autocast(device_type='cuda'):\n    {LINE}", "torch.autocast"),
    "two at once": (LINE, LINE.replace("sum_29 =", "sum_29 = other ="), "(`Assign`)"),
    "a value that is kept": (LINE, LINE + "        self.kept = linear_28\n", "kept in an attribute"),
    "a function of its own": (LINE, LINE.replace("torch.sum", "sum"), ""),
    "a call of the step": ("    _ = None\n", "    _ = None\n    print(5)\n", "(`Call`)"),
    "a value of the step": ("    _ = None\n", "    _ = None\n    again = sum(range(9))\n", "not known to do"),
    "the constructor": ("        self._post_init", "        print(self)\n        self._post_init", "calls `print`"),
    "the class": ("    use_scheduler = True\n", "    use_scheduler = True\n    ranks += 1\n", "the class holds a statement"),
    "the file": ("import torch\n", "import torch\nopen('mark', 'w')\n", "the file holds a statement"),
}


@pytest.mark.parametrize("name", sampled(NOT_UNDERSTOOD, 5))
def test_what_is_not_understood_is_unknown_at_its_line_and_the_rest_is_read(folder: Path, name: str) -> None:
    before, after, said = NOT_UNDERSTOOD[name]
    text = (folder / "gencode2.py").read_text()
    assert before in text
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace(before, after, 1))
    lines = (folder / "gencode2.py").read_text().splitlines()
    report = proved(folder)
    assert report.problems == ()
    (verdict,) = report.verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    places = [(Path(reason.location.path).name, reason.location.line) for reason in verdict.reasons]
    changed = next(number for number, (one, old) in enumerate(zip(lines, text.splitlines(), strict=False), 1) if one != old)
    assert {name for name, line in places if line == changed} & {"gencode0.py", "gencode2.py"}
    told = [one for one in report.findings if one.rule == "statement-not-understood" and one.ranks == (2,)]
    assert [(said in one.message, one.location.line) for one in told if one.location] == [(True, changed)] * bool(said)


def test_nothing_in_a_file_is_run(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    change(folder, "gencode0.py", "import torch", f"import torch; open({str(mark)!r}, 'w')")
    read_folder(str(folder))
    assert not mark.exists()


@pytest.mark.heavy
@needs_shared
@pytest.mark.parametrize("name", OF_THE_BRANCH)
def test_generated_code_and_its_pickle_give_the_same_verdict(name: str) -> None:
    assert SHARED is not None
    good = SHARED / "plans" / "good"
    reference = read(str(good / f"{OF_THE_BRANCH[name]}.pkl.xz"))
    pickled = read(str(good / f"{name.removeprefix('verdictAE--')}.pkl.xz"))
    assert reference is not None
    assert reference.plan is not None
    assert pickled is not None
    assert pickled.plan is not None
    document = read_folder(str(SHARED / "plans" / "gencode" / name))
    assert document.plan is not None
    assert [finding for finding in document.findings if finding.severity is Severity.ERROR] == []
    outcomes = {prove(plan, reference.plan).outcome for plan in (document.plan, pickled.plan)}
    assert outcomes == {Outcome.PROVED}


def wrong_operators(plan: Plan) -> dict[tuple[str, int], Plan]:
    """The plan with one operator of a segment that computes or communicates something else, by segment and place."""
    found = {}
    for name, segment in plan.segments.items():
        for at, own in enumerate(segment.operators):
            other: Operator | None = None
            if isinstance(own, Communicate) and len(own.inputs) == len(own.outputs) == 1:
                other = Compute("nnscaler.runtime.function.identity", own.inputs, own.outputs, source=own.source)
            elif isinstance(own, ReduceGradients):
                other = replace(own, group=Group(ranks=own.group.ranks[:1]), replicated=False)
            elif isinstance(own, Compute) and own.op.endswith(".relu"):
                other = replace(own, op="torch.tanh")
            if other is not None:
                operators = (*segment.operators[:at], other, *segment.operators[at + 1 :])
                found[name, at] = replace(plan, segments={**plan.segments, name: replace(segment, operators=operators)})
    return found


@pytest.mark.heavy
@needs_shared
def test_generated_code_and_its_pickle_are_refuted_alike() -> None:
    assert SHARED is not None
    name = next(name for name in OF_THE_BRANCH if "mlp" in name)
    good = SHARED / "plans" / "good"
    paths = (good / f"{OF_THE_BRANCH[name]}.pkl.xz", SHARED / "plans" / "gencode" / name, good / f"{name[11:]}.pkl.xz")
    reference, code, pickled = (document.plan for path in paths if (document := read(str(path))) is not None)
    assert reference is not None
    assert code is not None
    assert pickled is not None
    ours, theirs = wrong_operators(code), wrong_operators(pickled)
    both = ours.keys() & theirs.keys()
    assert len(both) > 10
    for key in both:
        assert [prove(plan, reference).outcome for plan in (ours[key], theirs[key])] == [Outcome.REFUTED] * 2, key


@needs_shared
@pytest.mark.parametrize(
    "path", sampled([path for path in SAMPLES if (path / "graph.ckp").exists()], 3), ids=lambda path: str(path.name)
)
def test_folders_of_nnscaler_are_proved_against_their_traced_graph(path: Path) -> None:
    report = prove_pair(Pair(str(path), ""))
    assert report.findings == ()
    assert report.problems == ()
    assert [verdict.outcome for verdict in report.verdicts] == [Outcome.PROVED]
    reference = reference_of_folder(str(path))
    assert reference is not None
    assert reference.replication.count == 1


def test_the_shape_of_what_is_expanded_follows_from_the_sizes() -> None:
    expand = Compute("torch.Tensor.expand", ("x",), ("y",), {"size": (-1, 2, -1)})
    assert results(expand, {"x": ((4, 1, 8), "float32")}, ()) == {"y": ((4, 2, 8), "float32")}


@pytest.mark.parametrize("operator", ["torch.nn.functional.linear", "torch.nn.functional.silu", "torch.sum"])
def test_an_operator_that_nobody_knows_leaves_the_verdict_open(folder: Path, operator: str) -> None:
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace(f"= {operator}(", "= torch.of_another_version("))
    (verdict,) = proved(folder).verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons if reason.refutes] == []


def test_a_reference_with_weights_that_only_infers_is_said_to(tmp_path: Path) -> None:
    reference = tmp_path / "reference.plan"
    lines = (FOLDER / "reference.plan").read_text().splitlines()
    reference.write_text("\n".join(line for line in lines if "backward" not in line and "update" not in line) + "\n")
    (verdict,) = prove_pair(Pair(str(FOLDER), str(reference))).verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    assert "it is inference" in verdict.reasons[0].message


def test_what_is_like_a_tensor_has_its_type() -> None:
    found = results(Compute("torch.zeros_like", ("x",), ("y",)), {"x": ((2, 3), "bfloat16")}, ())
    assert found == {"y": ((2, 3), "bfloat16")}
    stated = Compute("torch.zeros_like", ("x",), ("y",), {"dtype": "torch.int64"})
    assert results(stated, {"x": ((2, 3), "bfloat16")}, ()) == {"y": ((2, 3), "int64")}
