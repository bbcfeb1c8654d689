"""Generated code that does something else than it seems to, and once was proved."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tests.sampling import sampled
from tvlint.findings import Outcome, Report
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.folder import opened
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FIXTURE = ROOT / "fixtures" / "clean" / "generated-code"

LINEAR = "        linear_22 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)\n"

CHECKPOINTED = """        h_1 = torch.nn.functional.gelu(data_20)
        def recompute(data_20):
            h_1 = torch.nn.functional.linear(data_20, self.up_weight_21, bias=None)
            linear_22 = nnscaler.runtime.function.identity(h_1)
            return linear_22
        linear_22 = ckpt.checkpoint(recompute, data_20, use_reentrant=False)
        linear_22 = nnscaler.runtime.function.identity(h_1)
"""

CHANGES = {
    "nothing is changed": ("nothing", "nothing"),
    "gradients cleared between micro-batches": (
        "    glinear_132 = nnscaler",
        "    model.zero_grad()\n    glinear_132 = nnscaler",
    ),
    "a segment without autograd": ("*(data_20, ), requires_grad=True)", "*(data_20, ), requires_grad=False)"),
    "a result that is detached": (
        "    _ = nnscaler.runtime.executor.backward('segment10', (), (linear_22, )",
        "    linear_22 = linear_22.detach()\n    _ = nnscaler.runtime.executor.backward('segment10', (), (linear_22, )",
    ),
    "names from anywhere": ("import nnscaler.flags\n", "import nnscaler.flags\nfrom model import *\n"),
    "a reducer twice": ("        self.wreducer90.sync_grads()\n", "        self.wreducer90.sync_grads()\n" * 2),
    "a bias twice": ("self.up_weight_21, bias=None)", "self.up_weight_21, None, bias=None)"),
    "a reducer that is switched off": ("skip_reducer = False", "skip_reducer = True"),
    "a message that requires no gradient": (
        "(model.adapter60, *(), requires_grad=True)",
        "(model.adapter60, *(), requires_grad=False)",
    ),
    "parameters that are never filled": ("_post_init(init_params)", "_post_init(async_op)"),
    "parameters that are not filled by default": ("init_params=True", "init_params=False"),
    "parameters that are registered after they are filled": (
        "        self.add_reducer(self.wreducer90)\n        self._post_init(init_params)\n",
        "        self._post_init(init_params)\n        self.add_reducer(self.wreducer90)\n",
    ),
    "a module that is made again": ("        self._post_init", "        super().__init__()\n        self._post_init"),
    "a module that is never made": ("        super().__init__()\n", ""),
    "a parameter that is mapped as a buffer": ("7, True, 'mid.weight'", "7, False, 'mid.weight'"),
    "a parameter in no part": ("(slice(0, 8, None), slice(0, 8, None)), 1)", "(slice(0, 8, None), slice(0, 8, None)), 0)"),
    "a message without its dtype": (", dtype=torch.float32, src", ", src"),
    "two data loaders in one": ("next(*(dataloader_19, ))", "next(*(dataloader_19, dataloader_19))"),
    "an asynchronous reducer that is waited for too early": (
        "    glinear_132 = nnscaler",
        "    _ = nnscaler.runtime.executor.aexecute(model.reducer90, *(), requires_grad=False)\n    glinear_132 = nnscaler",
    ),
    "a name inside of a checkpointed function": (LINEAR, CHECKPOINTED),
    "a return before the end": (LINEAR, f"{LINEAR}        return data_20\n"),
    "a return before the end, of a context": (LINEAR, f"{LINEAR}        with torch.no_grad():\n            return linear_22\n"),
    "a return before the end, of a reducer": ("        self.wreducer90.sync", "        return\n        self.wreducer90.sync"),
    "a return before the end, of a constructor": ("        self._post_init", "        return\n        self._post_init"),
    "an exception before the end": (LINEAR, f"{LINEAR}        raise ValueError\n"),
    "an attribute of the module, by its name": (LINEAR, f"        setattr(self, 'up_weight_21', 2)\n{LINEAR}"),
}


@pytest.mark.parametrize("name", sampled(list(CHANGES), 3))
def test_what_generated_code_does_otherwise_is_not_read_as_if_it_did_not(name: str, tmp_path: Path) -> None:
    before, after = CHANGES[name]
    folder = tmp_path / "code"
    shutil.copytree(FIXTURE, folder)
    changed = 0
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        if "ckpt" in after:
            text = text.replace("import nnscaler.flags\n", "import nnscaler.flags\nimport torch.utils.checkpoint as ckpt\n", 1)
        changed += before in text
        path.write_text(text.replace(before, after))
    assert changed or name == "nothing is changed"
    assert (_outcomes(folder) == [Outcome.PROVED]) == (name == "nothing is changed")


def test_the_module_that_a_call_is_given_is_no_value_that_nothing_defines(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    shutil.copytree(FIXTURE, folder)
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace(LINEAR, f"{LINEAR}        setattr(self, 'note', 1)\n"))
    (verdict,) = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    assert any("`setattr` is given the module" in reason.message for reason in verdict.reasons)


def test_a_repair_exchanges_no_results_of_a_line_that_changes_an_attribute(tmp_path: Path) -> None:
    folder, source = tmp_path / "code", ROOT / "fixtures" / "nnscaler" / "folders" / "hidden--tp2"
    shutil.copytree(source, folder)
    for path in folder.glob("gencode*.py"):
        changed = r"\1        self.note.data = self.note.data * 2\n"
        path.write_text(re.sub(r"( +relu_\d+ = torch.nn.functional.relu\([^\n]*\n)", changed, path.read_text(), count=1))
        assert "self.note.data" in path.read_text()
    (verdict,) = prove_pair(Pair(str(folder), str(folder / "graph.ckp"))).verdicts
    assert verdict.outcome is Outcome.REFUTED


def _outcomes(folder: Path) -> list[Outcome]:
    return [verdict.outcome for verdict in prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).verdicts]


def _moved(text: str, line: str, before: str) -> str:
    """The text with the line that starts with `line` where the one that starts with `before` stands."""
    lines = text.split("\n")
    moved = lines.pop(next(number for number, own in enumerate(lines) if own.startswith(line)))
    lines.insert(next(number for number, own in enumerate(lines) if own.startswith(before)), moved)
    return "\n".join(lines)


def _reasons(report: Report) -> list[tuple[str, bool, str]]:
    """Return the reasons of the verdict: the name, whether it refutes, and what is assigned in its line."""
    return [(own.name, own.refutes, own.location.text.split(" = ")[0].strip()) for own in report.verdicts[0].reasons]


def test_backwards_in_another_order_than_forwards_take_the_inputs_of_another_run(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        if "glinear_32 = nnscaler.runtime.executor.backward('segment11'" in text:
            text = _moved(text, "    linear_122 = nnscaler", "    glinear_32 =")
            text = _moved(text, "    sum_129 = nnscaler.runtime.executor.fexecute", "    glinear_32 =")
            path.write_text(text)
    assert _outcomes(folder) == [Outcome.PROVED]
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        path.write_text(_moved(text, "    glinear_132 =", "    glinear_32 =") if "'segment11'" in text else text)
    document = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0))
    assert _reasons(document) == [("step-fails", True, "glinear_132")]


def test_ranks_that_reduce_together_lay_out_their_buffer_alike(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    path = folder / "gencode6.py"
    path.write_text(
        _moved(path.read_text(), "        self.wreducer90.add_param(self.down", "        self.wreducer90.add_param(self.mid")
    )
    report = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0))
    (reason,) = report.verdicts[0].reasons
    assert (report.verdicts[0].outcome, "where another rank has `mid_weight_40`" in reason.message) == (Outcome.UNKNOWN, True)
    assert (reason.location.path, reason.location.line) == (str(path), 34)


def test_a_step_of_several_micro_batches_is_given_all_of_them(tmp_path: Path) -> None:
    for name, old, new in (("without", "    use_scheduler = True\n", ""), ("off", "scheduler = True", "scheduler = False")):
        folder = Path(shutil.copytree(FIXTURE, tmp_path / name))
        path = folder / "gencode1.py"
        path.write_text(path.read_text().replace(old, new))
        found = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).findings
        assert ("uneven-data-loading", str(path)) in {(one.rule, one.location.path) for one in found}


def test_an_asynchronous_reducer_that_lacks_a_gradient_is_refused_where_it_is_waited_for(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        text = path.read_text().replace("async_op=False", "async_op=True")
        text = re.sub(r"        (linear_\d+ = \S+\(linear_23,)", r"        with torch.no_grad():\n            \1", text)
        path.write_text(_moved(text, "    _ = nnscaler.runtime.executor.aexecute(model.reducer90", "    return sum_29"))
    with pytest.raises(ReadError, match=r"waits for the gradient of `.*`, which no backward makes") as told:
        opened(str(folder))
    location = told.value.problem.location
    assert location is not None
    assert location.line
    assert "reducer" in Path(location.path).read_text().splitlines()[location.line - 1]


def _under_no_grad(tmp_path: Path, made: str) -> list[tuple[str, bool, str]]:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / made))
    for path in folder.glob("gencode*.py"):
        text = re.sub(rf"        ({made}\w* = torch)", r"        with torch.no_grad():\n            \1", path.read_text())
        path.write_text(text)
    return _reasons(prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)))


def test_a_backward_that_runs_from_what_requires_no_gradient_ends_the_step(tmp_path: Path) -> None:
    first = "_ = nnscaler.runtime.executor.backward('segment10', (), (linear_22, ), (glinear_32, ))"
    assert _under_no_grad(tmp_path, "linear_22") == [("step-fails", True, first.split(" = ")[0])]
    assert "step-fails" not in {name for name, _, _ in _under_no_grad(tmp_path, "silu_")}


@pytest.mark.parametrize("call", ["move", "all_gather"])
def test_asynchronous_communication_is_refused_with_what_to_do(tmp_path: Path, call: str) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    path = next(path for path in sorted(folder.glob("gencode*.py")) if f"adapter.{call}(" in path.read_text())
    path.write_text(re.sub(rf"(adapter\.{call}\(.*)\)", r"\1, async_op=True)", path.read_text(), count=1))
    with pytest.raises(ReadError, match=f"adapter.{call}` is asynchronous") as told:
        opened(str(folder))
    assert "ASYNC_COMM=0" in told.value.problem.help


def test_an_asynchronous_reducer_is_waited_for_after_it_starts(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        text = path.read_text().replace("async_op=False", "async_op=True")
        path.write_text(_moved(text, "    _ = nnscaler.runtime.executor.aexecute(model.reducer90", "    return sum_29"))
    assert _outcomes(folder) == [Outcome.PROVED]
    path = folder / "gencode2.py"
    path.write_text(_moved(path.read_text(), "    _ = nnscaler.runtime.executor.aexecute(model.reducer90", "    glinear_132 ="))
    found = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).findings
    assert "reducer-before-last-backward" in {one.rule for one in found if one.location.path == str(path)}


@pytest.mark.heavy
@pytest.mark.parametrize("wrong", ["(4, 8), dtype=torch.float32", "(8, 2), dtype=torch.float32", "(2, 8), dtype=torch.float16"])
def test_what_a_receiver_states_of_a_message_counts_and_what_its_sender_states_is_not_read(tmp_path: Path, wrong: str) -> None:
    for rank, is_right in ((0, True), (2, False)):
        source = ROOT / "fixtures" / "nnscaler" / "folders" / "mlp--hybrid_pp2_tp2_dp2"
        folder = Path(shutil.copytree(source, tmp_path / str(rank)))
        for replica in (0, 4):
            path = folder / f"gencode{rank + replica}.py"
            ends = f", src={replica}, dst={replica + 2})"
            text = path.read_text()
            assert f"(2, 8), dtype=torch.float32{ends}" in text
            path.write_text(text.replace(f"(2, 8), dtype=torch.float32{ends}", f"{wrong}{ends}"))
        outcome = prove_pair(Pair(str(folder), "")).verdicts[0].outcome
        assert (outcome is Outcome.PROVED) is is_right
        assert is_right or "float16" in wrong or outcome is Outcome.REFUTED


@pytest.mark.parametrize("place", ["\n    return sum_29", "\n    _ = nnscaler.runtime.executor.aexecute(model.reducer90"])
def test_gradients_that_are_cleared_after_a_backward_refute(tmp_path: Path, place: str) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        path.write_text(text.replace(place, f"\n    model.zero_grad(){place}", 1))
        assert path.read_text() != text
    report = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0))
    assert report.verdicts[0].outcome is Outcome.REFUTED
    assert report.verdicts[0].reasons[0].name == "gradients-cleared-within-step"
    line = report.verdicts[0].reasons[0].location.line
    assert line is not None
    assert "zero_grad" in path.read_text().splitlines()[line - 1]


def test_what_is_sent_again_in_the_place_of_another_micro_batch_refutes(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FIXTURE, tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace("model.adapter60, *(linear_122, )", "model.adapter60, *(linear_22, )"))
    reason = prove_pair(Pair(str(folder), str(FIXTURE / "reference.plan"), trials=0)).verdicts[0].reasons[0]
    assert (reason.name, reason.refutes, reason.location.line) == ("missing-micro-batch", True, 76), reason
