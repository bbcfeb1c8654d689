"""Rows that an indexing by places takes, or adds to, along any dimension."""

from __future__ import annotations

from math import prod

from tvlint.readers.capture.lifting.equations.counted_places import indices_of
from tvlint.readers.capture.lifting.equations.selections import VIEWED, as_shape, source_of
from tvlint.readers.capture.lifting.lift import Equation, Lifting, given
from tvlint.readers.capture.lifting.program import Apply, Ref


def _places(lifting: Lifting, node: Apply) -> tuple[Ref, Ref, int] | None:
    """Return a value, the places along a dimension of it that an indexing is about, in one row, and that dimension.

    Neighbouring dimensions that are indexed together are taken for one.
    """
    name, indices = lifting.value(given(node, "self")), indices_of(node)
    before = next((dim for dim, index in enumerate(indices) if index is not None), 0)
    listed = [lifting.value(index) or "" for index in indices[before:]]
    types = {lifting.program.types.get(index) for index in listed}
    type = types.pop() if len(types) == 1 else None
    if name is None or type is None or type.dtype != "int64":
        return None
    shape = lifting.shape(name)
    flat, dims = listed[0], shape[before : before + len(listed)]
    for index, size in zip(listed[1:], dims[1:], strict=False):
        rows, both = lifting.program.fresh(type), lifting.program.fresh(type)
        lifting.emit("torch.mul", (Ref(flat), size), (rows,), node.mark, {}, node)
        lifting.emit("torch.add", (Ref(rows), Ref(index)), (both,), node.mark, {}, node)
        flat = both
    together = (*shape[:before], prod(dims), *shape[before + len(listed) :])
    return as_shape(lifting, node, Ref(name), together), as_shape(lifting, node, Ref(flat), (prod(type.shape),)), before


def _of_one_row(lifting: Lifting, value: Ref, places: Ref, dim: int) -> tuple[int, ...]:
    """Return the shape of what an indexing takes, with the places in one row."""
    shape = lifting.shape(value.name)
    return (*shape[:dim], *lifting.shape(places.name), *shape[dim + 1 :])


def _chosen_rows(lifting: Lifting, node: Apply) -> bool:
    found = _places(lifting, node)
    if found is None:
        return False
    value, places, dim = found
    wanted, shape = lifting.shape(node.outputs[0]), _of_one_row(lifting, value, places, dim)
    if wanted == shape:
        return lifting.call(node, "torch.index_select", (value, places), dim=dim)
    rows = lifting.temporary(node, "torch.index_select", (value, places), shape, dim=dim)
    return prod(wanted) == prod(shape) and lifting.call(node, "torch.Tensor.view", (rows, wanted))


def _added_rows(lifting: Lifting, node: Apply) -> bool:
    values = lifting.value(given(node, "values"))
    found = _places(lifting, node) if values is not None and node.arguments.get("accumulate") else None
    if found is None or values is None:
        return False
    value, places, dim = found
    shape, old = _of_one_row(lifting, value, places, dim), lifting.shape(value.name)
    if prod(lifting.shape(values)) != prod(shape) or lifting.dtype(values) != lifting.dtype(value.name):
        return False
    added = as_shape(lifting, node, Ref(values), shape)
    if old == lifting.shape(node.outputs[0]):
        return lifting.call(node, "torch.index_add", (value, places, added), dim=dim)
    total = lifting.temporary(node, "torch.index_add", (value, places, added), old, dim=dim)
    return lifting.call(node, "torch.Tensor.view", (total, lifting.shape(node.outputs[0])))


def _chosen_rows_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what autograd adds among zeros at the places from which it took rows, along others than the first dimension.

    Rows along the first may be those that experts choose, of which it is followed how they are added.
    """
    name, values = lifting.program.operations.get(node.mark.of), lifting.value(given(node, "values"))
    source = lifting.maker(Ref(name)) if name is not None else None
    if node.mark.phase != "backward" or source is None or not source.op.startswith("aten.index.") or values is None:
        return False
    if lifting.number(given(node, "self")) != 0 or not node.arguments.get("accumulate"):
        return False
    if [lifting.value(index) for index in indices_of(node)] != [lifting.value(index) for index in indices_of(source)]:
        return False
    call = lifting.call_of(source_of(lifting, str(name), VIEWED))
    taken = lifting.value(given(source, "self"))
    if call is None or call.op != "torch.index_select" or not isinstance(call.inputs[0], Ref) or taken is None:
        return False
    if lifting.shape(taken) != lifting.shape(node.outputs[0]):
        return False
    rows, old = as_shape(lifting, node, Ref(values), lifting.shape(call.outputs[0])), lifting.shape(call.inputs[0].name)
    if old == lifting.shape(node.outputs[0]) and call.attributes["dim"] == 0:
        return False
    if old == lifting.shape(node.outputs[0]):
        return lifting.gradient(call, (rows,), (node.outputs[0], ""), node.mark)
    total = lifting.program.fresh(lifting.program.types[node.outputs[0]].of_shape(old))
    lifting.gradient(call, (rows,), (total, ""), node.mark)
    return lifting.call(node, "torch.Tensor.view", (Ref(total), lifting.shape(node.outputs[0])))


EQUATIONS = (
    Equation("index", "x[:, i, j] is torch.index_select along the dimensions of i and j, taken for one", _chosen_rows),
    Equation("index_put", "zeros[:, i, j] += g is the gradient of x[:, i, j] for g", _chosen_rows_gradient),
    Equation("index_put", "x[:, i, j] += y is torch.index_add along the dimensions of i and j, taken for one", _added_rows),
)
