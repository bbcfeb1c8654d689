"""Grounds on which reasons refute; docs/soundness.md has the argument for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Ground(Enum):
    """The ground of a reason that refutes."""

    FAILS = "does not run to its end"
    RACES = "reads or overwrites what is in flight, so that its result depends on time"
    STATES = "says of itself what is not so, or what the theorem excludes"
    DIFFERS = "has another value than the reference, which numbers confirm where both plans can be run"


REFUTING: Mapping[str, Ground] = {
    "bad-region": Ground.STATES,
    "buffer-in-flight": Ground.RACES,
    "cross-stream-access": Ground.RACES,
    "crossed-micro-batches": Ground.DIFFERS,
    "gather-of-partial": Ground.DIFFERS,
    "gathers-wrong-pieces": Ground.DIFFERS,
    "gradient-added-twice": Ground.DIFFERS,
    "gradient-before-forward": Ground.FAILS,
    "gradient-of-another-slice": Ground.STATES,
    "gradients-cleared-within-step": Ground.DIFFERS,
    "gradients-not-cleared": Ground.DIFFERS,
    "handle-reissued": Ground.RACES,
    "incomplete-output": Ground.DIFFERS,
    "incomplete-update": Ground.DIFFERS,
    "merged-twice": Ground.DIFFERS,
    "merges-different-values": Ground.DIFFERS,
    "mismatched-collective": Ground.FAILS,
    "mismatched-shards": Ground.DIFFERS,
    "mispaired-collective": Ground.DIFFERS,
    "mispaired-message": Ground.DIFFERS,
    "missing-allreduce": Ground.DIFFERS,
    "missing-collective-member": Ground.FAILS,
    "missing-gradient": Ground.DIFFERS,
    "missing-gradient-reduction": Ground.DIFFERS,
    "missing-micro-batch": Ground.DIFFERS,
    "missing-output": Ground.STATES,
    "missing-root": Ground.DIFFERS,
    "missing-wait": Ground.RACES,
    "miswired-step": Ground.FAILS,
    "not-updated-once": Ground.STATES,
    "other-constant": Ground.DIFFERS,
    "other-numbers": Ground.DIFFERS,
    "other-operator": Ground.DIFFERS,
    "other-recorded-gradient": Ground.DIFFERS,
    "other-recorded-weight": Ground.DIFFERS,
    "output-of-another-slice": Ground.STATES,
    "part-used-as-complete": Ground.DIFFERS,
    "partial-times-partial": Ground.DIFFERS,
    "pieces-not-in-rank-order": Ground.DIFFERS,
    "reducer-before-last-backward": Ground.DIFFERS,
    "reducers-disagree": Ground.FAILS,
    "repeated-micro-batch": Ground.DIFFERS,
    "returned-values-differ": Ground.DIFFERS,
    "root-only-result-used": Ground.FAILS,
    "scaled-output": Ground.DIFFERS,
    "scaled-update": Ground.DIFFERS,
    "scaled-value": Ground.DIFFERS,
    "send-recv-deadlock": Ground.FAILS,
    "shape-mismatch": Ground.FAILS,
    "shapes-do-not-fit": Ground.FAILS,
    "split-dimension": Ground.DIFFERS,
    "step-fails": Ground.FAILS,
    "surplus-root": Ground.DIFFERS,
    "swapped-gradients": Ground.DIFFERS,
    "uncovered-output": Ground.STATES,
    "uncovered-weight": Ground.STATES,
    "undefined-tensor": Ground.FAILS,
    "unequal-addends": Ground.DIFFERS,
    "unequal-roots": Ground.DIFFERS,
    "unknown-handle": Ground.FAILS,
    "unknown-peer": Ground.FAILS,
    "unmatched-receive": Ground.FAILS,
    "unmatched-send": Ground.FAILS,
    "update-before-final-gradient": Ground.DIFFERS,
    "update-of-another-slice": Ground.DIFFERS,
    "use-before-definition": Ground.FAILS,
    "wrong-collective-group": Ground.FAILS,
    "wrong-dimension": Ground.FAILS,
    "wrong-draws": Ground.STATES,
    "wrong-dtype": Ground.STATES,
    "wrong-gather-dim": Ground.DIFFERS,
    "wrong-gradient-scale": Ground.DIFFERS,
    "wrong-range": Ground.DIFFERS,
    "wrong-reduce-op": Ground.DIFFERS,
    "wrong-root": Ground.FAILS,
    "wrong-shape-claim": Ground.STATES,
    "wrong-view-size": Ground.FAILS,
}
"""The reasons that refute, by their names. Every other reason leaves a verdict unknown."""

FOUND_BY_READERS = (
    "gradients-cleared-within-step",
    "gradients-not-cleared",
    "returned-values-differ",
    "shapes-do-not-fit",
    "step-fails",
    "undefined-tensor",
)
"""The errors of generated code that refute whatever the plan computes beside them."""
