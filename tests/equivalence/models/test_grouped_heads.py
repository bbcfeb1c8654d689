"""Verdicts on attention in which several heads of queries share one of keys and values."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import equal_and_refuted, proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.numbers import on_numbers_of
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

ALONE = """
weight q f32[1,8,2,2]
weight k f32[1,2,2,2]
weight v f32[1,2,2,2]
input x f32[1,8,2,2]
loss l
program
  a = mul(q, x)
  o: f32[1,8,2,2] = scaled_dot_product_attention(a, k, v, is_causal=True, enable_gqa=True)
  t = tanh(o)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  do = backward t (dt)
  da, grad(k), grad(v) = backward o (do)
  grad(q), _ = backward a (da)
"""

WRITTEN = (
    ALONE.replace(
        "  o:", "  wide = repeat_interleave(k, repeats=4, dim=1)\n  broad = repeat_interleave(v, repeats=4, dim=1)\n  o:"
    )
    .replace("(a, k, v, is_causal=True, enable_gqa=True)", "(a, wide, broad, is_causal=True)")
    .replace("grad(k), grad(v) = backward o (do)", "dk, dv = backward o (do)")
    + "  grad(k) = backward wide (dk)\n  grad(v) = backward broad (dv)\n"
)


def split(text: str, mesh: str, queries: str, keys: str, axes: str) -> str:
    """The plan with its heads on several ranks."""
    text = text.replace("o: f32[1,8,2,2]", "o: HEADS")
    text = text.replace("[1,8,2,2]", f"[1,8,2,2] {queries}").replace("[1,2,2,2]", f"[1,2,2,2] {keys}")
    text = text.replace("l: f32[1] = sum(t)", f"s: f32[1] = sum(t)\n  l: f32[1] = all-reduce(s) over {axes}")
    text = text.replace("HEADS", f"f32[1,{2 if 'kv' in mesh else 4},2,2]")
    return f"mesh {mesh}\n{text}".replace("backward l (", "backward s (")


HALVES = split(ALONE, "tp=2", "tp:S(1)", "tp:S(1)", "tp")
SHARED = split(ALONE, "kv=2 tp=2", "kv:S(1) tp:S(1)", "kv:S(1)", "kv,tp") + "  reduce-gradients k, v over tp\n"
"""Two ranks hold one head of keys, and each of them half of the heads of queries that share it."""


@pytest.mark.parametrize("text", [HALVES, SHARED], ids=["halves", "shared"])
@pytest.mark.parametrize("reference", [ALONE, WRITTEN], ids=["alone", "written"])
def test_heads_split_with_the_keys_that_they_share(text: str, reference: str) -> None:
    verdict = verdict_on(text, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(ALONE, text)).outcome == "equal"


@pytest.mark.parametrize("text", [ALONE, HALVES, SHARED], ids=["alone", "halves", "shared"])
def test_shared_heads_run_on_numbers(text: str) -> None:
    assert on_numbers_of(*plans(text, WRITTEN)) == Agreement()
    assert isinstance(on_numbers_of(*plans(text.replace("tanh", "sin"), WRITTEN)), Difference)


def test_keys_that_are_written_out_for_every_head_of_queries_are_the_shared_ones() -> None:
    assert verdict_on(WRITTEN, ALONE).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SHARED.replace("  reduce-gradients k, v over tp\n", ""), "missing-gradient-reduction"),
        (split(ALONE, "tp=2", "tp:S(1)", "", "tp") + "  reduce-gradients k, v over tp\n", "mismatched-shards"),
        (HALVES.replace(", enable_gqa=True", ""), "unsupported-operator"),
    ],
)
def test_heads_with_the_keys_of_others_are_not_proved(text: str, name: str) -> None:
    verdict = verdict_on(text, ALONE)
    assert verdict.outcome is (Outcome.UNKNOWN if name.startswith("un") else Outcome.REFUTED)
    assert name in [reason.name for reason in verdict.reasons]
    assert compare(*plans(ALONE, text)).outcome != "equal"


@pytest.mark.heavy
@pytest.mark.parametrize("text", [HALVES, SHARED], ids=["halves", "shared"])
def test_no_wrong_mutant_is_proved_and_no_equal_one_refuted(text: str) -> None:
    reference, parallel = plans(ALONE, text)
    taken = list(mutants(parallel))[::2]
    assert not list(proved_and_not_equal(reference, taken))
    assert equal_and_refuted(reference, taken)[1] == []
