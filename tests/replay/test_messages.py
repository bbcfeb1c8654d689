"""Messages of a plan, run on numbers: what is received is waited for where it is read."""

from __future__ import annotations

import numpy as np
import pytest

from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Compute, Literal, Peer, Receive, Send
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor
from tvlint.replay.run import UnreplayableError, replay


def plan_of(*steps: str) -> Plan:
    """Return a plan in which each rank sends `x` and receives `y`, in segments of their own, in this order."""
    segments, programs = {}, []
    for rank in (0, 1):
        peer, word = Peer(1 - rank), f"r{rank}."
        own = {
            "receive": Segment(f"{word}receive", Phase.FORWARD, (), (f"{word}y",), (Receive(f"{word}y", peer),)),
            "send": Segment(f"{word}send", Phase.FORWARD, (), (), (Send("x", peer),)),
            "read": Segment(
                f"{word}read", Phase.FORWARD, (f"{word}y",), ("z",), (Compute("torch.mul", (f"{word}y", Literal(2.0)), ("z",)),)
            ),
        }
        segments.update({segment.name: segment for segment in own.values()})
        programs.append(Program((rank,), tuple(Step(own[step].name, 0) for step in steps)))
    tensors = {"x": Tensor("x", (2,), "float32", Role.INPUT), "z": Tensor("z", (2,), "float32", Role.ACTIVATION)}
    tensors |= {f"r{rank}.y": Tensor(f"r{rank}.y", (2,), "float32", Role.ACTIVATION) for rank in (0, 1)}
    return Plan("a.plan", "plan", Mesh((Axis("pp", 2),)), tensors, segments, tuple(programs), outputs=("z",))


def given(rank: int, name: str, micro_batch: int) -> np.ndarray:
    return np.array([1.0, 2.0]) + rank


def test_a_rank_sends_behind_a_receive_that_it_has_not_read_yet() -> None:
    returned = replay(plan_of("receive", "send", "read"), given).returned
    assert [returned[rank, 0, "z"].tolist() for rank in (0, 1)] == [[4.0, 6.0], [2.0, 4.0]]


def test_ranks_that_read_before_they_send_wait_for_each_other() -> None:
    with pytest.raises(UnreplayableError, match="wait for each other"):
        replay(plan_of("receive", "read", "send"), given)
