"""Sizes of expansions that are numbers in traced code and stand for the size of what the result is combined with.

`cls.expand(x.shape[0], -1, -1)` is traced as `expand(cls, (4, -1, -1))`, whatever the 4 came from. Where the result is combined
with a tensor whose dimension has this size, the operator takes it from there: on the same tensors that is the same, and it
stays right when the batch has another size, where the number would not even fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tvlint.ir.operators import Communicate, Compute, Literal, Operator
from tvlint.ops.shaping import AS_WIDE
from tvlint.ops.spec import ONE, Bound
from tvlint.ops.table import spec_of
from tvlint.readers.nnscaler.gencode.lower.replica import made_by
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind, bound_of


def makers(operators: Iterable[tuple[Compute, bool]]) -> dict[str, Compute]:
    """What makes each tensor, of the operators whose gradient autograd derives; empty where any overwrites a tensor."""
    found: dict[str, Compute] = {}
    for operator, derived in operators:
        if operator.in_place or operator.op.endswith("_"):
            return {}
        found.update(dict.fromkeys(operator.outputs, operator) if derived else {})
    return found


def widened(
    operator: Compute, made: Mapping[str, Compute], known: Mapping[str, Kind], scalar: tuple[int, ...]
) -> tuple[Compute, ...]:
    """The operator, as the last, and before it expansions that take their sizes from its other operands.

    `made` is what makes each tensor (of `makers`), and `known` its shape, as the numbers in the code say.
    """
    tensors = [operand for operand in operator.inputs if isinstance(operand, str)]
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
            tensors = [operand for operand in operator.inputs if isinstance(operand, str)]
            ways = [list(_moved(name, made)) for name in tensors]
            wide = [at for at, way in enumerate(ways) if _expands(made.get(way[-1]))]
            bound = bound_of(operator, known, scalar) if wide and len(wide) < len(ways) else None
            for at in wide if bound is not None and len(bound.operands) == len(tensors) else ():
                last, expansion = ways[at][-1], made[ways[at][-1]]
                others = [(other, name) for other, way in enumerate(ways) if other not in wide for name in way]
                before = [(other, name) for other, name in others if name in known and places.get(name, -1) < places[last]]
                one = isinstance(expansion, Compute) and bound and _as_wide(last, expansion, at, before, bound, known)
                if one and places[last] not in done:
                    done.add(places[last])
                    yield places[last], one
        for name in made_by(operator):
            made[name], places[name] = operator, position


def _moved(name: str, made: Mapping[str, Operator]) -> Iterator[str]:
    """The tensor, and what it was before it was copied or moved between ranks, back to what was computed."""
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
    return spec is not None and spec.name in ("identity", "multiref")


def _expands(operator: Operator | None) -> bool:
    """Whether the operator is an expansion to numbers."""
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    if spec is None or spec.name != "expand" or not isinstance(operator, Compute):
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
    """The expansion with the sizes of the first of the other operands that shares dimensions which it makes wide."""
    source = expansion.inputs[0]
    if not isinstance(source, str) or source not in known:
        return None
    narrow, wide = known[source][0], known[name][0]
    new = len(wide) - len(narrow)
    free = [dim for dim in range(len(wide)) if dim < new or narrow[dim - new] == 1]
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
    """The expansion to numbers that the tensor is, or a copy of; None where it is none."""
    last = made.get(list(_moved(name, made))[-1])
    return last if _expands(last) else None
