"""Backward operators that go on with the gradient of a multiple of a value as that of the value: a constant is left out.

Who writes a backward pass out may apply it elsewhere, as kernels scale the gradients of queries and keys at their end.
So nothing is said of a constant that any gradient is multiplied with, or that gradients are averaged by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.mesh_axes import group_size
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Pulled
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator, Receive, ReduceGradients
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, spec_of

_PASSES = (Trait.VIEW, Trait.CONVERSION)
_MOST_VALUES = 256
_MOST_CONSTANTS = 8


def skipped_factors(alone: Alone) -> Iterator[tuple[Pulled, str, Fraction]]:
    """Yield what takes the gradient of a value as that of another, the former, and how many times the latter is in it."""
    given = dict[tuple[object, object], dict[int, str]]()
    for pulled in alone.derived.pulled:
        if pulled.is_given and pulled.times and isinstance(pulled.gradient, int) and isinstance(pulled.value, int):
            given.setdefault((pulled.gradient, pulled.times), {})[pulled.value] = pulled.of
    found = list[tuple[Pulled, str, Fraction]]()
    for pulled in alone.derived.pulled:
        owners = {} if pulled.is_given else given.get((pulled.gradient, pulled.times), {})
        if owners and isinstance(pulled.value, int) and pulled.value not in owners:
            factors = {_within(alone.world.terms, owner, pulled.value) or Fraction(1) for owner in owners}
            factor = factors.pop() if len(factors) == 1 else Fraction(1)
            found += [(pulled, next(iter(owners.values())), factor)] if factor != 1 else []
    skipped = {factor for _, _, factor in found}
    elsewhere = _products(_applied(alone.plan)) if found else None
    if elsewhere is None or len(skipped) > _MOST_CONSTANTS:
        return
    for pulled, owner, factor in found:
        others = _products(skipped - {factor}) or set()
        if elsewhere.isdisjoint(factor * other for other in (Fraction(1), *others)):
            yield pulled, owner, factor


def _within(terms: Terms, value: int, part: int) -> Fraction | None:
    """Return how many times a value adds `part` that is made of it by constants and sums; None where it may be otherwise."""
    if prod(terms.shape[part]) == 1:
        return None
    found, waiting = dict[int, Fraction](), [(value, Fraction(1))]
    while waiting:
        term, factor = waiting.pop()
        if term in found or len(found) == _MOST_VALUES:
            return None
        found[term] = factor
        waiting += [(below, factor * times) for below, times in _below(terms, term)] if term != part else []
    return found.get(part)


def _below(terms: Terms, term: int) -> Sequence[tuple[int, Fraction]]:
    """Return what the term is a multiple of, or a sum or difference, and how many times."""
    head, operands, below = terms.keys[term], terms.operands[term], multiplied(terms, term)
    if str(head[0]).endswith(" gradient"):
        return ()
    if below is not None:
        return ((below[1], below[0]),)
    if len(operands) == 1 and has_trait(str(head[0]), *_PASSES) and prod(terms.shape[operands[0]]) == prod(terms.shape[term]):
        return ((operands[0], Fraction(1)),)
    alike = all(terms.shape[operand] == terms.shape[term] for operand in operands)
    if len(operands) != 2 or len(head) != 5 or head[2] != (1,) or not alike or not has_trait(str(head[0]), Trait.SUM):
        return ()
    return ((operands[0], Fraction(1)), (operands[1], Fraction(-1 if has_trait(str(head[0]), Trait.DIFFERENCE) else 1)))


def _products(factors: set[Fraction] | None) -> set[Fraction] | None:
    """Return the products of one of the constants or several; None of too many."""
    if factors is None or len(factors) > _MOST_CONSTANTS:
        return None
    return {prod(each, start=Fraction(1)) for count in range(1, len(factors) + 1) for each in combinations(factors, count)}


def _applied(plan: Plan) -> set[Fraction] | None:
    """Return the constants with which operators may multiply what is made of gradients; None where one is not known."""
    readers, operators = dict[str, list[Operator]](), list(plan.operators())
    for operator in operators:
        for name in reads(operator) if isinstance(operator, Compute | Communicate) else ():
            readers.setdefault(name, []).append(operator)
    waiting = [name for each in operators if isinstance(each, Backward | Receive) for name in writes(each)]
    made, found = set(waiting), set[Fraction]()
    while waiting:
        for operator in readers.pop(waiting.pop(), ()):
            found |= _constants(plan, operator)
            waiting += (new := set(writes(operator)) - made)
            made |= new
    for reducer in plan.operators_of(ReduceGradients):
        ranks = group_size(plan, reducer.group) if reducer.reduce == "avg" else 1
        found |= {Fraction(1, reducer.divisor or 1), Fraction(1, ranks)}
    is_open = any(not reducer.divisor for reducer in plan.operators_of(ReduceGradients))
    return None if is_open else found - {Fraction(1)}


def _constants(plan: Plan, operator: Operator) -> set[Fraction]:
    if isinstance(operator, Communicate):
        return {Fraction(1, group_size(plan, operator.group))} if operator.reduce == "avg" else set()
    if not isinstance(operator, Compute) or (spec_of(operator.op) and not has_trait(operator.op, Trait.SCALING, Trait.SUM)):
        return set()
    literals = [each.value for each in operator.inputs if isinstance(each, Literal)]
    numbers = {number_of(value) for value in (*literals, *operator.attributes.values())}
    return {each for number in numbers if number for each in (number, 1 / number)}
