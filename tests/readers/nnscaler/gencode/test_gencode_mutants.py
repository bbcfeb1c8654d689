"""Single edits of generated code, one line of one file each: none is proved that changes what is computed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shared import ROOT, SHARED, needs_shared

from tests.builders.gencode_mutants import edits
from tvlint.findings import Outcome, Severity
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

FOLDER = ROOT / "fixtures" / "clean" / "generated-code"
WITHOUT_EFFECT = {
    "swap steps": "steps that do not depend on each other",
    "drop line": "what loads or adds nothing",
}
"""Edits of which some leave everything that is computed as it is."""
INTERLEAVED = "v08--mlp_hybrid_dp1_pp2_tp1_nm8_gbs32_ly8_h32_hi256_sq128_interleaved"


@pytest.mark.heavy
@pytest.mark.parametrize(("rank", "first"), [(0, 0), (2, 1), (5, 2), (7, 3)])
def test_an_edit_that_changes_what_is_computed_is_told(tmp_path: Path, rank: int, first: int) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "code"))
    file = folder / f"gencode{rank}.py"
    told = total = 0
    for edit in list(edits(file.read_text()))[first::6]:
        file.write_text(edit.text)
        report = prove_pair(Pair(str(folder), str(FOLDER / "reference.plan"), trials=0))
        errors = [finding.location for finding in report.findings if finding.severity is Severity.ERROR]
        refuted = [reason.location for verdict in report.verdicts for reason in verdict.reasons if reason.refutes]
        places = [*errors, *refuted, *(own.location for own in report.findings if own.rule == "statement-not-understood")]
        proved = not errors and any(verdict.outcome is Outcome.PROVED for verdict in report.verdicts)
        assert not proved or edit.kind in WITHOUT_EFFECT, (edit.kind, edit.line)
        total += 1
        told += any(Path(place.path).name == file.name and abs((place.line or 0) - edit.line) <= 1 for place in places)
    assert total > 10
    assert told >= 0.9 * total


@needs_shared
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("wrong message shape", "shapes-do-not-fit"),
        ("other full name", "parameter-slices-mismatch"),
        ("other number of micro-batches", "uneven-data-loading"),
    ],
)
def test_what_a_file_says_of_itself_is_judged_where_no_replica_says_otherwise(tmp_path: Path, kind: str, rule: str) -> None:
    assert SHARED is not None
    folder = Path(shutil.copytree(SHARED / "plans" / "gencode" / INTERLEAVED, tmp_path / "code", copy_function=shutil.copyfile))
    file = folder / "gencode0.py"
    for edit in [edit for edit in edits(file.read_text()) if edit.kind == kind]:
        file.write_text(edit.text)
        report = prove_pair(Pair(str(folder), "", trials=0))
        found = {(one.rule, Path(one.location.path).name, one.location.line) for one in report.findings}
        if kind == "wrong message shape" and "move(()" not in edit.text.split("\n")[edit.line - 1]:
            assert report.verdicts[0].outcome is Outcome.PROVED, "the runtime does not read what a sender states"
        elif kind == "wrong message shape":
            assert [(own.location.line, own.refutes) for own in report.verdicts[0].reasons] == [(edit.line, False)]
        else:
            assert (rule, "gencode0.py", edit.line) in found
