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
