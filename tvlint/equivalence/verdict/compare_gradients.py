"""Compare the final gradients and the updates of all weights with the reference's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from tvlint.analyses.dataflow.def_use import has, reads, writes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.relations.defect import Defect, Sum, at, source_of
from tvlint.analyses.relations.derivation.given.trusted_inputs import pieces_held, whole_shape
from tvlint.analyses.relations.derivation.localisation.localise import bare_name, partial_sum, scope_of
from tvlint.analyses.relations.derivation.state import Slot
from tvlint.analyses.relations.terms.loss_identities import multiplies_with_zero
from tvlint.analyses.relations.terms.ranges import is_equal_by_ranges, some_of
from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.boxes import covers
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.index_maps import Pieces, cells
from tvlint.analyses.relations.transfer.pending_ranges import united
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Operator, ReduceGradients, Update
from tvlint.ir.plan import Box, Plan, Role, Tensor


@dataclass(frozen=True, slots=True)
class Expected:
    """The reference's gradient of every weight, by full name, and its losses."""

    gradients: Mapping[str, Value]
    shapes: Mapping[str, tuple[int, ...]]
    losses: tuple[tuple[int, ...], ...]
    """The terms that each may be; of a loss in micro-batches, what each has as its own, and what they add up to."""
    left: Mapping[str, Value]
    """What it leaves in the weights and states that it writes anew, by full name."""


@dataclass(frozen=True, slots=True)
class _Started:
    """The sums of which the gradient of a weight is a part, and what that makes of it, in words."""

    weight: str
    origins: frozenset[int]
    text: str


def judge_gradients(
    world: World,
    plan: Plan,
    weights: Sequence[tuple[int, Tensor]],
    expected: Expected,
    held: Mapping[tuple[int, str], Slot],
    written: Set[str] = frozenset(),
    carriers: Mapping[int, Mapping[int, tuple[str, Operator]]] = MappingProxyType({}),
) -> Iterator[Defect]:
    """Yield what is wrong with the final gradients; nothing when every piece of every weight has exactly the reference's.

    Weights whose update is `written` out are judged by what they become, and not by a gradient.
    What is wrong with one weight stands where the plan declares a piece of it, else where the first rank makes its gradient
    last; that it makes none, where it takes a gradient of what it makes of the weight. What is a part of a sum that started in
    no weight's gradient stands where that started, `carriers` by rank and term.
    """
    declared: dict[str, Location] = {}
    for tensor in plan.tensors.values():
        if tensor.role is Role.WEIGHT and tensor.source is not None:
            declared.setdefault(tensor.logical or tensor.name, tensor.source)
    first, found = next(iter(declared.values()), None), [*_wrong(world, plan, weights, expected, held, written)]
    starts = _starts(plan, carriers, [defect for _, defect in found])
    made: dict[int, dict[tuple[str, bool], Location | None]] = {}
    ranks: dict[str, int] = {}
    for name, defect in found:
        if isinstance(defect.cause, _Started):
            defect = starts.get((defect.rank, defect.cause)) or replace(defect, cause=None)
        if defect.source is None and defect.cause is None:
            rank = ranks.setdefault(name, defect.rank)
            if first is None and rank not in made:
                made[rank] = _made_at(plan, rank)
            source = (
                declared.get(name, first) if first is not None else made[rank].get((name, defect.name == "missing-gradient"))
            )
            defect = replace(defect, source=source)
        yield defect


def _made_at(plan: Plan, rank: int) -> dict[tuple[str, bool], Location | None]:
    """Return where a rank makes the gradient of each weight last, and (True) where it takes that of what it makes of it."""
    weights = {tensor.name: tensor.logical or tensor.name for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}
    gradients = weight_gradients(plan)
    found: dict[tuple[str, bool], Location | None] = {}
    for operator in plan.run_on(rank):
        reduced = operator.weights if isinstance(operator, ReduceGradients) else ()
        made = {gradients.get(name, name) for name in (*reduced, *writes(operator))}
        taken = reads(operator.forward) if isinstance(operator, Backward) else ()
        found.update(((weights[name], False), source_of(operator)) for name in made & weights.keys())
        found.update(((weights[name], True), source_of(operator)) for name in weights.keys() & {*taken})
    return found


def _starts(
    plan: Plan, carriers: Mapping[int, Mapping[int, tuple[str, Operator]]], defects: Sequence[Defect]
) -> dict[tuple[int, _Started], Defect]:
    """Return, of a gradient that is a part of a sum of which others are parts as well, the defect where that sum started.

    What is a part of the gradient of one weight alone is to be reduced as that.
    """
    gradients, weights = weight_gradients(plan), dict[int, set[str]]()
    found: list[tuple[Defect, _Started, int]] = []
    for defect in defects:
        started, carried = defect.cause, carriers.get(defect.rank, {})
        first = min(started.origins & carried.keys(), default=-1) if isinstance(started, _Started) else -1
        if isinstance(started, _Started) and first >= 0 and carried[first][0] not in gradients:
            weights.setdefault(first, set()).add(started.weight)
            found.append((defect, started, first))
    segments = {id(operator): name for name, each in plan.segments.items() for operator in each.operators} if found else {}
    return {
        (defect.rank, started): _at_the_start(defect, started, origin, carriers[defect.rank][origin], segments)
        for defect, started, origin in found
        if len(weights[origin]) > 1
    }


def _at_the_start(
    defect: Defect, started: _Started, origin: int, carried: tuple[str, Operator], segments: Mapping[int, str]
) -> Defect:
    """Return the defect at the first operator that made a part of the sum, one for all gradients that are made of it."""
    carrier, producer = carried
    text = f"the gradient of {{subject}} on {{ranks}} {started.text}: it starts in `{carrier}`"
    found = replace(defect, message=text, subject=started.weight, cause=("starts", origin), fix=Sum(carrier, producer))
    return at(producer, segments.get(id(producer), ""), replace(found, operator=bare_name(producer)))


def _wrong(
    world: World,
    plan: Plan,
    weights: Sequence[tuple[int, Tensor]],
    expected: Expected,
    held: Mapping[tuple[int, str], Slot],
    written: Set[str],
) -> Iterator[tuple[str, Defect]]:
    """Each weight's full name with what is wrong with it."""
    covered: dict[str, list[Box]] = {}
    open_names: set[str] = set()
    strangers = False
    for rank, tensor in weights:
        name = tensor.logical or tensor.name
        if name not in expected.shapes:
            strangers = True
            text = f"the weight `{name}` on {{ranks}} has no counterpart in the reference"
            yield name, Defect("unknown-weight", False, text, rank)
            continue
        if whole_shape(tensor) != expected.shapes[name]:
            text = f"the weight `{name}` is {whole_shape(tensor)} where the reference has {expected.shapes[name]}"
            yield name, Defect("wrong-weight-shape", False, text, rank)
            open_names.add(name)
            continue
        try:
            pieces = pieces_held(plan, tensor, rank)
        except Mismatch as mismatch:
            yield name, Defect(mismatch.name, mismatch.refutes, f"on {{ranks}}, {mismatch.message}", rank)
            open_names.add(name)
            continue
        covered.setdefault(name, []).extend(cells(pieces))
        if name in expected.gradients and name not in written:
            value = held.get((rank, tensor.name), "missing")
            yield from ((name, one) for one in _judged(world, plan, name, rank, pieces, expected.gradients[name], value))
        elif (rank, tensor.name) in held and name not in expected.gradients:
            text = f"the weight `{name}` on {{ranks}} gets a gradient and in the reference it gets none"
            yield name, Defect("gradient-of-frozen-weight", False, text, rank)
    for name, whole in expected.shapes.items():
        if name in expected.gradients and name not in open_names and not covers(covered.get(name, []), whole):
            text = f"no rank of the parallel plan holds all of the weight `{name}`, piece by piece"
            if name not in covered:
                text = f"no rank of the parallel plan uses the weight `{name}`, which the reference trains"
            yield name, Defect("uncovered-weight", not strangers, text, plan.programs[0].ranks[0])


def _judged(
    world: World, plan: Plan, name: str, rank: int, pieces: tuple[Pieces, ...], right: Value, value: Slot | str
) -> Iterator[Defect]:
    subject = f"the gradient of `{name}` on {{ranks}}"
    if value is None:
        yield _of_many("undecided-gradient", "depends on an earlier value that is wrong or undecided", name, rank)
        return
    if isinstance(value, str):
        made = _made_under_another_name(plan, name, rank)
        text = f"{subject} is never computed"
        text += f": `{made}`, a gradient of it, does not become the one that it is updated with" if made else ""
        yield Defect("missing-gradient", not made, text, rank)
        return
    held = world.values.pieces_of(value)
    if len(held) != len(pieces):
        yield _of_many("other-gradient", "has another number of dimensions than the weight", name, rank)
        return
    if held != pieces:
        pairs = ((piece, united(made)) for wanted, made in zip(pieces, held, strict=True) for piece in wanted)
        lacks = any(not any(low <= piece[0] and piece[1] <= high for low, high in made) for piece, made in pairs)
        yield Defect("gradient-of-another-slice", lacks, f"{subject} is that of another slice than the weight's", rank)
        return
    value = _of_the_reference(world, world.values.out_of_pieces(value), right, pieces)
    if value.term != right.term:
        value, right = world.values.bare(value), world.values.bare(right)
    pending = sorted(entry for leaf in value.leaves for entry in leaf.pending)
    if value.term != right.term:
        yield _of_many("other-gradient", "is not the expression that the reference computes", name, rank)
    elif value.fold is not None:
        text = f"{subject} is {fold_text(value.fold)}"
        yield Defect("missing-gradient-reduction", False, text, rank)
    elif pending:
        partial = partial_sum(plan, rank, pending[0])
        scope = scope_of(pending[0])
        text = f"is {partial}, {scope}, that nothing completes"
        started = _Started(name, frozenset(entry.origin for entry in pending), text)
        said = f"{subject} {text}"
        yield Defect("missing-gradient-reduction", True, said, rank, expected="a complete sum", actual=scope, cause=started)
    elif value.leaves:
        text = f"{subject} adds some of its addends more often than others"
        yield Defect("unequal-addends", not multiplies_with_zero(world.terms), text, rank, subject=name)
    elif value.coefficient != right.coefficient:
        factor = Fraction(value.coefficient) / right.coefficient
        yield Defect(
            "wrong-gradient-scale",
            True,
            f"{subject} is {factor} times the reference's",
            rank,
            expected="1",
            actual=str(factor),
        )


def _of_the_reference(world: World, value: Value, right: Value, pieces: tuple[Pieces, ...]) -> Value:
    """Return a piece of a value as that of the reference's, where both are the same on the piece."""
    terms = world.terms
    if value.term == right.term or not terms.arithmetic or any(len(piece) > 1 for piece in pieces):
        return value
    term, other = value.term, right.term
    for dim, ((start, stop),) in enumerate(pieces):
        if (start, stop) == (0, terms.shape[right.term][dim]):
            continue
        parts = some_of(terms, term, dim, start, stop), some_of(terms, other, dim, start, stop)
        if parts[0] is None or parts[1] is None:
            return value
        term, other = parts[0], parts[1]
    same = term == other or is_equal_by_ranges(terms, term, other)
    return world.values.retermed(value, right.term) if same else value


def _made_under_another_name(plan: Plan, name: str, rank: int) -> str:
    """Return what the rank makes that is declared as a gradient of the weight; empty where there is nothing."""
    weights = [
        tensor for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT and (tensor.logical or tensor.name) == name
    ]
    known, updated = {weight.name for weight in weights}, {weight.gradient for weight in weights}
    gradients = {tensor.name for tensor in plan.tensors.values() if tensor.gradient_of in known and tensor.name not in updated}
    segments = {step.segment for program in plan.programs if rank in program.ranks for step in program.steps}
    made = (name for each_name in segments for operator in plan.segments[each_name].operators for name in writes(operator))
    return next((name for name in made if name in gradients), "")


def _of_many(kind: str, text: str, name: str, rank: int) -> Defect:
    """Return what one mistake does to the gradients of many weights, reported once for all of them."""
    return Defect(kind, False, f"the gradient of {{subject}} on {{ranks}} {text}", rank, subject=name, cause=(kind,))


def judge_updates(
    plan: Plan,
    reference: Plan,
    weights: Sequence[tuple[int, Tensor]],
    expected: Expected,
    changed: Set[tuple[int, str]],
    written: Set[str] = frozenset(),
) -> Iterator[Defect]:
    """Yield the weights that some rank does not update exactly once, or updates where the reference does not train them.

    Those in `changed` may have been updated by a call of unknown effect, and what is `written` out is judged elsewhere.

    A reference that updates some weights trains these; one that leaves the optimizer out trains all that have a gradient.
    Nothing for a pair that leaves the optimizer out: nnScaler's plans never hold it.
    """
    updates, own_updates = _updates(plan), _updates(reference)
    alone = {_full_name(reference, name) for _, name in own_updates}
    if not updates:
        if alone - written and not plan.format.startswith("nnscaler-"):
            text = "the reference updates weights and the parallel plan does not say that it does"
            yield Defect("no-updates", False, text, plan.programs[0].ranks[0])
        return
    if any(times > 1 for times in own_updates.values()):
        text = "the reference updates a weight more than once"
        yield Defect("reference-not-understood", False, text, plan.programs[0].ranks[0])
    trained = alone or expected.gradients.keys()
    for rank, tensor in weights:
        name = tensor.logical or tensor.name
        times = updates[rank, tensor.name]
        if name in expected.gradients and name in trained and times != (0 if name in written else 1):
            how = "is never updated" if times == 0 else f"is updated {times} times"
            certain = (rank, tensor.name) not in changed
            yield Defect("not-updated-once", certain, f"the weight `{name}` on {{ranks}} {how}", rank)
    for rank, each_name in updates:
        name = _full_name(plan, each_name)
        if name not in trained:
            text = f"the weight `{name}` on {{ranks}} is updated and in the reference it is not trained"
            yield Defect("updates-frozen-weight", False, text, rank)


def _updates(plan: Plan) -> Counter[tuple[int, str]]:
    """Return how often each rank updates each weight."""
    found: Counter[tuple[int, str]] = Counter()
    updating = {name: segment for name, segment in plan.segments.items() if has(segment.operators, {Update})}
    for program in plan.programs if updating else ():
        for step in program.steps:
            for operator in updating[step.segment].operators if step.segment in updating else ():
                if isinstance(operator, Update):
                    found.update((rank, name) for rank in program.ranks for name in operator.weights)
    return found


def _full_name(plan: Plan, name: str) -> str:
    tensor = plan.tensors.get(name)
    return name if tensor is None else tensor.logical or name
