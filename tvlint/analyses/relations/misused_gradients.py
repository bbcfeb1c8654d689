"""Gradients that are taken for those of another value, or step another weight than the one that they are the gradients of.

What a backward operator gives is the gradient of its operand. It is also that of whatever the operand is made from without a
change of its numbers, as the addends of a sum or a value in another shape. Terms say so on all ranks: a gradient is the same
term after it was sent, reduced, scaled or cast.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any

from tvlint.analyses.dataflow.def_use import makers_behind, overwritten, reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.roots import named_after
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Held, Pulled
from tvlint.analyses.relations.findings import relations
from tvlint.analyses.relations.multiples import start_in_flat, unchanged
from tvlint.analyses.relations.skipped_factors import skipped_factors
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, spec_of

_PASSES = (Trait.SUM, Trait.VIEW, Trait.CONVERSION, Trait.RANGES, Trait.APART, Trait.JOIN, Trait.BROADCAST)


@dataclass(frozen=True, slots=True)
class Misused:
    """On `rank`, `operator` takes the gradient `name` of `owner` as that of `tensor`, gives it so or steps `tensor` with it.

    For `no-gradient`, `name` is a value of the forward pass and `owner` the gradient of `tensor`. `parted` names the operators
    that make `owner` and `tensor`, or one value that both are made from, where all else is alike. For `unscaled`, `owner` is
    `times` what `tensor` is.
    """

    name: str
    owner: str
    tensor: str
    how: str
    operator: Operator
    rank: int
    parted: tuple[str, str] = ("", "")
    times: str = ""


def misused_gradients(facts: Facts) -> Iterator[Misused]:
    """Yield the gradients that are used as those of another value, each once."""
    alone = relations(facts)
    if alone is None:
        return
    owners = _owners(alone)
    found = (*_taken(alone, owners), *_given(alone), *_steps(alone, owners), *_unscaled(alone), *_turned(alone, owners))
    yield from first_of_each(found, lambda misused: (misused.how, misused.tensor))


def _owners(alone: Alone) -> dict[Held, dict[Held, str]]:
    """Return by gradient the values that backward operators give it for, with their names; of weights those in the model."""
    owners, terms = dict[Held, dict[Held, str]](), alone.world.terms
    for pulled in alone.derived.pulled:
        if pulled.is_given:
            head = terms.keys[terms.whole(pulled.value)] if isinstance(pulled.value, int) else ("",)
            of = str(head[1]) if head[0] == "weight" else of_model(alone.plan, pulled.of)
            owners.setdefault(_plain(terms, pulled.gradient), {})[pulled.value] = of
    return owners


def _plain(terms: Terms, held: Held) -> Held:
    return unchanged(terms, held) if isinstance(held, int) else held


def _taken(alone: Alone, owners: dict[Held, dict[Held, str]]) -> Iterator[Misused]:
    """Yield backward operators that start with the gradient of another value, with a value that has a gradient itself while
    theirs is there, or at a loss with the loss itself.
    """
    terms = alone.world.terms
    unread, names = _Unread(alone.plan), _Names(alone)
    held = [values.get(name) for values in alone.derived.environments.values() for name in alone.plan.losses]
    losses = [_passed(terms, term) for term in {each.term for each in held if each is not None}]
    given = {pulled.value: pulled.name for pulled in alone.derived.pulled if pulled.is_given}
    for pulled in alone.derived.pulled:
        if not pulled.is_given and pulled.value in given and pulled.gradient in given and isinstance(pulled.gradient, int):
            yield Misused(pulled.name, given[pulled.value], pulled.of, "no-gradient", pulled.operator, pulled.rank)
        if not pulled.is_given and _starts_with_loss(terms, pulled, losses):
            root = f"grad({pulled.of})"
            yield Misused(pulled.name, root, pulled.of, "no-gradient", pulled.operator, pulled.rank)
        elif (left := unread.of(pulled)) and pulled.gradient not in owners:
            yield Misused(pulled.name, left, pulled.of, "no-gradient", pulled.operator, pulled.rank)
        known = {} if pulled.is_given else owners.get(_plain(terms, pulled.gradient), {})
        if known and not isinstance(pulled.gradient, int) and names.are_others(pulled, known):
            yield Misused(pulled.name, min(known.values()), pulled.of, "taken", pulled.operator, pulled.rank)
        if not known or pulled.value in known or pulled.of in known.values() or not _are_terms((pulled.value, *known)):
            continue
        if _passed(terms, pulled.value).isdisjoint(passed for other in known for passed in _passed(terms, other)):
            value, owner = next(iter(known.items()))
            parted = _parted(terms, value, pulled.value)
            how = "recomputed" if parted != ("", "") else "taken"
            yield Misused(pulled.name, owner, pulled.of, how, pulled.operator, pulled.rank, parted)


class _Names:
    """The names under which gradients go on without a change, where it is not known what they hold."""

    def __init__(self, alone: Alone) -> None:
        self._alone, self._times = alone, cache(self._count)
        self._renamed = any(step.inputs is not None or step.outputs is not None for step in alone.plan.steps())

    def are_others(self, pulled: Pulled, values: Iterable[Held]) -> bool:
        """Return whether a gradient that is made once is that of values, and goes on to others than what it is taken for."""
        owners = {"" if isinstance(value, int) else value[1] for value in values}
        if self._renamed or "" in owners or self._times(pulled.rank)[pulled.name] != 1:
            return False
        makers, passed = self._alone.operators.makers_on(pulled.rank), self._passed(pulled.rank, owners)
        received = any(isinstance(makers.get(name, ("", None))[1], Receive) for name in passed)
        return not received and self._passed(pulled.rank, {pulled.of}).isdisjoint(passed)

    def _passed(self, rank: int, names: set[str]) -> set[str]:
        makers, waiting = self._alone.operators.makers_on(rank), [*names]
        while waiting:
            maker = makers.get(waiting.pop(), ("", None))[1]
            below = set(reads(maker)) - names if maker is not None and _may_pass(maker) else set[str]()
            names |= below
            waiting += below
        return names

    def _count(self, rank: int) -> Counter[str]:
        return Counter(name for operator in self._alone.plan.run_on(rank) for name in writes(operator))


def _may_pass(operator: Operator) -> bool:
    """Return whether the gradient of a result may be that of an operand, without a change or times a constant."""
    if not isinstance(operator, Compute):
        return True
    scales = has_trait(operator.op, Trait.SCALING) and len(operator.tensor_operands) == 1
    return scales or spec_of(operator.op) is None or has_trait(operator.op, *_PASSES)


class _Unread:
    """Gradients that a plan is given, or what it moves of them, which nothing reads."""

    def __init__(self, plan: Plan) -> None:
        every = [*plan.operators()]
        gone_back = [each for each in every if isinstance(each, Backward)]
        given = {name for name, tensor in plan.tensors.items() if tensor.role is Role.INPUT}
        moved = {
            name for each in every if isinstance(each, Communicate) and given.issuperset(each.inputs) for name in each.outputs
        }
        left = (given | moved).difference(plan.outputs, *map(reads, every)) & plan.tensors.keys()
        self._tensors, self._left = plan.tensors, {_type(plan.tensors[name]): name for name in sorted(left)}
        self._forward = {name for each in gone_back for name in (*each.forward.tensor_operands, *each.forward.outputs)}
        self._forward.difference_update(*(each.outputs for each in gone_back))

    def of(self, pulled: Pulled) -> str:
        """Return one of the type of a value of which a backward operator starts with another value of the forward pass; empty
        where there is none.
        """
        if pulled.is_given or pulled.name not in self._forward or pulled.value == pulled.gradient:
            return ""
        return self._left.get(_type(self._tensors[pulled.of]), "") if pulled.of in self._tensors else ""


def _type(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    return tensor.shape, tensor.dtype


def _starts_with_loss(terms: Terms, pulled: Pulled, losses: Sequence[Set[Held]]) -> bool:
    """Return whether a backward operator starts, at a multiple of a number that a loss is made of without a change, with such a
    number.
    """
    one, other = pulled.value, pulled.gradient
    if not isinstance(one, int) or not isinstance(other, int) or prod(terms.shape[one]) != 1:
        return False
    places, starts = ({unchanged(terms, term) for term in (each, *_scaled(terms, each))} for each in (one, other))
    return any(not (starts.isdisjoint(numbers) or places.isdisjoint(numbers)) for numbers in losses)


def _scaled(terms: Terms, term: int) -> tuple[int, ...]:
    """Return what the term's own operator multiplies or divides."""
    return terms.operands[term] if has_trait(str(terms.keys[term][0]), Trait.SCALING) else ()


def _unscaled(alone: Alone) -> Iterator[Misused]:
    """Yield backward operators that go on with the gradient of a multiple of a value."""
    for pulled, owner, factor in skipped_factors(alone):
        times = str(factor) if factor.denominator == 1 else f"{float(factor):.6g}"
        yield Misused(pulled.name, owner, pulled.of, "unscaled", pulled.operator, pulled.rank, times=times)


def _parted(terms: Terms, one: Held, other: Held) -> tuple[str, str]:
    """Return the operators in which two values differ that are otherwise made alike; empty for others."""
    while isinstance(one, int) and isinstance(other, int):
        operands = terms.operands[one], terms.operands[other]
        pairs = [(ours, theirs) for ours, theirs in zip(*operands, strict=False) if ours != theirs]
        if not pairs and all(operands) and terms.keys[one][0] != terms.keys[other][0]:
            return str(terms.keys[one][0]), str(terms.keys[other][0])
        if len(pairs) != 1 or terms.keys[one] != terms.keys[other]:
            break
        ((one, other),) = pairs
    return "", ""


def _are_terms(held: tuple[Held, ...]) -> bool:
    return all(isinstance(term, int) for term in held)


def _passed(terms: Terms, held: Held) -> set[Held]:
    """Return the values to which the gradient of one goes on without a change, and itself."""
    found, waiting = {held}, [held]
    while waiting:
        term = waiting.pop()
        if isinstance(term, int):
            passes = has_trait(str(terms.keys[term][0]), *_PASSES)
            below = {unchanged(terms, term), *(terms.operands[term] if passes else ())}
            waiting.extend(below - found)
            found |= below
    return found


def _given(alone: Alone) -> Iterator[Misused]:
    """Yield gradients that stand at the place of another weight, or operand, than the one whose gradient they are called.

    Ranks may give the gradients of weights of their own one name, which says of none whose it is.
    """
    tensors, ranks = alone.plan.tensors, dict[tuple[str, str], set[int]]()
    for pulled in alone.derived.pulled:
        if pulled.is_given:
            ranks.setdefault((pulled.name, pulled.of), set()).add(pulled.rank)
    for pulled in alone.derived.pulled:
        named = tensors[pulled.name].gradient_of if pulled.name in tensors else ""
        if pulled.is_given and named not in ("", pulled.of) and {named, pulled.of} <= tensors.keys():
            one, other, operands = tensors[named], tensors[pulled.of], pulled.operator.forward.inputs
            tied = (one.logical or named) == (other.logical or pulled.of) or (one.storage or named) == other.storage
            elsewhere = ranks.get((pulled.name, named), {pulled.rank})
            if pulled.rank not in elsewhere and not named_after(pulled.name):
                continue
            beside = (
                operands.count(named)
                and operands.count(pulled.of) == 1
                and not has_trait(pulled.operator.forward.op, Trait.SUM)
            )
            if beside or (one.role is other.role is Role.WEIGHT and not tied):
                yield Misused(pulled.name, named, pulled.of, "given", pulled.operator, pulled.rank)


def _steps(alone: Alone, owners: dict[Held, dict[Held, str]]) -> Iterator[Misused]:
    """Yield the steps of weights, or of copies of them, with what is made of gradients of others that are stepped too."""
    plan, copies = alone.plan, _copied(alone.plan)
    stepped = {step.weight: copies.get(step.weight, step.weight) for step in alone.derived.steps}
    weights = {of_model(plan, weight): weight for weight in stepped.values()}
    buckets: dict[int, _Bucket] = {}
    for step in alone.derived.steps:
        name = stepped[step.weight]
        weight, made_of = of_model(plan, name), {of_model(plan, each) for each in step.made_of}
        others = set() if weight in made_of else weights.keys() & made_of
        given = set[str]()
        if step.gradient is not None:
            owned = owners.get(_plain(alone.world.terms, step.gradient.term), {})
            if plan.has_role(name, Role.WEIGHT) and _are_made_without(alone, owned, name):
                yield Misused(step.name, min(owned.values()), name, "stepped", step.operator, step.rank)
                continue
            given = set(owned.values())
            given = given or _overlapped(alone.world.terms, step.gradient.term, owners, weight, buckets)
        if len(given) == 1 and weight not in given:
            others |= weights.keys() & given
        if others and plan.tensors[name].role is Role.WEIGHT:
            yield Misused(step.name, weights[min(others)], name, "stepped", step.operator, step.rank)


def _are_made_without(alone: Alone, values: Mapping[Held, str], weight: str) -> bool:
    """Return whether values are made of inputs and of other weights alone, and not of a weight or what shares its memory."""
    terms, tensors = alone.world.terms, alone.plan.tensors
    seen = {value for value in values if isinstance(value, int)}
    leaves, waiting = set[tuple[Any, ...]](), [*seen]
    while waiting and len(seen) >= len(values):
        term = waiting.pop()
        below = {*terms.operands[term]} - seen
        seen |= below
        waiting += below
        leaves |= set() if terms.operands[term] else {terms.keys[term]}
    made_of = {str(head[1]) for head in leaves if head[0] == "weight"}
    if not made_of or of_model(alone.plan, weight) in made_of or not {str(head[0]) for head in leaves} <= {"weight", "input"}:
        return False
    of = tensors[weight].storage or weight
    shared = {each for each, tensor in tensors.items() if weight in (each, tensor.logical) or (tensor.storage or each) == of}
    given = {tensor.logical or each for each, tensor in tensors.items() if tensor.role is Role.INPUT}
    names = {weight, *shared, *(of_model(alone.plan, each) for each in shared)}
    return names.isdisjoint(made_of | given)


def _turned(alone: Alone, owners: dict[Held, dict[Held, str]]) -> Iterator[Misused]:
    """Yield the steps of weights with gradients whose dimensions stand in another order than theirs."""
    plan, terms = alone.plan, alone.world.terms
    for step in alone.derived.steps:
        if step.gradient is None or not plan.has_role(step.weight, Role.WEIGHT):
            continue
        term, order = _without_order(terms, step.gradient.term)
        given = (value for value in owners.get(_plain(terms, term), {}) if isinstance(value, int))
        of_given = (_without_order(terms, terms.whole(value)) for value in given)
        name = ("weight", of_model(plan, step.weight))
        orders = [
            [held[dim] for dim in order] for of, held in of_given if terms.keys[of][:2] == name and len(held) == len(order)
        ]
        sizes = terms.shape[step.gradient.term]
        kept = ([dim for dim, size in zip(each, sizes, strict=True) if size != 1] for each in orders)
        if orders and all(dims != sorted(dims) for dims in kept):
            turning = makers_behind(plan.run_on(step.rank), _turns).get(step.name, ())
            at = turning[0] if len(turning) == 1 else step.operator
            yield Misused(step.name, step.weight, step.weight, "turned", at, step.rank)


def _turns(operator: Operator) -> bool:
    return isinstance(operator, Compute) and has_trait(operator.op, Trait.TRANSPOSE)


def _without_order(terms: Terms, term: int) -> tuple[int, list[int]]:
    """Return which value a term is a transpose of, times whatever, and which of its dimensions each of the term is."""
    order = list(range(len(terms.shape[term])))
    while True:
        head, below, operands = terms.keys[term], multiplied(terms, term), terms.operands[term]
        if below is not None:
            term = below[1]
        elif len(operands) == 1 and has_trait(str(head[0]), Trait.CONVERSION):
            term = operands[0]
        elif len(operands) == 1 and len(head) == 5 and has_trait(str(head[0]), Trait.TRANSPOSE):
            before, after = head[3][:2]
            if sorted(before) != sorted(after):
                return term, order
            order, term = [before.index(after[dim]) for dim in order], operands[0]
        else:
            return term, order


def of_model(plan: Plan, name: str) -> str:
    """Return the name in the model of a tensor, which may have another one on a rank."""
    tensor = plan.tensors.get(name)
    return name if tensor is None else tensor.logical or name


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Where each piece of a flat bucket starts, and of whose gradient it has a part."""

    starts: Sequence[int]
    weights: Sequence[Set[str]]
    every: Set[str]


def _bucket(terms: Terms, bucket: int, owners: dict[Held, dict[Held, str]]) -> _Bucket:
    pieces = terms.operands[bucket]
    starts = list(accumulate((terms.shape[piece][0] for piece in pieces), initial=0))
    weights = [set(owners.get(_plain(terms, piece), {}).values()) for piece in pieces]
    return _Bucket(starts, weights, set().union(*weights))


def _overlapped(
    terms: Terms, term: int, owners: dict[Held, dict[Held, str]], weight: str, buckets: dict[int, _Bucket]
) -> set[str]:
    """Return another weight of whose gradient a range of a bucket has a part, where the bucket has that of `weight` too."""
    found = _bucket_of(terms, term)
    if found is None:
        return set()
    number, low, high = found
    if number not in buckets:
        buckets[number] = _bucket(terms, number, owners)
    bucket = buckets[number]
    if weight not in bucket.every:
        return set()
    held = bucket.weights[max(0, bisect_right(bucket.starts, low) - 1) : bisect_left(bucket.starts, high)]
    return {min(names) for names in held if names and weight not in names}


def _bucket_of(terms: Terms, term: int) -> tuple[int, int, int] | None:
    """Return the flat bucket of which the term holds a range, times whatever, in whatever shape, and the range."""
    low, size = 0, prod(terms.shape[term])
    while True:
        head, below = terms.keys[term], multiplied(terms, term)
        name, operands = str(head[0]), terms.operands[term]
        if below is not None:
            term = below[1]
        elif len(terms.shape[term]) == 1 and has_trait(name, Trait.JOIN):
            return term, low, low + size
        elif len(operands) != 1 or not has_trait(name, Trait.CONVERSION, Trait.VIEW, Trait.APART, Trait.RANGES):
            return None
        elif has_trait(name, Trait.APART, Trait.RANGES):
            start = start_in_flat(terms, term)
            if start is None:
                return None
            low, term = low + start, operands[0]
        elif has_trait(name, Trait.TRANSPOSE) or prod(terms.shape[operands[0]]) != prod(terms.shape[term]):
            return None
        else:
            term = operands[0]


def _copied(plan: Plan) -> dict[str, str]:
    """Return by state the weight into which it is copied, in whatever type and shape, where it is one."""
    run = plan.operators()
    operators = [operator for operator in run if isinstance(operator, Compute | Communicate)]
    made = {name: reads(operator) for operator in operators for name in operator.outputs}
    found: dict[str, set[str]] = {}
    for each_operator in operators:
        written = overwritten(each_operator) if isinstance(each_operator, Compute) and len(each_operator.inputs) == 2 else ()
        for weight in (name for name in written if plan.has_role(name, Role.WEIGHT)):
            sources, seen = [name for name in reads(each_operator) if name != weight], set[str]()
            while len(sources) == 1 and sources[0] in made.keys() - seen:
                seen.add(sources[0])
                sources = [*made[sources[0]]]
            if len(sources) == 1 and sources[0] in plan.tensors and plan.tensors[sources[0]].role is Role.STATE:
                found.setdefault(sources[0], set()).add(weight)
    return {state: next(iter(weights)) for state, weights in found.items() if len(weights) == 1}
