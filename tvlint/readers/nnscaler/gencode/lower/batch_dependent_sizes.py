"""Sizes of expansions that are numbers in traced code and stand for the size of what the result is combined with.

`cls.expand(x.shape[0], -1, -1)` is traced as `expand(cls, (4, -1, -1))`, whatever the 4 came from. Where the result is combined
with a tensor whose dimension has this size, the operator takes it from there: on the same tensors that is the same, and it
stays right when the batch has another size, where the number would not even fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import reads
from tvlint.ir.operators import Communicate, Compute, Literal, Operator
from tvlint.ops.families.shaping import AS_WIDE
from tvlint.ops.spec import ONE, Bound, Family, Trait
from tvlint.ops.table import has_trait, spec_of
from tvlint.readers.nnscaler.gencode.lower.replica import made_by
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind, bound_of


def makers(operators: Iterable[tuple[Compute, bool]]) -> dict[str, Compute]:
    """Return what makes each tensor, of the operators whose gradient autograd derives; empty where any overwrites a tensor."""
    found: dict[str, Compute] = {}
    for operator, derived in operators:
        if operator.in_place or operator.op.endswith("_"):
            return {}
        found.update(dict.fromkeys(operator.outputs, operator) if derived else {})
    return found


def as_expansion(operator: Operator, known: Mapping[str, Kind]) -> Operator:
    """Return a repetition along dimensions of size 1 alone as the expansion that it is, and any other operator as it is."""
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    if spec is None or spec.name != "repeat" or not isinstance(operator, Compute) or operator.inputs[0] not in known:
        return operator
    literals = [operand.value for operand in operator.inputs[1:] if isinstance(operand, Literal)]
    given = literals or list(operator.attributes.values())
    times = given[0] if len(given) == 1 and isinstance(given[0], tuple) else tuple(given)
    shape = known[str(operator.inputs[0])][0]
    before = (1,) * (len(times) - len(shape)) + shape
    if len(before) != len(times) or not all(isinstance(count, int) and count > 0 for count in times):
        return operator
    if any(count != 1 and size != 1 for count, size in zip(times, before, strict=True)):
        return operator
    new = len(times) - len(shape)
    size = tuple(-1 if count == 1 and at >= new else count for at, count in enumerate(times))
    return replace(operator, op="torch.Tensor.expand", inputs=operator.inputs[:1], attributes={"size": size})


def widened(
    operator: Compute, made: Mapping[str, Compute], known: Mapping[str, Kind], scalar: tuple[int, ...]
) -> tuple[Compute, ...]:
    """Return the operator, as the last, and before it expansions that take their sizes from its other operands.

    `made` is what makes each tensor (of `makers`), and `known` its shape, as the numbers in the code say.
    """
    tensors = operator.tensor_operands
    sources = {name: maker for name in tensors if (maker := _expansion(name, made)) is not None}
    if not sources or len(sources) == len(set(tensors)):
        return (operator,)
    bound = bound_of(operator, known, scalar)
    if bound is None or len(bound.operands) != len(tensors) or any(name not in known for name in tensors):
        return (operator,)
    found: list[Compute] = []
    renamed: dict[str, str] = {}
    for position, name in enumerate(tensors):
        if name not in sources or name in renamed:
            continue
        others = [(at, other) for at, other in enumerate(tensors) if other not in sources]
        one = _as_wide(name, sources[name], position, others, bound, known)
        if one is not None:
            renamed[name] = f"{name}.in.{operator.outputs[0]}"
            found.append(replace(one, outputs=(renamed[name],), label=f"{one.label}.in.{operator.label}" if one.label else ""))
    inputs = tuple(renamed.get(operand, operand) if isinstance(operand, str) else operand for operand in operator.inputs)
    return (*found, replace(operator, inputs=inputs))


def widened_in_place(
    operators: Sequence[Operator], known: Mapping[str, Kind], scalar: tuple[int, ...]
) -> Iterator[tuple[int, Compute]]:
    """Expansions, by position, with the sizes of tensors that are there before, where results are moved between ranks first.

    What is combined with the result has been moved the same way; the expansion takes its sizes from what that was before.
    """
    places: dict[str, int] = {}
    made: dict[str, Operator] = {}
    done = set[int]()
    for position, operator in enumerate(operators):
        if isinstance(operator, Compute) and len(operator.inputs) > 1:
            tensors = operator.tensor_operands
            ways = [list(_moved(name, made)) for name in tensors]
            wide = [at for at, way in enumerate(ways) if _expands(made.get(way[-1]))]
            bound = bound_of(operator, known, scalar) if wide and len(wide) < len(ways) else None
            for at in wide if bound is not None and len(bound.operands) == len(tensors) else ():
                last, expansion = ways[at][-1], made[ways[at][-1]]
                others = [(other, name) for other, way in enumerate(ways) if other not in wide for name in way]
                before = [(other, name) for other, name in others if name in known and places.get(name, -1) < places[last]]
                one = isinstance(expansion, Compute) and bound and _as_wide(last, expansion, at, before, bound, known)
                if not one and isinstance(expansion, Compute) and bound is not None:
                    there = {name for name in known if places.get(name, -1) < places[last]}
                    apart = [(other, tensors[other]) for other in range(len(ways)) if other not in wide]
                    one = _as_origin(last, expansion, at, apart, bound, _Traced(made, known, scalar, there))
                if one and places[last] not in done:
                    done.add(places[last])
                    yield places[last], one
        for name in made_by(operator):
            made[name], places[name] = operator, position


@dataclass(frozen=True, slots=True)
class _Traced:
    """Facts about the tensors of a method: `there` are those that were made before an expansion."""

    made: Mapping[str, Operator]
    known: Mapping[str, Kind]
    scalar: tuple[int, ...]
    there: Collection[str]

    def origins(self, name: str, dim: int) -> Iterator[tuple[str, int]]:
        """Yield a dimension of a tensor, and the dimensions of other tensors that it comes from, back to what was given."""
        seen = set[str]()
        while name not in seen and name in self.known and dim < len(self.known[name][0]):
            seen.add(name)
            yield name, dim
            found = self._before(name, dim)
            if found is None:
                return
            name, dim = found

    def _before(self, name: str, dim: int) -> tuple[str, int] | None:
        maker = self.made.get(name)
        if not isinstance(maker, (Communicate, Compute)):
            return None
        tensors = reads(maker)
        spec = spec_of(maker.op) if isinstance(maker, Compute) else None
        if isinstance(maker, Communicate) or (spec is not None and spec.family is Family.IDENTITY):
            return (tensors[0], dim) if tensors else None
        if spec is not None and spec.family is Family.RESHAPE:
            before, after = self.known.get(tensors[0], ((), ""))[0], self.known[name][0]
            return (tensors[0], dim) if before[: dim + 1] == after[: dim + 1] else None
        bound = bound_of(maker, self.known, self.scalar)
        if bound is None or len(bound.operands) != len(tensors):
            return None
        output = bound.outputs[maker.outputs.index(name)][dim]
        return next(
            ((one, names.index(output)) for one, names in zip(tensors, bound.operands, strict=True) if output in names), None
        )


def _as_origin(
    name: str, expansion: Compute, position: int, others: Sequence[tuple[int, str]], bound: Bound, traced: _Traced
) -> Compute | None:
    """Return the expansion with the size of what a dimension comes from that its result is combined with."""
    source = expansion.inputs[0]
    if not isinstance(source, str) or source not in traced.known or name not in traced.known:
        return None
    narrow, wide = traced.known[source][0], traced.known[name][0]
    new = len(wide) - len(narrow)
    free = _free(expansion, narrow, wide)
    for other, like in others:
        for dim in free:
            operand = bound.operands[position][dim]
            if operand == ONE or operand not in bound.operands[other]:
                continue
            for origin, at in traced.origins(like, bound.operands[other].index(operand)):
                if origin in traced.there and traced.known[origin][0][at] == wide[dim]:
                    size = tuple(wide[one] if one < new or narrow[one - new] == 1 else -1 for one in range(len(wide)))
                    given = {"size": size, "dims": (dim,), "of": (at,)}
                    return replace(expansion, op=AS_WIDE, inputs=(source, origin), attributes=given)
    return None


def _free(expansion: Compute, narrow: tuple[int, ...], wide: tuple[int, ...]) -> list[int]:
    """Return the dimensions of the result that are made as long as a number says: `-1` keeps what a rank has."""
    given = [operand.value for operand in expansion.inputs[1:] if isinstance(operand, Literal)]
    size = expansion.attributes.get("size", given[0] if len(given) == 1 and isinstance(given[0], tuple) else tuple(given))
    stated = size if isinstance(size, tuple) and len(size) == len(wide) else wide
    new = len(wide) - len(narrow)
    return [dim for dim in range(len(wide)) if dim < new or (narrow[dim - new] == 1 and stated[dim] != -1)]


def _moved(name: str, made: Mapping[str, Operator]) -> Iterator[str]:
    """Yield the tensor, and what it was before it was copied or moved between ranks, back to what was computed."""
    seen = set[str]()
    while name not in seen:
        seen.add(name)
        yield name
        maker = made.get(name)
        moves = isinstance(maker, Communicate) or (isinstance(maker, Compute) and _copies(maker))
        first = maker.inputs[0] if isinstance(maker, (Communicate, Compute)) and moves and maker.inputs else None
        if not isinstance(first, str):
            return
        name = first


def _copies(operator: Compute) -> bool:
    spec = spec_of(operator.op)
    return spec is not None and spec.family is Family.IDENTITY


def _expands(operator: Operator | None) -> bool:
    """Return whether the operator is an expansion to numbers."""
    if not isinstance(operator, Compute) or not has_trait(operator.op, Trait.BROADCAST):
        return False
    literal = bool(operator.inputs) and all(isinstance(operand, Literal) for operand in operator.inputs[1:])
    return literal and operator.op != AS_WIDE and not operator.attributes.keys() - {"size"}


def _as_wide(
    name: str,
    expansion: Compute,
    position: int,
    others: Sequence[tuple[int, str]],
    bound: Bound,
    known: Mapping[str, Kind],
) -> Compute | None:
    """Return the expansion with the sizes of the first of the other operands that shares dimensions which it makes wide."""
    source = expansion.inputs[0]
    if not isinstance(source, str) or source not in known:
        return None
    narrow, wide = known[source][0], known[name][0]
    new = len(wide) - len(narrow)
    free = _free(expansion, narrow, wide)
    for other, like in others:
        names, shape = bound.operands[other], known[like][0]
        shared = [(dim, names.index(one)) for dim in free if (one := bound.operands[position][dim]) in names and one != ONE]
        if shared and len(names) == len(shape) and all(wide[dim] == shape[at] for dim, at in shared):
            dims, of = zip(*shared, strict=True)
            size = tuple(wide[dim] if dim < new or narrow[dim - new] == 1 else -1 for dim in range(len(wide)))
            given = {"size": size, "dims": dims, "of": of}
            return replace(expansion, op=AS_WIDE, inputs=(source, like), attributes=given)
    return None


def _expansion(name: str, made: Mapping[str, Compute]) -> Compute | None:
    """Return the expansion to numbers that the tensor is, or a copy of; None where it is none."""
    last = made.get(list(_moved(name, made))[-1])
    return last if _expands(last) else None
