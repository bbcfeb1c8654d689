"""The verdicts on real nnScaler plans, with their reasons."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.shared import SHARED, needs_shared
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ir.plan import Plan
from tvlint.readers.nnscaler.pickle.reader import read

pytestmark = needs_shared

LLAMA = "llama3_default_dp1_pp1_tp1_nm1_gbs512_ly{}_h32_hi4096_sq128"
MOE = "moe_default_dp1_pp1_tp1_nm1_gbs1024_ly{}_h16_hi512_sq128_a2_r16"
MLP = "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim1024_ly4"

GOOD = {
    "mlp_default_dp1_pp1_tp2_nm1_gbs16_dim16_ly4": "mlp_default_dp1_pp1_tp1_nm1_gbs16_dim16_ly4",
    "mlp_default_dp1_pp1_tp4_nm1_gbs16_dim1024_ly4": MLP,
    "mlp_default_dp2_pp2_tp2_nm2_gbs16_dim1024_ly4": MLP,
    "mlp_flexmr_dp2_pp2_tp2_nm2_gbs16_dim1024_ly4": MLP,
    "llama3_default_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128": LLAMA.format(1),
    "llama3_flex_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128": LLAMA.format(1),
    "llama3_flexmr_dp2_pp2_tp2_nm2_gbs512_ly1_h32_hi4096_sq128": LLAMA.format(1),
    "llama3_default_dp1_pp1_tp2_nm1_gbs512_ly2_h32_hi4096_sq128": LLAMA.format(2),
    "llama3_default_dp1_pp2_tp1_nm2_gbs512_ly2_h32_hi4096_sq128": LLAMA.format(2),
    "llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128": LLAMA.format(2),
    "llama3_default_dp2_pp2_tp2_nm4_gbs512_ly2_h32_hi4096_sq128": LLAMA.format(2),
    "llama3_default_dp4_pp1_tp1_nm1_gbs512_ly2_h32_hi4096_sq128": LLAMA.format(2),
    "llama3_default_dp2_pp2_tp2_nm2_gbs512_ly4_h32_hi4096_sq128": LLAMA.format(4),
    "moe_default_dp2_pp2_tp2_nm2_gbs1024_ly1_h16_hi512_sq128_a2_r16": MOE.format(1),
    "moe_default_dp2_pp2_tp2_nm2_gbs1024_ly2_h16_hi512_sq128_a2_r16": MOE.format(2),
}

BROKEN = {
    "br1": ("missing-allreduce", "`t550`", (0, 1, 4, 5)),
    "br1r": ("missing-allreduce", "`t550`", (0, 1, 4, 5)),
    "br2": ("use-before-definition", "`t550`", (0, 1, 4, 5)),
    "br3": ("missing-allreduce", "partial sum over tp of `linear`", (0, 1, 4, 5)),
    "br3r": ("missing-allreduce", "`all-gather`", (0, 1, 4, 5)),
    "br4": ("wrong-shape-claim", "`t551`", (2, 3, 6, 7)),
    "br4r": ("mismatched-shards", "`all-reduce`", (2, 3, 6, 7)),
    "br5": ("missing-allreduce", "partial sum over tp of `linear gradient`", (2, 3, 6, 7)),
    "br5b": ("missing-allreduce", "partial sum over tp of `linear gradient`", (2, 3, 6, 7)),
    "br5r": ("scaled-value", "2 times", (2, 3, 6, 7)),
    "br6": ("pieces-not-in-rank-order", "64:128 on rank 2, 0:64 on rank 3", (2, 3, 6, 7)),
    "br7": ("other-constant", "uses 2 where the reference uses 1e-05", (0, 4)),
    "br8": ("other-constant", "uses 1 where the reference uses 2", (0, 4)),
    "br9": ("other-constant", "uses 2 where the reference uses 1e-05", (0, 1, 4, 5)),
    "br10": ("gradient-added-twice", "`multiref`", (2, 6)),
    "br11": ("swapped-gradients", "`apply_rotary_emb`", (2, 6)),
    "br12": ("other-constant", "uses 4 where the reference uses 2.0", (0, 4)),
    "br13": ("other-constant", "uses 4 where the reference uses 2.0", (0, 1, 4, 5)),
    "br14": ("missing-micro-batch", "micro-batch 1", (0, 4)),
    "br14r": ("reducer-before-last-backward", "micro-batch 1", (0, 4)),
}

REPAIRS = {
    "br1": "all-reduce `t550` over ranks 0-1 after `identity`",
    "br5b": "all-reduce `g749` over ranks 2-3 after `identity`",
    "br7": "use 1e-05 instead of 2 in `add`",
    "br11": "exchange `g719` and `g718` in backward of `apply_rotary_emb`",
}
"""Single changes that make a plan prove; for the others none is searched, which takes longer."""

SAID_OF_ANOTHER = ("br1r", "br5")
"""Plans of which the same is said as of another one; the whole suite judges these too."""


@cache
def plan(folder: str, name: str) -> Plan:
    path = Path(str(SHARED)) / "plans" / folder / f"{name}.pkl.xz"
    found = read(str(path), path.read_bytes()).plan
    assert found is not None
    return found


def verdict_on(name: str) -> Verdict:
    reference = "reference_llama3_default_dp1_pp1_tp1_nm1_gbs32_ly2_h32_hi128_sq256"
    return prove(plan("broken", name), plan("broken", reference))


@pytest.mark.parametrize("name", sampled(GOOD, 3))
def test_correct_plans_are_proved(name: str) -> None:
    verdict = prove(plan("good", name), plan("good", GOOD[name]))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert verdict.stages.total == verdict.stages.proved > 0
    assert verdict.assumptions


def test_the_unbroken_control_is_proved() -> None:
    assert verdict_on("unbroken-control").outcome is Outcome.PROVED


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy) if name in SAID_OF_ANOTHER else name for name in BROKEN]
)
def test_broken_plans_are_refuted_for_what_is_wrong_with_them(name: str, request: pytest.FixtureRequest) -> None:
    reason_name, words, ranks = BROKEN[name]
    if name not in REPAIRS:
        request.getfixturevalue("without_repairs")
    verdict = verdict_on(name)
    assert verdict.outcome is Outcome.REFUTED
    first = verdict.reasons[0]
    assert first.name == reason_name
    assert words in first.message
    assert first.ranks == ranks
    if name in REPAIRS:
        assert first.repair == REPAIRS[name]
        assert len(verdict.reasons) == 1


@pytest.mark.heavy
def test_pieces_that_a_pipeline_boundary_permutes_are_refuted_and_proved_only_as_declared() -> None:
    parallel = plan("piece-order", "llama3_default_dp16_pp4_tp8_nm8_gbs512_ly2_h32_hi4096_sq128")
    reference = plan("good", LLAMA.format(2))
    strict = prove(parallel, reference)
    assert strict.outcome is Outcome.REFUTED
    assert {reason.name for reason in strict.reasons if reason.refutes} == {"pieces-not-in-rank-order"}
    declared = prove(parallel, reference, assume=frozenset({"declared-piece-order"}))
    assert declared.outcome is Outcome.PROVED
    assert any("declared-piece-order" in assumption for assumption in declared.assumptions)


def test_a_reference_of_another_model_is_not_proved() -> None:
    name = "llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128"
    verdict = prove(plan("good", name), plan("good", LLAMA.format(4)))
    assert verdict.outcome is not Outcome.PROVED


def test_a_parallel_plan_is_no_reference() -> None:
    name = "llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128"
    verdict = prove(plan("good", name), plan("good", name))
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["parallel-reference"]
