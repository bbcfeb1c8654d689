"""Look for one edit after which a refuted plan is proved, where what was derived names none.

A statement that several ranks or programs run is edited for all of them. Whether an edit may be the right one is seen when both
plans are run on random numbers, where they can be; whether it is, is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice

from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.equivalence.explain.repair import Candidate, Repair, first_proved, with_reducers
from tvlint.equivalence.explain.statement_edits import candidate, statement_edits
from tvlint.equivalence.verdict.numbers.run_both import gradients_may_agree
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.ir.location import Location
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Communicate, Compute, Group, Literal, Operator, ReduceGradients, Value
from tvlint.ir.plan import Plan, Role, Segment
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_FEWEST_EDITS = 64
_MOST_EDITS = 1_000
_MOST_RUN = 30_000
"""So many operators are run again with all edits together, where more than the fewest edits are tried."""

_MOST_PROOFS = 12
_MOST_PROVED = 4_000
"""So many operators are derived again with all edits together, where the first edit is not enough: a verdict comes in time."""
MOST_OPERATORS = 2_000
"""Plans with more operators are not run again and again."""

_WAYS = ("sum", "avg", "max")
_USUAL = (2, 4, 8, 10)
_FACTORS = ("alpha", "scale")
"""What operators call a number that something is multiplied with."""


def repaired_on_numbers(case: Case, proves: Callable[[Plan], bool], near: Sequence[Location] = ()) -> Repair | None:
    """Return the first edit after which the plan is proved, of statements `near` places before others; None where none does."""
    size = sum(len(segment.operators) for segment in case.parallel.segments.values())
    if size > MOST_OPERATORS:
        return None

    left, agree = iter(range(max(1, min(_MOST_PROOFS, _MOST_PROVED // max(1, size))))), gradients_may_agree(case)

    def mends(changed: Plan) -> bool:
        changed_case = pair(changed, case.reference, case.assume)
        return isinstance(changed_case, Case) and agree(changed_case) and next(left, None) is not None and proves(changed)

    most = max(_FEWEST_EDITS, min(_MOST_EDITS, _MOST_RUN // max(1, size)))
    return first_proved(islice(_edits(case, {(place.path, place.line) for place in near}), most), mends)


def _edits(case: Case, near: set[tuple[str, int | None]]) -> Iterator[Candidate[Plan]]:
    statements: dict[Hashable, list[Operator]] = {}
    for each_operator in case.parallel.operators():
        key = _statement(each_operator)
        if key is not None:
            statements.setdefault(key, []).append(each_operator)
    yield from _reduced_otherwise(case.parallel, statements)
    yield from _reducers(case.parallel, [operator for group in statements.values() for operator in group])
    yield from _constants(case, statements)
    close = {key: group for key, group in statements.items() if any(_is_near(operator, near) for operator in group)}
    yield from statement_edits(case.parallel, case.reference, close)
    rest = {key: group for key, group in statements.items() if key not in close}
    yield from statement_edits(case.parallel, case.reference, rest)


def _is_near(operator: Operator, near: set[tuple[str, int | None]]) -> bool:
    return operator.source is not None and (operator.source.path, operator.source.line) in near


def _statement(operator: Operator) -> Hashable | None:
    """Return what is the same of the operators that one statement of several ranks or programs gives."""
    if isinstance(operator, Compute):
        return (
            operator.op,
            operator.outputs,
            tuple((each.value if isinstance(each, Literal) else each) for each in operator.inputs),
            str(sorted(operator.attributes.items())),
        )
    if isinstance(operator, Communicate):
        return operator.kind, operator.outputs, operator.inputs, operator.reduce
    return ("reduce", operator.weights, operator.reduce) if isinstance(operator, ReduceGradients) else None


def _reduced_otherwise(plan: Plan, statements: Mapping[Hashable, Sequence[Operator]]) -> Iterator[Candidate[Plan]]:
    """Collectives and reducers that sum for those that average, and the other way round; alone, and with all of their kind."""
    alike: dict[Hashable, list[Communicate | ReduceGradients]] = {}
    for key, group in reversed([*statements.items()]):  # of two that reduce one value the later is one too many
        for operator in group:
            if isinstance(operator, ReduceGradients) or (isinstance(operator, Communicate) and operator.reduce):
                alike.setdefault(key, []).append(operator)
                alike.setdefault((type(operator), operator.group, operator.reduce), []).append(operator)
    for same in first_of_each(alike.values(), lambda same: frozenset(map(id, same))):
        first = same[0]
        for way in _WAYS[:2] if isinstance(first, ReduceGradients) else _WAYS:
            if way != first.reduce:
                gradients = isinstance(first, ReduceGradients)
                words = f"reduce gradients by `{way}`" if gradients else f"reduce by `{way}` in {name_of(first)}"
                yield candidate(plan, words, {id(operator): [replace(operator, reduce=way)] for operator in same}, first)


def _reducers(plan: Plan, operators: Sequence[Operator]) -> Iterator[Candidate[Plan]]:
    """Reducers of weights that none reduces, of all of them and of each, over each set of axes."""
    reducers = [operator for operator in operators if isinstance(operator, ReduceGradients)]
    known = {weight for reducer in reducers for weight in reducer.weights}
    read = {name for operator in operators if isinstance(operator, Compute) for name in operator.tensor_operands}
    lacking = [name for name in sorted(read) if plan.has_role(name, Role.WEIGHT)]
    lacking = [name for name in lacking if name not in known and plan.tensors[name].gradient != ""]
    axes = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    together = [tuple(lacking)] if len(lacking) > 1 else []
    for weights in (*together, *((name,) for name in lacking)) if plan.replication.count == 1 else ():
        more = f" and of {len(weights) - 1} more" if len(weights) > 1 else ""
        for count in range(1, len(axes) + 1):
            for chosen in combinations(axes, count):
                for way in _WAYS[:2]:
                    words = f"reduce the gradients of `{weights[0]}`{more} over `{', '.join(chosen)}`"
                    words += "" if way == "sum" else f" by `{way}`"
                    reducer = [ReduceGradients(weights, Group(axes=chosen), way)]
                    yield Candidate(words, with_reducers(plan, dict.fromkeys(range(len(plan.programs)), reducer)))


def _constants(case: Case, statements: Mapping[Hashable, Sequence[Operator]]) -> Iterator[Candidate[Plan]]:
    """Numbers that are multiplied, divided, added or subtracted: the reference's, what its shares leave, roots of sizes, and
    usual multiples.
    """
    plan = case.parallel
    usual = dict.fromkeys((*(axis.size for axis in plan.mesh.axes if axis.size > 1), plan.mesh.size, *_USUAL))
    stated = [number for segment in case.reference.segments.values() for number in _stated(segment)]
    shares = (float(1 - rational) for rational in map(number_of, stated) if rational is not None and 0 < rational < 1)
    there = dict.fromkeys((*stated, *shares))
    found = [(group, value) for group in statements.values() for value in dict.fromkeys(_numbers(group[0]))]
    for group, value in found:
        yield from _with_numbers(plan, group, value, there)
    sizes = dict.fromkeys(size for tensor in plan.tensors.values() for size in (tensor.shape or ())[-1:] if size > 1)
    roots = dict.fromkeys(root for size in sizes for root in (size**-0.5, size**0.5))
    for group, value in found:
        if isinstance(value, float):
            yield from _with_numbers(plan, group, value, roots)
    for group, value in found:
        multiples = (made for factor in usual if factor > 1 for made in (_exact(value * factor), _exact(value / factor)))
        yield from _with_numbers(plan, group, value, dict.fromkeys(multiples))


def _stated(segment: Segment) -> Iterator[int | float]:
    """Yield the numbers that the operators of a reference state, wherever they do."""
    for operator in segment.operators:
        if isinstance(operator, Compute):
            given = (
                *(operand.value for operand in operator.inputs if isinstance(operand, Literal)),
                *operator.attributes.values(),
            )
            yield from (each for each in given if isinstance(each, int | float) and not isinstance(each, bool) and each)


def _with_numbers(
    plan: Plan, group: Sequence[Operator], value: int | float, others: Iterable[int | float]
) -> Iterator[Candidate[Plan]]:
    for other in others:
        if other != value:
            changes = {
                id(operator): [_with_number(operator, value, other)] for operator in group if isinstance(operator, Compute)
            }
            yield candidate(plan, f"use {other} instead of {value} in {name_of(group[0])}", changes, group[0])


def _exact(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _numbers(operator: Operator) -> Iterator[int | float]:
    """Yield the numbers that the operator takes as an addend, as a factor, or to compare something with."""
    if not isinstance(operator, Compute):
        return
    compares = has_trait(operator.op, Trait.COMPARISON)
    literals = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    taken = literals if compares or has_trait(operator.op, Trait.SUM, Trait.SCALING) else []
    for given in (*taken, *(operator.attributes.get(name) for name in _FACTORS)):
        if isinstance(given, int | float) and not isinstance(given, bool) and (given or compares):
            yield given


def _with_number(operator: Compute, before: int | float, after: int | float) -> Compute:
    inputs = tuple(Literal(after) if isinstance(each, Literal) and each.value == before else each for each in operator.inputs)
    attributes: dict[str, Value] = {
        name: after if name in _FACTORS and value == before else value for name, value in operator.attributes.items()
    }
    return replace(operator, inputs=inputs, attributes=attributes)
