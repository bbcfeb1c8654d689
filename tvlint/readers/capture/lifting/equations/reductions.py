"""Sums, means and greatest elements, their gradients, and softmax."""

from __future__ import annotations

from functools import partial
from math import prod

from tvlint.ir.operators import Literal, Value
from tvlint.readers.capture.lifting.lift import Call, Equation, Lifting, given, sizes, whole
from tvlint.readers.capture.lifting.program import Apply, Ref, Type


def _dims(lifting: Lifting, node: Apply) -> tuple[int, ...]:
    """Return the dimensions that are reduced: all of them where none is given."""
    name = lifting.value(given(node, "self"))
    rank = len(lifting.shape(name)) if name is not None else 0
    named = node.arguments.get("dim")
    if named is None or named == () or not rank:
        return tuple(range(rank))
    return tuple(sorted(dim % rank for dim in ((whole(named),) if isinstance(named, int) else sizes(named))))


def _reduced(lifting: Lifting, node: Apply, op: str) -> bool:
    if node.arguments.get("dtype") not in (None, lifting.dtype(node.outputs[0])):
        return False
    name = lifting.value(given(node, "self"))
    dims = _dims(lifting, node)
    if name is not None and not dims:
        return lifting.equate(node.outputs[0], Ref(name))
    return lifting.call(node, op, (given(node, "self"),), dim=dims, keepdim=bool(node.arguments.get("keepdim", False)))


def _sum_of_ones(lifting: Lifting, node: Apply) -> bool:
    """The sum of numbers that are all the same is their count times the number."""
    name, number = lifting.value(given(node, "self")), lifting.number(given(node, "self"))
    if name is None or number is None:
        return False
    lifting.numbers[node.outputs[0]] = number * prod(lifting.shape(name)[dim] for dim in _dims(lifting, node))
    return False


def _greatest_with_places(lifting: Lifting, node: Apply) -> bool:
    if len(node.outputs) == 1:
        return "other" not in node.arguments and _reduced(lifting, node, "torch.amax")
    dims, keep = _dims(lifting, node), bool(node.arguments.get("keepdim", False))
    lifting.emit("torch.amax", (given(node, "self"),), node.outputs[:1], node.mark, {"dim": dims, "keepdim": keep}, node)
    (dim,) = dims if len(dims) == 1 else (None,)
    lifting.emit("torch.argmax", (given(node, "self"),), node.outputs[1:], node.mark, {"dim": dim, "keepdim": keep}, node)
    return True


def _mean_of_sum(lifting: Lifting, node: Apply) -> bool:
    """A sum that is divided by the number of what it adds is their mean."""
    total, count = lifting.value(given(node, "self")), lifting.number(given(node, "other"))
    call = lifting.call_of(total) if total is not None else None
    added_up = call.inputs[0] if call is not None and call.op == "torch.sum" else None
    if call is None or not isinstance(added_up, Ref) or node.arguments.get("rounding_mode") is not None:
        return False
    added = prod(lifting.shape(added_up.name)) // max(1, prod(lifting.shape(call.outputs[0])))
    if count != added or lifting.shape(call.outputs[0]) != lifting.shape(node.outputs[0]):
        return False
    lifting.means[call.outputs[0]] = lifting.emit("torch.mean", (added_up,), node.outputs, node.mark, call.attributes, node)
    return True


def _mean_gradient_of_sum(lifting: Lifting, node: Apply, total: Call) -> bool:
    """The gradient of a sum, of a gradient that is divided by the number of what is added, is the gradient of the mean."""
    mean, value = lifting.means.get(total.outputs[0]), lifting.value(given(node, "self"))
    shared = lifting.call_of(value) if mean is not None and value is not None else None
    while shared is not None and shared.op == "torch.Tensor.view" and isinstance(shared.inputs[0], Ref):
        shared = lifting.call_of(shared.inputs[0].name)
    if mean is None or shared is None or shared.op != "torch.div" or not isinstance(shared.inputs[0], Ref):
        return False
    count, name = shared.inputs[1], shared.inputs[0].name
    added = prod(lifting.shape(node.outputs[0])) // max(1, prod(lifting.shape(mean.outputs[0])))
    if count != Literal(added) or lifting.shape(name) != lifting.shape(mean.outputs[0]):
        return False
    return lifting.gradient(mean, (Ref(name),), node.outputs, node.mark)


def _spread(lifting: Lifting, node: Apply) -> bool:
    """In the node of autograd that computes the gradient of a sum, an expansion is that gradient."""
    forward = lifting.forward_of(node.mark, "torch.sum")
    if forward is None or not _is_gradient_of(lifting, node, forward):
        return False
    if _mean_gradient_of_sum(lifting, node, forward):
        return True
    return lifting.gradient(forward, (_of_its_shape(lifting, node, forward),), node.outputs, node.mark)


def _is_gradient_of(lifting: Lifting, node: Apply, forward: Call) -> bool:
    (operand,) = (argument for argument in forward.inputs if isinstance(argument, Ref))
    return lifting.shape(operand.name) == lifting.shape(node.outputs[0]) and node.mark.node.startswith(("Sum", "Mean"))


def _of_its_shape(lifting: Lifting, node: Apply, forward: Call) -> Ref:
    """Return the gradient that is expanded, in the shape of the call's result."""
    name = str(lifting.value(given(node, "self")))
    shape = lifting.shape(forward.outputs[0])
    if lifting.shape(name) == shape:
        return Ref(name)
    return lifting.temporary(node, "torch.Tensor.view", (Ref(name), shape), shape)


def _mean_gradient(lifting: Lifting, node: Apply) -> bool:
    """An expansion divided by the number of elements that were averaged is the gradient of their mean."""
    forward = lifting.forward_of(node.mark, "torch.mean")
    expansion = lifting.maker(given(node, "self"))
    if forward is None or expansion is None or expansion.op != "expand" or not _is_gradient_of(lifting, node, forward):
        return False
    count = prod(lifting.shape(node.outputs[0])) / max(1, prod(lifting.shape(forward.outputs[0])))
    if lifting.number(given(node, "other")) != count:
        return False
    return lifting.gradient(forward, (_of_its_shape(lifting, expansion, forward),), node.outputs, node.mark)


def _any(lifting: Lifting, node: Apply) -> bool:
    shape, result = lifting.shape(str(lifting.value(given(node, "self")))), lifting.shape(node.outputs[0])
    flags = lifting.temporary(node, "torch.ne", (given(node, "self"), 0), shape)
    ones, total = (lifting.program.fresh(Type(each, "int64")) for each in (shape, result))
    lifting.emit("torch.Tensor.to", (flags,), (ones,), node.mark, {"dtype": "int64"}, node)
    kept: dict[str, Value] = {"dim": _dims(lifting, node), "keepdim": node.arguments.get("keepdim") is True}
    lifting.emit("torch.sum", (Ref(ones),), (total,), node.mark, kept, node)
    return lifting.call(node, "torch.ne", (Ref(total), 0))


def _running_sum(lifting: Lifting, node: Apply) -> bool:
    value, dtype = str(lifting.value(given(node, "self"))), lifting.dtype(node.outputs[0])
    if dtype != lifting.dtype(value) or not lifting.shape(value):
        return False
    return lifting.call(node, "torch.cumsum", (Ref(value),), dim=whole(given(node, "dim")) % len(lifting.shape(value)))


def _softmax(lifting: Lifting, node: Apply) -> bool:
    if lifting.dtype(node.outputs[0]) != lifting.dtype(str(lifting.value(given(node, "self")))):
        return False
    op = node.op.split(".")[1].removeprefix("_").removeprefix("safe_")
    dim = whole(given(node, "dim")) % len(lifting.shape(node.outputs[0]))
    return lifting.call(node, f"torch.{op}", (given(node, "self"),), dim=dim)


def _softmax_gradient(lifting: Lifting, node: Apply) -> bool:
    forward = lifting.call_of(str(lifting.value(given(node, "output"))))
    if forward is None or forward.op not in ("torch.softmax", "torch.log_softmax"):
        return False
    if ("log" in node.op) != ("log" in forward.op) or forward.outputs[0] != lifting.value(given(node, "output")):
        return False
    if whole(given(node, "dim")) % len(lifting.shape(node.outputs[0])) != forward.attributes["dim"]:
        return False
    return lifting.gradient(forward, (given(node, "grad_output"),), node.outputs, node.mark)


def _reduction(name: str) -> Equation:
    text = f"{name}(x, dims) is torch.{name}, over all dimensions where none is given"
    return Equation(name, text, partial(_reduced, op=f"torch.{name}"))


EQUATIONS = (
    Equation("sum", "the sum of n times the same number is n times the number", _sum_of_ones),
    _reduction("sum"),
    _reduction("mean"),
    _reduction("amax"),
    _reduction("amin"),
    _reduction("logsumexp"),
    Equation("max", "max(x, dim) is torch.amax, and the places of the greatest", _greatest_with_places),
    Equation("expand", "the gradient of a sum is its result's gradient, expanded", _spread),
    Equation("div", "the gradient of a mean is its result's gradient, expanded and divided by the count", _mean_gradient),
    Equation("div", "the sum of n numbers divided by n is their mean", _mean_of_sum),
    Equation("any", "any(x, dims) says where the number of elements that are not 0 is not 0", _any),
    Equation("cumsum", "cumsum(x, dim) is torch.cumsum where the sums have the dtype of x", _running_sum),
    Equation("_softmax", "_softmax(x, dim) is torch.softmax", _softmax),
    Equation("_safe_softmax", "_safe_softmax(x, dim) is torch.softmax where no row of x is -inf throughout", _softmax),
    Equation("_log_softmax", "_log_softmax(x, dim) is torch.log_softmax", _softmax),
    Equation(
        "_softmax_backward_data", "_softmax_backward_data(g, y) is the gradient of the softmax that gave y", _softmax_gradient
    ),
    Equation(
        "_log_softmax_backward_data",
        "_log_softmax_backward_data(g, y) is the gradient of the log-softmax that gave y",
        _softmax_gradient,
    ),
)
