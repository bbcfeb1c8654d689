"""What the validator of torch.distributed.pipelining accepts although it is wrong is found, each by its own rule."""

from __future__ import annotations

import pytest

from tests.schedules.findings import rules_of
from tests.schedules.lowering import lowered

PLAIN = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
SPELLED = [
    ["0F0", "0SEND_F0", "0F1", "0SEND_F1", "0RECV_B0", "0B0", "0RECV_B1", "0B1"],
    ["1RECV_F0", "1F0", "1RECV_F1", "1B0", "1SEND_B0", "1F1", "1B1", "1SEND_B1"],
]
ACCEPTED = {
    "a forward twice": (PLAIN, 0, "0F0,0F1,0F1,0B0,0B1", {"repeated-forward"}),
    "a backward twice": (PLAIN, 0, "0F0,0F1,0B0,0B0,0B1", {"repeated-backward"}),
    "a weight gradient beside a whole backward": (
        PLAIN, 0, "0F0,0F1,0B0,0I1,0W1,0W1", {"repeated-backward"}),
    "a micro-batch beyond the last": (
        PLAIN, 1, "1F0,1B0,1F9,1B9", {"micro-batch-out-of-range"}),
    "a whole backward of one and half of another": (
        PLAIN, 0, "0F0,0F1,0I0,0W0,0B0,", {"repeated-backward", "missing-backward"}),
    "text after an action": (PLAIN, 0, "0F0,0F1,0B0;0W0,0B1", {"unreadable-action"}),
    "ranks that wait for each other": (PLAIN, 1, "1F0,1F1,1B0,1B1", set()),
    "neighbours on one rank in the wrong order": (
        [["0F0", "1F0", "1B0", "0B0"]], 0, "1F0,0F0,1B0,0B0", {"out-of-order"}),
    "no receive": (SPELLED, 1, "1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1", {"unmatched-send"}),
    "no send": (SPELLED, 0, "0F0,0SEND_F0,0F1,0RECV_B0,0B0,0RECV_B1,0B1", {"unmatched-receive"}),
    "a send before its result": (SPELLED, 0, "0F0,0SEND_F0,0SEND_F1,0F1,0RECV_B0,0B0,0RECV_B1,0B1", {"early-send"}),
    "a receive after its use": (SPELLED, 0, "0F0,0SEND_F0,0F1,0SEND_F1,0B0,0RECV_B0,0RECV_B1,0B1", {"late-receive"}),
    "messages out of order": (SPELLED, 1, "1RECV_F1,1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1", {"fifo-inversion"}),
    "messages that cross": (SPELLED, 1, "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1", {"needs-buffering"}),
    "a message to itself": ([["0F0", "1F0", "1B0", "0B0"]], 0, "0F0,0SEND_F0,1F0,1B0,0B0", {"message-without-peer"}),
    "a message past the end": (
        SPELLED, 1, "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1", {"message-without-peer"}),
    "a blank row": (PLAIN, 1, "", {"empty-rank"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_loader_accepts_is_found(name: str) -> None:
    base, rank, row, expected = ACCEPTED[name]
    assert rules_of(base) == set()
    broken = [row.split(",") if index == rank else other for index, other in enumerate(base)]
    if not expected:
        broken[0] = ["0F0", "0B0", "0F1", "0B1"]
        expected = {"infeasible"}
    assert rules_of(broken) == {f"schedule-{rule}" for rule in expected}


def test_the_last_rank_that_counts_micro_batches_from_one_is_found() -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F1", "1B0", "1F2", "1B1"]]
    assert rules_of(rows) == {"schedule-micro-batch-out-of-range"}


def test_a_reduction_before_the_last_backward_is_found() -> None:
    rows = lowered(PLAIN)
    assert rules_of(rows) == set()
    at = rows[0].index("0REDUCE_GRAD")
    rows[0][at - 1], rows[0][at] = rows[0][at], rows[0][at - 1]
    assert rules_of(rows) == {"schedule-early-gradient-reduction"}
