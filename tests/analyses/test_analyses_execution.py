"""Folding of ranks, pairing of calls, and the run that finds standstills."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import rules_of_text
from tvlint.analyses.communication.calls import traffic
from tvlint.analyses.communication.deadlock import buffered_deadlock, unbuffered_deadlock
from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe
from tvlint.readers.plan_text import reader as plan_text


def _plan(text: str) -> Plan:
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return plan


def test_ranks_that_do_the_same_are_visited_once() -> None:
    facts = Facts(_plan("mesh dp=512 tp=4\ninput x f32[4,8] tp:P\nprogram\n  y = all-reduce(x) over tp\n"))
    assert facts.fold.present == (0,)
    assert facts.fold.everywhere((0,)) == tuple(range(2048))


def test_an_axis_that_a_peer_names_is_not_folded() -> None:
    text = (
        "mesh dp=4 pp=2\ninput x f32[4,8]\nprogram\n  send x to pp+1 ring batch b\n  recv y: f32[4,8] from pp-1 ring batch b\n"
    )
    facts = Facts(_plan(text))
    assert facts.fold.present == (0, 1)
    assert [call.rank for calls in traffic(facts).calls.values() for call in calls] == [0, 0, 1, 1]
    assert unbuffered_deadlock(facts).blocked == ()


@pytest.mark.parametrize(("peer", "rules"), [("0", set()), ("2", {"unmatched-send"})])
def test_a_message_stays_within_its_replica(peer: str, rules: set[str]) -> None:
    text = "mesh dp=2 pp=2\nreplicate dp\ninput x f32[4,8]\nprogram ranks 0\n  send x to 1\n"
    assert rules_of_text(f"{text}program ranks 1\n  recv y: f32[4,8] from {peer}\n") == rules


def test_a_rank_at_the_end_of_an_axis_has_no_peer_beyond_it() -> None:
    text = "mesh pp=3\ninput x f32[4,8]\nprogram\n  recv y: f32[4,8] from pp-1\n  send x to pp+1\n"
    assert rules_of_text(text) == {"unmatched-receive", "unmatched-send"}


def test_three_ranks_in_a_ring_that_all_send_first() -> None:
    text = "mesh cp=3\ninput x f32[4,8]\nprogram\n  send x to cp+1 ring\n  recv y: f32[4,8] from cp-1 ring\n"
    assert rules_of_text(text) == {"send-needs-buffering"}


def test_three_ranks_in_a_ring_that_all_receive_first() -> None:
    text = "mesh cp=3\ninput x f32[4,8]\nprogram\n  recv y: f32[4,8] from cp-1 ring\n  send x to cp+1 ring\n"
    assert rules_of_text(text) == {"send-recv-deadlock"}


def test_a_circle_through_a_collective_and_a_message() -> None:
    text = """
mesh tp=2
input x f32[4,8] tp:P
program tp=0
  y = all-reduce(x) over tp
  send y to tp+1
program tp=1
  recv y: f32[4,8] from tp-1
  z = all-reduce(x) over tp
"""
    assert rules_of_text(text) == {"send-recv-deadlock"}


def test_waiting_for_a_send_before_the_other_side_can_receive() -> None:
    text = """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1 async s
  wait s
  recv a: f32[4,8] from pp+1
program pp=1
  send x to pp-1 async s
  wait s
  recv a: f32[4,8] from pp-1
"""
    assert rules_of_text(text) == {"send-needs-buffering"}


def test_streams_are_sequences_of_their_own() -> None:
    text = """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1 on out
  recv a: f32[4,8] from pp+1 on in
program pp=1
  send x to pp-1 on out
  recv a: f32[4,8] from pp-1 on in
"""
    assert rules_of_text(text) == set()


def test_a_finding_names_a_cycle_on_many_ranks_once() -> None:
    text = "mesh dp=64 pp=2\ninput x f32[4,8]\nprogram\n  recv y: f32[4,8] from pp+1 ring\n  send x to pp+1 ring\n"
    plan = _plan(text)
    assert len(buffered_deadlock(Facts(plan)).cycles) == 1


def test_ranks_in_words() -> None:
    assert describe([3]) == "rank 3"
    assert describe([0, 1, 2, 7]) == "ranks 0-2,7"
    mesh = _plan("mesh dp=4 tp=2\ninput x f32[4,8]\nprogram\n  y = gelu(x)\n").mesh
    assert describe([1, 3, 5, 7], mesh) == "every tp=1 rank"
    assert describe(range(8), mesh) == "every rank"
