"""A pipeline schedule: which actions each pipeline rank runs, in which order."""

from __future__ import annotations

from enum import Enum

from tvlint.ir.location import Location
from tvlint.ir.values import dataclass


class ActionKind(Enum):
    """Actions by their spelling in the CSV files of `torch.distributed.pipelining`."""

    FORWARD = "F"
    BACKWARD = "B"
    """The whole backward: the gradients of the input and of the weights."""
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    OVERLAP = "OVERLAP_F_B"
    """A forward and a backward of different micro-batches, run at the same time; its `members` say which."""
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    SEND_FORWARD = "SEND_F"
    RECEIVE_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECEIVE_BACKWARD = "RECV_B"
    WAIT_SEND_FORWARD = "WAIT_SEND_F"
    WAIT_SEND_BACKWARD = "WAIT_SEND_B"
    REDUCE_GRADIENT = "REDUCE_GRAD"
    WAIT_REDUCE_GRADIENT = "WAIT_REDUCE_GRAD"


COMPUTE = frozenset(
    {ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT, ActionKind.OVERLAP}
)
WITHOUT_MICRO_BATCH = frozenset(
    {ActionKind.UNSHARD, ActionKind.RESHARD, ActionKind.REDUCE_GRADIENT, ActionKind.WAIT_REDUCE_GRADIENT, ActionKind.OVERLAP}
)


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a rank on pipeline stage `stage`; `micro_batch` is -1 for kinds that are about all of them.

    An overlap has -1 for both, and the actions that it runs at the same time as `members`.
    """

    kind: ActionKind
    stage: int
    micro_batch: int
    location: Location
    members: tuple[Action, ...] = ()

    def __str__(self) -> str:
        """Return the action as the CSV spells it: `2F0`, `1UNSHARD`, `(0F7;7B3)OVERLAP_F_B`."""
        if self.members:
            return f"({';'.join(map(str, self.members))}){self.kind.value}"
        return f"{self.stage}{self.kind.value}{self.micro_batch if self.micro_batch >= 0 else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """The actions of one rank in order, without idle slots, and the place of its row."""

    actions: tuple[Action, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rows of all pipeline ranks; the index of a row is its rank.

    `unreadable` counts the cells that are no action: what the schedule is without them cannot be judged.
    """

    path: str
    ranks: tuple[Row, ...]
    unreadable: int = 0

    @property
    def communicates(self) -> bool:
        """Return whether the schedule says more than what is computed."""
        return any(action.kind not in COMPUTE for row in self.ranks for action in row.actions)
