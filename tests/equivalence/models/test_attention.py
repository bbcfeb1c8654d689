"""Verdicts on context parallelism: attention over some of the keys, merged; keys that are gathered; mistakes in both."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.plan_findings import rules_of_text
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text.reader import read

pytestmark = pytest.mark.usefixtures("without_repairs")

LENGTH = 8

REFERENCE = f"""
weight q f32[2,{LENGTH},2]
weight k f32[2,{LENGTH},2]
weight v f32[2,{LENGTH},2]
input x f32[2,{LENGTH},2]
loss l
program
  a = mul(q, 0.5)
  b = mul(k, 0.5)
  c = mul(v, 0.5)
  o = scaled_dot_product_attention(a, b, c, is_causal=CAUSAL)
  r = mul(o, x)
  l: f32[1] = sum(r)
  dr = backward l (grad(l))
  do, _ = backward r (dr)
  da, db, dc = backward o (do)
  grad(q) = backward a (da)
  grad(k) = backward b (db)
  grad(v) = backward c (dc)
"""


def reference(causal: bool) -> str:
    return REFERENCE.replace("CAUSAL", str(causal))


def placed(ranks: int, names: str = "qkv") -> str:
    lines = [f"weight {name} f32[2,{LENGTH},2] cp:S(1)" for name in names]
    return "\n".join((f"mesh cp={ranks}", *lines, f"input x f32[2,{LENGTH},2]", "loss l", ""))


@dataclass(frozen=True)
class Ring:
    """Keys and values go once around; every rank attends to the block that it holds and merges. Gradients go back."""

    ranks: int
    causal: bool

    def text(self) -> str:
        return placed(self.ranks) + "".join(self.program(rank) for rank in range(self.ranks))

    def program(self, rank: int) -> str:
        size, last = LENGTH // self.ranks, self.ranks - 1
        shape, row = f"f32[2,{size},2]", f"f32[2,{size}]"
        lines = [f"program cp={rank}", "  a = mul(q, 0.5)", "  b = mul(k, 0.5)", "  c = mul(v, 0.5)"]
        lines.append("  xs = chunk(x, dim=1) over cp")
        own = (rank * size, (rank + 1) * size)
        for step in range(self.ranks):
            k, v = (f"{name}{step}" if step else name for name in "bc")
            if step:
                for name, before in (("b", f"b{step - 1}"), ("c", f"c{step - 1}")):
                    sent = before if step > 1 else name
                    lines.append(f"  send {sent} to cp+1 ring batch {name}{step}")
                    lines.append(f"  recv {name}{step}: {shape} from cp-1 ring batch {name}{step}")
            there = ((rank - step) % self.ranks * size, ((rank - step) % self.ranks + 1) * size)
            place = f", query_start={own[0]}, query_stop={own[1]}, key_start={there[0]}, key_stop={there[1]}"
            masked = f", is_causal=True{place}" if self.causal else ""
            lines.append(f"  o{step}: {shape}, e{step}: {row} = attention(a, {k}, {v}{masked})")
            if step:
                left = f"m{step - 1}, n{step - 1}" if step > 1 else "o0, e0"
                lines.append(f"  m{step}: {shape}, n{step}: {row} = merge_by_log_sum_exp({left}, o{step}, e{step})")
        lines += [f"  r = mul(m{last}, xs)", "  s: f32[1] = sum(r)", "  l: f32[1] = all-reduce(s) over cp"]
        lines += ["  dr = backward s (grad(l))", f"  dm{last}, _ = backward r (dr)"]
        for step in range(last, 0, -1):
            left = f"dm{step - 1}, dn{step - 1}" if step > 1 else "do0, de0"
            given = f"dm{step}, _" if step == last else f"dm{step}, dn{step}"
            lines.append(f"  {left}, do{step}, de{step} = backward m{step} ({given})")
        for step in range(last, -1, -1):
            lines.append(f"  da{step}, db{step}, dc{step} = backward o{step} (do{step}, de{step})")
        for name in "bc":
            total = f"d{name}{last}"
            for step in range(last, 0, -1):
                lines.append(f"  send {total} to cp-1 ring batch back{name}{step}")
                lines.append(f"  recv back{name}{step}: {shape} from cp+1 ring batch back{name}{step}")
                total = f"d{name}" if step == 1 else f"sum{name}{step}"
                lines.append(f"  {total} = add(d{name}{step - 1}, back{name}{step})")
        total = "da0"
        for step in range(1, self.ranks):
            lines.append(f"  t{step} = add({total}, da{step})")
            total = f"t{step}"
        lines += [f"  grad(q) = backward a ({total})", "  grad(k) = backward b (db)", "  grad(v) = backward c (dc)"]
        return "\n".join(lines) + "\n"


def gathered(causal: bool) -> str:
    """Keys and values are gathered, their gradients reduced and scattered."""
    text = placed(2)
    for rank in range(2):
        place = f", query_start={rank * 4}, query_stop={rank * 4 + 4}, key_start=0, key_stop=8"
        text += f"""
program cp={rank}
  a = mul(q, 0.5)
  b = mul(k, 0.5)
  c = mul(v, 0.5)
  ka: f32[2,8,2] = all-gather(b, dim=1) over cp
  va: f32[2,8,2] = all-gather(c, dim=1) over cp
  o: f32[2,4,2] = scaled_dot_product_attention(a, ka, va{", is_causal=True" + place if causal else ""})
  xs = chunk(x, dim=1) over cp
  r = mul(o, xs)
  s: f32[1] = sum(r)
  l: f32[1] = all-reduce(s) over cp
  dr = backward s (grad(l))
  do, _ = backward r (dr)
  da, dka, dva = backward o (do)
  db = reduce-scatter(dka, dim=1) over cp
  dc = reduce-scatter(dva, dim=1) over cp
  grad(q) = backward a (da)
  grad(k) = backward b (db)
  grad(v) = backward c (dc)
"""
    return text


def plans(parallel: str, other: str) -> tuple[Plan, Plan]:
    found = [read(path, text).plan for path, text in (("parallel.plan", parallel), ("reference.plan", other))]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


MASKS = {"": False, " causal": True}

RIGHT = {
    **{f"ring of {ranks}{name}": (Ring(ranks, mask).text(), mask) for ranks in (2, 4) for name, mask in MASKS.items()},
    **{f"gathered{name}": (gathered(mask), mask) for name, mask in MASKS.items()},
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_context_parallelism_is_proved_and_computes_the_same(name: str) -> None:
    text, causal = RIGHT[name]
    verdict = verdict_on(text, reference(causal))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, other = plans(text, reference(causal))
    found = compare(other, parallel)
    assert (found.outcome, found.claims) == ("equal", ()), found.difference


MUTATED = [("ring of 2", 11), ("ring of 2 causal", 11), ("ring of 4 causal", 61), ("gathered causal", 7)]


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "every"), MUTATED)
def test_no_mutant_that_computes_something_else_is_proved(name: str, every: int) -> None:
    text, causal = RIGHT[name]
    parallel, other = plans(text, reference(causal))
    assert not list(proved_and_not_equal(other, list(mutants(parallel))[::every]))


MERGE = "merge_by_log_sum_exp(o0, e0, o1, e1)"

BY_HAND = {
    "one block twice": ("attention(a, b1, c1)", "attention(a, b, c)", "merged-twice"),
    "values that stay": ("attention(a, b1, c1)", "attention(a, b1, c)", "mismatched-shards"),
    "another log-sum-exp": (MERGE, "merge_by_log_sum_exp(o0, e1, o1, e0)", "merges-different-values"),
    "a step left out": ("mul(m1, xs)", "mul(o0, xs)", "part-used-as-complete"),
    "no gradient of the log-sum-exp": ("backward o1 (do1, de1)", "backward o1 (do1, _)", "part-gradient"),
    "the gradient of all keys": ("backward o1 (do1, de1)", "backward o1 (dm1, de1)", "part-gradient"),
    "gradients that stay": ("db = add(db0, backb1)", "db = add(db0, db1)", "mismatched-shards"),
    "gradients of some queries": ("db = add(db0, backb1)", "db = identity(db0)", "missing-gradient-reduction"),
    "gradients of some keys": ("t1 = add(da0, da1)", "t1 = identity(da0)", "missing-gradient-reduction"),
}


@pytest.mark.parametrize("name", list(BY_HAND))
def test_a_ring_with_a_mistake_is_not_proved_and_says_why(name: str) -> None:
    before, after, reason = BY_HAND[name]
    text = RIGHT["ring of 2"][0]
    assert before in text
    verdict = verdict_on(text.replace(before, after), reference(False))
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [found.name for found in verdict.reasons], [found.message for found in verdict.reasons]


def test_positions_that_are_not_those_of_the_queries_and_keys_are_refuted() -> None:
    text = RIGHT["ring of 2 causal"][0].replace("query_start=0, query_stop=4", "query_start=4, query_stop=8")
    verdict = verdict_on(text, reference(True))
    assert verdict.outcome is Outcome.REFUTED
    assert "wrong-range" in [found.name for found in verdict.reasons]


def test_parts_that_are_added_are_refuted() -> None:
    text = RIGHT["ring of 2"][0]
    start = text.index("program")
    lines = []
    for line in text[start:].splitlines():
        line = line.replace(f"m1: f32[2,4,2], n1: f32[2,4] = {MERGE}", "m1 = add(o0, o1)")
        line = line.replace("do0, de0, do1, de1 = backward m1 (dm1, _)", "do0, do1 = backward m1 (dm1)")
        lines.append(line.replace("(do0, de0)", "(do0, _)").replace("(do1, de1)", "(do1, _)"))
    verdict = verdict_on(text[:start] + "\n".join(lines), reference(False))
    assert verdict.outcome is Outcome.REFUTED
    assert "part-used-as-complete" in [found.name for found in verdict.reasons]


def test_a_gradient_is_not_that_of_what_has_become_something_else_since() -> None:
    merged = "  m2: f32[2,2,2], n2: f32[2,2] = merge_by_log_sum_exp(m1, n1, o2, e2)\n"
    ring, other = Ring(4, False).text(), reference(False)
    changed = ring.replace(merged, merged + "  e2: f32[2,2] = mul(e2, 3.0)\n", 1)
    assert compare(*plans(changed, other)[::-1]).outcome == "different"
    assert [verdict_on(each, other).outcome is Outcome.PROVED for each in (ring, changed)] == [True, False]


def masked(ring: str) -> str:
    """The ring of two ranks with numbers that are added to the scores: each rank has a block of them for every step."""
    rank, lines = 0, ["mesh cp=2"]
    for row, column in ((0, 0), (0, 4), (4, 0), (4, 4)):
        box = f"[{row}:{row + 4},{column}:{column + 4}]"
        lines.append(f"buffer u{row // 4}{column // 4} f32[4,4] region {box} of u[{LENGTH},{LENGTH}]")
    for line in ring.splitlines()[1:]:
        rank = int(line[-1]) if line.startswith("program") else rank
        for step, operands in enumerate(("(a, b, c)", "(a, b1, c1)")):
            line = line.replace(operands, operands.replace(")", f", u{rank}{(rank - step) % 2})"))
            line = line.replace(f"dc{step} = backward", f"dc{step}, _ = backward")
        lines.append(line)
    return "\n".join(lines)


def test_scores_with_a_mask_are_merged_as_well() -> None:
    other = (
        reference(False).replace("\ninput", f"\nbuffer u f32[{LENGTH},{LENGTH}]\ninput").replace("c, is_causal=False", "c, u")
    )
    other = other.replace("da, db, dc = backward o (do)", "da, db, dc, _ = backward o (do)")
    right = masked(RIGHT["ring of 2"][0])
    verdict = verdict_on(right, other)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    found = compare(*plans(other, right))
    assert (found.outcome, found.claims) == ("equal", ()), found.difference
    exchanged = right.replace("(a, b, c, u00)", "(a, b, c, u01)")
    assert exchanged != right
    assert verdict_on(exchanged, other).outcome is Outcome.REFUTED
    assert compare(*plans(other, exchanged)).outcome == "different"


@pytest.mark.parametrize("name", list(RIGHT))
def test_no_rule_speaks_on_a_right_plan(name: str) -> None:
    assert rules_of_text(RIGHT[name][0]) == set()


def unmasked(ranks: int) -> str:
    """The causal ring, whose blocks of keys that are all before the queries are attended to without a mask."""
    lines = []
    for line in Ring(ranks, True).text().splitlines():
        found = re.search(r", is_causal=True, query_start=(\d+), query_stop=\d+, key_start=\d+, key_stop=(\d+)", line)
        below = found is not None and int(found[2]) <= int(found[1])
        lines.append(line.replace(found[0], "") if found is not None and below else line)
    return "\n".join(lines)


@pytest.mark.parametrize("ranks", [2, 4])
def test_blocks_below_the_diagonal_need_no_mask(ranks: int) -> None:
    text = unmasked(ranks)
    assert text.count("is_causal") < Ring(ranks, True).text().count("is_causal")
    assert compare(*plans(reference(True), text)).outcome == "equal"
    verdict = verdict_on(text, reference(True))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_blocks_on_and_above_the_diagonal_need_one() -> None:
    for start in (0, 4):
        text = Ring(2, True).text()
        place = f", is_causal=True, query_start={start}, query_stop={start + 4}, key_start={start}, key_stop={start + 4}"
        assert place in text
        assert compare(*plans(reference(True), text.replace(place, ""))).outcome == "different"
        assert verdict_on(text.replace(place, ""), reference(True)).outcome is not Outcome.PROVED
    above = unmasked(2).replace(", is_causal=True, query_start=0, query_stop=4, key_start=4, key_stop=8", "")
    assert compare(*plans(reference(True), above)).outcome == "different"
    assert verdict_on(above, reference(True)).outcome is not Outcome.PROVED


def test_blocks_without_a_mask_are_not_those_of_attention_without_one() -> None:
    assert verdict_on(unmasked(2), reference(False)).outcome is not Outcome.PROVED
