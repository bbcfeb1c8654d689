"""Layouts of generated code that versions and options of nnScaler differ in: each read as what it means, and judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tvlint.findings import Outcome, Report, Severity
from tvlint.ir.operators import Communicate, Compute
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.folder import opened, read_folder
from tvlint.readers.nnscaler.gencode.traced_graph import _Graph
from tvlint.readers.nnscaler.pickle.records import Work
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FOLDER = ROOT / "fixtures" / "clean" / "generated-code"
FIRST, LAST = (0, 1, 4, 5), (2, 3, 6, 7)
"""The ranks of the first and of the last pipeline stage."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped folder."""
    return Path(shutil.copytree(FOLDER, tmp_path / "code"))


def change(folder: Path, ranks: tuple[int, ...], old: str, new: str) -> None:
    """Put `new` for `old` in the files of `ranks`; `{a}` and `{b}` are the ranks of a file's pair."""
    for rank in ranks:
        path = folder / f"gencode{rank}.py"
        words = {
            "{a}": str(rank // 2 * 2),
            "{b}": str(rank // 2 * 2 + 1),
            "{n}": str(44 + rank % 2 * 10),
            "{s}": str(43 + rank % 2 * 10),
        }
        own = [old, new]
        for word, value in words.items():
            own = [text.replace(word, value) for text in own]
        text = path.read_text()
        assert own[0] in text, (path.name, own[0])
        path.write_text(text.replace(*own))


def judged(folder: Path) -> Report:
    return prove_pair(Pair(str(folder), str(FOLDER / "reference.plan"), trials=0))


def outcome(folder: Path) -> Outcome:
    report = judged(folder)
    assert report.problems == ()
    assert [finding for finding in report.findings if finding.severity is Severity.ERROR] == []
    return report.verdicts[0].outcome


def operators(plan: Plan, segment: str, name: str) -> list[Compute]:
    return [one for one in plan.segments[segment].operators if isinstance(one, Compute) and one.op.endswith(name)]


def in_a_dictionary(folder: Path, keys: dict[int, str]) -> None:
    """Let the loader give a dictionary, of which each rank reads the key that `keys` has for it."""
    for rank, key in keys.items():
        read = f"x_20 = _operator.getitem(data_20, {key!r})\n        "
        path = folder / f"gencode{rank}.py"
        lines = path.read_text().split("\n")
        number = next(number for number, line in enumerate(lines) if "linear(data_20," in line)
        lines[number] = "        " + read + lines[number].strip().replace("data_20,", "x_20,")
        path.write_text("\n".join(lines).replace("import torch\n", "import torch\nimport _operator\n", 1))


def test_a_dictionary_of_the_loader_is_the_tensors_that_are_read_from_it(folder: Path) -> None:
    in_a_dictionary(folder, dict.fromkeys(FIRST, "x"))
    plan = opened(str(folder)).plan
    assert plan.tensors["data_20['x']"].shape == (4, 8)
    assert plan.segments["device 0/segment 10"].inputs == ("data_20['x']",)
    assert operators(plan, "device 0/segment 10", "getitem") == []
    assert outcome(folder) is Outcome.PROVED


def test_ranks_that_read_other_parts_of_a_dictionary_are_not_proved(folder: Path) -> None:
    in_a_dictionary(folder, {0: "x", 1: "y", 4: "x", 5: "y"})
    assert outcome(folder) is not Outcome.PROVED


def test_recomputed_operators_are_those_of_the_function(folder: Path) -> None:
    plain = "silu_{s} = torch.nn.functional.silu(linear_{w}, inplace=False)"
    for rank in LAST:
        words = {"{w}": str(42 + rank % 2 * 10)}
        old, new = (
            plain.replace("{w}", words["{w}"]),
            (
                "def recompute(linear_{w}):\n            " + plain + "\n            return silu_{s}\n"
                "        silu_{s} = ckpt.checkpoint(recompute, linear_{w}, use_reentrant=False)"
            ).replace("{w}", words["{w}"]),
        )
        change(folder, (rank,), old, new)
    change(
        folder,
        LAST,
        "import torch\nimport nnscaler\nimport nnscaler.flags",
        "import torch\nimport torch.utils.checkpoint as ckpt\nimport nnscaler\nimport nnscaler.flags",
    )
    plan = opened(str(folder)).plan
    assert plan.segments["device 2/segment 11"].checkpointed
    assert len(operators(plan, "device 2/segment 11", "silu")) == 1
    assert outcome(folder) is Outcome.PROVED


@pytest.mark.parametrize(("inner", "proved"), [("nnscaler.runtime.function.identity", True), ("torch.neg", False)])
def test_a_value_inside_a_recomputed_function_is_not_the_one_of_that_name_around_it(
    folder: Path, inner: str, proved: bool
) -> None:
    for rank in LAST:
        given, made = (f"linear_{42 + rank % 2 * 10}", f"silu_{43 + rank % 2 * 10}")
        call = f"{made} = torch.nn.functional.silu({given}, inplace=False)"
        indented = f"{given} = {inner}({given})\n            {call}"
        new = f"def recompute({given}):\n            {indented}\n            return {made}\n        "
        new += f"{made} = ckpt.checkpoint(recompute, {given}, use_reentrant=False)"
        change(folder, (rank,), call, f"{new}\n        {given} = torch.mul({given}, 2)")
        change(folder, (rank,), "import nnscaler.flags", "import torch.utils.checkpoint as ckpt\nimport nnscaler.flags")
    assert (outcome(folder) is Outcome.PROVED) is proved


ADAPTER = """class Adapter9(torch.autograd.Function):
    @staticmethod
    def forward(ctx, linear_{n}):
        linear_28 = nnscaler.runtime.adapter.all_reduce(linear_{n}, ranks=[{a}, {b}])
        return linear_28
    @staticmethod
    def backward(ctx, glinear_28):
        glinear_80 = nnscaler.runtime.adapter.chunk(glinear_28, dim=0, ranks=[{a}, {b}])
        glinear_{n} = nnscaler.runtime.adapter.all_gather(glinear_80, dim=0, ranks=[{a}, {b}])
        return glinear_{n}


class GenModel("""


def with_adapter(folder: Path, text: str) -> None:
    change(folder, LAST, "class GenModel(", text)
    change(
        folder,
        LAST,
        "nnscaler.runtime.adapter.nn.allreduce_identity(linear_{n}, ranks=[{a}, {b}])",
        "Adapter9.apply(linear_{n}, )",
    )


def test_an_adapter_runs_the_backward_that_it_has_of_its_own(folder: Path) -> None:
    with_adapter(folder, ADAPTER)
    backward = opened(str(folder)).plan.segments["device 2/segment 11 backward"].operators
    kinds = [one.kind.value for one in backward if isinstance(one, Communicate)]
    assert kinds == ["chunk", "all-gather", "all-reduce"]
    assert outcome(folder) is Outcome.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("chunk(glinear_28, dim=0", "chunk(glinear_28, dim=1"),
        ("all_gather(glinear_80, dim=0", "all_gather(glinear_80, dim=1"),
        ("all_reduce(linear_{n}, ranks", "all_gather(linear_{n}, dim=0, ranks"),
    ],
)
def test_a_wrong_backward_of_an_adapter_is_not_proved(folder: Path, old: str, new: str) -> None:
    assert old in ADAPTER
    with_adapter(folder, ADAPTER.replace(old, new))
    report = judged(folder)
    (verdict,) = report.verdicts
    told = {reason.name for reason in verdict.reasons} & {"missing-allreduce", "wrong-gather-dim"}
    assert verdict.outcome is not Outcome.PROVED
    assert told or any(one.severity is Severity.ERROR for one in report.findings)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        return glinear_{n}\n\n", "        return glinear_28\n\n", "does not make what it gives"),
        ("class Adapter9", "class Adapter9(torch.autograd.Function):\n    pass\n\n\nclass Adapter9", "holds a statement"),
        ("Adapter9.apply(", "Adapter8.apply(", ""),
    ],
)
def test_an_adapter_that_is_not_one_is_told(folder: Path, old: str, new: str, said: str) -> None:
    with_adapter(folder, ADAPTER)
    change(folder, LAST, old, new)
    report = judged(folder)
    if said:
        (reason,) = report.verdicts[0].reasons
        assert (report.verdicts[0].outcome, reason.name, said in reason.message) == (
            Outcome.UNKNOWN,
            "unsupported-operator",
            True,
        )
        assert reason.location.line is not None
    else:
        assert report.verdicts[0].outcome is not Outcome.PROVED


def test_operators_below_no_grad_stop_gradients(folder: Path) -> None:
    change(folder, LAST, "        silu_{s} = torch", "        with torch.no_grad():\n            silu_{s} = torch")
    backward = opened(str(folder)).plan.segments["device 2/segment 11 backward"].operators
    assert len(backward) < 4
    report = judged(folder)
    assert report.verdicts[0].outcome is Outcome.REFUTED
    (found, _) = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert found.rule == "undefined-tensor"
    assert "does not depend on `linear_22`" in found.message
    line = found.location.line if found.location else None
    assert line
    assert "glinear_32 = " in (folder / "gencode2.py").read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("needs", "made", "dtype", "stops"),
    [
        (True, False, "float32", True),
        (True, True, "float32", False),
        (False, False, "float32", False),
        (True, False, "int64", False),
    ],
)
def test_a_graph_stops_gradients_where_its_numbers_need_none(needs: bool, made: bool, dtype: str, stops: bool) -> None:
    graph = _Graph("graph.ckp", Work(1), 1, ())
    for name, kind, gradient in (("x", "float32", needs), ("y", dtype, made)):
        graph.tensors.declared[name] = Tensor(name, (2,), kind, Role.ACTIVATION, requires_grad=gradient)
    assert graph._loses_gradient(Compute("torch.neg", ("x",), ("y",))) is stops


@pytest.mark.parametrize("enabled", [True, False])
def test_a_context_that_changes_nothing_is_none(folder: Path, enabled: bool) -> None:
    context = f"with torch.no_grad(), torch.autocast(device_type='cuda', dtype=torch.float16, enabled={enabled}):"
    change(folder, LAST, "        silu_{s} = torch", f"        {context}\n            silu_{{s}} = torch")
    names = {own.op for own in opened(str(folder)).plan.segments["device 2/segment 11"].operators if isinstance(own, Compute)}
    assert ("python.with_" in names, "torch.nn.functional.silu" in names) == (enabled, not enabled)


def test_a_flag_of_the_module_stands_where_its_name_does(folder: Path) -> None:
    drop = "training_9 = self.training\n        "
    drop += "linear_28 = torch.nn.functional.dropout(linear_28, p=0.0, training=training_9)\n        sum_29 ="
    change(folder, LAST, "sum_29 = torch", f"{drop} torch")
    (found,) = operators(opened(str(folder)).plan, "device 2/segment 11", "dropout")
    assert found.attributes["training"] is True


CHOICES = {
    "a flag": ("0.5 if self.training else 0.0", 0.5),
    "a flag of its own": ("0.0 if False else 0.25", 0.25),
    "a choice of a choice": ("(0.1 if False else 0.3) if self.training else 0.2", 0.3),
}


@pytest.mark.parametrize("name", list(CHOICES))
def test_a_choice_that_is_known_is_the_constant_that_it_takes(folder: Path, name: str) -> None:
    choice, value = CHOICES[name]
    drop = f"chosen_9 = {choice}\n        linear_28 = torch.nn.functional.dropout(linear_28, p=chosen_9, training=True)\n"
    change(folder, LAST, "        sum_29 = torch", f"        {drop}        sum_29 = torch")
    (found,) = operators(opened(str(folder)).plan, "device 2/segment 11", "dropout")
    assert found.attributes["p"] == value


def test_a_choice_between_tensors_is_the_one_that_it_takes_or_unknown(folder: Path) -> None:
    change(folder, LAST, "        del silu_{s}\n", "")
    change(
        folder,
        LAST,
        "        sum_29 = torch",
        "        linear_28 = linear_28 if self.training else silu_{s}\n        sum_29 = torch",
    )
    assert judged(folder).verdicts[0].outcome is Outcome.PROVED
    change(folder, LAST, "if self.training else", "if silu_{s} else")
    assert judged(folder).verdicts[0].outcome is Outcome.UNKNOWN
    change(folder, LAST, "linear_28 if silu_{s} else silu_{s}", "silu_{s} if self.training else linear_28")
    assert judged(folder).verdicts[0].outcome is Outcome.REFUTED


def test_a_flag_that_a_method_returns_is_known_where_the_rank_uses_it_and_missing_elsewhere(folder: Path) -> None:
    change(folder, FIRST, "        return linear_22\n", "        flag_9 = self.training\n        return linear_22, flag_9\n")
    with pytest.raises(ReadError, match="returns 2 values and 1 are taken"):
        opened(str(folder))
    for name in ("linear_22", "linear_122"):
        change(
            folder,
            FIRST,
            f"    {name} = nnscaler.runtime.executor.fexecute",
            f"    {name}, flag_9 = nnscaler.runtime.executor.fexecute",
        )
    assert judged(folder).verdicts[0].outcome is Outcome.PROVED
    change(folder, LAST, "def segment11(self, linear_22)", "def segment11(self, linear_22, flag_9)")
    change(
        folder,
        LAST,
        "        sum_29 = torch",
        "        linear_28 = torch.nn.functional.dropout(linear_28, p=0.0, training=flag_9)\n        sum_29 = torch",
    )
    change(folder, LAST, "*(linear_22, ), requires_grad=True)", "*(linear_22, flag_9, ), requires_grad=True)")
    change(folder, LAST, "*(linear_122, ), requires_grad=True)", "*(linear_122, flag_9, ), requires_grad=True)")
    (verdict,) = judged(folder).verdicts
    assert verdict.outcome is Outcome.REFUTED
    first = verdict.reasons[0]
    assert "uses `flag_9`, which nothing on rank" in first.message
    assert first.location.line is not None
    assert "fexecute('segment11'" in Path(first.location.path).read_text().splitlines()[first.location.line - 1]


def test_gradients_of_what_a_loader_gives_are_an_assumption_where_they_are_taken_apart(folder: Path) -> None:
    for old, new in (
        ("data_20 = next(", "data_20, more_21 = next("),
        ("data_120 = next(", "data_120, more_121 = next("),
        ("*(data_20, )", "*(data_20, more_21, )"),
        ("*(data_120, )", "*(data_120, more_121, )"),
        ("(self, data_20)", "(self, data_20, more_21)"),
        (
            "        linear_22 = torch.nn.functional.linear(data_20",
            "        both_1 = torch.add(data_20, more_21)\n{linear}both_1",
        ),
        (
            "_ = nnscaler.runtime.executor.backward('segment10', (), (linear_22",
            "gdata_1, gmore_2 = {backward}(data_20, more_21, ), (linear_22",
        ),
    ):
        words = {
            "{linear}": "        linear_22 = torch.nn.functional.linear(",
            "{backward}": "nnscaler.runtime.executor.backward('segment10', ",
        }
        for word, text in words.items():
            new = new.replace(word, text)
        change(folder, FIRST, old, new)
    document = read_folder(str(folder))
    found = [one for one in document.findings if one.rule == "undefined-tensor"]
    assert {one.severity for one in found} == {Severity.WARNING}
    assert {one.message.split("`")[3] for one in found} == {"data_20", "more_21"}
    assert isinstance(document.plan, Plan)
    assert len(document.plan.assumed) == 2
    assert all("`requires_grad`" in text for text in document.plan.assumed)


def test_a_module_under_the_name_of_another_is_refused(folder: Path) -> None:
    change(
        folder,
        (2,),
        "import torch\nimport nnscaler\nimport nnscaler.flags",
        "import evil as torch\nimport nnscaler\nimport nnscaler.flags",
    )
    with pytest.raises(ReadError, match="an import gives another thing the name of a module"):
        opened(str(folder))


WITHOUT_SCHEDULE = """import torch
import nnscaler

runtime_version = '0.6'


class GenModel(nnscaler.runtime.module.ParallelModule):
    use_scheduler = False
    nmicros_per_scheduler_step = 1
    rank = {r}

    def __init__(self, init_params=True, *, async_op=False):
        super().__init__()
        self.init_group(ranks=[0, 1])
        self.register_parameter('w_{w}', torch.nn.Parameter(torch.empty((4, 8), dtype=torch.float32)))
        self.add_full_map('w_{w}', 3, True, 'w', (8, 8), (slice({low}, {high}, None), slice(0, 8, None)), 1)
        self._post_init(init_params)

    def segment9(self, x_5):
        x_9 = torch.permute(x_5, dims=(0, 1))
        y_6 = torch.nn.functional.linear(x_9, self.w_{w}, bias=None)
        y_7 = nnscaler.runtime.adapter.nn.allgather_split(y_6, dim=1, ranks=[0, 1])
        y_7 = torch.Tensor.view(y_7, size=(32,))
        s_8 = torch.sum(y_7)
        return s_8

    def _forward_impl(self, x):
        s_8 = self.segment9(x)
        return s_8
"""
REFERENCE = """plan "one rank"
weight w f32[8,8]
input x f32[4,8]
loss l f32[]

program
  p = permute(x, dims=[0, 1])
  y = linear(p, w)
  v: f32[32] = view(y, size=[32])
  l = sum(v)
  dv = backward l (grad(l))
  dy = backward v (dv)
  _, grad(w) = backward y (dy)
  update w
"""


@pytest.fixture
def own_loop(tmp_path: Path) -> Path:
    """Code for two ranks that each have half a weight, without a schedule: the training loop is the user's."""
    (tmp_path / "code").mkdir()
    for rank in (0, 1):
        text = WITHOUT_SCHEDULE.format(r=rank, w=4 + 10 * rank, low=4 * rank, high=4 * rank + 4)
        (tmp_path / "code" / f"gencode{rank}.py").write_text(text)
    (tmp_path / "one.plan").write_text(REFERENCE)
    return tmp_path / "code"


def test_code_without_a_schedule_is_one_step_of_the_usual_loop(own_loop: Path) -> None:
    report = prove_pair(Pair(str(own_loop), str(own_loop.parent / "one.plan"), trials=0))
    assert (report.problems, report.findings) == ((), ())
    assert [verdict.outcome for verdict in report.verdicts] == [Outcome.PROVED]
    file = own_loop / "gencode1.py"
    file.write_text(file.read_text().replace("allgather_split", "reducescatter_allgather"))
    report = prove_pair(Pair(str(own_loop), str(own_loop.parent / "one.plan"), trials=0))
    assert report.verdicts[0].outcome is not Outcome.PROVED


def test_a_weight_that_no_other_rank_shares_needs_no_reducer_and_a_shared_one_does(own_loop: Path) -> None:
    assert read_folder(str(own_loop)).findings == ()
    file = own_loop / "gencode0.py"
    made = "self.wreducer2 = nnscaler.runtime.adapter.Reducer(ranks=[0, 1], reduce_op='sum', async_op=False)\n        "
    added = "self.wreducer2.add_param(self.w_4)\n        self.add_reducer(self.wreducer2)\n        "
    file.write_text(file.read_text().replace("self._post_init", f"{made}{added}self._post_init"))
    other = own_loop / "gencode1.py"
    other.write_text(other.read_text().replace("w_14", "w_4").replace("slice(4, 8, None)", "slice(0, 4, None)"))
    rules = {(finding.rule, finding.ranks) for finding in read_folder(str(own_loop)).findings}
    assert ("parameter-missing-in-reducer", (1,)) in rules


def test_a_proof_of_the_project_needs_no_reference_beside_generated_code(tmp_path: Path) -> None:
    from tvlint.run.project.project_file import load

    (tmp_path / "tvlint.toml").write_text('[[proof]]\nparallel = ["code"]\n')
    (pair,) = load(tmp_path / "tvlint.toml", "tvlint.toml").proofs
    assert (pair.reference, pair.parallel) == ("", ("code",))


def test_the_rank_whose_slice_differs_from_what_most_say_is_named(folder: Path) -> None:
    path = folder / "gencode7.py"
    lines = path.read_text().split("\n")
    number = next(number for number, line in enumerate(lines) if "add_full_map(" in line and "mid" in line)
    assert "slice(8, 16, None)" in lines[number]
    change(folder, (7,), "'mid.weight', (16, 8)", "'other.weight', (16, 8)")
    report = judged(folder)
    places = [*(one.location for one in report.problems), *(one.location for one in report.findings)]
    assert any((Path(place.path).name, place.line) == ("gencode7.py", number + 1) for place in places)


def test_a_class_that_leaves_its_parameters_unfilled_is_refused(folder: Path) -> None:
    change(folder, LAST, "self._post_init(init_params)", "pass")
    with pytest.raises(ReadError, match=r"rank 2 never calls `_post_init`"):
        opened(str(folder))


def test_a_weight_that_is_wrong_or_missing_is_told_at_the_map_of_a_slice(folder: Path) -> None:
    change(folder, FIRST, "'up.weight'", "'upper.weight'")
    (verdict,) = judged(folder).verdicts
    places = {reason.name: reason.location for reason in verdict.reasons}
    for name in ("unknown-weight", "uncovered-weight"):
        line = places[name].line
        assert line is not None
        assert "add_full_map" in Path(places[name].path).read_text().split("\n")[line - 1]


def test_a_gradient_beyond_the_results_that_nothing_gives_is_told_at_its_line(folder: Path) -> None:
    change(folder, FIRST, "(linear_22, ), (glinear_32, )", "(linear_22, ), (gmore_33, glinear_32, )")
    verdict = judged(folder).verdicts[0]
    assert verdict.outcome is Outcome.REFUTED
    found = verdict.reasons[0]
    assert (found.name, found.refutes) == ("undefined-tensor", True)
    assert "`gmore_33` is used in the schedule" in found.message
    line = found.location.line or 0
    assert "(gmore_33, glinear_32, )" in Path(found.location.path).read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def adapter61(self", "    def adapter99(self, linear_9):\n        return gmore_33\n\n    def adapter61(self"),
        ("    use_scheduler = True\n", "    use_scheduler = True\n    globals()['gmore_33'] = 1\n"),
    ],
    ids=["in a method that never runs", "beside a statement that may define it"],
)
def test_a_name_without_a_value_does_not_refute_where_it_may_have_one_or_is_not_read(folder: Path, old: str, new: str) -> None:
    change(folder, (2, 6), old, new)
    if "globals" in new:
        change(folder, (2, 6), "(linear_22, ), (sum_29, ), (None, ))", "(linear_22, ), (sum_29, ), (gmore_33, None, ))")
    report = judged(folder)
    assert report.verdicts[0].outcome is (Outcome.UNKNOWN if "globals" in new else Outcome.PROVED)
    (found,) = (one for one in report.findings if one.rule == "undefined-tensor")
    assert (found.severity, "`gmore_33`" in found.message) == (Severity.WARNING, True)


def test_a_backward_may_name_what_is_no_input_where_nothing_uses_what_it_gives(folder: Path) -> None:
    """The runtime warns of it, and gives the gradients of the inputs that require one."""
    for ran in ("linear_22", "linear_122"):
        old = f"_ = nnscaler.runtime.executor.backward('segment10', (), ({ran}, )"
        change(folder, FIRST, old, old.replace("_ =", f"gmore_{ran[7:]} =").replace("(), (", f"({ran}, ), ("))
    assert outcome(folder) is Outcome.PROVED
    change(folder, FIRST, "(linear_122, ), (glinear_132, )", "(linear_122, ), (gmore_22, )")
    with pytest.raises(ReadError, match="names inputs that its run did not have"):
        opened(str(folder))


@pytest.mark.parametrize("op", ["torch.softmax", "torch.nn.functional.softmax"])
def test_a_keyword_that_torch_refuses_is_refuted_at_its_line(folder: Path, op: str) -> None:
    made = f"linear_28 = {op}(linear_28, dim=-1, _stacklevel=3, dtype=None)"
    change(folder, LAST, "        sum_29 = torch", f"        {made}\n        sum_29 = torch")
    report = judged(folder)
    told = [one for one in report.verdicts[0].reasons if one.name == "shape-mismatch"]
    if "functional" in op:
        assert told == []
        return
    assert (report.verdicts[0].outcome, told[0].refutes) == (Outcome.REFUTED, True)
    assert "`torch.softmax` with the keyword `_stacklevel`" in told[0].message
    assert op in Path(told[0].location.path).read_text().splitlines()[(told[0].location.line or 0) - 1]
