"""wrong-range: a lookup in a shard of rows that shifts and masks indices by another range than the rank holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.derivation.given.trusted_inputs import region, whole_shape
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.findings import Finding, Severity
from tvlint.ir.operators import SUMS, Communicate, Compute, Operator
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.field import Array
from tvlint.ops.spec import UnsupportedError
from tvlint.ops.table import LOOKUP, bound_in, spec_of
from tvlint.replay.lookups import MOST, Lookups, OfIndices, factor_of, is_view, made_once
from tvlint.replay.operators import NotReplayedError
from tvlint.rule import Rule

_PADDING = ", unless it is that of padding"

_MOST_VIEWS = 8
"""So many views and multiples are looked through between a lookup, its mask and the sum over ranks."""


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the lookups in shards of rows whose results are added up over ranks, and that do not give each row once."""
    seen = set[tuple[str, int]]()
    for program in facts.plan.programs:
        for name in dict.fromkeys(step.segment for step in program.steps if step.segment in facts.plan.segments):
            for index, wrong in _wrong(facts.plan, facts.plan.segments[name], program.ranks):
                if (name, index) not in seen:
                    seen.add((name, index))
                    operator = facts.plan.segments[name].operators[index]
                    found = rule.finding(
                        wrong,
                        facts.place(name, index, operator),
                        "shift indices by the first row that the rank holds, and set to zero what it looks up for all others",
                        ranks=facts.fold.everywhere(program.ranks),
                    )
                    yield replace(found, severity=Severity.WARNING) if _PADDING in wrong else found


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A lookup in rows of `table` with what is made of `source`, times what `last` makes of `mask`, if anything masks it."""

    operator: Compute
    table: str
    index: OfIndices
    mask: OfIndices | None
    last: Compute
    place: int


def _wrong(plan: Plan, segment: Segment, ranks: tuple[int, ...]) -> Iterator[tuple[int, str]]:
    """Yield where a segment looks up what is added up over ranks, and which index gets what it should not."""
    if not any(map(_is_lookup, segment.operators)) or any(getattr(each, "in_place", ()) for each in segment.operators):
        return
    scene = Lookups(plan, made_once(segment))
    for operator in segment.operators:
        if isinstance(operator, Communicate) and operator.kind in SUMS and operator.reduce in ("", "sum"):
            found = _lookup(scene, operator.inputs[0]) if operator.inputs else None
            text = _misfit(plan, found, ranks) if found is not None else ""
            if found is not None and text:
                yield next(at for at, each in enumerate(segment.operators) if each is found.operator), text


def _is_lookup(operator: Operator) -> bool:
    spec = spec_of(operator.op) if isinstance(operator, Compute) and not operator.attributes else None
    return spec is not None and spec.name == LOOKUP


def _lookup(scene: Lookups, name: str) -> _Lookup | None:
    """Return the lookup that `name` is, with its indices shifted by the plan; None where it is none."""
    last = _behind(scene, name)
    if last is None:
        return None
    makers = {at: _behind(scene, each) for at, each in enumerate(last.inputs) if isinstance(each, str)}
    lookups = {-1: last} if _is_lookup(last) else {at: each for at, each in makers.items() if each and _is_lookup(each)}
    if len(lookups) != 1:
        return None
    ((place, operator),) = lookups.items()
    names, masks = operator.tensor_operands, [str(last.inputs[at]) for at in makers if at != place]
    if len(names) != 2 or (place >= 0 and len(masks) != 1):
        return None
    index = scene.made_of(names[0])
    mask = scene.made_of(masks[0]) if place >= 0 else None
    if index is None or not index.order or (place >= 0 and (mask is None or mask.source != index.source)):
        return None
    return _Lookup(operator, names[1], index, mask, last, max(place, 0))


def _behind(scene: Lookups, name: str) -> Compute | None:
    """Return what makes `name`, or that of which it is a multiple by a constant, in whatever shape."""
    made = scene.made.get(name)
    for _ in range(_MOST_VIEWS):
        if made is None or not (is_view(made) or _is_multiple(scene.plan, made)):
            return made
        made = scene.made.get(str(made.inputs[0]))
    return made


def _is_multiple(plan: Plan, operator: Compute) -> bool:
    """Return whether each element of the result is a multiple of the one at its place: no sum of several, and nothing drawn."""
    bound = bound_in(operator, plan.tensors) if len(operator.tensor_operands) == 1 else None
    if bound is None or bound.whole or bound.draws is not None:
        return False
    return frozenset({0}) in bound.linear and bound.operands == bound.outputs


def _misfit(plan: Plan, found: _Lookup, ranks: tuple[int, ...]) -> str:
    """Return what one of the indices gets on a rank that it should not; empty where all is right or not decided."""
    import numpy as np

    table, source = plan.tensors.get(found.table), plan.tensors.get(found.index.source)
    if table is None or source is None or table.role is not Role.WEIGHT or source.role is not Role.INPUT:
        return ""
    count, held = whole_shape(table)[0], table.shape[0]
    if not held < count <= MOST or not _is_alike(plan, found):
        return ""
    every = np.arange(count).astype(float)
    try:
        row = found.index.values(every)
        flags = None if found.mask is None else found.mask.values(every)
        factor = np.ones(count) if flags is None else factor_of(found.last, found.place, flags, {})
    except (NotReplayedError, UnsupportedError):
        return ""
    is_shifted = found.mask is not None or not np.array_equal(row, every)
    if factor is None or not is_shifted or not np.all((factor == 0) | (factor == 1)):
        return ""
    texts = (_wrong_index(found.table, row, factor, held) for held in dict.fromkeys(_held(plan, table, ranks)))
    return next(filter(None, texts), "")


def _held(plan: Plan, table: Tensor, ranks: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield which rows of the table each rank holds."""
    for rank in ranks:
        try:
            yield region(plan, table, rank)[0]
        except Mismatch:
            continue


def _is_alike(plan: Plan, found: _Lookup) -> bool:
    """Return whether the ranks that hold other rows of the table look up the same indices."""
    table, source = plan.tensors[found.table], plan.tensors[found.index.source]
    if source.region is not None or table.region is not None:
        return source.region is None or source.shape == source.whole
    placements, given = table.placements or {}, source.placements
    return given is not None and all(axis not in given or given[axis] == placed for axis, placed in placements.items())


def _wrong_index(table: str, row: Array, factor: Array, held: tuple[int, int]) -> str:
    """Return which index gets what it should not on a rank that holds these rows.

    One index of the first rows that is set to zero may be that of padding, and the last rows of a table are where it is padded.
    """
    import numpy as np

    (start, stop), every = held, np.arange(len(row))
    inside = (every >= start) & (every < stop)
    rows = f"of `{table}`, of which the rank holds rows {start}:{stop}"
    beyond = every[(row < 0) | (row >= stop - start)]
    if len(beyond):
        at = beyond[0]
        return f"index {at} is looked up in row {start + int(row[at])} {rows}"
    other = every[inside & (factor == 1) & (row != every - start)]
    if len(other):
        at = other[0]
        return f"index {at} is given row {start + int(row[at])} {rows}"
    more = every[~inside & (factor == 1)]
    if len(more):
        at = more[0]
        return f"index {at} is given row {start + int(row[at])} {rows}, and its own on another rank"
    zero = every[inside & (factor == 0)]
    if len(zero) > 1 or (len(zero) and start):
        is_last = len(row) - len(zero) == zero[0] > start
        padding = _PADDING if len(zero) == 1 or is_last else ""
        return f"index {zero[0]}, whose row is one {rows}, is set to zero{padding}"
    return ""
