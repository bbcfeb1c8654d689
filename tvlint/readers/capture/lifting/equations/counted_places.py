"""Indexing by tensors that count the places of a dimension, as `x[rows, columns]` of masks and of one place a row."""

from __future__ import annotations

from math import prod

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import EXPAND, GATHER, VIEW
from tvlint.readers.capture.lifting.lift import Call, Equation, Lifting, given
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref


def indices_of(node: Apply) -> tuple[Argument, ...]:
    """Return the indices of an indexing, without those that take all of a dimension at the end."""
    listed = given(node, "indices")
    found = list(listed) if isinstance(listed, tuple) else []
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def counts(lifting: Lifting, name: str, number: int) -> bool:
    """Return whether a value is 0, 1, .. up to a number, in any shape."""
    call = lifting.call_of(name)
    while call is not None and call.op == VIEW and isinstance(call.inputs[0], Ref):
        call = lifting.call_of(call.inputs[0].name)
    if call is None or call.op != "torch.arange":
        return False
    bounds = [argument.value for argument in call.inputs if isinstance(argument, Literal)]
    return bounds in ([number], [0, number], [0, number, 1]) and prod(lifting.shape(name)) == number


def counts_rows(lifting: Lifting, name: str, number: int) -> bool:
    """Return whether a value of one dimension is 0, 1, .. up to a number."""
    return lifting.shape(name) == (number,) and counts(lifting, name, number)


def _place(lifting: Lifting, name: str, rank: int) -> int | None:
    """Return the one dimension of `rank` ones along which a value counts; -1 for one number, None where there are several."""
    shape = lifting.shape(name)
    wide = [rank - len(shape) + dim for dim, size in enumerate(shape) if size != 1]
    return None if len(wide) > 1 else wide[0] if wide else -1


def _grid(lifting: Lifting, node: Apply) -> bool:
    """Lift an indexing that counts each of the first dimensions along a dimension of the result, in order: a view."""
    name, indices = lifting.value(given(node, "self")), [lifting.value(index) for index in indices_of(node)]
    if name is None or len(indices) < 2 or None in indices:
        return False
    names = [index for index in indices if index is not None]
    shape = lifting.shape(name)
    if not all(counts(lifting, index, size) for index, size in zip(names, shape, strict=False)):
        return False
    rank = max(len(lifting.shape(index)) for index in names)
    places = [_place(lifting, index, rank) for index in names]
    moving = [place for place in places if place != -1]
    if None in places or moving != sorted({*moving}, key=lambda place: place or 0):
        return False
    return lifting.call(node, VIEW, (Ref(name), lifting.shape(node.outputs[0])))


def _one_of_each_row(lifting: Lifting, node: Apply) -> tuple[Ref, Ref] | None:
    """Return a value of three dimensions or more, and one place of each of its rows, where an indexing takes that."""
    name, indices = lifting.value(given(node, "self")), indices_of(node)
    if name is None or len(indices) != 2 or len(lifting.shape(name)) < 3:
        return None
    rows, places = (lifting.value(index) for index in indices)
    count = lifting.shape(name)[0]
    if rows is None or places is None or not counts_rows(lifting, rows, count):
        return None
    if lifting.dtype(places) != "int64" or lifting.shape(places) != (count,):
        return None
    return Ref(name), Ref(places)


def _taken(lifting: Lifting, node: Apply) -> bool:
    """Lift `x[0, 1, .., n - 1; t]` as a gather of whole vectors."""
    found = _one_of_each_row(lifting, node)
    if found is None:
        return False
    value, places = found
    count, _, *rest = lifting.shape(value.name)
    column = lifting.program.fresh(lifting.program.types[places.name].of_shape((count, 1, *(1 for _ in rest))))
    spread = lifting.program.fresh(lifting.program.types[places.name].of_shape((count, 1, *rest)))
    lifting.emit(VIEW, (places, lifting.shape(column)), (column,), node.mark, {}, node)
    lifting.emit(EXPAND, (Ref(column),), (spread,), node.mark, {"size": lifting.shape(spread)}, node)
    taken = lifting.temporary(node, GATHER, (value, Ref(spread)), lifting.shape(spread), dim=1)
    return lifting.call(node, VIEW, (taken, lifting.shape(node.outputs[0])))


def _taken_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift zeros to which a vector of each row is added, at the places at which the forward operator took one."""
    found, values = _one_of_each_row(lifting, node), lifting.value(given(node, "values"))
    if found is None or values is None or not node.arguments.get("accumulate") or lifting.number(found[0]) != 0:
        return False
    viewed = lifting.forward_of(node.mark, VIEW)
    forward = _maker(lifting, viewed, GATHER)
    if viewed is None or forward is None or not isinstance(forward.inputs[0], Ref):
        return False
    if lifting.shape(values) != lifting.shape(viewed.outputs[0]):
        return False
    column = _maker(lifting, _maker(lifting, forward, EXPAND, 1), VIEW)
    if column is None or column.inputs[0] != found[1]:
        return False
    if lifting.shape(forward.inputs[0].name) != lifting.shape(node.outputs[0]):
        return False
    shape = lifting.shape(forward.outputs[0])
    incoming = lifting.temporary(node, VIEW, (Ref(values), shape), shape)
    return lifting.gradient(forward, (incoming,), (node.outputs[0], ""), node.mark)


def _maker(lifting: Lifting, call: Call | None, op: str, place: int = 0) -> Call | None:
    """Return the call of `op` that made an operand of a call; None where another did."""
    operand = call.inputs[place] if call is not None else None
    made = lifting.call_of(operand.name) if isinstance(operand, Ref) else None
    return made if made is not None and made.op == op else None


EQUATIONS = (
    Equation("index", "x[i, j, ..] that counts each dimension along one of the result in order, is x in another shape", _grid),
    Equation("index", "x[0, 1, .., n - 1; t] of n rows of vectors is torch.gather of the vectors at t", _taken),
    Equation(
        "index_put",
        "zeros[0, 1, .., n - 1; t] += y of n rows of vectors is the gradient of taking the vectors at t, for y",
        _taken_gradient,
    ),
)
