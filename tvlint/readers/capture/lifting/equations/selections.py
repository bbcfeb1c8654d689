"""Elements that masks and indices choose, as the layers do that hold a range of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.readers.capture.lifting.calls import GATHER
from tvlint.readers.capture.lifting.equations.counted_places import counts_rows, indices_of
from tvlint.readers.capture.lifting.factors import is_elementwise
from tvlint.readers.capture.lifting.lift import Call, Equation, GradientOf, Lifting, Operand, given, nearest, whole
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref, Type

LOOKUP = "torch.nn.functional.embedding"
LOOKUP_IN_RANGE = "nnscaler.runtime.function.embedding"
PICK = "masked_gather"
_MASKED = "torch.masked_fill"
VIEWED = frozenset({"torch.Tensor.view"})
_SHAPED = VIEWED | {"torch.Tensor.to"}
_MOST_SHIFTS = 8
"""So many whole numbers that are subtracted one after the other are added up; programs have two."""


@dataclass(frozen=True, slots=True)
class InRange:
    """Indices that are counted from `start` where they are below `stop`, and 0 elsewhere, where `mask` holds."""

    indices: str
    start: int
    stop: int
    mask: str


def _filled_where(lifting: Lifting, node: Apply) -> bool:
    """Lift the assignment of one number where a mask of the first dimensions holds."""
    indices, value = indices_of(node), lifting.number(given(node, "values"))
    name, mask = lifting.value(given(node, "self")), lifting.value(indices[0]) if len(indices) == 1 else None
    if name is None or mask is None or value is None or node.arguments.get("accumulate") or lifting.dtype(mask) != "bool":
        return False
    shape, covered = lifting.shape(name), lifting.shape(mask)
    if shape[: len(covered)] != covered:
        return False
    if value == 0 and _lifted_in_range(lifting, node, name, source_of(lifting, mask, VIEWED)):
        return True
    spread: Argument = Ref(mask)
    if covered != shape:
        wide = (*covered, *(1 for _ in shape[len(covered) :]))
        spread = lifting.temporary(node, "torch.Tensor.view", (spread, wide), wide)
    return lifting.call(node, _MASKED, (Ref(name), spread, value))


def _lifted_in_range(lifting: Lifting, node: Apply, name: str, mask: str) -> bool:
    """Lift zeros in rows that were looked up, or in scores that were picked, outside of a range."""
    looked_up = _in_range_lookup(lifting, name, mask)
    if looked_up is not None:
        table, found = looked_up
        return lifting.call(node, LOOKUP_IN_RANGE, (Ref(found.indices), table), start=found.start, stop=found.stop)
    picked = _picked_in_range(lifting, name, mask)
    if picked is None:
        return False
    scores, found = picked
    rows = lifting.shape(scores)[:-1]
    targets = as_shape(lifting, node, Ref(found.indices), rows)
    chosen = lifting.temporary(node, PICK, (Ref(scores), targets), rows, dim=len(rows), start=found.start, stop=found.stop)
    return lifting.call(node, "torch.Tensor.view", (chosen, lifting.shape(name)))


def _masked_rows(lifting: Lifting, node: Apply) -> bool:
    """Lift zeros where a mask holds that has a place for each element, or for each row."""
    name, spread = lifting.value(given(node, "self")), lifting.value(given(node, "mask"))
    if name is None or spread is None or lifting.number(given(node, "value")) != 0:
        return False
    shape, covered = lifting.shape(name), lifting.shape(spread)
    whole_rows = bool(shape) and covered == (*shape[:-1], 1)
    mask = source_of(lifting, spread, VIEWED)
    if covered != shape and not (whole_rows and lifting.shape(mask) == shape[:-1]):
        return False
    return _lifted_in_range(lifting, node, name, mask)


def _kept_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what autograd computes for the gradient of a value that was multiplied by flags, by those flags."""
    forward = lifting.forward_of(node.mark, "torch.mul")
    gradient, flags = (lifting.value(node.arguments.get(name)) for name in ("self", "other"))
    values = [operand.name for operand in forward.inputs if isinstance(operand, Ref)] if forward is not None else []
    if forward is None or gradient is None or flags not in values or len(set(values)) != 2:
        return False
    value = next(name for name in values if name != flags)
    if lifting.dtype(source_of(lifting, flags)) != "bool":
        return False
    if not lifting.shape(gradient) == lifting.shape(value) == lifting.shape(forward.outputs[0]):
        return False
    outputs = tuple(node.outputs[0] if name == value else "" for name in values)
    return lifting.gradient(forward, (given(node, "self"),), outputs, node.mark)


def _chosen_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what autograd computes for the gradient of a value that is kept where flags hold, and is a number elsewhere."""
    forward = lifting.forward_of(node.mark, "torch.where")
    gradient = lifting.value(given(node, "self"))
    if forward is None or gradient is None or lifting.number(given(node, "other")) != 0:
        return False
    flags, kept, other = forward.inputs
    if not isinstance(kept, Ref) or isinstance(other, Ref) or flags != Ref(str(lifting.value(given(node, "condition")))):
        return False
    if not lifting.shape(gradient) == lifting.shape(kept.name) == lifting.shape(forward.outputs[0]):
        return False
    return lifting.gradient(forward, (Ref(gradient),), ("", node.outputs[0]), node.mark)


def _picked_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what is added at the places in a range from which one score a row was picked, and is zero for those outside."""
    name, index = lifting.value(given(node, "self")), lifting.value(given(node, "index"))
    source = lifting.value(given(node, "src"))
    if name is None or index is None or source is None or lifting.number(Ref(name)) != 0:
        return False
    shape = lifting.shape(name)
    found = _in_range(lifting, index) if lifting.shape(index) == (*shape[:-1], 1) else None
    filled = lifting.call_of(source_of(lifting, source, VIEWED))
    if found is None or found.stop - found.start != shape[-1] or _dim(lifting, node) != len(shape) - 1:
        return False
    if (
        lifting.shape(source) != (*shape[:-1], 1)
        or filled is None
        or filled.op != _MASKED
        or not _is_number(filled.inputs[2], 0)
    ):
        return False
    gradient, mask = filled.inputs[:2]
    if not isinstance(gradient, Ref) or not isinstance(mask, Ref) or source_of(lifting, mask.name, VIEWED) != found.mask:
        return False
    if prod(lifting.shape(gradient.name)) != prod(lifting.shape(mask.name)):
        return False
    forward = _pick_of(lifting, found, shape)
    if forward is None:
        return False
    incoming = as_shape(lifting, node, gradient, lifting.shape(forward.outputs[0]))
    return lifting.gradient(forward, (incoming,), (node.outputs[0], ""), node.mark)


def as_shape(lifting: Lifting, node: Apply, value: Ref, shape: tuple[int, ...]) -> Ref:
    name = lifting.name(value.name)
    if lifting.shape(name) == shape:
        return Ref(name)
    viewed = lifting.program.fresh(lifting.program.types[name].of_shape(shape))
    lifting.emit("torch.Tensor.view", (Ref(name), shape), (viewed,), node.mark, {}, node)
    return Ref(viewed)


def source_of(lifting: Lifting, name: str, through: frozenset[str] = _SHAPED) -> str:
    """Return the value that a value is in another shape or type."""
    call = lifting.call_of(name)
    while call is not None and call.op in through and isinstance(call.inputs[0], Ref):
        name = call.inputs[0].name
        call = lifting.call_of(name)
    return lifting.name(name)


def _are_equal(lifting: Lifting, one: str, other: str) -> bool:
    """Return whether two values are the same in other shapes: also where each element was computed again of the same ones."""
    one, other = (source_of(lifting, name, VIEWED) for name in (one, other))
    if one == other:
        return True
    first, again = lifting.call_of(one), lifting.call_of(other)
    if first is None or again is None or (first.op, first.attributes) != (again.op, again.attributes):
        return False
    types, size = lifting.program.types, prod(lifting.shape(one))
    if lifting.dtype(one) != lifting.dtype(other) or not is_elementwise(first, types) or not is_elementwise(again, types):
        return False
    names = [operand.name for call in (first, again) for operand in call.inputs if isinstance(operand, Ref)]
    return (
        all(prod(lifting.shape(name)) == size for name in names)
        and len(first.inputs) == len(again.inputs)
        and all(
            _are_equal(lifting, left.name, right.name) if isinstance(left, Ref) and isinstance(right, Ref) else left == right
            for left, right in zip(first.inputs, again.inputs, strict=True)
        )
    )


def _in_range(lifting: Lifting, name: str) -> InRange | None:
    """Return what indices say that are masked and shifted; None where they are others."""
    filled = lifting.call_of(source_of(lifting, name))
    if filled is None or filled.op != _MASKED or not _is_number(filled.inputs[2], 0):
        return None
    shifted, mask = (argument.name if isinstance(argument, Ref) else "" for argument in filled.inputs[:2])
    either = lifting.call_of(mask)
    if either is None or either.op != "torch.logical_or":
        return None
    below, above = (lifting.call_of(argument.name) if isinstance(argument, Ref) else None for argument in either.inputs)
    if below is None or above is None or (below.op, above.op) != ("torch.lt", "torch.ge"):
        return None
    (compared, start), (again, stop) = below.inputs, above.inputs
    if not isinstance(compared, Ref) or compared != again or not isinstance(start, Literal) or not isinstance(stop, Literal):
        return None
    (indices, less), low, high = _shifted_from(lifting, compared.name), start.value, stop.value
    if not isinstance(low, int) or not isinstance(high, int) or _shifted_from(lifting, shifted) != (indices, low + less):
        return None
    return InRange(indices, low + less, high + less, lifting.name(mask))


def _shifted_from(lifting: Lifting, name: str) -> tuple[str, int]:
    """Return the value from which whole numbers are subtracted in a value, and their sum."""
    less, name = 0, lifting.name(name)
    for _ in range(_MOST_SHIFTS):
        call = lifting.call_of(name)
        if call is None or call.op != "torch.sub" or call.attributes or not isinstance(call.inputs[0], Ref):
            break
        number = call.inputs[1].value if isinstance(call.inputs[1], Literal) else None
        if not isinstance(number, int) or isinstance(number, bool):
            break
        less, name = less + number, call.inputs[0].name
    return name, less


def _is_number(operand: Operand, number: float) -> bool:
    return isinstance(operand, Literal) and operand.value == number and not isinstance(operand.value, bool)


def _in_range_lookup(lifting: Lifting, name: str, mask: str) -> tuple[Ref, InRange] | None:
    """Return the table and the indices of a lookup whose rows outside of the table are set to zero."""
    call = lifting.call_of(name)
    if call is None or call.op != LOOKUP or not isinstance(call.inputs[0], Ref) or not isinstance(call.inputs[1], Ref):
        return None
    found = _in_range(lifting, call.inputs[0].name)
    table = call.inputs[1]
    if found is None or found.mask != mask or found.stop - found.start != lifting.shape(table.name)[0]:
        return None
    return table, found


def _rows_times_flags(lifting: Lifting, node: Apply) -> bool:
    """Lift rows that are looked up at indices which are kept in a range, times flags of those that lie in it."""
    name, flags = (lifting.value(node.arguments.get(each)) for each in ("self", "other"))
    call = lifting.call_of(name) if name is not None else None
    if call is None or flags is None or call.op != LOOKUP or not all(isinstance(each, Ref) for each in call.inputs):
        return False
    indices, table = (each.name for each in call.inputs if isinstance(each, Ref))
    found, shape = _kept_in_range(lifting, indices, flags), lifting.shape(call.outputs[0])
    if found is None or lifting.shape(flags) != (*shape[:-1], 1) or found.stop - found.start != lifting.shape(table)[0]:
        return False
    return lifting.call(node, LOOKUP_IN_RANGE, (Ref(found.indices), Ref(table)), start=found.start, stop=found.stop)


def _kept_in_range(lifting: Lifting, name: str, flags: str) -> InRange | None:
    """Return the indices that are counted from the start of a range and kept in it, where flags say which lie in it."""
    kept, both = lifting.call_of(name), lifting.call_of(source_of(lifting, flags))
    if kept is None or kept.op != "torch.clamp" or both is None or both.op != "torch.logical_and":
        return None
    low, high = kept.attributes.get("min"), kept.attributes.get("max")
    if not isinstance(kept.inputs[0], Ref) or low != 0 or not isinstance(high, int):
        return None
    indices, start = _shifted_from(lifting, kept.inputs[0].name)
    for argument, op, bound in zip(both.inputs, ("torch.ge", "torch.lt"), (start, start + high + 1), strict=False):
        call = lifting.call_of(argument.name) if isinstance(argument, Ref) else None
        if call is None or call.op != op or not isinstance(call.inputs[0], Ref) or not isinstance(call.inputs[1], Literal):
            return None
        compared, less = _shifted_from(lifting, call.inputs[0].name)
        if compared != indices or not _is_number(call.inputs[1], bound - less):
            return None
    return InRange(indices, start, start + high + 1, both.outputs[0])


def _picked_in_range(lifting: Lifting, name: str, mask: str) -> tuple[str, InRange] | None:
    """Return the scores and the targets of scores that were picked by rows, where those outside are set to zero."""
    source = lifting.maker(Ref(source_of(lifting, name)))
    if source is not None and source.op == "aten.gather.default":
        chosen = _one_column_a_row(lifting, source)
    else:
        chosen = _rows_and_columns(lifting, source) if source is not None and source.op == "aten.index.Tensor" else None
    if chosen is None or chosen[1].mask != mask:
        return None
    return chosen


def _rows_and_columns(lifting: Lifting, node: Apply) -> tuple[str, InRange] | None:
    """Return the matrix and the columns of `x[arange(n), columns]`, with columns in the range that the matrix holds."""
    name, indices = lifting.value(given(node, "self")), indices_of(node)
    if name is None or len(indices) != 2 or len(lifting.shape(name)) != 2:
        return None
    rows, columns = lifting.value(indices[0]), lifting.value(indices[1])
    found = _in_range(lifting, columns) if columns is not None else None
    if found is None or rows is None or not counts_rows(lifting, rows, lifting.shape(name)[0]):
        return None
    return (name, found) if found.stop - found.start == lifting.shape(name)[1] else None


def _one_column_a_row(lifting: Lifting, node: Apply) -> tuple[str, InRange] | None:
    """Return the scores and the columns of `gather(x, -1, columns)` of one column a row, in the range that the scores hold."""
    word, columns = (lifting.value(given(node, name)) for name in ("self", "index"))
    if word is None or columns is None or len(lifting.shape(word)) < 2 or _dim(lifting, node) != len(lifting.shape(word)) - 1:
        return None
    found, (*rows, width) = _in_range(lifting, columns), lifting.shape(word)
    fits = found is not None and found.stop - found.start == width and lifting.shape(columns) == (*rows, 1)
    return (word, found) if found is not None and fits else None


def _minus_one_at(lifting: Lifting, node: Apply) -> bool:
    """Lift `x[i, t] -= a (1 - mask)`, the gradient of a cross entropy for its scores, where t is in the range that x holds."""
    place = _rows_and_columns(lifting, node)
    taken = lifting.call_of(str(lifting.value(given(node, "values"))))
    name = lifting.value(given(node, "self"))
    if place is None or taken is None or taken.op != "torch.sub" or taken.attributes or node.arguments.get("accumulate"):
        return False
    old, subtracted = (argument.name if isinstance(argument, Ref) else "" for argument in taken.inputs)
    before = lifting.maker(Ref(old)) if old else None
    if before is None or before.op != "aten.index.Tensor" or before.arguments.get("indices") != given(node, "indices"):
        return False
    factor = _kept(lifting, subtracted, place[1].mask) if subtracted else None
    if lifting.value(given(before, "self")) != name or factor is None:
        return False
    ones = _ones_at_targets(lifting, node, place[1])
    if ones is None:
        return False
    wanted: Argument = ones
    if factor != 1:
        wanted = lifting.temporary(node, "torch.mul", (wanted, factor), lifting.shape(str(name)))
    return lifting.call(node, "torch.sub", (Ref(str(name)), wanted))


def _minus_one_put(lifting: Lifting, node: Apply) -> bool:
    """Lift `zeros[i, t] = mask - 1`, minus one at the target t of each row that is in the range."""
    place, values = _rows_and_columns(lifting, node), lifting.call_of(str(lifting.value(given(node, "values"))))
    if place is None or values is None or lifting.number(given(node, "self")) != 0 or node.arguments.get("accumulate"):
        return False
    if values.op != "torch.sub" or values.attributes or not _is_number(values.inputs[1], 1):
        return False
    masked = values.inputs[0].name if isinstance(values.inputs[0], Ref) else ""
    ones = _ones_at_targets(lifting, node, place[1]) if masked and source_of(lifting, masked) == place[1].mask else None
    return ones is not None and lifting.call(node, "torch.neg", (ones,))


def _ones_at_targets(lifting: Lifting, node: Apply, found: InRange) -> Ref | None:
    """Return ones at the targets in a range among zeros, the gradient of picking them; None where nothing picks them."""
    shape = lifting.shape(node.outputs[0])
    forward = _pick_of(lifting, found, shape)
    if forward is None:
        return None
    ones = lifting.temporary(node, "torch.ones_like", (Ref(forward.outputs[0]),), lifting.shape(forward.outputs[0]))
    scores = next(argument for argument in forward.inputs if isinstance(argument, Ref))
    at_targets = lifting.program.fresh(lifting.program.types[node.outputs[0]].of_shape(lifting.shape(scores.name)))
    lifting.gradient(forward, (ones,), (at_targets, ""), node.mark)
    return as_shape(lifting, node, Ref(at_targets), shape)


def _kept(lifting: Lifting, name: str, mask: str) -> float | None:
    """Return the number by which `1 - mask` is multiplied in a value; None where it is another value."""
    call = lifting.call_of(source_of(lifting, name))
    if call is not None and call.op == "torch.mul" and isinstance(call.inputs[1], Literal) and isinstance(call.inputs[0], Ref):
        factor = call.inputs[1].value
        inner = _kept(lifting, call.inputs[0].name, mask)
        return factor * inner if isinstance(factor, int | float) and inner is not None else None
    if call is None or call.op != "torch.sub" or not _is_number(call.inputs[0], 1) or not isinstance(call.inputs[1], Ref):
        return None
    return 1.0 if source_of(lifting, call.inputs[1].name) == mask else None


def _pick_of(lifting: Lifting, found: InRange, shape: tuple[int, ...]) -> Call | None:
    """Return the last pick of scores of this shape with these targets."""
    for call in reversed(lifting.result.nodes):
        if not isinstance(call, Call) or call.op != PICK or not isinstance(call.inputs[1], Ref):
            continue
        bounds = call.attributes["start"], call.attributes["stop"]
        scores = call.inputs[0].name if isinstance(call.inputs[0], Ref) else ""
        same = _are_equal(lifting, source_of(lifting, call.inputs[1].name), source_of(lifting, found.indices))
        if same and bounds == (found.start, found.stop) and lifting.shape(scores)[-1] == shape[-1]:
            return call
    return None


def _lookup_in_range_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift the gradient of a lookup whose rows outside of the table are zero: their gradients are zero too."""
    if node.arguments.get("scale_grad_by_freq") or lifting.number(node.arguments.get("padding_idx", -1)) != -1:
        return False
    indices, filled = lifting.value(given(node, "indices")), lifting.call_of(str(lifting.value(given(node, "grad_output"))))
    flags = filled.inputs[1] if filled is not None and len(filled.inputs) > 1 else None
    if indices is None or filled is None or not isinstance(flags, Ref):
        return False
    if filled.op == _MASKED and _is_number(filled.inputs[2], 0):
        found = _in_range(lifting, indices)
        found = found if found is not None and source_of(lifting, flags.name) == found.mask else None
    else:
        found = _kept_in_range(lifting, indices, flags.name) if filled.op == "torch.mul" else None
    if found is None:
        return False
    calls = [
        call
        for call in lifting.uses.get(found.indices, ())
        if call.op == LOOKUP_IN_RANGE
        and (call.attributes["start"], call.attributes["stop"]) == (found.start, found.stop)
        and isinstance(call.inputs[1], Ref)
        and lifting.shape(call.inputs[1].name) == lifting.shape(node.outputs[0])
    ]
    if not calls or not isinstance(filled.inputs[0], Ref):
        return False
    return lifting.gradient(calls[-1], (filled.inputs[0],), ("", node.outputs[0]), node.mark)


def _part_of_lookup_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift the rows of a lookup's gradient that are those of the table in which a range was looked up."""
    source = lifting.maker(given(node, "self"))
    if source is None or source.op != "aten.embedding_dense_backward.default" or given(node, "dim") != 0:
        return False
    padding = whole(source.arguments.get("padding_idx", -1))
    if source.arguments.get("scale_grad_by_freq"):
        return False
    start, length = given(node, "start"), given(node, "length")
    calls = [
        call
        for call in lifting.uses.get(str(lifting.value(given(source, "indices"))), ())
        if call.op == LOOKUP_IN_RANGE
        and isinstance(call.inputs[1], Ref)
        and lifting.shape(call.inputs[1].name) == lifting.shape(node.outputs[0])
        and isinstance(start, int)
        and isinstance(length, int)
        and (call.attributes["start"], call.attributes["stop"]) == (start, start + length)
    ]
    forward = _with_padding(lifting, calls[-1], padding) if calls else None
    if forward is None:
        return False
    return lifting.gradient(forward, (given(source, "grad_output"),), ("", node.outputs[0]), source.mark)


def _with_padding(lifting: Lifting, call: Call, row: int) -> Call | None:
    """Return a lookup that gives a row of the whole table no gradient, in its place in the program: it looks up the same.

    None where another gradient of it was lifted with another row.
    """
    if call.attributes.get("padding_row", -1) == row:
        return call
    if any(isinstance(node, GradientOf) and node.forward is call for node in lifting.result.nodes):
        return None
    padded = replace(call, attributes={**call.attributes, "padding_row": row})
    lifting.exchange(call, padded)
    return padded


def _all_rows(lifting: Lifting, node: Apply) -> bool:
    """Lift `x[arange(n), ...]` of all `n` rows, which is `x`."""
    name = lifting.value(given(node, "self"))
    if name is None or not _takes_all_rows(lifting, node, lifting.shape(name)):
        return False
    return lifting.call(node, "torch.Tensor.view", (Ref(name), lifting.shape(name)))


def _all_rows_put(lifting: Lifting, node: Apply) -> bool:
    """Lift the assignment of all rows, which leaves what is assigned."""
    name, values = lifting.value(given(node, "self")), lifting.value(given(node, "values"))
    if name is None or values is None or node.arguments.get("accumulate") or lifting.shape(name) != lifting.shape(values):
        return False
    if not _takes_all_rows(lifting, node, lifting.shape(name)) or lifting.dtype(name) != lifting.dtype(values):
        return False
    return lifting.call(node, "torch.Tensor.view", (Ref(values), lifting.shape(values)))


def _one_of_each_row(lifting: Lifting, node: Apply) -> tuple[Ref, Ref] | None:
    """Return a matrix and its columns, as one column, where an indexing takes one element of each row."""
    name, indices = lifting.value(given(node, "self")), indices_of(node)
    if name is None or len(indices) != 2 or len(lifting.shape(name)) != 2:
        return None
    rows, columns = (lifting.value(index) for index in indices)
    count = lifting.shape(name)[0]
    if rows is None or columns is None or not counts_rows(lifting, rows, count) or lifting.shape(columns) != (count,):
        return None
    return Ref(name), as_shape(lifting, node, Ref(columns), (count, 1))


def _put_in_each_row(lifting: Lifting, node: Apply) -> bool:
    """Lift `x[arange(n), columns] = y`, which puts one element into each row."""
    found, values = _one_of_each_row(lifting, node), lifting.value(given(node, "values"))
    if found is None or values is None or node.arguments.get("accumulate"):
        return False
    ref, columns = found
    count, _ = lifting.shape(columns.name)
    if lifting.shape(values) != (count,) or lifting.dtype(values) != lifting.dtype(ref.name):
        return False
    column = as_shape(lifting, node, Ref(values), (count, 1))
    return lifting.call(node, "torch.scatter", (ref, columns, column), dim=1)


def _takes_all_rows(lifting: Lifting, node: Apply, shape: tuple[int, ...]) -> bool:
    """Return whether the one index counts all rows of a value of this shape."""
    indices = indices_of(node)
    rows = lifting.value(indices[0]) if len(indices) == 1 else None
    return rows is not None and bool(shape) and counts_rows(lifting, rows, shape[0])


def _dim(lifting: Lifting, node: Apply) -> int:
    """Return the dimension that an operator works along, counted from the first."""
    name = lifting.value(given(node, "self"))
    return whole(node.arguments.get("dim", -1)) % max(1, len(lifting.shape(name)) if name is not None else 1)


def _gathered(lifting: Lifting, node: Apply) -> bool:
    return lifting.call(node, "torch.gather", (given(node, "self"), given(node, "index")), dim=_dim(lifting, node))


def _put_among_zeros(lifting: Lifting, node: Apply, source: Argument) -> bool:
    """Lift what puts numbers among zeros into places that were chosen from as many: a sum of one-hot rows, times the numbers.

    No place is chosen twice.
    """
    base, index = lifting.value(given(node, "self")), lifting.value(given(node, "index"))
    first = source_of(lifting, index, VIEWED) if index is not None else ""
    chosen = lifting.call_of(first) if first else None
    if base is None or index is None or chosen is None or not has_trait(chosen.op, Trait.CHOICE):
        return False
    shape, places, dtype = lifting.shape(base), lifting.shape(index), lifting.dtype(node.outputs[0])
    if first != index and (places != (*shape[:-1], 1) or lifting.shape(first) != shape[:-1]):
        return False
    from_all = isinstance(chosen.inputs[0], Ref) and lifting.shape(chosen.inputs[0].name) == shape
    last = len(shape) - 1
    if lifting.number(Ref(base)) != 0 or not from_all or (chosen.attributes.get("dim"), _dim(lifting, node)) != (last, last):
        return False
    wide, types = (*places, shape[-1]), lifting.program.types
    flags, numbers = lifting.program.fresh(Type(wide, "int64")), lifting.program.fresh(Type(wide, dtype))
    lifting.emit("torch.nn.functional.one_hot", (Ref(index), shape[-1]), (flags,), node.mark, {}, node)
    lifting.emit("torch.Tensor.to", (Ref(flags),), (numbers,), node.mark, {"dtype": dtype}, node)
    if lifting.number(source) != 1:
        name = lifting.value(source)
        if name is None or types[name] != Type(places, dtype):
            return False
        factor = as_shape(lifting, node, Ref(name), (*places, 1))
        product = lifting.program.fresh(Type(wide, dtype))
        lifting.emit("torch.mul", (Ref(numbers), factor), (product,), node.mark, {}, node)
        numbers = product
    return lifting.call(node, "torch.sum", (Ref(numbers),), dim=(last,), keepdim=False)


def _gather_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what is added among zeros at the places from which elements were gathered; not at places that were chosen."""
    index, zeros, dim = str(lifting.value(given(node, "index"))), given(node, "self"), _dim(lifting, node)
    source, chosen = lifting.value(given(node, "src")), lifting.call_of(source_of(lifting, index, VIEWED))
    if node.mark.phase != "backward" or lifting.number(zeros) != 0 or source is None:
        return False
    if chosen is not None and has_trait(chosen.op, Trait.CHOICE):
        return False
    shape = lifting.shape(node.outputs[0])
    calls = [
        call
        for call in lifting.uses.get(index, ())
        if call.op == GATHER
        and call.inputs[1] == Ref(index)
        and isinstance(call.inputs[0], Ref)
        and lifting.shape(call.inputs[0].name) == shape
        and call.attributes["dim"] == dim
        and lifting.shape(call.outputs[0]) == lifting.shape(source)
    ]
    forward = nearest(lifting, node, calls)
    return forward is not None and lifting.gradient(forward, (Ref(source),), (node.outputs[0], ""), node.mark)


def _put_at(op: str) -> Callable[[Lifting, Apply], bool]:
    def lift(lifting: Lifting, node: Apply) -> bool:
        if not isinstance(node.arguments.get("src"), Ref) or node.arguments.get("reduce") is not None:
            return False
        if _put_among_zeros(lifting, node, given(node, "src")):
            return True
        operands = tuple(given(node, name) for name in ("self", "index", "src"))
        return lifting.call(node, op, operands, dim=_dim(lifting, node))

    return lift


def _one_hot(lifting: Lifting, node: Apply) -> bool:
    """Lift ones at one index a row of the last dimension among zeros."""
    name, index = lifting.value(given(node, "self")), lifting.value(given(node, "index"))
    numbers = lifting.number(given(node, "self")), lifting.number(node.arguments.get("value"))
    if name is None or index is None or numbers != (0, 1) or node.arguments.get("reduce") is not None:
        return False
    shape = lifting.shape(name)
    if lifting.shape(index) != (*shape[:-1], 1) or _dim(lifting, node) != len(shape) - 1 or lifting.dtype(name) != "int64":
        return False
    return lifting.call(node, "torch.nn.functional.one_hot", (as_shape(lifting, node, Ref(index), shape[:-1]), shape[-1]))


def _number_put(lifting: Lifting, node: Apply) -> bool:
    """Lift one number at places of a dimension, as the map of the experts that each token chose."""
    number, index = lifting.number(node.arguments.get("value")), lifting.value(given(node, "index"))
    if number is None or index is None or node.arguments.get("reduce") is not None:
        return False
    if number == 1 and _put_among_zeros(lifting, node, number):
        return True
    shape, dtype = lifting.shape(index), lifting.dtype(node.outputs[0])
    filled = lifting.temporary(node, "torch.full", (shape, number), shape, dtype=dtype)
    return lifting.call(node, "torch.scatter", (given(node, "self"), Ref(index), filled), dim=_dim(lifting, node))


def _top(lifting: Lifting, node: Apply) -> bool:
    falls = node.arguments.get("sorted", True)
    if node.arguments.get("largest", True) is not True or not isinstance(falls, bool):
        return False
    order = {} if falls else {"sorted": False}
    return lifting.call(node, "torch.topk", (given(node, "self"), whole(given(node, "k"))), dim=_dim(lifting, node), **order)


def _ordered(lifting: Lifting, node: Apply) -> bool:
    """Lift a sort; of equal elements torch keeps the order where it is asked to."""
    options = {name: bool(node.arguments.get(name, False)) for name in ("descending", "stable")}
    return lifting.call(node, "torch.sort", (given(node, "self"),), dim=_dim(lifting, node), **options)


def _place_of_greatest(lifting: Lifting, node: Apply) -> bool:
    keep = bool(node.arguments.get("keepdim", False))
    if node.arguments.get("dim") is None:
        return False
    return lifting.call(node, "torch.argmax", (given(node, "self"),), dim=_dim(lifting, node), keepdim=keep)


EQUATIONS = (
    Equation("gather", "gather(x, dim, index) is torch.gather", _gathered),
    Equation(
        "masked_fill",
        "masked_fill(x, mask, 0) of rows looked up or scores picked out of a range: those in it",
        _masked_rows,
    ),
    Equation("mul", "mul(g, flags) is the gradient g of mul(x, flags)", _kept_gradient),
    Equation(
        "mul", "rows looked up at indices kept in a range, times flags of those in it: those in the range", _rows_times_flags
    ),
    Equation("where", "where(flags, g, 0) is the gradient g of where(flags, x, c)", _chosen_gradient),
    Equation(
        "scatter_add",
        "scatter_add(0, -1, t, masked g) of t in a range is the gradient of picking t in it, for g",
        _picked_gradient,
    ),
    Equation("scatter_add", "scatter_add(0, dim, index, g) is the gradient of gather(x, dim, index) for g", _gather_gradient),
    Equation("scatter_add", "scatter_add(x, dim, index, y) is torch.scatter_add", _put_at("torch.scatter_add")),
    Equation("scatter", "scatter(x, dim, index, y) of tensors is torch.scatter", _put_at("torch.scatter")),
    Equation("scatter", "scatter(0, -1, index, 1) with one index for each row is one_hot(index)", _one_hot),
    Equation("scatter", "scatter(x, dim, index, c) of a number c is torch.scatter of c throughout", _number_put),
    Equation("topk", "topk(x, k, dim, sorted) of the greatest is torch.topk", _top),
    Equation("sort", "sort(x, stable, dim, descending) is torch.sort", _ordered),
    Equation("argmax", "argmax(x, dim) is torch.argmax", _place_of_greatest),
    Equation("index", "x[0, 1, .., n - 1] of n rows is x", _all_rows),
    Equation("index_put", "zeros[i, t] = mask - 1 is minus the gradient of picking t in the range", _minus_one_put),
    Equation("index_put", "x[0, 1, .., n - 1] = y of n rows is y", _all_rows_put),
    Equation("narrow", "rows of the gradient of a lookup are that of the lookup in their range", _part_of_lookup_gradient),
    Equation(
        "index_put",
        "x[mask] = c is masked_fill(x, mask, c); on rows looked up or scores picked outside of a range: those in the range",
        _filled_where,
    ),
    Equation(
        "index_put", "x[i, t] -= a (1 - mask) is x - a times the gradient of picking t in the range from x", _minus_one_at
    ),
    Equation("index_put", "x[0, 1, .., n - 1; t] = y is torch.scatter of y to the columns t of the n rows", _put_in_each_row),
    Equation(
        "embedding_dense_backward",
        "the gradient of a lookup in a range does not see rows outside of it",
        _lookup_in_range_gradient,
    ),
)
