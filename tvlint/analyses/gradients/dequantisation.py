"""Codes that are dequantised with the scale of another tensor than the one that they are codes of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.gradients.precision import bits, is_code, is_peak, is_quantisation
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Communicate, Compute
from tvlint.ir.plan import Plan, Program
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_kind, has_trait

_KEEPS = (Trait.VIEW, Trait.RANGES, Trait.APART, Trait.DETACHED, Trait.PICK, Trait.BROADCAST)


@dataclass(frozen=True, slots=True)
class Misread:
    """At (`segment`, `index`) `codes`, which were made with the scale `right`, are dequantised with `scale`.

    `of` names what `scale` is the scale of; empty where the plan makes no codes with it.
    """

    codes: str
    scale: str
    right: str
    of: str
    segment: str
    index: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StillScaled:
    """At (`segment`, `index`) `operator` takes `name`, which is made of codes of `of` and still times or over `scale`."""

    name: str
    of: str
    scale: str
    operator: str
    segment: str
    index: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Coded:
    """Numbers of a tensor `of`, times or over `scale`."""

    of: str
    scale: str


@dataclass(slots=True)
class _Walk:
    plan: Plan
    scaled: dict[str, _Coded] = field(default_factory=dict)
    """Real numbers that were multiplied with one number, by their names."""
    coded: dict[str, _Coded] = field(default_factory=dict)
    """Codes, and real numbers that are still as large as codes."""
    made_of: dict[str, frozenset[str]] = field(default_factory=dict)
    """The names from which one number comes, up to the tensors of which it is the greatest magnitude."""
    uses: list[tuple[str, str, _Coded, bool]] = field(default_factory=list)
    """The codes that operators take back, the scale, and whether the operator does nothing else."""
    as_codes: dict[str, _Coded] = field(default_factory=dict)
    """Real numbers that are made of codes by casts and products alone, without their scale."""
    curved: list[tuple[str, _Coded]] = field(default_factory=list)
    """Those of them of which operators take a function that is not linear."""

    def sources(self, name: str) -> frozenset[str]:
        return self.made_of.get(name, frozenset({name}))

    def is_number(self, name: str) -> bool:
        tensor = self.plan.tensors.get(name)
        return tensor is None or prod(tensor.shape) == 1

    def is_code(self, name: str) -> bool:
        return name in self.plan.tensors and is_code(self.plan.tensors[name].dtype)


def misread_codes(plan: Plan) -> Iterator[Misread]:
    """Yield the operators that take codes back with a scale that has nothing to do with theirs, each once."""
    computes = plan.operators_of(Compute)
    if not any(is_quantisation(operator) or any(_is_low(plan, name) for name in operator.outputs) for operator in computes):
        return
    found = (misread for program in plan.programs for misread in _in_program(plan, program))
    yield from first_of_each(found, lambda misread: (misread.segment, misread.index, misread.codes))


def still_scaled(plan: Plan) -> Iterator[StillScaled]:
    """Yield the activations of what is made of codes without their scale, which nothing can take back after that, each once."""
    if not any(_is_low(plan, name) for name in plan.tensors):
        return
    seen = set[tuple[str, int]]()
    for program in plan.programs:
        walk = _Walk(plan)
        for name, index, operator in plan.run_by(program):
            if isinstance(operator, Communicate):
                for source, output in zip(operator.inputs, operator.outputs, strict=False):
                    _keep(walk, source, output)
            if not isinstance(operator, Compute):
                continue
            walk.curved.clear()
            _compute(walk, operator)
            for held, known in walk.curved:
                if (name, index) not in seen:
                    seen.add((name, index))
                    yield StillScaled(held, known.of, known.scale, canonical_name(operator.op), name, index, program.ranks)


def _is_low(plan: Plan, name: str) -> bool:
    return name in plan.tensors and bits(plan.tensors[name].dtype) == 8


def _in_program(plan: Plan, program: Program) -> Iterator[Misread]:
    walk, found, made = _Walk(plan), list[tuple[str, int, str, str, _Coded, bool]](), set[_Coded]()
    for name, index, operator in plan.run_by(program):
        if isinstance(operator, Compute | Communicate):
            _note_source(walk, operator)
        if isinstance(operator, Communicate):
            for source, output in zip(operator.inputs, operator.outputs, strict=False):
                _keep(walk, source, output)
        elif isinstance(operator, Compute):
            walk.uses.clear()
            _compute(walk, operator)
            found += [(name, index, *use) for use in walk.uses]
        made.update(walk.coded.values())
    for name, index, codes, scale, known, is_certain in found:
        others = [other for other in made if walk.sources(other.scale) & walk.sources(scale) and other.of != known.of]
        if walk.sources(scale).isdisjoint(walk.sources(known.scale)) and (others or is_certain):
            of = min((other.of for other in others), default="")
            yield Misread(codes, scale, known.scale, of, name, index, program.ranks)


def _note_source(walk: _Walk, operator: Compute | Communicate) -> None:
    """Note of which names the results are made; what makes a number of a tensor ends the way back."""
    names = reads(operator)
    is_end = isinstance(operator, Compute) and is_peak(operator)
    sources = frozenset(names) if is_end else frozenset().union(*(walk.sources(name) for name in names))
    for name in writes(operator):
        walk.made_of[name] = sources | {name}
    for name in overwritten(operator) if isinstance(operator, Compute) else ():
        walk.made_of[name] = walk.sources(name) | sources


def _keep(walk: _Walk, source: str, output: str) -> None:
    for held in (walk.scaled, walk.coded, walk.as_codes):
        if source in held:
            held[output] = held[source]
        else:
            held.pop(output, None)


def _compute(walk: _Walk, operator: Compute) -> None:
    names = operator.tensor_operands
    outputs = [name for name in writes(operator) if name]
    flat = [name for name in names if isinstance(name, str)]
    if len(flat) != len(names) or not flat or not outputs:
        return
    coded = [name for name in flat if name in walk.coded]
    known = [walk.as_codes[name] for name in flat if name in walk.as_codes]
    if known and has_trait(operator.op, Trait.CONTRACTION) and not any(name in walk.scaled for name in flat):
        walk.as_codes |= dict.fromkeys(outputs, known[0])
    elif known and has_trait(operator.op, Trait.ACTIVATION, Trait.SOFTMAX) and not has_trait(operator.op, Trait.HOMOGENEOUS):
        walk.curved.append((next(name for name in flat if name in walk.as_codes), known[0]))
    if is_quantisation(operator) and len(flat) > 1:
        walk.coded |= dict.fromkeys(outputs, _Coded(flat[0], flat[1]))
    elif has_kind(operator.op, Trait.DEQUANTISATION):
        if flat[0] in walk.coded and len(flat) > 1:
            walk.uses.append((flat[0], flat[1], walk.coded[flat[0]], True))
    elif has_kind(operator.op, Trait.CONTRACTION) and len(flat) == 4 and flat[:2] == coded[:2]:
        walk.uses += [(codes, scale, walk.coded[codes], False) for codes, scale in zip(flat[:2], flat[2:], strict=True)]
    elif has_kind(operator.op, Trait.SCALING) and len(flat) == 2:
        _scale(walk, outputs[0], flat)
    elif has_kind(operator.op, Trait.CONVERSION) or has_kind(operator.op, *_KEEPS):
        for output in outputs if len(flat) == 1 else ():
            _keep(walk, flat[0], output)
            if output in walk.scaled and walk.is_code(output):
                walk.coded[output] = walk.scaled.pop(output)
            if walk.is_code(flat[0]) and flat[0] in walk.coded and not walk.is_code(output):
                walk.as_codes[output] = walk.coded[flat[0]]


def _scale(walk: _Walk, output: str, names: list[str]) -> None:
    """Note what a product with one number is: a tensor that may become codes, or codes that are taken back."""
    numbers = [name for name in names if walk.is_number(name)]
    if len(numbers) != 1:
        return
    (tensor,) = (name for name in names if name != numbers[0])
    if tensor not in walk.coded:
        walk.scaled[output] = _Coded(tensor, numbers[0])
        return
    known = walk.coded[tensor]
    walk.uses.append((tensor, numbers[0], known, False))
    if walk.sources(known.scale).isdisjoint(walk.sources(numbers[0])):
        walk.coded[output] = known
