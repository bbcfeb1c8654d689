"""Tokens that all-to-alls hand to other ranks and back: which groups' exchanges every value has gone through.

An all-to-all that splits one dimension and joins another may as well move a shard from one to the other, which is judged by
placements. It dispatches tokens only where an operator that routes them made what it sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import collectives, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Program, Role, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait

Exchange = tuple[object, ...]
"""The communicator of an all-to-all, as every member names it."""


@dataclass(frozen=True, slots=True)
class Unpaired:
    """At (`segment`, `index`) `name`, whose tokens were dispatched over `given`, is combined over `taken` or meets `other`.

    Without `given` the tokens were dispatched nowhere, and at `dispatched` experts were applied to them.

    `rows` tells the rows that are combined and those that were dispatched, where they are not as many of each rank.
    """

    segment: str
    index: int
    name: str
    given: str
    taken: str
    other: str
    dispatched: tuple[str, int]
    ranks: tuple[int, ...]
    rows: str = ""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The exchanges that are not undone yet, with their places.

    `worked` says that experts were applied since the last, `routed` that an operator that routes tokens made them.
    """

    open: tuple[tuple[Exchange, str, tuple[str, int], tuple[int | None, int | None]], ...] = ()
    worked: bool = False
    routed: bool = False
    stayed: tuple[frozenset[str], tuple[str, int]] | None = None
    """The axes over which experts lie that were applied to tokens which no exchange had dispatched, and where."""
    split: frozenset[str] = frozenset()
    """The axes whose ranks have tokens of their own."""

    def swaps_rows(self) -> bool:
        """Return whether the last exchange hands rows to others that keep their places: no move of a shard does."""
        return bool(self.open) and self.open[-1][3][0] == self.open[-1][3][1]


def unpaired(facts: Facts) -> Iterator[Unpaired]:
    """Dispatches and combines that do not belong together, once per operator."""
    if not any(_exchanges_tokens(operator) for operator in collectives(facts.plan)):
        return
    seen: dict[tuple[str, int], Unpaired] = {}
    for program in facts.plan.programs:
        for found in _in_program(facts, program):
            seen.setdefault((found.segment, found.index), found)
    yield from seen.values()


def _exchanges_tokens(operator: object) -> bool:
    """Return whether the operator trades rows between ranks."""
    return isinstance(operator, Communicate) and operator.kind is Collective.ALL_TO_ALL and operator.dim is not None


def words_of(group: Group) -> str:
    """Return the group in words."""
    return "/".join(group.axes) or group.name or "ranks " + ",".join(map(str, group.ranks))


_JOINS = (Collective.ALL_GATHER, Collective.GATHER, Collective.CHUNK, Collective.SCATTER, Collective.REDUCE_SCATTER)


def _passed_on(held: _Tokens, operator: Communicate, members: Exchange, axes: frozenset[str]) -> _Tokens:
    """Return what is known of `held` after a communication that is no exchange: nothing where it joins what was dispatched."""
    if operator.kind is Collective.ALL_TO_ALL:
        return _Tokens()
    if operator.kind in _JOINS and any(key[1] == members[1] for key, *_ in held.open):
        return _Tokens()
    return replace(held, stayed=None, split=held.split - axes) if held.split & axes else held


def _is_expert(operator: Compute, weights: list[Tensor]) -> bool:
    """Return whether it is sure to apply experts: it is known to, or every rank holds some of a stack of matrices."""
    if has_kind(operator.op, Trait.EXPERTS):
        return True
    if has_kind(operator.op, Trait.CONVOLUTION):
        return False
    stacked = [weight for weight in weights if len(weight.shape) >= 3]
    return any(
        any(isinstance(placement, Shard) and placement.dim == 0 for placement in (weight.placements or {}).values())
        or (weight.whole is not None and weight.whole[:1] > weight.shape[:1])
        for weight in stacked
    )


def _in_program(facts: Facts, program: Program) -> Iterator[Unpaired]:
    rank = min(program.ranks, default=0)
    tokens: dict[str, _Tokens] = {}
    for name, index, operator in facts.plan.run_by(program):
        where = (name, index)
        if isinstance(operator, Communicate):
            for source, output in zip(operator.inputs, operator.outputs, strict=False):
                held = tokens.get(source) or _given(facts.plan.tensors.get(source))
                group = facts.plan.declared(operator.group)
                key: Exchange = (tuple(sorted(group.axes)), facts.fold.members(group, rank))
                tensor = facts.plan.tensors.get(source)
                way = operator.way(0 if tensor is None else len(tensor.shape))
                back = held.open[-1][3] == way[::-1] if held.open else False
                moves = way[0] != way[1] and not held.routed and not (back and held.worked)
                if not _exchanges_tokens(operator) or (moves and held.open):
                    tokens[output] = _passed_on(held, operator, key, frozenset(group.axes) or held.split)
                    continue
                words = words_of(group)
                if held.open and held.open[-1][0] == key and back:
                    rows = (_rows(facts, held, operator, source) if held.worked else "") or _splits(facts, held, operator)
                    if rows:
                        _, given, dispatched, _ = held.open[-1]
                        yield Unpaired(name, index, source, given, words, "", dispatched, program.ranks, rows)
                    tokens[output] = _Tokens(held.open[:-1], held.worked, held.routed)
                elif held.open and held.worked and back:
                    _, given, dispatched, _ = held.open[-1]
                    yield Unpaired(name, index, source, given, words, "", dispatched, program.ranks)
                    tokens[output] = _Tokens()
                else:
                    if held.stayed is not None and held.stayed[0] == set(group.axes) and way[0] == way[1]:
                        yield Unpaired(name, index, source, "", words, "", held.stayed[1], program.ranks)
                    tokens[output] = _Tokens((*held.open, (key, words, where, way)), False, held.routed)
        elif isinstance(operator, Compute):
            yield from _compute(facts, program, operator, where, tokens)
        elif isinstance(operator, Backward):
            for output in writes(operator):
                tokens.pop(output, None)


def _splits(facts: Facts, held: _Tokens, back: Communicate) -> str:
    """Return how many rows `back` sends to each rank and how many came from it, where these are as many of other ranks."""
    segment, at = held.open[-1][2]
    sent = facts.plan.segments[segment].operators[at]
    if not isinstance(sent, Communicate):
        return ""
    for came, goes in ((sent.receive_splits, back.splits), (sent.splits, back.receive_splits)):
        if came and goes and came != goes and (held.worked or sorted(came) == sorted(goes)):
            return f"{list(goes)} rows in place of {list(came)}"
    return ""


def _rows(facts: Facts, held: _Tokens, back: Communicate, source: str) -> str:
    """Return how many rows `back` takes and how many the exchange gave that it undoes, where their numbers differ: cut
    evenly, other rows go back than came.
    """
    segment, at = held.open[-1][2]
    sent = facts.plan.segments[segment].operators[at]
    if not isinstance(sent, Communicate) or sent.splits or sent.receive_splits or back.splits or back.receive_splits:
        return ""
    given, taken = (facts.plan.tensors.get(name) for name in (sent.outputs[0], source))
    dim = back.dim or 0
    if given is None or taken is None or len(given.shape) != len(taken.shape) or not 0 <= dim < len(given.shape) - 1:
        return ""
    one, other = given.shape[:-1], taken.shape[:-1]
    alike = one[:dim] + one[dim + 1 :] == other[:dim] + other[dim + 1 :]
    return f"{other[dim]} rows in place of {one[dim]}" if alike and one[dim] != other[dim] else ""


def _compute(
    facts: Facts, program: Program, operator: Compute, where: tuple[str, int], tokens: dict[str, _Tokens]
) -> Iterator[Unpaired]:
    names = operator.tensor_operands
    tensors = facts.plan.tensors
    roles = {name: tensors[name].role if name in tensors else Role.ACTIVATION for name in names}
    data = [name for name in names if roles.get(name) in (Role.ACTIVATION, Role.INPUT)]
    exchanged = [name for name in data if tokens.get(name, _Tokens()).open]
    this_tokens = tokens[exchanged[0]] if exchanged else _Tokens()
    if exchanged and has_trait(operator.op, Trait.SUM) and len(data) == 2:
        other = next(name for name in (*data, "") if name != exchanged[0])
        if (
            tokens.get(other, _Tokens()).open != this_tokens.open
            and this_tokens.worked
            and this_tokens.swaps_rows()
            and other in roles
        ):
            _, given, dispatched, _ = this_tokens.open[-1]
            yield Unpaired(*where, exchanged[0], given, "", other, dispatched, program.ranks)
            this_tokens = _Tokens()
    if exchanged and this_tokens.worked and has_kind(operator.op, Trait.TOKEN_COMBINE) and data[:1] == exchanged[:1]:
        _, given, dispatched, _ = this_tokens.open[-1]
        yield Unpaired(*where, exchanged[0], given, "", "", dispatched, program.ranks)
        this_tokens = _Tokens()
    weights = [tensors[name] for name, role in roles.items() if role is Role.WEIGHT]
    worked = this_tokens.worked or (bool(weights) and (this_tokens.routed or _is_expert(operator, weights)))
    passed = len(data) == 1 and not weights and tokens.get(data[0], _Tokens()).routed
    routed = passed or has_kind(operator.op, Trait.TOKEN_DISPATCH) or (this_tokens.routed and bool(this_tokens.open))
    held = [tokens.get(name) or _given(tensors.get(name)) for name in data]
    split = frozenset[str]().union(*(each_tokens.split for each_tokens in held))
    stayed = None if this_tokens.open else _stayed(operator, where, weights, held, split)
    for output in operator.outputs:
        tokens[output] = _Tokens(this_tokens.open, worked and bool(this_tokens.open), routed, stayed, split)


def _given(tensor: Tensor | None) -> _Tokens:
    """Return what is known of the tokens of an input."""
    placed = (tensor.placements or {}).items() if tensor is not None and tensor.role is Role.INPUT else ()
    return _Tokens(split=frozenset(axis for axis, placement in placed if isinstance(placement, Shard) and placement.dim == 0))


def _stayed(
    operator: Compute, where: tuple[str, int], weights: list[Tensor], given: list[_Tokens], split: frozenset[str]
) -> tuple[frozenset[str], tuple[str, int]] | None:
    """Return over which axes experts lie that the operator, or one before it, applies to tokens of the ranks' own."""
    before = next((tokens.stayed for tokens in given if tokens.stayed is not None), None)
    if before is not None or not weights or not _is_expert(operator, weights):
        return before
    placed = [entry for weight in weights for entry in (weight.placements or {}).items()]
    axes = frozenset(axis for axis, placement in placed if isinstance(placement, Shard) and placement.dim == 0)
    return (axes, where) if axes and axes <= split else None
