"""Kernels of which only the kind is known attend to keys with the values of the same positions and heads."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

ULYSSES = """mesh cp=2
input q f32[2,8,32] cp:S(1)
input k f32[2,8,32] cp:S(1)
input v f32[2,8,32] cp:S(1)
output o
program
  q4 = view(q, [2,4,4,8])
  k4 = view(k, [2,4,4,8])
  v4 = view(v, [2,4,4,8])
  v2 = view(v, [2,8,2,8])
  qh = all-to-all(q4, dim=2, concat-dim=1) over cp
  kh = all-to-all(k4, dim=2, concat-dim=1) over cp
  vh = all-to-all(v4, dim=2, concat-dim=1) over cp
  oh = flash_attn_func(qh, kh, {})
  o = all-to-all(oh, dim=1, concat-dim=2) over cp
"""


@pytest.mark.parametrize(("values", "rules"), [("vh", set()), ("v4", {"shape-mismatch"}), ("v2", {"mismatched-shards"})])
def test_values_come_along_with_their_keys(values: str, rules: set[str]) -> None:
    found = [each for each in findings_of_text(ULYSSES.format(values)) if each.severity is Severity.ERROR]
    assert {each.rule for each in found} == rules
    assert {each.location.line for each in found} == ({14} if rules else set())


KERNEL = """mesh sp=2
input q f32[2,8,{heads},8]{queries}
input k f32[2,8,{served},8]{keys}
input v f32[2,8,{served},8]{keys}
program
  {results} = flash_attn_func(q, k, v)
"""


@pytest.mark.parametrize(
    ("queries", "keys", "heads", "served", "results", "rules"),
    [
        ("", "", 4, 4, "o", set()),
        (" sp:S(1)", "", 4, 2, "o", set()),
        (" sp:S(2)", " sp:S(2)", 8, 4, "o", set()),
        (" sp:S(2)", "", 4, 1, "o", set()),
        ("", " sp:S(1)", 4, 4, "o, e", set()),
        ("", " sp:S(1)", 4, 4, "o", {"attention-over-local-keys"}),
        (" sp:S(1)", " sp:S(2)", 4, 4, "o", {"mismatched-shards"}),
        ("", " sp:S(2)", 4, 4, "o", {"mismatched-shards"}),
        (" sp:S(2)", "", 8, 2, "o", {"mismatched-shards"}),
    ],
)
def test_queries_meet_the_keys_of_their_own_heads_at_all_positions(
    queries: str, keys: str, heads: int, served: int, results: str, rules: set[str]
) -> None:
    text = KERNEL.format(queries=queries, keys=keys, heads=heads, served=served, results=results)
    assert {each.rule for each in findings_of_text(text)} == rules


def test_an_operator_that_takes_apart_gives_as_many_parts_as_it_is_asked_for() -> None:
    plan = "mesh tp=2\ninput x f32[8,8]\nprogram\n  a, b = split(x, {}, dim=0)\n  y = add(a, b)\n"
    assert [each.rule for each in findings_of_text(plan.format(8))] == ["shape-mismatch"]
    assert findings_of_text(plan.format(4)) == []


RING = """mesh cp=3
input q f32[4,6,8] cp:S(1)
input k f32[4,6,8] cp:S(1)
input v f32[4,6,8] cp:S(1)
output o f32[4,6,8] cp:S(1)
program
  o0, e0 = attention(q, k, v)
  send k to cp+1 ring batch a
  recv k1: f32[4,2,8] from cp-1 ring batch a
  send v to cp+1 ring batch b
  recv v1: f32[4,2,8] from cp-1 ring batch b
  o1, e1 = attention(q, k1, v1)
  m1, n1 = merge_by_log_sum_exp(o0, e0, o1, e1)
  send {} to cp+1 ring batch c
  recv k2: f32[4,2,8] from cp-1 ring batch c
  send {} to cp+1 ring batch d
  recv v2: f32[4,2,8] from cp-1 ring batch d
  o2, e2 = attention(q, k2, v2)
  o = merge_by_log_sum_exp(m1, {}, o2, e2)
"""


@pytest.mark.parametrize(
    ("sent", "rules"),
    [
        (("k1", "v1", "n1"), set()),
        (("k", "v", "n1"), {"ring-attention-step-missing", "merged-twice"}),
        (("k1", "v1", "e0"), {"merges-different-values"}),
    ],
)
def test_a_ring_goes_on_with_what_it_received(sent: tuple[str, str, str], rules: set[str]) -> None:
    found = {finding.rule: finding for finding in findings_of_text(RING.format(*sent))}
    assert found.keys() <= rules
    assert bool(found) == bool(rules)
    if "ring-attention-step-missing" in rules:
        assert "twice, here as `k2`" in found["ring-attention-step-missing"].message


ZIG_ZAG = """mesh cp=2
input q f32[1,8,4] cp:S(1,order=[[0,3],[1,2]])
input k f32[1,8,4] cp:S(1,order=[[0,3],[1,2]])
input v f32[1,8,4] cp:S(1,order=[[0,3],[1,2]])
input t f32[1,8,4] cp:{}
program
  kg = all-gather(k, dim=1) over cp
  vg = all-gather(v, dim=1) over cp
  o = scaled_dot_product_attention(q, kg, vg{})
  r = add(o, t)
"""


@pytest.mark.parametrize(
    ("placement", "causal", "rules"),
    [
        ("S(1,order=[[0,3],[1,2]])", "", set()),
        ("S(1)", "", {"mismatched-shards"}),
        ("S(1,order=[[0,3],[1,2]])", ", is_causal=True", {"pieces-not-in-rank-order"}),
    ],
)
def test_attention_without_a_mask_takes_keys_in_any_order(placement: str, causal: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(ZIG_ZAG.format(placement, causal))} == rules


THREE_STEPS = """mesh cp=3
input q f32[6,4] cp:S(0)
input k f32[6,4] cp:S(0)
input v f32[6,4] cp:S(0)
output o f32[6,4] cp:S(0)
program
  o0: f32[2,4], e0: f32[2] = attention(q, k, v)
  send k to cp+1 ring batch s0
  recv k1: f32[2,4] from cp-1 ring batch s0
  send v to cp+1 ring batch s0
  recv v1: f32[2,4] from cp-1 ring batch s0
  o1: f32[2,4], e1: f32[2] = attention(q, k1, v1)
  m: f32[2,4], f: f32[2] = merge_by_log_sum_exp(o0, e0, o1, e1)
  send k1 to cp+1 ring batch s1
  recv k2: f32[2,4] from cp-1 ring batch s1
  send v1 to cp+1 ring batch s1
  recv v2: f32[2,4] from cp-1 ring batch s1
  o2: f32[2,4], e2: f32[2] = attention(q, k2, v2)
"""


def test_a_ring_returns_attention_over_all_keys() -> None:
    assert not findings_of_text(THREE_STEPS + "  o = merge_by_log_sum_exp(m, f, o2, e2)\n")
    (found,) = findings_of_text(THREE_STEPS + "  o = identity(m)\n")
    assert (found.rule, found.location.text.strip()) == ("attention-over-local-keys", "o = identity(m)")
    assert found.message == "the plan returns `o`, which on every rank is attention over 4 of 6 keys"


def test_who_reads_the_log_sum_exps_too_may_merge_further() -> None:
    both = THREE_STEPS.replace("output o f32[6,4] cp:S(0)", "output m f32[6,4] cp:S(0)\noutput f f32[6] cp:S(0)")
    assert not findings_of_text(both)


NORMED = """mesh tp=2
weight g f32[8]
weight head f32[32,8] tp:S(0)
input x f32[8,8] tp:S(0)
input t i64[8]
loss l f32[]
program
  n = rms_norm(x, [8], g)
  f = all-gather(n, dim=0) over tp
  z = linear(f, head)
{}  l: f32[] = cross_entropy(y, t)
"""


def test_classes_are_no_batch_where_a_sequence_is_split_over_the_same_ranks() -> None:
    assert not findings_of_text(NORMED.format("  y = all-gather(z, dim=1) over tp\n"))
    assert [found.rule for found in findings_of_text(NORMED.format("  y = identity(z)\n"))] == ["loss-over-shards"]
