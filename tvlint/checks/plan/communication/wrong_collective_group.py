"""wrong-collective-group: members of a collective do not agree about who takes part."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, Site, location_of, traffic
from tvlint.analyses.communication.collective_order import disagreements
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.ir.operators import Communicate, ReduceGradients
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield groups without their own rank, with ranks that do not exist, and groups on which members differ."""
    yield from _outside(facts, rule)
    yield from _strangers(facts, rule)
    seen: set[tuple[object, ...]] = set()
    for found in disagreements(facts):
        if found.kind != "group":
            continue
        ours, theirs = found.ours[0], found.theirs[0]
        sites = frozenset(((ours.site.segment, ours.site.index), (theirs.site.segment, theirs.site.index)))
        if (sites,) in seen:
            continue
        seen.add((sites,))
        theirs, ours = sorted((theirs, ours), key=lambda call: (len(call.meeting.calls) if call.meeting else 0, -call.rank))
        yield rule.finding(
            f"`{_name(theirs)}` on rank {theirs.rank} runs over {describe(theirs.members)}, but rank {ours.rank} runs it over "
            f"{describe(ours.members)}",
            location_of(facts, theirs),
            "let every member name the same ranks",
            (Related(f"rank {ours.rank} runs it here", location_of(facts, ours)),),
            facts.fold.everywhere(tuple(sorted({ours.rank, theirs.rank}))),
            about=(_name(theirs),),
        )


def _outside(facts: Facts, rule: Rule) -> Iterator[Finding]:
    found: dict[Site, list[Call]] = {}
    for call in traffic(facts).outside:
        if isinstance(call.operator, (Communicate, ReduceGradients)):
            found.setdefault(call.site, []).append(call)
    yield from _rootless(facts, rule)
    for site, calls in found.items():
        ranks = tuple(sorted({call.rank for call in calls}))
        yield rule.finding(
            f"`{_name(calls[0])}` runs over {describe(calls[0].members)}, but {facts.who(ranks)}, which runs it, is not in it",
            facts.place(site.segment, site.index, site.operator),
            "name the group that the rank belongs to",
            ranks=facts.fold.everywhere(ranks),
            about=(_name(calls[0]),),
        )


def _rootless(facts: Facts, rule: Rule) -> Iterator[Finding]:
    seen: set[Site] = set()
    for meetings in traffic(facts).meetings.values():
        for call in (call for meeting in meetings for call in meeting.calls.values()):
            operator = call.operator
            if not isinstance(operator, Communicate) or operator.root is None or call.site in seen:
                continue
            if operator.root in call.members or operator.group.axes:
                continue
            seen.add(call.site)
            yield rule.finding(
                f"the root of `{_name(call)}` is rank {operator.root}, but it runs over {describe(call.members)}",
                location_of(facts, call),
                "name a root of the group",
                ranks=facts.fold.everywhere((call.rank,)),
                about=(_name(call),),
            )


def _strangers(facts: Facts, rule: Rule) -> Iterator[Finding]:
    seen: set[Site] = set()
    for meetings in traffic(facts).meetings.values():
        for meeting in meetings:
            call = next(iter(meeting.calls.values()))
            strangers = [rank for rank in call.members if rank >= facts.plan.mesh.size]
            if not strangers:
                break
            if call.site in seen:
                continue
            seen.add(call.site)
            yield rule.finding(
                f"`{_name(call)}` names {describe(strangers)}, but the mesh has {facts.plan.mesh.size} ranks",
                location_of(facts, call),
                "name ranks of the mesh",
                ranks=facts.fold.everywhere((call.rank,)),
                about=(_name(call),),
            )


def _name(call: Call) -> str:
    operator = call.operator
    return operator.kind.value if isinstance(operator, Communicate) else "reduce-gradients"
