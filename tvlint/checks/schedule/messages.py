"""Defects of messages that a schedule spells out, and of the waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.messages import Message, message_of
from tvlint.analyses.schedule.order import crossed
from tvlint.analyses.schedule.steps import Step, numbered
from tvlint.analyses.schedule.waits import WAITS
from tvlint.findings import Related
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Sighting


def early_sends(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield sends that stand before the step that computes what they send."""
    early, givers = [], {}
    for message, (giver, _) in facts.messages.needed.items() if facts.sends else ():
        for send in facts.messages.sends.get(message, ()):
            if send.rank == giver.rank and send.position < giver.position:
                early.append(send)
                givers[id(send)] = giver
    return each(early, lambda step: {"giver": givers[id(step)]})


def late_receives(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield receives that stand after the step that needs them."""
    late, takers = [], {}
    for message, (_, taker) in facts.messages.needed.items() if facts.sends else ():
        receives = facts.messages.receives.get(message, ())
        if receives and all(step.rank == taker.rank and step.position > taker.position for step in receives):
            late.append(receives[0])
            takers[id(receives[0])] = taker
    return each(late, lambda step: {"taker": takers[id(step)]})


def fifo_inversions(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield the first send of each pair of ranks that meets the receive of another message."""
    for (source, destination), send, receive, sent, received in crossed(facts.messages):
        given = {
            "source": source, "destination": destination, "send": send, "receive": receive, "sent": sent, "received": received
        }  # fmt: skip
        yield Sighting(receive.location, (source, destination), given, (Related(f"{send} stands here", send.location),))


def without_peer(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield messages beyond the first or last pipeline stage, and messages of a rank to itself."""
    ends = {id(step): message for step, message in facts.messages.without_peer}

    def say(step: Step) -> Mapping[str, object]:
        message = ends[id(step)]
        other = message.source if "RECV" in step.kind.value else message.destination
        if 0 <= other < facts.extent.stages:
            return {"what": f"to itself: pipeline stage {other} is on the same rank"}
        return {"what": f"with pipeline stage {other}, which does not exist"}

    return each([step for step, _ in facts.messages.without_peer], say)


def missing_messages(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield messages that are needed and neither sent nor received, once per pipeline stage and direction."""
    if not facts.sends:
        return
    found = facts.messages
    absent: dict[tuple[bool, int], list[Message]] = {}
    for message in found.needed:
        if message not in found.sends and message not in found.receives:
            absent.setdefault((message.forward, message.source), []).append(message)
    for (forward, _), messages in absent.items():
        message = messages[0]
        giver, taker = found.needed[message]
        given = {
            "giver": giver, "taker": taker, "giver_rank": giver.rank, "taker_rank": taker.rank, "send": message.send,
            "receive": message.receive, "what": "output" if forward else "gradient",
            "micro_batches": numbered("micro-batch", (other.micro_batch for other in messages)),
        }  # fmt: skip
        yield Sighting(taker.location, (giver.rank, taker.rank), given, (Related(f"{giver} stands here", giver.location),))


def unwaited(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield issues without a later wait, in schedules that spell their waits out; not where the wait has a wrong number."""

    def is_explained(step: Step) -> bool:
        kinds = [wait for wait, issue in WAITS.items() if issue is step.kind]
        return facts.strays_for(kinds, step.stage, step.micro_batch, step.rank) > 0

    unwaited = [step for step in facts.waits.open if not is_explained(step)]
    return each(unwaited, lambda step: {"issued": str(step.action).removeprefix(str(step.stage))})


def loose_waits(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield waits that no open send or gradient reduction stands before; not where the send is what is missing."""

    def lacks_send(step: Step) -> bool:
        message = Message(step.kind is ActionKind.WAIT_SEND_FORWARD, step.stage, step.micro_batch)
        is_of_message = step.kind is not ActionKind.WAIT_REDUCE_GRADIENT
        return is_of_message and message not in facts.messages.sends and message in facts.messages.receives

    return each(step for step in facts.waits.loose if not lacks_send(step))


def _unmatched(
    facts: ScheduleFacts, loose: Sequence[Step], others: Mapping[Message, Sequence[Step]], sends: bool
) -> Iterator[Sighting]:
    """Yield the steps of `loose` whose other end is not there; where that has a wrong number another rule reports it."""
    kinds = (ActionKind.RECEIVE_FORWARD, ActionKind.RECEIVE_BACKWARD) if sends else (
        ActionKind.SEND_FORWARD, ActionKind.SEND_BACKWARD
    )  # fmt: skip

    def is_explained(step: Step) -> bool:
        message = message_of(step)
        if message is None:
            return False
        stage = message.destination if sends else message.source
        kind = kinds[0] if message.forward else kinds[1]
        return facts.strays_for((kind,), stage, message.micro_batch, facts.placement.rank(stage, message.micro_batch)) > 0

    def say(step: Step) -> Mapping[str, object]:
        message = message_of(step)
        if message is not None and others.get(message):
            return {"what": "sends what was sent already" if sends else "receives what was received already"}
        end = (message.receive if sends else message.send) if message is not None else ""
        return {"what": f"has no `{end}`"}

    ordered = sorted(loose, key=lambda step: (step.rank, step.position))
    return each((step for step in ordered if not is_explained(step)), say)


def unmatched_receives(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield receives without a send."""
    found = facts.messages
    loose = [step for message, taken in found.receives.items() for step in taken[len(found.sends.get(message, ())) :]]
    return _unmatched(facts, loose, found.sends, sends=False)


def unmatched_sends(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield sends without a receive, and sends of what was sent before."""
    found = facts.messages
    loose = []
    for message, sends in found.sends.items():
        receives = len(found.receives.get(message, ()))
        loose += sends[max(1, receives) if receives == len(sends) else receives :]
    return _unmatched(facts, loose, found.receives, sends=True)
