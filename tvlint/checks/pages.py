"""Plan rules whose pages say all: which analysis finds their defects, and the findings in the words of the pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tvlint.analyses.communication.all_to_all_gradients import Astray, astray
from tvlint.analyses.communication.hazards import Hazard, hazards
from tvlint.analyses.communication.ring_attention import RingDefect, ring_defects
from tvlint.analyses.communication.unmatched_p2p import unmatched
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.lost_weights import Lost, lost_weights
from tvlint.analyses.dataflow.made_twice import MadeTwice, made_twice
from tvlint.analyses.dataflow.run_counts import Count, out_of_range, repeated
from tvlint.analyses.gradients.dequantisation import StillScaled, still_scaled
from tvlint.analyses.gradients.lost_gradients import LostGradient, not_passed_on
from tvlint.analyses.gradients.optimizer_steps import (
    Scattered,
    SharedState,
    SteppedAgain,
    SwappedState,
    scattered,
    shared_states,
    stepped_again,
    swapped_states,
)
from tvlint.analyses.gradients.optimizer_updates import (
    FrozenStep,
    WithoutGradient,
    frozen_steps,
    without_gradients,
)
from tvlint.analyses.gradients.other_forwards import OtherForward, other_forwards
from tvlint.analyses.gradients.precision import Lowered, Stale, lowered, stale_scales
from tvlint.analyses.gradients.quantisation_scales import Foreign, foreign_scales
from tvlint.analyses.gradients.stale_parameters import StaleGather, stale_gathers
from tvlint.analyses.gradients.written_out_steps import TooEarly, Unchanged, added_again, too_early, unchanged
from tvlint.analyses.inference.annotations import FalseAnnotation, false_annotations
from tvlint.analyses.inference.declared_shapes import Stated, unexplained
from tvlint.analyses.inference.reordered_views import Reordered, reordered_views
from tvlint.checks.plan import exchanges, steps
from tvlint.findings import Finding, Related
from tvlint.ir.operators import Receive, Send
from tvlint.rule import Rule, Sighting

_NAMED = re.compile(r"`{(\w+)}`")


@dataclass(frozen=True, slots=True)
class Source:
    """The defects of one rule, all of one type: each with its place, and mostly with its ranks."""

    type: type
    find: Callable[[Facts], Iterable[Any]]
    leads: bool = False
    """Whether the wrong value comes from the places that belong to the defect."""


def _hazards(kind: str, leads: bool = False) -> Source:
    return Source(Hazard, lambda facts: (hazard for hazard in hazards(facts) if hazard.kind == kind), leads)


def _never_waited(facts: Facts) -> Iterator[Hazard]:
    """Yield handles that are never waited for; a value that is read without the wait is `missing-wait`."""
    unread = {hazard.other for hazard in hazards(facts) if hazard.kind.endswith("in-flight")}
    yield from (
        hazard for hazard in hazards(facts) if hazard.kind == "never-waited" and (hazard.segment, hazard.index) not in unread
    )


SOURCES: Mapping[str, Source] = {
    "double-wait": _hazards("waited-twice"),
    "false-annotation": Source(FalseAnnotation, false_annotations),
    "frozen-weight-trained": Source(FrozenStep, frozen_steps),
    "gathered-before-update": Source(StaleGather, lambda facts: stale_gathers(facts.plan)),
    "gradient-of-another-operator": Source(OtherForward, lambda facts: other_forwards(facts.plan)),
    "gradient-not-exchanged": Source(Astray, astray, leads=True),
    "handle-never-waited": Source(Hazard, _never_waited),
    "handle-reissued": _hazards("reissued"),
    "lost-gradient": Source(LostGradient, lambda facts: (each for each in not_passed_on(facts) if each.name)),
    "micro-batch-out-of-range": Source(Count, lambda facts: out_of_range(facts.plan)),
    "missing-wait": _hazards("read-in-flight", leads=True),
    "reduction-in-lower-precision": Source(Lowered, lambda facts: lowered(facts.plan)),
    "ring-attention-parts-summed": Source(
        RingDefect, lambda facts: (ring_defect for ring_defect in ring_defects(facts) if ring_defect.kind == "sum")
    ),
    "repeated-forward": Source(Count, lambda facts: repeated(facts.plan)),
    "scale-before-amax": Source(Stale, lambda facts: stale_scales(facts.plan)),
    "scale-of-another-shard": Source(Foreign, lambda facts: foreign_scales(facts.plan), leads=True),
    "scale-never-undone": Source(StillScaled, lambda facts: still_scaled(facts.plan)),
    "state-of-two-weights": Source(SharedState, shared_states),
    "step-without-effect": Source(Unchanged, unchanged),
    "swapped-operands": Source(SwappedState, swapped_states),
    "view-for-transpose": Source(Reordered, lambda facts: reordered_views(facts.plan)),
    "unknown-handle": _hazards("unknown-handle"),
    "updated-before-backward": Source(TooEarly, too_early),
    "update-without-gradient": Source(WithoutGradient, without_gradients),
    "value-made-twice": Source(MadeTwice, lambda facts: made_twice(facts.plan)),
    "updated-pieces-not-gathered": Source(Scattered, scattered, leads=True),
    "weight-without-effect": Source(Lost, lambda facts: lost_weights(facts.plan)),
    "weight-updated-twice": Source(SteppedAgain, lambda facts: (*stepped_again(facts), *added_again(facts))),
    "wrong-shape-claim": Source(Stated, unexplained),
    "buffer-in-flight": Source(Sighting, exchanges.buffers_in_flight),
    "cross-stream-access": Source(Sighting, exchanges.accesses_across_streams),
    "misordered-message": Source(Sighting, exchanges.messages_out_of_order),
    "collective-order-mismatch": Source(Sighting, exchanges.orders_that_differ),
    "missing-collective-member": Source(Sighting, exchanges.absent_members),
    "interleaved-communicators": Source(Sighting, exchanges.opposite_orders),
    "send-needs-buffering": Source(Sighting, exchanges.cycles_unless_buffered),
    "send-recv-deadlock": Source(Sighting, exchanges.cycles_of_messages),
    "unmatched-send": Source(Sighting, lambda facts: unmatched(facts, Send)),
    "unmatched-receive": Source(Sighting, lambda facts: unmatched(facts, Receive)),
    "update-before-final-gradient": Source(Sighting, steps.early_updates),
    "reducer-before-last-backward": Source(Sighting, steps.early_reducers),
    "wrong-loss-scale": Source(Sighting, steps.scaled_losses),
    "tied-gradient-not-reduced": Source(Sighting, steps.tied_apart),
    "expert-exchange-not-undone": Source(Sighting, exchanges.undone_exchanges),
    "ring-attention-step-missing": Source(Sighting, exchanges.rings_cut_short),
    "ring-attention-values-not-rotated": Source(Sighting, exchanges.values_left_behind),
    "dtype-mismatch": Source(Sighting, steps.dtype_misfits),
    "shape-mismatch": Source(Sighting, steps.shape_misfits),
    "shards-not-divisible": Source(Sighting, steps.undivided_shards),
}
"""By rule, of those whose pages have a message."""


def shown(rule: Rule) -> tuple[str, ...]:
    """Return the fields of a defect that a page may name."""
    return (*(field.name for field in fields(SOURCES[rule.name].type)), "ranks")


def findings_as_page_says(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the defects of `rule` in the words of its page, whose `{...}` are fields of the defect."""
    source = SOURCES[rule.name]
    for defect in source.find(facts):
        if isinstance(defect, Sighting):
            yield rule.said_of(defect)
            continue
        given = {field.name: getattr(defect, field.name) for field in fields(defect)}
        segment, index = given.get("where") or (given["segment"], given.get("index"))
        place = facts.start(segment) if index is None else facts.place(segment, index)
        ranks = given.get("ranks") or facts.ranks_running(segment)
        words = {**given, "ranks": facts.who(ranks)}
        related = tuple(
            Related(text.format_map(words), facts.place(*given[name]), leads=source.leads)
            for name, text in rule.related.items()
            if given[name]
        )
        message, help = rule.message.format_map(words), rule.help.format_map(words)
        about = tuple(given[name] for name in _NAMED.findall(rule.message))
        yield rule.finding(message, place, help, related, facts.fold.everywhere(ranks), about=about)
