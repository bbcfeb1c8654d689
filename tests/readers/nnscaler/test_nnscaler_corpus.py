"""Plans and generated code that nnScaler wrote of our own models: all are read, and judged as they run.

`benchmarks/nnscaler_examples.py` and `benchmarks/nnscaler_corpus.py` write them; `docs/gencode.md` says how.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from shared import ROOT

from tests.sampling import sampled
from tvlint.findings import Outcome, Verdict
from tvlint.ops.annotations.declared import Declared
from tvlint.readers.read import read
from tvlint.run.project.project_file import load
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

CORPUS = ROOT / "fixtures" / "nnscaler"
PLANS = sorted(path.name.removesuffix(".pkl.xz") for path in (CORPUS / "plans").iterdir())
SINGLE = {
    "mlp--tp2": "mlp--single_2",
    "mlp--data2": "mlp--single_2",
    "mlp--dp2": "mlp--single_4",
    "mlp--tp2_dp2": "mlp--single_4",
    "mlp--pp2": "mlp--single_4",
    "mlp--hybrid_pp2_tp2": "mlp--single_4",
    "mlp--hybrid_pp2_tp2_dp2": "mlp--single_8",
}
"""The plan of one device for each plan of several, by the rows of the whole batch."""
REFUTED = {
    "gpt--pp2": ("use-before-definition", "uses `blocks_0_dropout_training_225`, which nothing on rank 1", "gencode1.py"),
    "mlp--hybrid_pp2_tp4": (
        "pieces-not-in-rank-order",
        "gathers pieces in rank order that do not lie in that order",
        "gencode1.py",
    ),
    "positions--tp2": ("wrong-gradient-scale", "the gradient of `head.weight` on every rank is 2 times", "gencode0.py"),
    "softmax--dp2": ("shape-mismatch", "`torch.softmax` with the keyword `_stacklevel`", "gencode0.py"),
    "unbound--dp2": ("undefined-tensor", "`gview_42` is used in the schedule", "gencode0.py"),
    "hidden--tp2": ("undefined-tensor", "`grelu_34` is used in the schedule", "gencode0.py"),
    "recurrent--dp2": ("undefined-tensor", "`ggetitem_77` is used in the schedule", "gencode0.py"),
    "shaped--pp2": ("undefined-tensor", "`glinear_83` gets no value on rank 1", "gencode1.py"),
    "transposed--tp2": ("other-numbers", "the gradient of `tokens_weight_41` on every rank is another one", "gencode0.py"),
    "frozen--pp2": ("step-fails", "`backward` of `segment31` runs from `tanh_38`", "gencode0.py"),
}
"""Folders that nnScaler writes wrongly, by the first reason: its words and the file where it stands."""
OPERATORS = load(CORPUS / "tvlint.toml", "tvlint.toml").operators
FOLDERS = sorted(path.name for path in (CORPUS / "folders").iterdir())


def _path(name: str) -> str:
    return str(CORPUS / "plans" / f"{name}.pkl.xz")


def _verdict(parallel: str, reference: str = "", operators: tuple[Declared, ...] = OPERATORS) -> Verdict:
    report = prove_pair(Pair(parallel, reference, operators=operators, trials=0))
    assert report.problems == ()
    (verdict,) = report.verdicts
    return verdict


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_is_read(name: str) -> None:
    document = read(_path(name))
    assert document is not None
    assert document.plan is not None
    assert document.findings == ()


@pytest.mark.parametrize("name", SINGLE)
def test_plans_are_proved_against_the_plan_of_one_device(name: str) -> None:
    verdict = _verdict(_path(name), _path(SINGLE[name]))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_the_corpus_holds_what_is_judged() -> None:
    assert {*SINGLE, *SINGLE.values()} == set(PLANS)
    assert REFUTED.keys() <= set(FOLDERS)


@pytest.mark.parametrize("name", sampled(FOLDERS, 3))
def test_folders_are_judged_as_they_run(name: str) -> None:
    verdict = _verdict(str(CORPUS / "folders" / name))
    if name not in REFUTED:
        assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
        return
    reason, words, file = REFUTED[name]
    assert verdict.outcome is Outcome.REFUTED
    first = next(own for own in verdict.reasons if own.refutes)
    assert first.name == reason
    assert words in first.message
    assert Path(first.location.path).name == file


@pytest.mark.parametrize("name", ["gpt--tp2", "mlp--hybrid_pp2_tp2_dp2", "mlp--hybrid_pp2_tp4"])
def test_the_traced_graph_is_the_same_reference_by_name(name: str) -> None:
    folder = CORPUS / "folders" / name
    found, named = _verdict(str(folder)), _verdict(str(folder), str(folder / "graph.ckp"))
    assert (named.outcome, named.stages, named.assumptions) == (found.outcome, found.stages, found.assumptions)
    assert [reason.message for reason in named.reasons] == [reason.message for reason in found.reasons]


def test_an_operator_that_nobody_declares_is_one_reason_with_the_lines_that_declare_it() -> None:
    verdict = _verdict(str(CORPUS / "folders" / "swin_drop--tp2"), operators=())
    assert verdict.outcome is Outcome.UNKNOWN
    said = [reason.message for reason in verdict.reasons if "is not in the operator table" in reason.message]
    assert len(said) == len({text.partition(" on ")[0] for text in said}) == len(OPERATORS)
    for own in OPERATORS:
        (text,) = (one for one in said if one.startswith(f"`{own.name}`"))
        drawn = " `random = true`, since" if own.random else ""
        assert f"`[[operator]]` `name = {own.name!r}` `annotation = {own.annotation!r}`{drawn}" in text


WRONG = {
    "other heads": ("h=2, scale", "h=4, scale"),
    "another scale": ("scale=0.5)", "scale=0.25)"),
    "dimensions exchanged the other way": ("idim=0, odim=1", "idim=1, odim=0"),
    "other windows": ("ws=4, nh=2, nw=2", "ws=2, nh=4, nw=4"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(WRONG))
def test_declared_operators_are_not_proved_where_they_are_used_otherwise(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CORPUS / "folders" / "swin_drop--tp2", tmp_path / "code"))
    before, after = WRONG[name]
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after, 1))
    assert _verdict(str(folder)).outcome is not Outcome.PROVED


POOLED = {
    "the other part of what was taken apart": ("getitem(unbind_128, 0)", "getitem(unbind_128, 1)"),
    "another table": ("fullslice(self.biases_154, view_2_153)", "fullslice(self.biases_154, slice(0, 7, None))"),
    "a loss that starts at one": ("torch.add(0, cross_entropy_172, alpha=1)", "torch.add(1, cross_entropy_172, alpha=1)"),
    "a loss that is taken away": ("torch.add(0, cross_entropy_172, alpha=1)", "torch.add(0, cross_entropy_172, alpha=-1)"),
    "no places around": ("max_pool2d(conv2d_133, 3, 8, 1)", "max_pool2d(conv2d_133, 3, 8, 0)"),
}


@pytest.mark.parametrize("name", sampled(POOLED, 5))
def test_pools_tables_parts_and_sums_are_not_proved_where_they_are_others(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CORPUS / "folders" / "pooled--pp2", tmp_path / "code"))
    before, after = POOLED[name]
    changed = [path for path in folder.glob("gencode*.py") if before in path.read_text()]
    for path in changed:
        path.write_text(path.read_text().replace(before, after))
    assert changed
    assert _verdict(str(folder)).outcome is not Outcome.PROVED


def test_a_transposed_weight_is_proved_where_its_gradient_is_put_together(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CORPUS / "folders" / "transposed--tp2", tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace("adapter.chunk(getattr_1_51,", "adapter.nn.split_allgather(getattr_1_51,"))
    verdict = _verdict(str(folder))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


VIT = {
    "a token that is gathered": ("nn.split_allgather(expand_337", "nn.allgather_split(expand_337"),
    "a token of the other half": ("(expand_640, transpose_636, dim=1)", "(transpose_636, expand_640, dim=1)"),
    "no sum of the gradients of the token": ("nn.split_allgather(expand_337", "chunk(expand_337"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", list(VIT))
def test_a_token_that_is_made_as_wide_as_the_batch_is_not_proved_where_it_is_used_otherwise(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CORPUS / "folders" / "vit--hybrid_pp2_tp2", tmp_path / "code"))
    before, after = VIT[name]
    changed = 0
    for path in folder.glob("gencode*.py"):
        text = path.read_text()
        changed += before in text
        path.write_text(text.replace(before, after, 1))
    assert changed
    assert _verdict(str(folder)).outcome is not Outcome.PROVED


@pytest.mark.heavy
@pytest.mark.parametrize(("times", "outcome"), [("2, 1, 1", Outcome.PROVED), ("2, 2, 1", Outcome.REFUTED)])
def test_a_token_that_is_repeated_for_the_batch_is_one_that_is_expanded(times: str, outcome: Outcome, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CORPUS / "folders" / "vit--hybrid_pp2_tp2", tmp_path / "code"))
    for path in folder.glob("gencode*.py"):
        path.write_text(re.sub(r"\.expand\((\S+), size=\[2, -1, -1\]\)", rf".repeat(\1, {times})", path.read_text()))
    assert _verdict(str(folder)).outcome is outcome
