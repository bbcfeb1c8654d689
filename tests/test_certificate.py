"""Certificates of right plans verify, from the command line to the last relation; whatever is not proved has none."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.certificates import certified, objection
from tests.shared import ROOT, SHARED, needs_shared
from tests.test_prove_shared_plans import GOOD, LLAMA, plan
from tvlint.certificate.tables import Rejected
from tvlint.cli import main
from tvlint.ops.spec import Bound, Family
from tvlint.run.pair import Pair, Plans, read_pair

TOUR = ROOT / "fixtures/tour"
CLEAN = ROOT / "fixtures/clean"
PAIRS = {
    "tour": (TOUR / "dp2-tp2.plan", TOUR / "single.plan"),
    "plan text": (CLEAN / "tensor-parallel-mlp/parallel.plan", CLEAN / "tensor-parallel-mlp/reference.plan"),
    "generated code": (CLEAN / "generated-code", CLEAN / "generated-code/reference.plan"),
}


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("name", PAIRS)
def test_a_proof_is_written_and_verified(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parallel, reference = PAIRS[name]
    written = tmp_path / "out.tvcert"
    assert run("prove", parallel, "--reference", reference, "--certificate", written) == 0
    proved = capsys.readouterr().out
    assert run("verify-certificate", written, parallel, reference) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"verified: {parallel} trains the same model as {reference}")
    assert told.count("    - ") == proved.count("    - ") >= 4
    assert run("verify-certificate", written, parallel, reference, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "verified"


def test_a_certificate_of_other_files_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parallel, reference = PAIRS["tour"]
    written = tmp_path / "out.tvcert"
    assert run("prove", parallel, "--reference", reference, "--certificate", written) == 0
    capsys.readouterr()
    assert run("verify-certificate", written, TOUR / "dp2-tp2-broken.plan", reference) == 1
    assert "of other files" in capsys.readouterr().out
    assert run("verify-certificate", written, *PAIRS["plan text"], "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "rejected"
    spaced = tmp_path / "copy.plan"
    spaced.write_text(parallel.read_text() + "\n")
    assert run("verify-certificate", written, spaced, reference) == 1


def test_what_is_not_proved_has_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "out.tvcert"
    wrong = TOUR / "dp2-tp2-broken.plan"
    assert run("prove", wrong, "--reference", TOUR / "single.plan", "--certificate", written) == 1
    assert not written.exists()
    assert "no certificate is written" in capsys.readouterr().err


def test_a_proof_that_the_checker_does_not_accept_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise Rejected("`frobnicate` is not known")

    monkeypatch.setattr("tvlint.certificate.check.check", refuse)
    parallel, reference = PAIRS["tour"]
    written = tmp_path / "out.tvcert"
    assert run("prove", parallel, "--reference", reference, "--certificate", written) == 0
    assert not written.exists()
    assert "no certificate is written" in (told := capsys.readouterr().err)
    assert "the checker does not follow the proof: `frobnicate` is not known" in told


def test_what_cannot_be_read_or_written_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parallel, reference = PAIRS["tour"]
    other = tmp_path / "other"
    other.write_bytes(b"\x80 nothing of the kind")
    for path in (tmp_path / "none", other, tmp_path):
        assert run("verify-certificate", path, parallel, reference) == 2
    written = tmp_path / "out.tvcert"
    assert run("prove", parallel, "--reference", reference, "--certificate", written) == 0
    assert run("verify-certificate", written, tmp_path / "none.plan", reference) == 2
    assert run("prove", parallel, "--reference", reference, "--certificate", tmp_path / "no" / "out.tvcert") == 2
    with pytest.raises(SystemExit) as ended:
        run("prove", parallel, parallel, "--reference", reference, "--certificate", written)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_checker_knows_all_that_an_annotation_can_say() -> None:
    """A field or family that the checker does not know might change what an operator means."""
    known = {"operands", "outputs", "reduced", "averaged", "whole", "linear", "attributes", "commutative", "shape_only"}
    known |= {"zero_gradient", "ranges", "row_wise", "indices", "sizes", "assumption", "splits", "masked", "draws"}
    assert {field.name for field in fields(Bound)} == known, "say in tvlint/certificate what the new field means"
    assert {own.value for own in Family} == {"indexed", "identity", "reshape", "merge"}


@needs_shared
@pytest.mark.parametrize("name", GOOD)
def test_every_good_plan_verifies(name: str) -> None:
    parallel, reference = plan("good", name), plan("good", GOOD[name])
    own = certified(parallel, reference)
    assert own is not None
    assert objection(own, parallel, reference) == ""


@needs_shared
def test_pieces_in_declared_order_verify_only_under_that_assumption() -> None:
    name = "llama3_default_dp16_pp4_tp8_nm8_gbs512_ly2_h32_hi4096_sq128"
    parallel, reference = plan("piece-order", name), plan("good", LLAMA.format(2))
    own = certified(parallel, reference, frozenset({"declared-piece-order"}))
    assert own is not None
    assert objection(own, parallel, reference) == ""
    assert "declared-piece-order" in own.assumptions[0]
    assert objection(replace(own, assume=(), assumptions=own.assumptions[1:]), parallel, reference)


FOLDERS = sorted((SHARED / "plans" / "gencode").iterdir()) if SHARED is not None else []


@needs_shared
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name[:40] for folder in FOLDERS])
def test_generated_code_verifies(folder: Path) -> None:
    name = folder.name.partition("--")[2]
    reference = str(SHARED / "plans" / "good" / f"{GOOD[name]}.pkl.xz") if SHARED is not None and name in GOOD else ""
    found = read_pair(Pair(str(folder), reference))
    assert isinstance(found, Plans)
    for kind in found.kinds:
        own = certified(kind, found.reference)
        assert own is not None
        assert objection(own, kind, found.reference) == ""
