"""Defects of communication, as the pages of its rules name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvlint.analyses.communication.all_to_all import unpaired
from tvlint.analyses.communication.calls import Call, location_of, traffic
from tvlint.analyses.communication.collective_order import called, disagreements
from tvlint.analyses.communication.collective_order import names_of as names_of_collective
from tvlint.analyses.communication.communicator_order import crossed_issues
from tvlint.analyses.communication.deadlock import buffered_deadlock, unbuffered_deadlock
from tvlint.analyses.communication.hazards import hazards
from tvlint.analyses.communication.ring_attention import ring_defects
from tvlint.analyses.communication.streams import crossings
from tvlint.analyses.communication.wait_cycles import cycles_of_collectives, cycles_with_messages, in_words, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import uneven_backwards
from tvlint.findings import Related
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Receive
from tvlint.ir.ranks import describe
from tvlint.rule import Sighting

_IN_FLIGHT = {
    "write-over-read": "is overwritten while `{}` still reads it",
    "write-over-write": "is overwritten while `{}` still writes it",
    "alias-read-in-flight": "is read while `{}` writes into its storage",
}


def buffers_in_flight(facts: Facts) -> Iterator[Sighting]:
    """Yield writes to what is being read or written, and reads of another tensor in a storage that is being written."""
    for hazard in hazards(facts):
        if hazard.kind not in _IN_FLIGHT or hazard.other is None:
            continue
        what = _IN_FLIGHT[hazard.kind].format(hazard.handle)
        words = {"name": hazard.name, "handle": hazard.handle, "what": what, "ranks": facts.who(hazard.ranks)}
        related = (Related(f"`{hazard.handle}` is issued here", facts.place(*hazard.other)),)
        place, ranks = facts.place(hazard.segment, hazard.index), facts.fold.everywhere(hazard.ranks)
        yield Sighting(place, ranks, words, related, (hazard.name, hazard.handle))


def accesses_across_streams(facts: Facts) -> Iterator[Sighting]:
    """Yield reads of what another stream produces, and writes to what another stream reads, without an event between them."""
    for found in crossings(facts.plan):
        name, origin = found.stream or "main", found.origin or "main"
        what = f"is read on stream `{name}`, but stream `{origin}` may still be producing it"
        if found.overwrites:
            what = f"is overwritten on stream `{name}` while stream `{origin}` may still read it"
        words = {"name": found.name, "what": what, "stream": name, "origin": origin, "ranks": facts.who(found.ranks)}
        related = (Related(f"the access on `{origin}`", facts.place(*found.other), leads=True),)
        place, ranks = facts.place(found.segment, found.index), facts.fold.everywhere(found.ranks)
        yield Sighting(place, ranks, words, related, (found.name, name, origin))


def orders_that_differ(facts: Facts) -> Iterator[Sighting]:
    """Yield the first place where members of a communicator meet in different operations."""
    differing = (found for found in disagreements(facts) if found.kind in ("order", "operation") and found.theirs)
    for found in first_of_each(differing, lambda found: (found.ours[0].site, found.theirs[0].site)):
        ours, theirs = found.ours[0], found.theirs[0]
        words = {
            "what": "in another order" if found.kind == "order" else "differently", "members": describe(ours.members),
            "ours": describe(call.rank for call in found.ours), "our_call": called(facts, ours) + _batch(ours, theirs),
            "theirs": describe(call.rank for call in found.theirs), "their_call": called(facts, theirs) + _batch(theirs, ours),
        }  # fmt: skip
        related = (Related(f"rank {ours.rank} runs {called(facts, ours)} at the same turn", location_of(facts, ours)),)
        ranks = facts.fold.everywhere(tuple(sorted(call.rank for call in (*found.ours, *found.theirs))))
        about = (*names_of_collective(ours), *names_of_collective(theirs))
        yield Sighting(location_of(facts, theirs), ranks, words, related, about)


def _batch(call: Call, other: Call) -> str:
    """Return for which micro-batch a call is, in words; empty where it is that of the other call."""
    return f" for micro-batch {call.micro_batch}" if -1 < call.micro_batch != other.micro_batch else ""


def absent_members(facts: Facts) -> Iterator[Sighting]:
    """Yield collectives that some member of the group runs less often than others; not where a whole backward is missing."""
    unbalanced = {rank for found in uneven_backwards(facts.plan) for rank in found.ranks}
    lacking = (found for found in disagreements(facts) if found.kind == "absent" and unbalanced.isdisjoint(found.absent))
    for found in first_of_each(lacking, lambda found: found.ours[0].site):
        call = found.ours[0]
        words = {
            "call": called(facts, call), "members": describe(call.members), "absent": describe(found.absent),
            "present": describe(each.rank for each in found.ours),
        }  # fmt: skip
        ranks = facts.fold.everywhere(tuple(sorted({*found.absent, *(each.rank for each in found.ours)})))
        yield Sighting(location_of(facts, call), ranks, words, about=names_of_collective(call))


def messages_out_of_order(facts: Facts) -> Iterator[Sighting]:
    """Yield receives that only their tag leads past an earlier message of the same channel; once per channel of operators."""
    seen = set()
    for sends, receives in traffic(facts).channels.values():
        place = {call: at for at, call in enumerate(sends)}
        latest = -1
        for receive in receives:
            send, taken = receive.partner, receive.operator
            at = place.get(send, -1) if send is not None else -1
            if send is not None and isinstance(taken, Receive) and 0 <= at < latest and receive.site not in seen:
                seen.add(receive.site)
                words = {"tensor": taken.tensor, "tag": taken.tag, "rank": receive.rank, "sender": send.rank}
                related = (Related("it is sent here", location_of(facts, send)),)
                ranks = facts.fold.everywhere(tuple(sorted({send.rank, receive.rank})))
                yield Sighting(location_of(facts, receive), ranks, words, related, (taken.tensor,))
            latest = max(latest, at)


def opposite_orders(facts: Facts) -> Iterator[Sighting]:
    """Yield cycles of ranks that each stand in a collective which the next has not reached, or has not issued yet."""
    if disagreements(facts):
        return
    cycles = cycles_of_collectives(buffered_deadlock(facts))
    if not cycles and not buffered_deadlock(facts).blocked:
        cycles = crossed_issues(traffic(facts))
    for cycle in cycles:
        yield _cycle(facts, cycle, lambda call, _: f"{in_words(facts, call)} over {describe(call.members)}")


def cycles_unless_buffered(facts: Facts) -> Iterator[Sighting]:
    """Yield cycles that only a backend that completes sends before their receive gets past."""
    if not cycles_with_messages(buffered_deadlock(facts)):
        for cycle in cycles_with_messages(unbuffered_deadlock(facts)):
            yield _cycle(facts, cycle, lambda call, _: in_words(facts, call))


def cycles_of_messages(facts: Facts) -> Iterator[Sighting]:
    """Yield cycles that stand even when sends complete at once."""
    for cycle in cycles_with_messages(buffered_deadlock(facts)):
        yield _cycle(facts, cycle, lambda call, following: f"{in_words(facts, call)} waits for rank {following.rank}")


def _cycle(facts: Facts, cycle: Sequence[Call], say: Callable[[Call, Call], str]) -> Sighting:
    """Return ranks that wait for each other; `say` has the words for where one of them stands, given the next."""
    shown = cycle[:8]
    stands = [f"rank {call.rank} in {say(call, cycle[(at + 1) % len(cycle)])}" for at, call in enumerate(shown)]
    related = tuple(Related(f"rank {call.rank} stands here", location_of(facts, call)) for call in shown[1:])
    ranks = facts.fold.everywhere(tuple(sorted({call.rank for call in cycle})))
    return Sighting(location_of(facts, cycle[0]), ranks, {"stands": "; ".join(stands)}, related, names_of(*shown))


def undone_exchanges(facts: Facts) -> Iterator[Sighting]:
    """Yield combines over another group than their dispatch, and dispatched tokens that are added to those that stayed."""
    for found in unpaired(facts):
        what = f"is combined over {found.taken}" if found.taken else "is combined before they came back"
        if found.rows:
            what = f"is combined with {found.rows}, so that others go back than came"
        if found.other:
            what = f"is added to `{found.other}`, whose tokens stayed"
        what = f"holds tokens that were dispatched over {found.given}, but {what}"
        help, before = f"bring the tokens back with an all-to-all over {found.given}", "the tokens are dispatched here"
        if not found.given:
            what = f"is combined over {found.taken}, but experts were applied to tokens that nothing dispatched"
            help, before = f"send the tokens with an all-to-all over {found.taken} before", "experts are applied here"
        words, about = {"name": found.name, "what": what, "help": help}, tuple(filter(None, (found.name, found.other)))
        place, ranks = facts.place(found.segment, found.index), facts.fold.everywhere(found.ranks)
        yield Sighting(place, ranks, words, (Related(before, facts.place(*found.dispatched), leads=True),), about)


def rings_cut_short(facts: Facts) -> Iterator[Sighting]:
    """Yield rings of attention steps that end before every rank's keys came by."""
    for found in ring_defects(facts):
        if found.kind != "step":
            continue
        twice, help = "", "rotate the keys and values once more for every rank but the own"
        if found.again >= 0:
            twice = f"meets those of rank {found.again} twice, here as `{found.name}`, and "
            help = "send on the keys and values that the step before received"
        words = {
            "ranks": facts.who(found.ranks), "other": found.other, "rank": found.ranks[0], "twice": twice, "help": help,
            "missing": describe(found.missing),
        }  # fmt: skip
        yield Sighting(facts.place(*found.where), facts.fold.everywhere(found.ranks), words, about=())


def values_left_behind(facts: Facts) -> Iterator[Sighting]:
    """Yield attention steps whose keys and values come from different ranks."""
    for found in ring_defects(facts):
        if found.kind != "values":
            continue
        words = {
            "other": found.other, "name": found.name, "keys": found.missing[0], "values": found.missing[1],
            "ranks": facts.who(found.ranks[:1]), "more": " and others" if len(found.ranks) > 1 else "",
        }  # fmt: skip
        ranks = facts.fold.everywhere(found.ranks)
        yield Sighting(facts.place(*found.where), ranks, words, about=(found.other, found.name))
