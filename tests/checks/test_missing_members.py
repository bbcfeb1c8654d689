"""A collective that a member leaves out is found where the members part, and what follows from it is not found again."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome, Severity

NAMES = ("a", "b", "c", "d")
REFERENCE = """input x f32[4,8]
output y
program
  p = relu(x)
  q = tanh(p)
  r = exp(q)
  s = neg(r)
  y: f32[4,8] = abs(s)
"""


def plan(without: str = "", shapes: tuple[int, ...] = (8, 8, 8, 8)) -> str:
    """Return a plan of two ranks that each give columns to four gathers; rank 1 leaves one of them out."""
    inputs = "".join(f"input {name} f32[4,{size}] tp:S(1)\n" for name, size in zip(NAMES, shapes, strict=True))
    gathers = {name: f"  all_{name} = all-gather({name}, dim=1) over tp\n" for name in NAMES}
    ranks = (gathers, {name: line for name, line in gathers.items() if name != without})
    programs = (f"program tp={rank}\n" + "".join(lines.values()) for rank, lines in enumerate(ranks))
    return f"mesh tp=2\n{inputs}" + "".join(programs)


@pytest.mark.parametrize("shapes", [(8, 8, 8, 8), (2, 4, 6, 8)])
@pytest.mark.parametrize("without", NAMES)
def test_it_is_found_once_at_the_collective(without: str, shapes: tuple[int, ...]) -> None:
    text = plan(without, shapes)
    (finding,) = findings_of_text(text)
    assert finding.rule == "missing-collective-member"
    assert finding.location.line is not None
    assert text.splitlines()[finding.location.line - 1].startswith(f"  all_{without} = ")
    assert "is run by rank 0, but not by rank 1" in finding.message


@pytest.mark.parametrize("shapes", [(8, 8, 8, 8), (2, 4, 6, 8)])
def test_members_that_run_all_of_them_are_right(shapes: tuple[int, ...]) -> None:
    assert findings_of_text(plan(shapes=shapes)) == []


GATHERED = """mesh tp=2
input x f32[4,8] tp:S(1)
output y
"""
STEPS = ("p = relu(x)", "q = tanh(p)", "r = exp(q)", "s = neg(r)")


def gathered(without: str) -> str:
    """Return the reference on two ranks, which gather and take their part again behind each step; rank 1 does so but once."""
    programs = []
    for rank in range(2):
        rows = []
        for step in STEPS:
            name = step[0]
            rows.append(f"  {step}")
            if rank == 0 or name != without:
                rows += [f"  {name}2 = all-gather({name}, dim=1) over tp", f"  {name} = chunk({name}2, dim=1) over tp"]
        programs.append(f"program tp={rank}\n" + "\n".join([*rows, "  z = abs(s)", "  y = all-gather(z, dim=1) over tp", ""]))
    return GATHERED + "".join(programs)


@pytest.mark.parametrize("without", ["p", "r", "s"])
def test_a_proof_is_refuted_where_the_members_part(without: str) -> None:
    text = gathered(without)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    first = verdict.reasons[0]
    assert first.name == "missing-collective-member"
    assert first.location.line is not None
    assert text.splitlines()[first.location.line - 1] == f"  {without}2 = all-gather({without}, dim=1) over tp"
    assert "there are 5 collectives where the other end has 4: the first that it does not have is this one" in first.message


def test_a_proof_is_found_where_none_is_left_out() -> None:
    assert verdict_on(gathered(""), REFERENCE).outcome is Outcome.PROVED


MESSAGES = {"a": "16,8", "b": "2,8", "c": "16,8"}


def staged(without: str = "") -> str:
    """Return two stages that run two micro-batches, of which the first sends three tensors, but for one."""
    inputs = "".join(f"input {name} f32[{shape}]\n" for name, shape in MESSAGES.items())
    sends = "".join(f"  send {name} to pp+1\n" for name in MESSAGES if name != without)
    receives = "".join(f"  recv {name}2: f32[{shape}] from pp-1\n" for name, shape in MESSAGES.items())
    sums = "".join(f"  {name}3 = sum({name}2)\n" for name in MESSAGES)
    return f"""mesh pp=2
micro-batches 2
{inputs}output y
segment first forward stage 0 ({", ".join(MESSAGES)}) -> ()
{sends}segment second forward stage 1 () -> (y)
{receives}{sums}  d = add(a3, b3)
  y = add(c3, d)
program pp=0
  run first micro-batch 0-1
program pp=1
  run second micro-batch 0-1
"""


@pytest.mark.parametrize("without", MESSAGES)
def test_a_message_that_is_not_sent_is_found_once_where_it_is_received(without: str) -> None:
    text = staged(without)
    (finding,) = (finding for finding in findings_of_text(text) if finding.severity is Severity.ERROR)
    assert finding.rule == "unmatched-receive"
    assert finding.location.line is not None
    assert text.splitlines()[finding.location.line - 1].startswith(f"  recv {without}2: ")
    assert "for micro-batch 0, 1" in finding.message


def test_messages_that_are_all_sent_are_right() -> None:
    assert [finding for finding in findings_of_text(staged()) if finding.severity is Severity.ERROR] == []


IN_MICRO_BATCHES = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
segment forth forward (x) -> ()
  h = linear(x, w)
  y = all-reduce(h) over tp
segment `forth of 1` forward (x) -> ()
  part = linear(x, w)
  z = all-reduce(part) over tp
program tp=0
  run forth micro-batch 0-2
program tp=1
{}
"""


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("0-2", ""),
        ("0,2,1", "for micro-batch 2"),
        ("1,0,2", "for micro-batch 1"),
    ],
)
def test_members_run_micro_batches_in_one_order_whatever_they_call_their_tensors(runs: str, said: str) -> None:
    lines = "\n".join(f"  run `forth of 1` micro-batch {run}" for run in runs.split(","))
    found = findings_of_text(IN_MICRO_BATCHES.format(lines))
    assert [finding.rule for finding in found] == (["collective-order-mismatch"] if said else [])
    assert all(said in finding.message for finding in found)
