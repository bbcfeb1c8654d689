"""mismatched-collective: members bring tensors of different shapes or dtypes to one collective."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from tvlint.analyses.communication.calls import Call, Meeting, location_of, traffic
from tvlint.analyses.communication.collective_order import called, disagreements, names_of, signature
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Related
from tvlint.ir.operators import GATHERS, Collective, Communicate
from tvlint.ir.plan import Tensor
from tvlint.rule import Sighting

_UNEVEN = (Collective.BARRIER, Collective.SCATTER)


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield collectives whose members agree on the operation, but not on the size or dtype of what they give; once per pair.

    Where a member lacks a collective that others run, those behind it meet others than their own.
    """
    seen = set()
    parted = {found.ours[0].meeting for found in disagreements(facts) if found.kind == "absent"}
    for meetings in traffic(facts).meetings.values():
        judged: set[object] = set()
        for meeting in takewhile(lambda meeting: meeting not in parted, meetings):
            calls = list(meeting.calls.values())
            same = tuple([(call.rank, call.site) for call in calls])
            if same in judged:
                continue
            judged.add(same)
            wrong, difference = _of_another_size(facts, meeting)
            if wrong is not None and (wrong.site, wrong.site) not in seen:
                seen.add((wrong.site, wrong.site))
                words = {"rank": wrong.rank, "difference": difference, "call": called(facts, wrong)}
                place, ranks = location_of(facts, wrong), facts.fold.everywhere((wrong.rank,))
                yield Sighting(place, ranks, words, about=names_of(wrong), case="size")
            if len({call.site for call in calls}) < 2:
                continue
            for other in calls[1:]:
                key = (calls[0].site, other.site)
                difference = "" if key in seen else _difference(facts, calls[0], other)
                if not difference:
                    continue
                seen.add(key)
                words = {
                    "rank": other.rank, "call": called(facts, other), "first": calls[0].rank,
                    "first_call": called(facts, calls[0]), "difference": difference,
                }  # fmt: skip
                place, ranks = location_of(facts, other), facts.fold.everywhere((calls[0].rank, other.rank))
                related = (Related(f"rank {calls[0].rank} runs it here", location_of(facts, calls[0])),)
                yield Sighting(place, ranks, words, related, (*names_of(other), *names_of(calls[0])), "tensor")


def _of_another_size(facts: Facts, meeting: Meeting) -> tuple[Call | None, str]:
    """Return the first member whose piece has another size than the splits of a gather or a reduce-scatter say."""
    members = [meeting.calls[rank] for rank in meeting.members if rank in meeting.calls]
    if len({call.site for call in members}) < 2:
        return None, ""
    for at, call in enumerate(members):
        operator = call.operator
        if not isinstance(operator, Communicate) or len(operator.splits) != len(members) or operator.dim is None:
            continue
        gives = operator.kind in GATHERS
        if not gives and operator.kind is not Collective.REDUCE_SCATTER:
            continue
        piece = facts.plan.tensors.get(next(iter(operator.inputs if gives else operator.outputs), ""))
        if piece is None or not -len(piece.shape) <= operator.dim < len(piece.shape):
            continue
        size, wanted = piece.shape[operator.dim], operator.splits[at]
        if size != wanted:
            return call, f"{'brings' if gives else 'takes'} {size} where the splits say {wanted}, in"
    return None, ""


def _difference(facts: Facts, first: Call, second: Call) -> str:
    left, right = first.operator, second.operator
    if not isinstance(left, Communicate) or not isinstance(right, Communicate) or left.kind in _UNEVEN:
        return ""
    if signature(first) != signature(second) or left.splits or right.splits or left.receive_splits or right.receive_splits:
        return ""
    if (left.dtype or right.dtype) and left.dtype != right.dtype:
        return f"communicated as {right.dtype or 'its own dtype'} and {left.dtype or 'its own dtype'}"
    one, two = _given(facts, left), _given(facts, right)
    if one is None or two is None:
        return ""
    if one.dtype != two.dtype:
        return f"{two.dtype} and {one.dtype}"
    if one.shape != two.shape:
        return f"shape {list(two.shape)} and {list(one.shape)}"
    return ""


def _given(facts: Facts, operator: Communicate) -> Tensor | None:
    return facts.plan.tensors.get(operator.inputs[0]) if operator.inputs else None
