"""The program of one rank, as a plan writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import needs, writes
from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis
from tvlint.ir.operators import Group, ReduceGradients
from tvlint.readers.capture.emit import Emitter, Run, Shape
from tvlint.readers.capture.lifting.calls import PUT, SELECT
from tvlint.readers.capture.lifting.dead import without_dead
from tvlint.readers.capture.lifting.equations.table import EQUATIONS
from tvlint.readers.capture.lifting.factors import Factors, misfit
from tvlint.readers.capture.lifting.lift import (
    Call,
    Lifted,
    LiftedNode,
    inputs_of,
    is_move,
    lift,
    makers_of,
    outputs_of,
    readers_of,
)
from tvlint.readers.capture.lifting.program import Array, End, Exchange, Message, Program
from tvlint.readers.capture.reducers import Reduced, Reducer, reducers_of
from tvlint.readers.capture.rewriting.backward_order import with_one_backward_order
from tvlint.readers.capture.rewriting.chosen_rows import with_all_rows
from tvlint.readers.capture.rewriting.equal_runs import with_equal_runs
from tvlint.readers.capture.rewriting.exchanged_places import with_exchanged_places
from tvlint.readers.capture.rewriting.expansions import without_expansions
from tvlint.readers.capture.rewriting.regather import with_dimensions
from tvlint.readers.capture.rewriting.scaled_sums import with_scaled_addends
from tvlint.readers.capture.rewriting.scattered_addends import with_scattered_addends
from tvlint.readers.capture.rewriting.set_flags import with_set_flags_selected
from tvlint.readers.capture.rewriting.sorted_flags import with_flags_selected
from tvlint.readers.capture.rewriting.sorted_rows import with_rows_in_order
from tvlint.readers.capture.tapes.communicators import group_along
from tvlint.readers.capture.tapes.tape import Mark, Tape
from tvlint.readers.document import ReadError

LOSS = "loss"
Declared: TypeAlias = Mapping[str, tuple[Shape, str]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A lifted program without what the plan does not write, and its reducers."""

    lifted: Lifted
    reduced: Reduced
    factors: Factors
    meshes: tuple[tuple[tuple[Axis, ...], tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The program of one rank: runs in order, types of values, reducers, updated weights."""

    runs: tuple[Run, ...]
    declared: Declared
    reducers: tuple[ReduceGradients, ...]
    updated: tuple[str, ...]


def in_operators(path: str, program: Program, received: Mapping[str, float | None] | None = None) -> Lifted:
    """Return what one rank recorded, followed as `program`, in operators of the table, up to the optimizer.

    `received` are the numbers that other ranks give.

    Raises ReadError where an operator cannot have given what was recorded, or may compute something else.
    """
    lifted = lift(program, EQUATIONS, received or {})
    misfits = ((misfit(node, program.types), node.mark) for node in lifted.nodes if isinstance(node, Call))
    unread = ((text, mark) for text, mark in lifted.unread if mark.phase != "optimizer")
    for text, mark in (*unread, *misfits):
        if text:
            raise ReadError(text, mark.place or Location(path), "capture it again, or compute this in another way")
    return without_dead(lifted)


def prepare(tape: Tape, lifted: Lifted, tokens: tuple[tuple[int, int], ...] = (), averages: bool = True) -> Prepared:
    """Return the program of one rank as the plan writes it, with its reducers.

    `tokens` are the dimensions along which the single-device program counts the tokens of experts; `averages` says whether
    means of gradients are left out that a later mean makes needless.
    """
    lifted = _with_rows_of_experts(without_dead(with_rows_in_order(lifted)), tokens)
    lifted = with_exchanged_places(with_dimensions(without_expansions(without_dead(lifted))))
    lifted = with_scattered_addends(_with_data_in_its_micro_batch(without_dead(with_scaled_addends(lifted))))
    reduced = reducers_of(lifted, averages)
    gradients: dict[str, tuple[str, Array | None]] = {
        f"{weight} {i}": (value, None) for weight, names in reduced.addends.items() for i, value in enumerate(names)
    }
    kept = [node for node in lifted.nodes if id(node) not in reduced.gone]
    rest = without_dead(replace(lifted, nodes=kept, gradients=gradients))
    rest, same = with_one_backward_order(replace(rest, gradients=lifted.gradients))
    addends = {weight: tuple(same.get(name, name) for name in names) for weight, names in reduced.addends.items()}
    left = [(weight, axes) for weight, axes in lifted.program.partial.items() if weight in reduced.addends]
    summed = [Reducer(weight, group_along(tape, axes), "sum", 1, Mark()) for weight, axes in left]
    reduced = replace(reduced, addends=addends, reducers=(*reduced.reducers, *summed))
    return Prepared(rest, reduced, Factors(rest), tape.meshes)


def _with_rows_of_experts(lifted: Lifted, tokens: tuple[tuple[int, int], ...]) -> Lifted:
    """Return the program with all rows in place of those that experts choose, also where sorted flags choose them.

    Flags that are sorted for something else stay so: what they select is understood as rows of experts alone.
    """
    selected = with_set_flags_selected(with_flags_selected(lifted))
    if selected is not lifted:
        rows = with_all_rows(without_dead(selected), tokens)
        if not any(isinstance(node, Call) and node.op in (SELECT, PUT) for node in rows.nodes):
            return rows
    return with_all_rows(lifted, tokens)


def _with_data_in_its_micro_batch(lifted: Lifted) -> Lifted:
    """Return the program with each message, and what prepares data, in the micro-batch and phase that it is for.

    What moves a value to another place, as a view does, comes behind what makes the value.
    """
    makers: dict[str, LiftedNode] = {}
    issued: dict[str, Mark] = {}
    ended: set[int] = set()
    moved: set[int] = set()
    behind: dict[int, list[LiftedNode]] = {}
    nodes: list[LiftedNode] = []
    for prepared in _where_it_is_read(_with_exchanges_of_no_data_behind(lifted)):
        if prepared.mark.phase == "backward":
            ended.add(prepared.mark.micro_batch)
        node = replace(prepared, mark=_mark_of(prepared, makers, issued, ended))
        if isinstance(node, Message | Exchange) and node.handle:
            issued[node.handle] = node.mark
        moves = isinstance(node, Call) and is_move(node.op)
        source = makers.get(next(iter(inputs_of(node)), "")) if moves else None
        if source is not None and _is_before(source.mark, node.mark):
            node = replace(node, mark=source.mark)
            behind.setdefault(id(source), []).append(node)
            moved.add(id(node))
        nodes.append(node)
        makers.update(dict.fromkeys(outputs_of(node), node))
    return replace(lifted, nodes=[each for node in nodes if id(node) not in moved for each in _with_moves(node, behind)])


def _where_it_is_read(lifted: Lifted) -> list[LiftedNode]:
    """Return the nodes, those that receive or prepare data in the micro-batch and phase that reads it first."""
    readers: dict[str, list[LiftedNode]] = {}
    placed: list[LiftedNode] = []
    for node in reversed(lifted.nodes):
        marks = {
            (reader.mark.phase, reader.mark.micro_batch): reader.mark
            for name in outputs_of(node)
            for reader in readers.get(name, ())
        }
        receives = isinstance(node, Message) and not node.sends
        if marks and (receives or (isinstance(node, Call) and node.mark.phase == "forward")):
            first = min(marks.values(), key=lambda mark: mark.micro_batch)
            alone = len({mark.micro_batch for mark in marks.values()}) == 1
            if receives or (alone and first.micro_batch > node.mark.micro_batch):
                phase = "forward" if any(mark.phase == "forward" for mark in marks.values()) else "backward"
                node = replace(node, mark=replace(node.mark, micro_batch=first.micro_batch, phase=phase))
        placed.append(node)
        for name in inputs_of(node):
            readers.setdefault(name, []).append(node)
    return placed[::-1]


def _mark_of(node: LiftedNode, makers: Mapping[str, LiftedNode], issued: Mapping[str, Mark], ended: set[int]) -> Mark:
    """Return the place of a node in the step, by what it reads: `makers` of values, `issued` handles, `ended` micro-batches."""
    mark = node.mark
    if isinstance(node, Exchange) and mark.phase == "forward" and mark.micro_batch in ended:
        sources = [makers.get(name) for name in node.inputs]
        if all(isinstance(source, Call | Exchange) and _is_of_no_data(source) for source in sources):
            return replace(mark, phase="reduce", micro_batch=-1)
    if isinstance(node, Call) and mark.micro_batch < 0:
        before = [makers[name].mark for name in inputs_of(node) if name in makers]
        return max(before, key=lambda other: other.micro_batch, default=replace(mark, micro_batch=0))
    by = mark
    if isinstance(node, Message) and node.sends and node.value in makers:
        by = makers[node.value].mark
    elif isinstance(node, End):
        by = issued.get(node.handle, mark)
    return replace(mark, phase=by.phase, micro_batch=by.micro_batch)


def _with_moves(node: LiftedNode, behind: Mapping[int, list[LiftedNode]]) -> Iterator[LiftedNode]:
    """Yield a node and all that is moved behind it, what is moved last first."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left.extend(behind.get(id(node), ()))


def _with_exchanges_of_no_data_behind(lifted: Lifted) -> Lifted:
    """Return the program with collectives of numbers that a micro-batch makes, whose results nothing reads, behind all of them.

    So `DistributedDataParallel` does in the last micro-batch with `find_unused_parameters`, and in the second one where it
    forms its buckets anew.
    """
    makers, readers = makers_of(lifted), readers_of(lifted)
    exchanges = [node for node in lifted.nodes if isinstance(node, Exchange) and node.mark.micro_batch >= 0]
    behind: set[int] = set()
    for node in (node for node in exchanges if not any(name in readers for name in node.outputs)):
        sources = [makers.get(name) for name in node.inputs]
        alone = all(readers[name] == [node] for name in node.inputs)
        if alone and all(isinstance(source, Call) and not inputs_of(source) for source in sources):
            behind |= {id(node), *map(id, sources)}
    nodes = [
        replace(node, mark=replace(node.mark, phase="reduce", micro_batch=-1)) if id(node) in behind else node
        for node in lifted.nodes
    ]
    return replace(lifted, nodes=nodes)


def _is_before(source: Mark, mark: Mark) -> bool:
    """Return whether what a view is of is made in another micro-batch, or is a gradient, viewed outside of its pass."""
    outside = source.phase == "backward" and mark.phase == "forward"
    return min(source.micro_batch, mark.micro_batch) >= 0 and (outside or source.micro_batch != mark.micro_batch)


def _is_of_no_data(node: Call | Exchange) -> bool:
    """Return whether a number is made here, or exchanged after the backward passes."""
    return node.mark.phase == "reduce" if isinstance(node, Exchange) else not inputs_of(node)


def titles_of(lifted: Lifted) -> dict[str, str]:
    """Return the names of the values that backward passes start at with one: the loss, and the parts that had passes before it.

    A part of a micro-batch has the name of the part of the others that comes at the same place.
    """
    whole = {root.value for root in lifted.losses}
    places: Counter[int] = Counter()
    titles: dict[str, str] = {}
    for root in lifted.roots:
        if not root.start and root.value not in titles:
            places[root.mark.micro_batch] += root.value not in whole
            titles[root.value] = LOSS if root.value in whole else f"{LOSS}.part{places[root.mark.micro_batch]}"
    return titles


def write_rank(
    prepared: Prepared, named: Mapping[str, str], pieces: Mapping[str, Shape], data: frozenset[str], prefix: str = ""
) -> RankProgram:
    """Write the program.

    `named` are the names of the values that the step does not make, `pieces` the shapes of what a rank holds of them, and
    `data` the names of its inputs.
    """
    lifted = prepared.lifted
    starts = titles_of(lifted)
    seeds = {seed: f"grad({starts[root]})" for seed, root in lifted.seeds.items()}
    emitter = Emitter(lifted, prepared.factors, {**named, **seeds}, pieces, data | {*seeds.values()})
    emitter.titles.update(starts)
    emitter.prefix = prefix
    emitter.emit(lifted.nodes)
    complete: dict[str, Mark] = {}
    for node in lifted.nodes:
        for name in outputs_of(node):
            complete.setdefault(name, node.mark)
    for weight, addends in prepared.reduced.addends.items():
        for value in addends:
            mark = complete.get(value, Mark("backward", 0))
            emitter.finish_run(value, f"grad({weight})", lifted.program.shape(lifted.gradients[weight][0]), mark)
    _drop_unread_turns(emitter)
    reducers = _reducers(prepared)
    updated = tuple(name for name in lifted.program.updated if name in lifted.gradients)
    return RankProgram(with_equal_runs(emitter.runs), emitter.declared, reducers, updated)


def _drop_unread_turns(emitter: Emitter) -> None:
    """Leave out permutations that are read through other permutations alone, which are written as ones of what those are of."""
    read = {name for run in emitter.runs for operator in run.operators for name in needs(operator)}
    unread = emitter.turned.keys() - read
    for name in unread:
        del emitter.declared[name]
    for run in emitter.runs:
        run.operators = [each for each in run.operators if unread.isdisjoint(writes(each))]


def _reducers(prepared: Prepared) -> tuple[ReduceGradients, ...]:
    """Return the reducers, those of neighbouring weights that do the same as one."""
    found: list[ReduceGradients] = []
    for reducer in prepared.reduced.reducers:
        group = Group(ranks=reducer.group)
        last = found[-1] if found else None
        same = (group, reducer.reduce, reducer.divisor, reducer.scatter)
        alike = last is not None and (last.group, last.reduce, last.divisor, last.scatter) == same
        if last is not None and alike and reducer.weight not in last.weights:
            found[-1] = replace(last, weights=(*last.weights, reducer.weight))
            continue
        place = reducer.mark.place
        found.append(
            ReduceGradients((reducer.weight,), group, reducer.reduce, reducer.divisor, scatter=reducer.scatter, source=place)
        )
    return tuple(found)
