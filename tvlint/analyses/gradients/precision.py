"""Sums over ranks in fewer bits than their result is declared with, and scales that are used before they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tvlint.analyses.dataflow.def_use import overwritten, writes
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.plan import Plan, Program, Role, Segment
from tvlint.ir.reductions import ADDING
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait, spec_of

_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "f8e4m3": 8, "f8e5m2": 8}
_REDUCES = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)


@dataclass(frozen=True, slots=True)
class Lowered:
    """The reduction at (`segment`, `index`) sums `name` as `used`, where its result `output` is declared `declared`."""

    segment: str
    index: int
    name: str
    used: str
    output: str
    declared: str


@dataclass(frozen=True, slots=True)
class Stale:
    """At (`segment`, `index`) `name` is quantised with `scale`; its own greatest magnitude makes a scale only at `later`."""

    segment: str
    index: int
    name: str
    scale: str
    later: tuple[str, int]
    ranks: tuple[int, ...]


@cache
def bits(dtype: str) -> int:
    """Return how many bits a floating type has; 0 for other types."""
    known = _BITS.get(dtype.removeprefix("torch."))
    return known if known is not None else 8 if dtype.startswith(("float8", "fp8")) else 0


def lowered(plan: Plan) -> Iterator[Lowered]:
    """Sums in fewer bits than what they are stored in, or than what is cast down before and up again after, and sums of real
    numbers as whole ones.
    """
    for name, segment in plan.segments.items():
        casts: dict[str, str] = {}
        quantised = quantised_from(segment)
        for operator in segment.operators:
            if isinstance(operator, Compute) and _is_cast(operator) and isinstance(operator.inputs[0], str):
                casts[operator.outputs[0]] = operator.inputs[0]
        wider = {source: output for output, source in casts.items() if _of(plan, output) > _of(plan, source) > 0}
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Communicate) or operator.kind not in _REDUCES:
                continue
            if operator.reduce not in ADDING:
                continue
            for source, output in zip(operator.inputs, operator.outputs, strict=False):
                word = plan.tensors[source].dtype if source in plan.tensors else ""
                used = operator.dtype or word
                origin = casts.get(source, "")
                narrowed = origin and _of(plan, origin) > bits(used) and output in wider
                stored = wider[output] if narrowed else output
                if holds_whole_numbers(operator.dtype) and bits(word) > 0:
                    yield Lowered(name, index, source, used, output, plan.tensors[output].dtype or word)
                elif 0 < bits(used) < _of(plan, stored):
                    yield Lowered(name, index, source, used, stored, plan.tensors[stored].dtype)
                elif source in quantised and is_code(used) and _of(plan, quantised[source]) > 8:
                    yield Lowered(name, index, source, used, quantised[source], plan.tensors[quantised[source]].dtype)


def quantised_from(segment: Segment) -> dict[str, str]:
    """Return what quantisations of the segment give, and the values of which those are codes."""
    return {
        operator.outputs[0]: str(operator.inputs[0])
        for operator in segment.operators
        if isinstance(operator, Compute)
        and operator.outputs
        and is_quantisation(operator)
        and operator.inputs
        and not isinstance(operator.inputs[0], Literal)
    }


def is_code(dtype: str) -> bool:
    """Return whether numbers of the type are codes of few bits."""
    return bits(dtype) == 8 or dtype.removeprefix("torch.") in ("int8", "uint8")


def _is_cast(operator: Compute) -> bool:
    return has_kind(operator.op, Trait.CONVERSION, Trait.QUANTISATION) and bool(operator.inputs) and len(operator.outputs) == 1


def _of(plan: Plan, name: str) -> int:
    return bits(plan.tensors[name].dtype) if name in plan.tensors else 0


def stale_scales(plan: Plan) -> Iterator[Stale]:
    """Quantisations with a scale that their own operand's greatest magnitude updates only afterwards.

    Delayed scaling, which takes the scale from a history of earlier steps, is something else: there the way from the
    magnitude to the scale goes through a buffer of several numbers.
    """
    computes = plan.operators_of(Compute)
    if not any(_quantises(plan, operator) for operator in computes):
        return
    found = (stale for program in plan.programs for stale in _stale(plan, program))
    yield from first_of_each(found, lambda stale: (stale.segment, stale.index))


def _stale(plan: Plan, program: Program) -> Iterator[Stale]:
    from_peak: dict[str, frozenset[str]] = {}
    quantised: dict[str, tuple[str, int, str]] = {}
    alike: dict[str, str] = {}
    for name, index, operator in plan.run_by(program):
        if isinstance(operator, Communicate):
            for source, output in zip(operator.inputs, operator.outputs, strict=False):
                from_peak[output] = from_peak.get(source, frozenset())
        if not isinstance(operator, Compute):
            continue
        names = operator.tensor_operands
        peaks = frozenset().union(*(from_peak.get(name, frozenset()) for name in names))
        if names and _keeps_peak(operator.op):
            alike.update(dict.fromkeys(operator.outputs, alike.get(names[0], names[0])))
        if is_peak(operator) and names:
            peaks |= {names[0], alike.get(names[0], names[0])}
        changed = (*writes(operator), *overwritten(operator))
        if _quantises(plan, operator) and len(names) > 1:
            scale = names[1]
            given = plan.tensors.get(scale)
            if names[0] not in from_peak.get(scale, frozenset()) and given is not None and given.role in _KEPT:
                quantised.setdefault(names[0], (name, index, scale))
            continue
        for operand in sorted(peaks & quantised.keys()):
            segment, at, scale = quantised[operand]
            makes_scale = scale in changed or has_kind(operator.op, Trait.SCALE)
            if makes_scale and not any(_is_history(plan, name) for name in names):
                yield Stale(segment, at, operand, scale, (name, index), program.ranks)
        for each_name in changed:
            from_peak[each_name] = frozenset() if _is_history(plan, each_name) else peaks


_KEPT = (Role.BUFFER, Role.STATE, Role.INPUT)


def _keeps_peak(op: str) -> bool:
    """Return whether the greatest magnitude of the result is that of the operand."""
    spec = spec_of(op)
    return has_trait(op, Trait.VIEW, Trait.CONVERSION, Trait.DETACHED) or (spec is not None and spec.name == "abs")


def _is_history(plan: Plan, name: str) -> bool:
    tensor = plan.tensors.get(name)
    return tensor is not None and tensor.role in (Role.BUFFER, Role.STATE) and any(size > 1 for size in tensor.shape)


def is_peak(operator: Compute) -> bool:
    """Return whether the operator takes the greatest magnitude."""
    return has_kind(operator.op, Trait.PEAK)


def _quantises(plan: Plan, operator: Compute) -> bool:
    if is_quantisation(operator):
        return True
    low = any(_of(plan, output) == 8 for output in operator.outputs)
    return low and not has_kind(operator.op, Trait.CONTRACTION)


def is_quantisation(operator: Compute) -> bool:
    """Return whether the operator gives codes of few bits."""
    return has_kind(operator.op, Trait.QUANTISATION)
