"""A second opinion on a proof: Z3 proves each annotation that the proof relied on, for the dimensions that were split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvlint.analyses.relations.defect import Defect, reasons
from tvlint.analyses.relations.derivation.given.well_formed import first_rank
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.equivalence.solver.annotation_proofs import prove_annotation, prove_linear
from tvlint.equivalence.solver.decide import Decision, Proved, Refuted, Unknown
from tvlint.equivalence.verdict.attempt import Attempt
from tvlint.equivalence.verdict.pairing import Progress
from tvlint.findings import Outcome, Verdict
from tvlint.ir.operators import Literal
from tvlint.ops.spec import ONE, Bound, Call, OpSpec, Trait, UnsupportedError
from tvlint.ops.table import spec_of

OpUse: TypeAlias = tuple[Call, Bound, tuple[Value, ...]]
"""One use of an operator in a derivation: the call on whole operands, its annotation, and the operands' relations."""

_PARTS = 2
_LARGEST_WHOLE = 16


@dataclass(frozen=True, slots=True)
class Opinion:
    """The outcome of the recheck: how many claims were proved, and a sentence for each of the others."""

    proved: int
    refuted: tuple[str, ...]
    undecided: tuple[str, ...]
    late: tuple[str, ...]
    """Those that more time may decide."""


def second_opinion(world: World, uses: Iterable[OpUse], timeout: float) -> Opinion:
    """Every distinct claim of the uses, decided at a small shape with at most `timeout` seconds each.

    A claim is that a dimension which was split may be, or that an operator is linear in an operand that was a partial sum.
    Operators without meaning are undecided: what they are is an assumption of the verdict anyway.
    """
    decided: dict[tuple[object, ...], tuple[str, Decision]] = {}
    for call, bound, values in uses:
        spec = spec_of(call.op)
        if spec is None:
            continue
        for name in sorted(_split(world, bound, values)):
            key: tuple[object, ...] = (spec.name, "split", name, _pattern(bound))
            if key not in decided:
                decided[key] = (f"`{spec.name}` split along `{name}`", _claim(spec, call, bound, name, timeout))
        partial = frozenset(i for i, value in enumerate(values) if not value.clean)
        for group in bound.linear:
            key = (spec.name, "linear", group, _pattern(bound))
            if partial & group and key not in decided:
                decided[key] = (f"`{spec.name}` of partial sums", _linear(spec, call, bound, group, timeout))
    sentences = list(decided.values())
    return Opinion(
        sum(1 for _, decision in sentences if isinstance(decision, Proved)),
        tuple(f"{what}: {decision.counterexample}" for what, decision in sentences if isinstance(decision, Refuted)),
        tuple(
            f"{what}: {decision.reason}" for what, decision in sentences if isinstance(decision, Unknown) and decision.in_time
        ),
        tuple(
            f"{what}: {decision.reason}"
            for what, decision in sentences
            if isinstance(decision, Unknown) and not decision.in_time
        ),
    )


def _pattern(bound: Bound) -> tuple[object, ...]:
    return (bound.operands, bound.outputs, bound.reduced, bound.averaged, bound.whole, bound.attributes)


def _split(world: World, bound: Bound, values: Sequence[Value]) -> set[str]:
    """Return the names of which some operand holds a part only."""
    found = set()
    for i, (names, value) in enumerate(zip(bound.operands, values, strict=False)):
        shape, slot = world.terms.shape[value.term], world.terms.slot[value.term]
        for dim, name in enumerate(names):
            parts = value.box[dim] != (0, shape[dim]) or (dim == slot and (world.many_replicas or world.many_micro_batches))
            if name != ONE and parts and i not in bound.shape_only:
                found.add(name)
    return found


def _claim(spec: OpSpec, call: Call, bound: Bound, name: str, timeout: float) -> Decision:
    small = _small(spec, call, bound)
    return small if isinstance(small, Unknown) else prove_annotation(spec, small, name, _PARTS, timeout)


def _linear(spec: OpSpec, call: Call, bound: Bound, group: frozenset[int], timeout: float) -> Decision:
    small = _small(spec, call, bound)
    return small if isinstance(small, Unknown) else prove_linear(spec, small, group, timeout)


def _small(spec: OpSpec, call: Call, bound: Bound) -> Call | Unknown:
    """Return the call at a small shape with the same annotation.

    Every dimension gets one part more than it is split into, or what it has where that is less; one in which the operator
    counts positions keeps its size.
    """
    shapes = call.shapes
    sizes = {ONE: 1}
    for names, shape in zip(bound.operands, shapes, strict=False):
        for name, size in zip(names, shape, strict=True):
            keeps = name in bound.whole and Trait.POSITIONAL in spec.traits
            if keeps and size > _LARGEST_WHOLE:
                return Unknown(f"it counts positions in a dimension of {size}")
            sizes[name] = size if keeps else min(size, 2 * _PARTS if name in bound.whole else _PARTS)
    new = iter([tuple(sizes[name] for name in names) for names in bound.operands])
    attributes = dict(call.attributes)
    for name in bound.ranges:
        if name in spec.range_attributes:
            attributes.update(zip(spec.range_attributes[name], (0, sizes[name]), strict=True))
    attributes.update((stated, sizes[name]) for name, stated in bound.counts.items())
    inputs = tuple(operand if isinstance(operand, Literal) else next(new) for operand in call.inputs)
    small = Call(call.op, inputs, attributes, call.outputs if call.outputs == ((1,),) else ())
    try:
        same = _pattern(spec.bind(small).given_draws()) == _pattern(bound)
    except UnsupportedError as error:
        return Unknown(str(error))
    return small if same or Trait.JOIN in spec.traits else Unknown("at a small shape it has another annotation")


def with_opinion(verdict: Verdict, proof: Attempt, seconds: float, progress: Progress) -> Verdict:
    """Return the verdict with what the solver says of the annotations that the proof relied on."""
    progress("asking the solver", 0.9)
    opinion = second_opinion(proof.derivation.world, proof.derivation.derived.uses, seconds)
    facts = (
        ("annotations proved by the solver", str(opinion.proved)),
        *(("annotation not decided by the solver", sentence) for sentence in opinion.undecided),
        *(("annotation not decided in time", sentence) for sentence in opinion.late),
        ("solver timeout", f"{seconds:g} s"),
    )
    verdict = replace(verdict, facts=(*verdict.facts, *facts), out_of_time=bool(opinion.late))
    if not opinion.refuted:
        return verdict
    plan = proof.case.parallel
    found = [Defect("annotation-refuted", False, f"the solver refutes {text}", first_rank(plan)) for text in opinion.refuted]
    return replace(verdict, outcome=Outcome.UNKNOWN, reasons=reasons(plan, found))
