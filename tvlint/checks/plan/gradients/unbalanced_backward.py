"""unbalanced-backward: a micro-batch has a forward without its backward, or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import backward_again, backward_twice, uneven_backwards
from tvlint.analyses.gradients.missing_per_micro_batch import LeftOut, left_out, unused
from tvlint.ir.once import first_of_each
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Micro-batches for which a forward and its backward, or a half of that, run unequally often; once a segment and ranks."""

    def of_segment(
        case: str, segment: str, batch: int, ranks: tuple[int, ...], words: Mapping[str, object], *about: str
    ) -> Sighting:
        words = {**words, "segment": segment, "batch": batch, "ranks": facts.who(ranks)}
        return Sighting(facts.start(segment), facts.fold.everywhere(ranks), words, about=(*about, segment), case=case)

    for found in first_of_each(uneven_backwards(facts.plan), lambda found: (found.segment, found.ranks)):
        words = {"forward": found.forward, "expected": _times(found.expected), "times": _times(found.times)}
        yield of_segment("uneven", found.segment, found.micro_batch, found.ranks, words, found.forward)
    for again in backward_again(facts.plan):
        yield of_segment("again", again.segment, again.micro_batch, again.ranks, {"times": _times(again.times)})
    for segment, index, result in backward_twice(facts.plan):
        ranks = facts.ranks_running(segment)
        twice = {"result": result, "ranks": facts.who(ranks)}
        yield Sighting(facts.place(segment, index), facts.fold.everywhere(ranks), twice, about=(result,), case="twice")
    uneven = {name for found in uneven_backwards(facts.plan) for name in (found.segment, found.forward)}
    gaps: dict[tuple[int, tuple[int, ...]], list[LeftOut]] = {}
    for gap in left_out(facts.plan):
        if gap.segment not in uneven:
            gaps.setdefault((gap.micro_batch, gap.ranks), []).append(gap)
    for gap, *others in gaps.values():
        more = f" and {len(others)} more" if others else ""
        missed = {"batch": gap.micro_batch, "weight": gap.weight, "more": more, "ranks": facts.who(gap.ranks)}
        place, ranks = facts.place(gap.segment, gap.index), facts.fold.everywhere(gap.ranks)
        yield Sighting(place, ranks, missed, about=(gap.weight,), case="left-out")
    for spare in unused(facts.plan):
        names = {"name": spare.name, "other": spare.other}
        yield of_segment("unread", spare.segment, spare.micro_batch, spare.ranks, names, spare.name)


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
