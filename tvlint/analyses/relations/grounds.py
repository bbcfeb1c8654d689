"""Grounds on which reasons refute; docs/soundness.md has the argument for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Ground(Enum):
    """The ground of a reason that refutes."""

    FAILS = "does not run to its end"
    RACES = "reads or overwrites what is under way, so that its result depends on time"
    STATES = "says of itself what is not so, or what the theorem excludes"
    DIFFERS = "has another value than the reference, which numbers confirm where both plans can be run"


REFUTING: Mapping[str, Ground] = {
    "bad-region": Ground.STATES,
    "crossed-micro-batches": Ground.DIFFERS,
    "cross-stream-access": Ground.RACES,
    "deadlock": Ground.FAILS,
    "gathers-partial-sums": Ground.DIFFERS,
    "gathers-wrong-dimension": Ground.DIFFERS,
    "gathers-wrong-pieces": Ground.DIFFERS,
    "gradient-added-twice": Ground.DIFFERS,
    "gradient-before-forward": Ground.FAILS,
    "gradient-of-another-slice": Ground.STATES,
    "incomplete-gradient": Ground.DIFFERS,
    "incomplete-output": Ground.DIFFERS,
    "incomplete-update": Ground.DIFFERS,
    "members-disagree": Ground.FAILS,
    "merged-twice": Ground.DIFFERS,
    "merges-different-values": Ground.DIFFERS,
    "mismatched-slices": Ground.DIFFERS,
    "mispaired-collective": Ground.DIFFERS,
    "mispaired-message": Ground.DIFFERS,
    "missing-gradient": Ground.DIFFERS,
    "missing-micro-batch": Ground.DIFFERS,
    "missing-output": Ground.STATES,
    "missing-root": Ground.DIFFERS,
    "missing-value": Ground.FAILS,
    "miswired-step": Ground.FAILS,
    "not-updated-once": Ground.STATES,
    "other-constant": Ground.DIFFERS,
    "other-operator": Ground.DIFFERS,
    "output-of-another-slice": Ground.STATES,
    "part-used-as-complete": Ground.DIFFERS,
    "partial-times-partial": Ground.DIFFERS,
    "partial-used-as-complete": Ground.DIFFERS,
    "pieces-out-of-order": Ground.DIFFERS,
    "read-in-flight": Ground.RACES,
    "alias-read-in-flight": Ground.RACES,
    "reduce-operator": Ground.DIFFERS,
    "reduced-too-early": Ground.DIFFERS,
    "reducers-disagree": Ground.FAILS,
    "reissued": Ground.RACES,
    "repeated-micro-batch": Ground.DIFFERS,
    "scaled-gradient": Ground.DIFFERS,
    "scaled-output": Ground.DIFFERS,
    "scaled-update": Ground.DIFFERS,
    "scaled-value": Ground.DIFFERS,
    "split-dimension": Ground.DIFFERS,
    "surplus-root": Ground.DIFFERS,
    "swapped-gradients": Ground.DIFFERS,
    "uncovered-output": Ground.STATES,
    "uncovered-weight": Ground.STATES,
    "unequal-addends": Ground.DIFFERS,
    "unknown-handle": Ground.FAILS,
    "unknown-peer": Ground.FAILS,
    "unmatched-collective": Ground.FAILS,
    "unmatched-message": Ground.FAILS,
    "update-of-another-slice": Ground.DIFFERS,
    "updated-too-early": Ground.DIFFERS,
    "write-over-read": Ground.RACES,
    "write-over-write": Ground.RACES,
    "wrong-dimension": Ground.FAILS,
    "wrong-dtype": Ground.STATES,
    "wrong-group": Ground.FAILS,
    "wrong-range": Ground.DIFFERS,
    "wrong-root": Ground.FAILS,
    "wrong-shape": Ground.STATES,
    "wrong-view-size": Ground.FAILS,
}
"""The reasons that refute, by their names. Every other reason leaves a verdict unknown."""
