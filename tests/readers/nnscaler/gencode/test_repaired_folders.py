"""Mistakes in the messages and reducers of generated code: told where they are, with the change that makes the plan prove."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tvlint.findings import Outcome, Reason
from tvlint.run.pair import Pair
from tvlint.run.prove import prove_pair

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
    "a reducer that does not run": (FIRST, CALL, "", 39, MENDED),
    "a weight that no reducer has": (FIRST, ADDED, "", 42, "layers_1_weight_38` over ranks 0-1,4-5"),
}


def _first_reason(folder: Path) -> Reason:
    report = prove_pair(Pair(str(folder), ""))
    assert not report.problems, report.problems
    assert report.verdicts[0].outcome is Outcome.REFUTED
    return report.verdicts[0].reasons[0]


@pytest.mark.parametrize("name", MISTAKES)
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


def test_crossed_messages_are_told_where_they_are_sent_and_straightened() -> None:
    first = _first_reason(FOLDERS / "mlp--hybrid_pp2_tp4")
    assert (first.name, first.repair) == ("pieces-not-in-rank-order", "send 1 -> 5 and 2 -> 6")
    assert (Path(first.location.path).name, first.location.line) == ("gencode1.py", 62)
    shows = first.related[0].location
    assert (Path(shows.path).name, shows.line) == ("gencode4.py", 38)
