"""wrong-collective-group: members of a collective do not agree about who takes part."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, location_of, traffic
from tvlint.analyses.communication.collective_order import disagreements
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Related
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Communicate, ReduceGradients
from tvlint.ir.ranks import describe
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield groups without their own rank, with ranks that do not exist, and groups on which members differ."""
    calls = (call for several in traffic(facts).meetings.values() for meeting in several for call in meeting.calls.values())
    for call in first_of_each(filter(_lacks_root, calls), lambda call: call.site):
        yield _sighting(facts, call, "root", {"root": call.operator.root if isinstance(call.operator, Communicate) else None})
    outside: dict[object, list[Call]] = {}
    for call in traffic(facts).outside:
        if isinstance(call.operator, (Communicate, ReduceGradients)):
            outside.setdefault(call.site, []).append(call)
    for calls_there in outside.values():
        ranks = tuple(sorted({call.rank for call in calls_there}))
        yield _sighting(facts, calls_there[0], "outside", {"ranks": facts.who(ranks)}, ranks)
    size = facts.plan.mesh.size
    strange = (several for several in traffic(facts).meetings.values() if any(rank >= size for rank in several[0].members))
    firsts = (next(iter(meeting.calls.values())) for several in strange for meeting in several)
    for call in first_of_each(firsts, lambda call: call.site):
        strangers = [rank for rank in call.members if rank >= size]
        yield _sighting(facts, call, "strangers", {"strangers": describe(strangers), "size": size})
    differ = ((found.ours[0], found.theirs[0]) for found in disagreements(facts) if found.kind == "group")
    for both in first_of_each(differ, lambda both: frozenset((call.site.segment, call.site.index) for call in both)):
        ours, theirs = sorted(both, key=lambda call: (-len(call.meeting.calls) if call.meeting else 0, call.rank))
        words = {"rank": theirs.rank, "other": ours.rank, "others": describe(ours.members)}
        related = (Related(f"rank {ours.rank} runs it here", location_of(facts, ours)),)
        yield _sighting(facts, theirs, "differs", words, tuple(sorted((ours.rank, theirs.rank))), related)


def _lacks_root(call: Call) -> bool:
    """Return whether a collective has a root that is none of its members."""
    operator = call.operator
    if not isinstance(operator, Communicate) or operator.root is None or operator.group.axes:
        return False
    return operator.root not in call.members


def _sighting(
    facts: Facts,
    call: Call,
    case: str,
    words: dict[str, object],
    ranks: tuple[int, ...] = (),
    related: tuple[Related, ...] = (),
) -> Sighting:
    name = call.operator.kind.value if isinstance(call.operator, Communicate) else "reduce-gradients"
    words = {"name": name, "members": describe(call.members), **words}
    everywhere = facts.fold.everywhere(ranks or (call.rank,))
    return Sighting(location_of(facts, call), everywhere, words, related, (name,), case)
