"""Messages from before the steps of their ranks: both ends are counted together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tvlint.capture.processes import without_early_pairs

SEND = {"communication": "send", "peer": 1, "communicator": "0"}
RECEIVE = {"communication": "receive", "peer": 0, "communicator": "0"}


def early(event: dict[str, Any], work: int) -> list[dict[str, Any]]:
    return [{"early": True, **event, "work": work}, {"early": True, "wait": work}]


def left(*parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found = without_early_pairs([list(map(json.dumps, part)) for part in parts])
    return [list(map(json.loads, part)) for part in found]


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_early_receives_of_what_was_sent_in_the_step_are_in_the_step(sent: int) -> None:
    sender = [*(own for work in range(sent) for own in early(SEND, work)), {**SEND, "work": sent}]
    receiver = [*early(RECEIVE, 0), *early(RECEIVE, 1), {**RECEIVE, "work": 2}]
    kept = [own for work in range(sent, 2) for own in ({**RECEIVE, "work": work}, {"wait": work})]
    assert left(sender, receiver) == [[{**SEND, "work": sent}], [*kept, {**RECEIVE, "work": 2}]]


@pytest.mark.parametrize("sent", [0, 1])
def test_what_is_received_early_is_a_weight_where_it_was_sent_before_the_step(sent: int) -> None:
    named = {"early": True, "name": "weight0", "role": "weight", "of": 0, "work": 0}
    sender = early(SEND, 0) if sent else [{**SEND, "work": 0}]
    _, receiver = left(sender, [*early(RECEIVE, 0), named])
    assert receiver == ([{"name": "weight0", "role": "weight", "of": 0}] if sent else [{**RECEIVE, "work": 0}, {"wait": 0}])


@pytest.mark.parametrize("other", [{"communicator": "1"}, {"tag": 3}])
def test_messages_of_another_communicator_or_tag_are_counted_alone(other: dict[str, Any]) -> None:
    assert left(early({**SEND, **other}, 0), early(RECEIVE, 0)) == [[], [{**RECEIVE, "work": 0}, {"wait": 0}]]
