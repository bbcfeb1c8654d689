"""Orders of runs and of communication that look wrong and compute what the reference does."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

TRAINED = """
  b = gelu(y)
  l: f32[] = sum(b)
  db = backward l (grad(l))
  dy = backward b (db)
"""

ROWS = f"""
weight w f32[8,8]
input x f32[16,8]
loss l f32[]
program
  y = linear(x, w)
{TRAINED}  _, grad(w) = backward y (dy)
"""

RUNS = """
micro-batches 2
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
segment f forward (x) -> (y)
  y = linear(x, w)
segment g forward (y) -> (b, l)
  b = gelu(y)
  l: f32[] = sum(b)
segment r backward (x, y, b, l) -> (grad(w))
  db = backward l (grad(l))
  dy = backward b (db)
  _, grad(w) = backward y (dy)
program
"""


def run(*steps: str) -> str:
    return RUNS + "".join(f"  run {name} micro-batch {number}\n" for name, number in map(str.split, steps))


RECOMPUTED = {
    "never": run("f 0", "g 0", "r 0", "f 1", "g 1", "r 1"),
    "for both micro-batches": run("f 0", "f 0", "g 0", "r 0", "f 1", "f 1", "g 1", "r 1"),
    "for one of them": run("f 0", "g 0", "r 0", "f 1", "g 1", "f 1", "r 1"),
    "for one of them three times": run("f 0", "g 0", "r 0", "f 1", "f 1", "g 1", "f 1", "g 1", "r 1"),
    "between runs of the other": run("f 0", "g 0", "f 1", "f 0", "r 0", "g 1", "r 1"),
}

WRONGLY = {
    "a backward runs twice": (run("f 0", "g 0", "r 0", "r 0", "f 1", "g 1", "r 1"), "repeated-micro-batch"),
    "a backward runs again after its forward": (
        run("f 0", "g 0", "r 0", "f 0", "r 0", "f 1", "g 1", "r 1"), "repeated-micro-batch",
    ),
    "the other micro-batch has no backward": (run("f 0", "g 0", "r 0", "f 1", "g 1", "f 1"), "missing-micro-batch"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECOMPUTED)
def test_activations_may_be_computed_again(name: str) -> None:
    assert compare(*plans(ROWS, RECOMPUTED[name])).outcome == "equal"
    verdict = verdict_on(RECOMPUTED[name], ROWS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("name", WRONGLY)
def test_gradients_may_not_be_made_again(name: str) -> None:
    text, reason = WRONGLY[name]
    assert compare(*plans(ROWS, text)).outcome != "equal"
    verdict = verdict_on(text, ROWS)
    assert verdict.outcome is Outcome.REFUTED
    assert reason in [own.name for own in verdict.reasons]


def test_what_draws_random_numbers_is_never_taken_to_run_once() -> None:
    texts = (run("f 0", "g 0", "f 0", "r 0", "f 1", "g 1", "f 1", "r 1"), ROWS)
    forward = ("y = linear(x, w)", "y0 = linear(x, w)\n  y = dropout(y0, 0.5)")
    backward = ("  _, grad(w) = backward y (dy)", "  dy0 = backward y (dy)\n  _, grad(w) = backward y0 (dy0)")
    draws, reference = (text.replace(*forward).replace(*backward) for text in texts)
    draws = draws.replace("-> (y)", "-> (y, y0)").replace("(x, y, b", "(x, y, y0, b")
    assert verdict_on(draws, reference).outcome is Outcome.UNKNOWN


def test_a_name_may_mean_another_value_in_the_next_micro_batch() -> None:
    reused = RUNS.replace("loss l f32[]\n", "output l0 f32[]\noutput l1 f32[]\n") + "".join(
        f"""  run f micro-batch {number} (x) -> (k)
  run g micro-batch {number} (k) -> (m, l{number})
  run r micro-batch {number} (x, k, m, l{number}) -> (grad(w))
"""
        for number in (0, 1)
    )
    assert compare(*plans(ROWS, reused)).outcome == "equal"
    verdict = verdict_on(reused, ROWS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    backward = "  run r micro-batch 0 (x, k, m, l0) -> (grad(w))\n"
    early = reused.replace(backward, "") + backward
    assert compare(*plans(ROWS, early)).outcome != "equal"
    verdict = verdict_on(early, ROWS)
    assert verdict.outcome is Outcome.REFUTED
    assert "crossed-micro-batches" in [reason.name for reason in verdict.reasons]


UNUSED = """
weight w f32[8,8]
input x f32[8,8]
input u f32[8,8]
input v f32[8,8]
loss l f32[]
segment f forward (x, u, v) -> (y, b, l)
  y = linear(x, w)
  b = gelu(y)
  l: f32[] = sum(b)
segment r backward () -> ()
  db = backward l (grad(l))
  dy = backward b (db)
  _, grad(w) = backward y (dy)
program
  run f micro-batch 0 (x, u, v) -> (y, b, l)
  run r micro-batch 0
"""


@pytest.mark.parametrize("names", ["(x, v, u)", "(x, u, u)", "(x, x, v)"])
def test_what_a_run_does_not_read_may_be_anything(names: str) -> None:
    verdict = verdict_on(UNUSED.replace("(x, u, v) -> (y, b, l)\n  run r", f"{names} -> (y, b, l)\n  run r"), UNUSED)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_what_a_run_reads_may_not() -> None:
    verdict = verdict_on(UNUSED.replace("(x, u, v) -> (y, b, l)\n  run r", "(u, x, v) -> (y, b, l)\n  run r"), UNUSED)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unlike-values" in [reason.name for reason in verdict.reasons]


COLUMNS = f"""
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l f32[]
program
  h = linear(x, w)
  k = linear(x, v)
  y = add(h, k)
{TRAINED}  dh, dk = backward y (dy)
  _, grad(v) = backward k (dk)
  _, grad(w) = backward h (dh)
"""


def issued(first: str, second: str) -> str:
    program = f"""
  p = linear(x, w)
  q = linear(x, v)
ISSUED
  wait i
  wait j
  y = add(h, k)
{TRAINED}  dh, dk = backward y (dy)
  _, grad(v) = backward q (dk)
  _, grad(w) = backward p (dh)
"""
    head = "mesh tp=2\nweight w f32[8,8] tp:S(1)\nweight v f32[8,8] tp:S(1)\ninput x f32[8,8] tp:S(1)\nloss l f32[]\n"
    return head + "".join(f"program tp={rank}\n{program.replace('ISSUED', own)}" for rank, own in enumerate((first, second)))


ONE = "  h = all-reduce(p) over ranks 0,1 named one async i\n"
OTHER = "  k = all-reduce(q) over ranks 0,1 named other async j\n"


@pytest.mark.parametrize("second", [ONE + OTHER, OTHER + ONE], ids=["in one order", "in two orders"])
def test_collectives_of_two_groups_may_be_under_way_in_any_order(second: str) -> None:
    text = issued(ONE + OTHER, second)
    assert compare(*plans(COLUMNS, text)).outcome == "equal"
    verdict = verdict_on(text, COLUMNS)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_collectives_that_are_waited_for_in_two_orders_never_complete() -> None:
    text = issued(*(own.replace(" async i", "").replace(" async j", "") for own in (ONE + OTHER, OTHER + ONE)))
    text = text.replace("  wait i\n  wait j\n", "")
    assert compare(*plans(COLUMNS, text)).outcome == "deadlocks"
    verdict = verdict_on(text, COLUMNS)
    assert verdict.outcome is Outcome.REFUTED
    assert "send-recv-deadlock" in [reason.name for reason in verdict.reasons]


EXCHANGED = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l f32[]
""" + "".join(
    f"""program tp={rank}
  p = linear(x, w)
EXCHANGE{rank}
  y = add(p, o)
{TRAINED}  _, grad(w) = backward p (dy)
"""
    for rank in (0, 1)
)


def exchanged(text: str) -> str:
    return EXCHANGED.replace("EXCHANGE0", text.replace("PEER", "1")).replace("EXCHANGE1", text.replace("PEER", "0"))


@pytest.mark.parametrize(
    "text",
    [
        "  recv o: f32[8,8] from PEER async i\n  send p to PEER async j\n  wait i\n  wait j\n",
        "  recv o: f32[8,8] from PEER batch m\n  send p to PEER batch m\n",
        "  send p to PEER async j\n  recv o: f32[8,8] from PEER\n  wait j\n",
    ],
    ids=["asked for first", "in one batch", "sent first"],
)
def test_ranks_may_exchange_what_they_have(text: str) -> None:
    whole = ROWS.replace("[16,8]", "[8,8]")
    assert compare(*plans(whole, exchanged(text))).outcome == "equal"
    verdict = verdict_on(exchanged(text), whole)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_ranks_that_both_wait_first_do_not() -> None:
    verdict = verdict_on(exchanged("  recv o: f32[8,8] from PEER\n  send p to PEER\n"), ROWS.replace("[16,8]", "[8,8]"))
    assert verdict.outcome is Outcome.REFUTED
    assert "send-recv-deadlock" in [reason.name for reason in verdict.reasons]
