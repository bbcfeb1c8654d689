"""Operators that move elements, join tensors, or make them of one number."""

from __future__ import annotations

from math import prod

from tvlint.ir.operators import Value
from tvlint.readers.capture.lifting.lift import Call, Equation, Lifting, given, sizes, whole
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref

PAD = "torch.nn.functional.pad"


def _keeps_number(lifting: Lifting, node: Apply) -> None:
    number = lifting.number(given(node, "self"))
    if number is not None:
        lifting.numbers[node.outputs[0]] = number


def _permuted(lifting: Lifting, node: Apply) -> bool:
    _keeps_number(lifting, node)
    return lifting.call(node, "torch.permute", (given(node, "self"),), dims=sizes(given(node, "dims")))


def _viewed(lifting: Lifting, node: Apply) -> bool:
    _keeps_number(lifting, node)
    shape, source = lifting.shape(node.outputs[0]), lifting.value(given(node, "self"))
    if source is not None and lifting.shape(source) == shape:
        return lifting.equate(node.outputs[0], Ref(source))
    call = lifting.call_of(source) if source is not None else None
    if call is not None and call.op == "torch.Tensor.view" and isinstance(call.inputs[0], Ref):
        viewed = call.inputs[0]
        if lifting.shape(viewed.name) == shape:
            return lifting.equate(node.outputs[0], viewed)
    rows = _rows_of_join(lifting, node, call, shape) if call is not None else ()
    if rows:
        return lifting.call(node, "torch.cat", rows, dim=0)
    return lifting.call(node, "torch.Tensor.view", (given(node, "self"), shape))


def _rows_of_join(lifting: Lifting, node: Apply, call: Call, shape: tuple[int, ...]) -> tuple[Ref, ...]:
    """Return flat tensors that are joined, each viewed as the rows of `shape` that it is; none where one is no whole rows."""
    row = prod(shape[1:])
    parts = [argument for argument in call.inputs if isinstance(argument, Ref)]
    flat = all(len(lifting.shape(part.name)) == 1 and row and not lifting.shape(part.name)[0] % row for part in parts)
    if call.op != "torch.cat" or len(shape) < 2 or not flat:
        return ()
    found: list[Ref] = []
    for part in parts:
        shape_of_rows = (lifting.shape(part.name)[0] // row, *shape[1:])
        before = lifting.call_of(part.name)
        viewed = before.inputs[0] if before is not None and before.op == "torch.Tensor.view" else None
        if isinstance(viewed, Ref) and lifting.shape(viewed.name) == shape_of_rows:
            found.append(viewed)
        else:
            found.append(lifting.temporary(node, "torch.Tensor.view", (part, shape_of_rows), shape_of_rows))
    return tuple(found)


def _narrowed(lifting: Lifting, node: Apply) -> bool:
    _keeps_number(lifting, node)
    dim, start, length = (whole(given(node, name)) for name in ("dim", "start", "length"))
    name = lifting.value(given(node, "self"))
    if name is not None and length == lifting.shape(name)[dim]:
        return lifting.equate(node.outputs[0], Ref(name))
    part = _part_of_join(lifting, name, dim, start, length) if name is not None else None
    if part is not None:
        return lifting.equate(node.outputs[0], part)
    if name is not None and _padded_range(lifting, node, name, dim, start, length):
        return True
    return lifting.call(node, "torch.narrow", (given(node, "self"), dim, start, length))


def _padded_range(lifting: Lifting, node: Apply, name: str, dim: int, start: int, length: int) -> bool:
    """Lift a range of a padded tensor as that of what was padded, padded as far as the range is longer."""
    call, shape = lifting.call_of(name), lifting.shape(name)
    around = padding_of(call, len(shape)) if call is not None else {}
    if call is None or set(around) != {dim} or not isinstance(call.inputs[0], Ref):
        return False
    before, after = around[dim]
    low, high = max(start, before), min(start + length, shape[dim] - after)
    if low >= high:
        return False
    inner = (*shape[:dim], high - low, *shape[dim + 1 :])
    part = call.inputs[0]
    if lifting.shape(part.name) != inner:
        part = lifting.temporary(node, "torch.narrow", (part, dim, low - before, high - low), inner)
    left = low - start, start + length - high
    if not any(left):
        return lifting.equate(node.outputs[0], part)
    pad = (*(0 for _ in range(2 * (len(shape) - 1 - dim))), *left)
    return lifting.call(node, PAD, (part,), pad=pad, value=call.attributes["value"])


def padding_of(call: Call, rank: int) -> dict[int, tuple[int, int]]:
    """Return how much a padding adds before and after each dimension that it makes longer; nothing for any other call."""
    pad = call.attributes.get("pad")
    if call.op != PAD or not isinstance(pad, tuple):
        return {}
    amounts = [whole(amount) for amount in pad]
    pairs = zip(range(rank - 1, -1, -1), amounts[::2], amounts[1::2], strict=False)
    return {dim: (before, after) for dim, before, after in pairs if before or after}


def _part_of_join(lifting: Lifting, name: str, dim: int, start: int, length: int) -> Ref | None:
    """Return the tensor that a range of joined tensors is; None where it is none of them."""
    call, at = lifting.call_of(name), 0
    if call is None or call.op != "torch.cat" or call.attributes["dim"] != dim:
        return None
    for part in call.inputs:
        size = lifting.shape(part.name)[dim] if isinstance(part, Ref) else 0
        if isinstance(part, Ref) and (at, size) == (start, length):
            return part
        at += size
    return None


def _expanded(lifting: Lifting, node: Apply) -> bool:
    _keeps_number(lifting, node)
    return lifting.call(node, "torch.Tensor.expand", (given(node, "self"),), size=lifting.shape(node.outputs[0]))


def _joined(lifting: Lifting, node: Apply) -> bool:
    listed = given(node, "tensors")
    parts: tuple[Argument, ...] = listed if isinstance(listed, tuple) else ()
    some = tuple(part for part in parts if isinstance(part, Ref) and 0 not in lifting.shape(part.name))
    rank = len(lifting.shape(node.outputs[0]))
    dim = whole(node.arguments.get("dim", 0)) % max(1, rank)
    if any(len(lifting.shape(part.name)) != rank for part in some):
        return False
    if len(some) == 1:
        return lifting.equate(node.outputs[0], some[0])
    return bool(some) and (_joined_to_number(lifting, node, some, dim) or lifting.call(node, "torch.cat", some, dim=dim))


def _joined_to_number(lifting: Lifting, node: Apply, parts: tuple[Ref, ...], dim: int) -> bool:
    """Lift one tensor that is joined to tensors of one number as that tensor, padded with the number."""
    numbers = [lifting.number(part) for part in parts]
    kept = [place for place, number in enumerate(numbers) if number is None] or [0]
    around = {number for place, number in enumerate(numbers) if place not in kept}
    if len(kept) != 1 or len(around) != 1:
        return False
    sizes_of = [lifting.shape(part.name)[dim] for part in parts]
    ends = sum(sizes_of[: kept[0]]), sum(sizes_of[kept[0] + 1 :])
    shape, number = lifting.shape(node.outputs[0]), numbers[kept[0]]
    pad, value = (*(0,) * (2 * (len(shape) - 1 - dim)), *ends), around.pop()
    if number is None:
        return lifting.call(node, PAD, (parts[kept[0]],), pad=pad, value=value)
    one, row = ((*(1,) * dim, size, *(1,) * (len(shape) - 1 - dim)) for size in (sizes_of[kept[0]], shape[dim]))
    inner = lifting.temporary(node, "torch.full", (one, number), one, dtype=lifting.dtype(node.outputs[0]))
    padded = lifting.temporary(node, PAD, (inner,), row, pad=pad, value=value)
    return lifting.call(node, "torch.Tensor.expand", (padded,), size=shape)


def _stacked(lifting: Lifting, node: Apply) -> bool:
    listed, shape = given(node, "tensors"), lifting.shape(node.outputs[0])
    dim = whole(node.arguments.get("dim", 0)) % max(1, len(shape))
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    parts = listed if isinstance(listed, tuple) else ()
    rows = tuple(lifting.temporary(node, "torch.Tensor.view", (part, one), one) for part in parts)
    return lifting.call(node, "torch.cat", rows, dim=dim)


def _padded(lifting: Lifting, node: Apply) -> bool:
    """Lift padding with a number; negative amounts, which cut, are not lifted."""
    amounts, number = sizes(given(node, "pad")), lifting.number(node.arguments.get("value", 0))
    if number is None or any(amount < 0 for amount in amounts):
        return False
    if not any(amounts):
        return lifting.equate(node.outputs[0], given(node, "self"))
    return lifting.call(node, PAD, (given(node, "self"),), pad=amounts, value=number)


def _seeded(lifting: Lifting, node: Apply) -> bool:
    name = lifting.value(given(node, "self"))
    begins = node.mark.phase == "backward" or node.outputs[0] in {root.start for root in lifting.program.roots}
    if name not in {lifting.name(root) for root in lifting.roots} or not begins:
        return False
    lifting.start(node.outputs[0], str(name))
    return True


def _ones(lifting: Lifting, node: Apply) -> bool:
    return made_of(lifting, node, 1)


def _zeros(lifting: Lifting, node: Apply) -> bool:
    return made_of(lifting, node, 0)


def _full(lifting: Lifting, node: Apply) -> bool:
    named = next((name for name in ("fill_value", "value", "s") if name in node.arguments), "")
    number = lifting.number(node.arguments.get(named))
    return number is not None and made_of(lifting, node, number)


def made_of(lifting: Lifting, node: Apply, number: float) -> bool:
    """Let a result be made of one number throughout."""
    name = node.outputs[0]
    lifting.numbers[name] = number
    shape: Value = lifting.shape(name)
    if number in (0, 1):
        return lifting.call(node, "torch.ones" if number else "torch.zeros", (shape,), dtype=lifting.dtype(name))
    return lifting.call(node, "torch.full", (shape, number), dtype=lifting.dtype(name))


def _counted(lifting: Lifting, node: Apply) -> bool:
    bounds = tuple(node.arguments[name] for name in ("start", "end", "step") if name in node.arguments)
    return lifting.call(node, "torch.arange", bounds, dtype=lifting.dtype(node.outputs[0]))


def _triangle(lifting: Lifting, node: Apply) -> bool:
    diagonal = node.arguments.get("diagonal", 0)
    name = f"torch.{node.op.split('.')[1]}"
    return lifting.call(node, name, (given(node, "self"),), diagonal=whole(diagonal))


def _slice_gradient(lifting: Lifting, node: Apply) -> bool:
    dim, step = whole(given(node, "dim")), whole(given(node, "step"))
    shape = sizes(given(node, "input_sizes"))
    dim %= len(shape)
    start, end, _ = slice(whole(given(node, "start")), whole(given(node, "end")), 1).indices(shape[dim])
    if step != 1:
        return _every_gradient(lifting, node, dim, (start, step), shape)
    if start >= end:
        return made_of(lifting, node, 0)
    return _with_zeros(lifting, node, given(node, "grad_output"), dim, (start, shape[dim] - end))


def _every_gradient(lifting: Lifting, node: Apply, dim: int, taken: tuple[int, int], shape: tuple[int, ...]) -> bool:
    """Put zeros around each row of the gradient of every `step`-th row, where the rows divide by `step`."""
    start, step = taken
    gradient = given(node, "grad_output")
    rows = lifting.shape(str(lifting.value(gradient)))[dim]
    if start >= step or rows * step != shape[dim]:
        return False
    apart = (*shape[:dim], rows, 1, *shape[dim + 1 :])
    wide = (*shape[:dim], rows, step, *shape[dim + 1 :])
    middle = lifting.temporary(node, "torch.Tensor.view", (gradient,), apart)
    around: tuple[Value, ...] = (*(0 for _ in range(2 * (len(shape) - 1 - dim))), start, step - 1 - start)
    filled = lifting.temporary(node, PAD, (middle,), wide, pad=around, value=0)
    return lifting.call(node, "torch.Tensor.view", (filled, shape))


def _select_gradient(lifting: Lifting, node: Apply) -> bool:
    dim, index = whole(given(node, "dim")), whole(given(node, "index"))
    shape = sizes(given(node, "input_sizes"))
    dim %= len(shape)
    index %= shape[dim]
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    middle = lifting.temporary(node, "torch.Tensor.view", (given(node, "grad_output"), one), one)
    return _with_zeros(lifting, node, middle, dim, (index, shape[dim] - index - 1))


def _with_zeros(lifting: Lifting, node: Apply, gradient: Argument, dim: int, around: tuple[int, int]) -> bool:
    """Let a result be a gradient with so many zeros before and after it."""
    if not any(around):
        return lifting.equate(node.outputs[0], gradient)
    behind = len(lifting.shape(node.outputs[0])) - 1 - dim
    return lifting.call(node, PAD, (gradient,), pad=(*(0 for _ in range(2 * behind)), *around), value=0)


EQUATIONS = (
    Equation("permute", "a permutation of dimensions is torch.permute", _permuted),
    Equation(
        "view",
        "the same elements in another shape are torch.Tensor.view, in the shape that they have or had what was viewed, and of "
        "flat tensors that are joined the join of their rows",
        _viewed,
    ),
    Equation(
        "narrow",
        "a range of a dimension is torch.narrow, all of it the tensor itself, a part of a join that part, and of a padded "
        "tensor the range of what was padded, with as much padding as is in it",
        _narrowed,
    ),
    Equation("expand", "a dimension of size 1 repeated is torch.Tensor.expand", _expanded),
    Equation(
        "cat",
        "tensors without elements add nothing to torch.cat, and those of one number around one that is not pad it with that",
        _joined,
    ),
    Equation("stack", "stack(x, y, .., dim) is the torch.cat of each with a dimension of size 1", _stacked),
    Equation("constant_pad_nd", "constant_pad_nd(x, pad, number) is torch.nn.functional.pad", _padded),
    Equation("ones_like", "a backward pass begins at its root with ones", _seeded),
    *(Equation(name, f"{name} is torch.ones of its shape", _ones) for name in ("ones", "ones_like", "new_ones")),
    *(Equation(name, f"{name} is torch.zeros of its shape", _zeros) for name in ("zeros", "zeros_like", "new_zeros")),
    *(
        Equation(name, f"{name} is torch.full of its shape", _full)
        for name in ("full", "full_like", "new_full", "fill", "scalar_tensor")
    ),
    Equation("arange", "arange is torch.arange", _counted),
    *(Equation(name, f"{name} is torch.{name}", _triangle) for name in ("triu", "tril")),
    Equation(
        "slice_backward",
        "the gradient of x[a:b] is the result's gradient with zeros around it, and of x[a::n] with zeros around each row",
        _slice_gradient,
    ),
    Equation("select_backward", "the gradient of x[i] is the result's gradient with zeros around it", _select_gradient),
)
