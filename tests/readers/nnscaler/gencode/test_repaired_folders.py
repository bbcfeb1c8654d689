"""Mistakes in generated code: told at the line that is wrong, with the change after which the plan is proved."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.sampling import sampled
from tvlint.findings import Outcome, Reason, Severity
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FOLDERS = Path(__file__).resolve().parents[4] / "fixtures" / "nnscaler" / "folders"
REDUCER = "Reducer(ranks=[0, 1, 4, 5]"
ADDED = "        self.wreducer269.add_param(self.layers_1_weight_38)\n"
CALL = "    _ = nnscaler.runtime.executor.aexecute(model.reducer269, *(), requires_grad=False)\n"
SUM, MEAN = "reduce_op='sum'", "reduce_op='mean'"
MENDED = "layers_0_weight_35` and 2 more over ranks 0-1,4-5"
FIRST, SECOND, ALL = (0, 1, 4, 5), (2, 3, 6, 7), tuple(range(8))

MISTAKES = {
    "a group that is too small": (FIRST, REDUCER, "Reducer(ranks=[{rank}, {next}]", 48, MENDED),
    "means instead of sums": (ALL, SUM, MEAN, 48, "reduce gradients by `sum`"),
    "means instead of sums in one stage": (SECOND, SUM, MEAN, 42, "reduce gradients by `sum`"),
    "a reducer that does not run": (FIRST, CALL, "", 124, "executor.aexecute(model.reducer269, "),
    "a weight that no reducer has": (FIRST, ADDED, "", 50, "insert `self.wreducer269.add_param(self.layers_1_weight_38)`"),
}


def _first_reason(folder: Path) -> Reason:
    report = prove_pair(Pair(str(folder), ""))
    assert not report.problems, report.problems
    assert report.verdicts[0].outcome is Outcome.REFUTED
    return report.verdicts[0].reasons[0]


@pytest.mark.parametrize("name", sampled(MISTAKES, 3))
def test_a_reducer_is_mended(name: str, tmp_path: Path) -> None:
    ranks, before, after, line, repair = MISTAKES[name]
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / "mlp--hybrid_pp2_tp2_dp2", folder)
    for rank in ranks:
        path = folder / f"gencode{rank}.py"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after.format(rank=rank % 4, next=rank % 4 + 4)))
    first = _first_reason(folder)
    assert first.location.line == line
    assert repair in first.repair


SPLIT, WHOLE = "nn.allgather_split", "nn.allreduce_identity"
MLP, GPT = "mlp--hybrid_pp2_tp2_dp2", "gpt--tp2"
RELU, GELU = "functional.relu(linear_1_{tid}, inplace=False)", "functional.gelu(linear_1_{tid})"
LINES = {
    "a collective of another dimension": (MLP, FIRST, 85, "dim=1, ranks", "dim=0, ranks", "dim=1, ranks=[0, 1])` at"),
    "a collective with another backward": (MLP, FIRST, 74, SPLIT, "nn.allgather_reducescatter", SPLIT),
    "a sum of gradients that are whole": (MLP, SECOND, 73, WHOLE, "nn.allreduce_allreduce", WHOLE),
    "another operator": (MLP, FIRST, None, RELU, GELU, "relu(linear_1_"),
    "the value of another micro-batch": (MLP, FIRST, 113, "(linear_2_141, )", "(linear_2_42, )", "*(linear_2_141, )"),
    "the schedule's flag": (MLP, ALL, None, "skip_reducer = False", "skip_reducer = True", "skip_reducer = False"),
    "the slice of another rank": (GPT, (1,), 48, "slice(64, 128, None)", "slice(0, 64, None)", "slice(64, 128, None)"),
}
"""By mistake: the folder, the ranks, the line on the first of them, what stands there and instead, and what the repair says."""


@pytest.mark.parametrize("name", sampled(LINES, 3))
def test_a_wrong_line_is_told_and_mended(name: str, tmp_path: Path) -> None:
    base, ranks, number, right, wrong, repair = LINES[name]
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / base, folder)
    changed = []
    for rank in ranks:
        path = folder / f"gencode{rank}.py"
        rows = path.read_text().split("\n")
        pattern = re.escape(right).replace(re.escape("{tid}"), r"(?P<tid>\d+)")
        found = [at for at, row in enumerate(rows) if re.search(pattern, row) and "# File" not in row]
        at = min(found, key=lambda at: abs(at + 1 - (number or 0)))
        match = re.search(pattern, rows[at])
        assert match is not None
        new = wrong.format(**match.groupdict())
        rows[at] = rows[at][: match.start()] + new + rows[at][match.end() :]
        path.write_text("\n".join(rows))
        changed.append((path.name, at + 1))
    report = prove_pair(Pair(str(folder), ""))
    assert not report.problems, report.problems
    (verdict,) = report.verdicts
    first = verdict.reasons[0]
    assert verdict.outcome is not Outcome.PROVED
    assert (Path(first.location.path).name, first.location.line) == changed[0]
    assert repair in first.repair


CLEARED = "    nnscaler.flags.RuntimeFlag.skip_reducer = False\n"


@pytest.mark.parametrize(
    ("ranks", "before", "after", "removed"),
    [
        (FIRST, CALL, CALL * 2, "executor.aexecute(model.reducer269, *(), requires_grad=False)`"),
        (ALL, CLEARED, f"    model.zero_grad()\n{CLEARED}", "model.zero_grad()`"),
    ],
)
def test_what_stands_once_too_often_is_removed(
    ranks: tuple[int, ...], before: str, after: str, removed: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / MLP, folder)
    for rank in ranks:
        path = folder / f"gencode{rank}.py"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))
    first = _first_reason(folder)
    assert first.repair.startswith("remove `")
    assert removed in first.repair


@pytest.mark.heavy
def test_as_many_changes_are_tried_as_a_pair_allows(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / GPT, folder)
    for path in folder.glob("gencode*.py"):
        path.write_text(path.read_text().replace("p=0.0", "p=0.5"))
    (untried,) = prove_pair(Pair(str(folder), "", trials=0)).verdicts
    (tried,) = prove_pair(Pair(str(folder), "")).verdicts
    assert untried.outcome is tried.outcome
    assert "as they were traced" in tried.reasons[0].repair
    assert "as they were traced" not in untried.reasons[0].repair


def test_crossed_messages_are_told_where_they_are_sent_and_straightened() -> None:
    first = _first_reason(FOLDERS / "mlp--hybrid_pp2_tp4")
    assert (first.name, first.repair) == ("pieces-not-in-rank-order", "send 1 -> 5 and 2 -> 6")
    assert (Path(first.location.path).name, first.location.line) == ("gencode1.py", 62)
    shows = first.related[0].location
    assert (Path(shows.path).name, shows.line) == ("gencode4.py", 38)


def test_nothing_is_proved_beside_an_error_of_the_code(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / "moe--hybrid_pp2_tp2", folder)
    path = folder / "gencode3.py"
    assert "ranks=[2, 3], reduce_op" in path.read_text()
    path.write_text(path.read_text().replace("ranks=[2, 3], reduce_op", "ranks=[2, 3, 4], reduce_op"))
    (verdict,) = prove_pair(Pair(str(folder), "")).verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.stages.unknown == 1
    assert {"undeclared-group", "wrong-reducer-group"} == {reason.name for reason in verdict.reasons}
    assert verdict.reasons[0].repair == "write `ranks=[2, 3]` instead of `ranks=[2, 3, 4]` at gencode3.py:46"


MOE = "moe--hybrid_pp2_tp2"
WITHIN = {
    "another expert's weights": (MOE, (2, 3), r"(getitem_5_\d+ = .*), 2\)", r"\1, 3)", ", 2` instead of"),
    "results of a split under each other's names": (
        GPT,
        (0, 1),
        r"^( *)(split_\d+), (split_\d+), (split_\d+) = (torch\.split)",
        r"\1\4, \3, \2 = \5",
        " = torch.split(",
    ),
    "an operator that hands its operand on": (
        MOE,
        (2, 3),
        r"torch\.nn\.functional\.silu\((linear_7_\d+), inplace=False\)",
        r"nnscaler.runtime.function.identity(\1)",
        "functional.silu(linear_7_",
    ),
    "positions that are not summed": (
        GPT,
        (0, 1),
        r"nn\.reducescatter_allgather\((embedding_1)",
        r"nn.split_allgather(\1",
        "nn.reducescatter_allgather(",
    ),
    "a mean instead of a sum": (MOE, (2, 3), r"reduction='sum'", "reduction='mean'", "reduction='sum'"),
    "a loss that is not summed": (
        MOE,
        (2, 3),
        r"nnscaler\.runtime\.adapter\.nn\.allreduce_identity\((cross_entropy_\d+), ranks=\[2, 3\]\)",
        r"nnscaler.runtime.function.identity(\1)",
        "allreduce_identity(cross_entropy_",
    ),
}
"""By mistake: the folder, the ranks, what the first line that is wrong has and what instead, and what the repair says."""


@pytest.mark.heavy
@pytest.mark.parametrize("name", WITHIN)
def test_a_mistake_within_a_segment_is_told_at_its_line(name: str, tmp_path: Path) -> None:
    base, ranks, right, wrong, repair = WITHIN[name]
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / base, folder)
    changed = []
    for rank in ranks:
        path = folder / f"gencode{rank}.py"
        before = path.read_text()
        after = re.sub(right, wrong, before, count=1, flags=re.MULTILINE)
        rows = zip(before.split("\n"), after.split("\n"), strict=True)
        changed += [(path.name, at) for at, (old, new) in enumerate(rows, 1) if old != new]
        path.write_text(after)
    (verdict,) = prove_pair(Pair(str(folder), "")).verdicts
    first = verdict.reasons[0]
    assert verdict.outcome is Outcome.REFUTED
    assert (Path(first.location.path).name, first.location.line) == changed[0]
    assert repair in first.repair


@pytest.mark.heavy
def test_a_collective_that_lacks_is_inserted(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / GPT, folder)
    for rank in (0, 1):
        path = folder / f"gencode{rank}.py"
        rows = path.read_text().split("\n")
        at = next(at for at, row in enumerate(rows) if "identity_allreduce(tokens_weight_400" in row)
        path.write_text("\n".join((*rows[:at], *rows[at + 1 :])))
    first = _first_reason(folder)
    assert first.name == "missing-gradient-reduction"
    assert first.location.line == 96
    assert "insert `tokens_weight_400 = nnscaler.runtime.adapter.nn.identity_allreduce(" in first.repair


def test_a_collective_that_one_rank_leaves_out_is_inserted_before_its_operand_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(FOLDERS / GPT, folder)
    path = folder / "gencode0.py"
    rows = path.read_text().split("\n")
    (at,) = (at for at, row in enumerate(rows) if row.strip().startswith("linear_2_621 = "))
    left_out = rows.pop(at).strip()
    assert rows[at].strip() == "del linear_2_613"
    path.write_text("\n".join(rows))
    first = _first_reason(folder)
    assert first.name == "missing-collective-member"
    assert first.repair.startswith(f"insert `{left_out.partition(', odim')[0]}")
    assert first.repair.endswith(f"after the line at gencode0.py:{at - 1}")
    rules = load_rules()
    found, _ = check(Candidates((str(folder),)), rules, rules, Project(tmp_path))
    errors = [finding for finding in found.findings if finding.severity is Severity.ERROR]
    places = [(finding.rule, Path(finding.location.path).name) for finding in errors]
    assert places == [("undefined-tensor", "gencode0.py"), ("missing-collective-member", "gencode1.py")]
