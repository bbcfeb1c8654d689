"""Kernels that frameworks fuse, and their gradients: norms, activations, losses, lookups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from tvlint.ir.operators import Value
from tvlint.readers.capture.lifting.equations.counted_targets import are_marked, count_of, divided_by_count
from tvlint.readers.capture.lifting.equations.shapes import PAD, padding_of
from tvlint.readers.capture.lifting.lift import Call, Equation, Lifting, given, nearest, whole
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref

_REDUCTIONS = ("none", "mean", "sum")
"""Reductions of losses in the order in which `aten` numbers them."""

_LIKELIHOOD = "torch.nn.functional.nll_loss"


def reduction_of(node: Apply) -> str:
    """Return how a loss is reduced; empty where it says nothing that there is."""
    return dict(enumerate(_REDUCTIONS)).get(whole(node.arguments.get("reduction", 1)), "")


def _have_same(lifting: Lifting, node: Apply, other: Apply, *names: str) -> bool:
    """Return whether two operators of `aten` are given the same values by these names."""
    return all(lifting.value(given(node, name)) == lifting.value(given(other, name)) for name in names)


def gradients_asked(node: Apply, forward: Call) -> tuple[str, ...]:
    """Return the gradients of the tensors of a call, the empty name for each that is not asked for.

    None where others are asked for, or more are made.
    """
    tensors = sum(isinstance(operand, Ref) for operand in forward.inputs)
    mask = node.arguments.get("output_mask", (True,) * len(node.outputs))
    asked = [flag is True for flag in mask] if isinstance(mask, tuple) else []
    if len(node.outputs) != sum(asked) or any(asked[tensors:]):
        return ()
    made = iter(node.outputs)
    wanted = [next(made) if is_asked else "" for is_asked in asked]
    return tuple([*wanted, *("" for _ in range(tensors))][:tensors])


def _of_operand(kernel: str) -> Callable[[Lifting, Apply], bool]:
    """Lift the gradient of a function of one operand, which is given; a function that is not called on it is here."""

    def lift(lifting: Lifting, node: Apply) -> bool:
        operand = given(node, "self")
        name = lifting.value(operand)
        if name is None:
            return False
        calls = [call for call in lifting.uses.get(name, ()) if call.op == kernel and call.inputs[0] == Ref(name)]
        forward = nearest(lifting, node, calls)
        if forward is None:
            forward = lifting.call_of(lifting.temporary(node, kernel, (operand,), lifting.shape(name)).name)
        return forward is not None and lifting.gradient(forward, (given(node, "grad_output"),), node.outputs, node.mark)

    return lift


def _of_result(kernel: str, argument: str) -> Callable[[Lifting, Apply], bool]:
    """Lift the gradient of a function of one operand whose result is given."""

    def lift(lifting: Lifting, node: Apply) -> bool:
        name = str(lifting.value(given(node, argument)))
        forward = lifting.call_of(name)
        if forward is None or forward.op != kernel or forward.outputs != (name,):
            return False
        return lifting.gradient(forward, (given(node, "grad_output"),), node.outputs, node.mark)

    return lift


def _relu_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift the gradient of `relu`, which is stated by its result or by its operand: both are positive in the same places."""
    if lifting.number(given(node, "threshold")) != 0:
        return False
    return _of_result("torch.relu", "self")(lifting, node) or _of_operand("torch.relu")(lifting, node)


def _likelihood(lifting: Lifting, node: Apply) -> bool:
    """Lift the loss; its second result, the weight of all targets, is read by its gradient alone."""
    return _likelihood_of(lifting, node, (given(node, "self"), given(node, "target")))


@dataclass(frozen=True, slots=True)
class _Padded:
    """Targets that are padded with the one that is ignored: `targets` before, in `shape` after, along `dim`, by `around`."""

    targets: Ref
    shape: tuple[int, ...]
    dim: int
    around: tuple[int, int]

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the shape without the padding."""
        return (*self.shape[: self.dim], self.shape[self.dim] - sum(self.around), *self.shape[self.dim + 1 :])


def _padded_targets(lifting: Lifting, node: Apply) -> _Padded | None:
    """Return the targets of a loss that are padded with the one that it ignores; None where they are not."""
    name = str(lifting.value(given(node, "target")))
    call = lifting.call_of(name)
    while call is not None and call.op == "torch.Tensor.view" and isinstance(call.inputs[0], Ref):
        name = call.inputs[0].name
        call = lifting.call_of(name)
    around = list(padding_of(call, len(lifting.shape(name))).items()) if call is not None else []
    if call is None or len(around) != 1 or call.attributes["value"] != given(node, "ignore_index"):
        return None
    (targets,) = (operand for operand in call.inputs if isinstance(operand, Ref))
    return _Padded(targets, lifting.shape(name), *around[0])


def _likelihood_without_padding(lifting: Lifting, node: Apply) -> bool:
    """Lift the loss of the rows whose targets are no padding: the others count nothing."""
    padded, scores = _padded_targets(lifting, node), lifting.value(given(node, "self"))
    if padded is None or scores is None or given(node, "reduction") == _REDUCTIONS.index("none"):
        return False
    rows, classes = lifting.shape(scores)
    if rows != prod(padded.shape):
        return False
    count, (before, _), kept = prod(padded.kept), padded.around, padded.kept
    apart = lifting.temporary(node, "torch.Tensor.view", (Ref(scores), (*padded.shape, classes)), (*padded.shape, classes))
    some = lifting.temporary(node, "torch.narrow", (apart, padded.dim, before, kept[padded.dim]), (*kept, classes))
    flat = lifting.temporary(node, "torch.Tensor.view", (some, (count, classes)), (count, classes))
    targets = lifting.program.fresh(lifting.program.types[padded.targets.name].of_shape((count,)))
    lifting.emit("torch.Tensor.view", (padded.targets, (count,)), (targets,), node.mark, {}, node)
    return _likelihood_of(lifting, node, (flat, Ref(targets)))


def _likelihood_gradient_without_padding(lifting: Lifting, node: Apply) -> bool:
    (forward, start), padded = (
        _likelihood_before(lifting, node, "aten.nll_loss_forward.default"),
        _padded_targets(lifting, node),
    )
    if forward is None or padded is None or not isinstance(forward.inputs[0], Ref):
        return False
    type, (rows, classes) = lifting.program.types[node.outputs[0]], lifting.shape(node.outputs[0])
    some = lifting.program.fresh(type.of_shape(lifting.shape(forward.inputs[0].name)))
    lifting.gradient(forward, (start,), _of_scores(some, forward), node.mark)
    if lifting.shape(some) == (rows, classes):
        return lifting.equate(node.outputs[0], Ref(some))
    apart = lifting.temporary(node, "torch.Tensor.view", (Ref(some), (*padded.kept, classes)), (*padded.kept, classes))
    pad = (*(0 for _ in range(2 * (len(padded.shape) - padded.dim))), *padded.around)
    wide = lifting.temporary(node, PAD, (apart,), (*padded.shape, classes), pad=pad, value=0)
    return lifting.call(node, "torch.Tensor.view", (wide, (rows, classes)))


def _likelihood_of_planes(lifting: Lifting, node: Apply) -> bool:
    """Lift the loss of scores whose second dimension are the classes, as that of one row for each target."""
    scores, targets = lifting.value(given(node, "self")), lifting.value(given(node, "target"))
    if scores is None or targets is None:
        return False
    batch, classes, *plane = lifting.shape(scores)
    last = lifting.temporary(node, "torch.permute", (Ref(scores),), (batch, *plane, classes), dims=(0, 2, 3, 1))
    count = prod((batch, *plane))
    rows = lifting.temporary(node, "torch.Tensor.view", (last, (count, classes)), (count, classes))
    flat = lifting.program.fresh(lifting.program.types[targets].of_shape((count,)))
    lifting.emit("torch.Tensor.view", (Ref(targets), (count,)), (flat,), node.mark, {}, node)
    if reduction_of(node) != "none":
        return _likelihood_of(lifting, node, (rows, Ref(flat)))
    each = lifting.program.fresh(lifting.program.types[node.outputs[0]].of_shape((count,)))
    if not _likelihood_of(lifting, replace(node, outputs=(each, *node.outputs[1:])), (rows, Ref(flat))):
        return False
    lifting.emit("torch.Tensor.view", (Ref(each), (batch, *plane)), node.outputs[:1], node.mark, {}, node)
    return True


def _likelihood_of(lifting: Lifting, node: Apply, inputs: tuple[Argument, ...]) -> bool:
    weight = node.arguments.get("weight")
    inputs = (*inputs, weight) if isinstance(weight, Ref) else inputs
    reduction = reduction_of(node)
    ignored = whole(given(node, "ignore_index"))
    attributes: dict[str, Value] = {"reduction": reduction, "ignore_index": ignored}
    if reduction == "mean" and len(inputs) == 2 and are_marked(lifting, inputs[1], ignored):
        attributes["reduction"] = "sum"
        total = lifting.temporary(node, _LIKELIHOOD, inputs, (), **attributes)
        inputs, attributes = (total, count_of(lifting, node, inputs[1], ignored)), {}
    op = _LIKELIHOOD if attributes else "torch.div"
    lifting.emit(op, inputs, node.outputs[:1], node.mark, attributes, node)
    lifting.lifted_from.update(dict.fromkeys(node.outputs, node))
    return True


def _likelihood_gradient(lifting: Lifting, node: Apply) -> bool:
    forward, start = _likelihood_before(lifting, node, "aten.nll_loss_forward.default")
    if forward is None:
        return False
    return lifting.gradient(forward, (start,), _of_scores(node.outputs[0], forward), node.mark)


def _of_scores(gradient: str, loss: Call) -> tuple[str, ...]:
    """Return the gradients of the tensors of a loss over classes, of which the scores alone have one."""
    return gradient, *("" for operand in loss.inputs[1:] if isinstance(operand, Ref))


def _likelihood_gradient_of_planes(lifting: Lifting, node: Apply) -> bool:
    forward, start = _likelihood_before(lifting, node, "aten.nll_loss2d_forward.default")
    if forward is None or not isinstance(forward.inputs[0], Ref):
        return False
    batch, classes, *plane = lifting.shape(node.outputs[0])
    type = lifting.program.types[node.outputs[0]]
    rows = lifting.program.fresh(type.of_shape(lifting.shape(forward.inputs[0].name)))
    count = prod((batch, *plane))
    if reduction_of(node) == "none":
        start = lifting.temporary(node, "torch.Tensor.view", (start, (count,)), (count,))
    lifting.gradient(forward, (start,), _of_scores(rows, forward), node.mark)
    shape = batch, *plane, classes
    last = lifting.temporary(node, "torch.Tensor.view", (Ref(rows), shape), shape)
    return lifting.call(node, "torch.permute", (last,), dims=(0, 3, 1, 2))


def _likelihood_before(lifting: Lifting, node: Apply, op: str) -> tuple[Call | None, Argument]:
    """Return the loss that a gradient is of, by the weight of all targets that its kernel gave, and the gradient of the loss.

    That of a mean over targets that count is divided by their number.
    """
    start = given(node, "grad_output")
    source = lifting.maker(given(node, "total_weight"))
    if source is None or source.op != op:
        return None, start
    same = _have_same(lifting, node, source, "self", "target") and lifting.is_result(given(node, "total_weight"), source, 1)
    same = same and lifting.value(node.arguments.get("weight")) == lifting.value(source.arguments.get("weight"))
    same = same and all(given(node, name) == given(source, name) for name in ("reduction", "ignore_index"))
    loss = lifting.call_of(source.outputs[0]) if same else None
    if loss is None or loss.op != "torch.div":
        return loss, start
    total, count = loss.inputs
    assert isinstance(total, Ref)
    assert isinstance(count, Ref)
    return lifting.call_of(total.name), divided_by_count(lifting, node, start, count)


def _lookup(lifting: Lifting, node: Apply) -> bool:
    padding = whole(node.arguments.get("padding_idx", -1))
    wanted = padding if padding >= 0 else None
    inputs = (given(node, "indices"), given(node, "weight"))
    return lifting.call(node, "torch.nn.functional.embedding", inputs, padding_idx=wanted)


def _lookup_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift the gradient of the lookup with these indices in a table of that many rows."""
    if node.arguments.get("scale_grad_by_freq"):
        return False
    indices = str(lifting.value(given(node, "indices")))
    padding = whole(node.arguments.get("padding_idx", -1))
    calls = [
        call
        for call in lifting.uses.get(indices, ())
        if call.op == "torch.nn.functional.embedding"
        and call.inputs[0] == Ref(indices)
        and isinstance(call.inputs[1], Ref)
        and lifting.shape(call.inputs[1].name) == lifting.shape(node.outputs[0])
        and call.attributes.get("padding_idx", -1) == padding
    ]
    forward = nearest(lifting, node, calls)
    return forward is not None and lifting.gradient(forward, (given(node, "grad_output"),), ("", node.outputs[0]), node.mark)


_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
ATTENTION_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"


def _attention(lifting: Lifting, node: Apply) -> bool:
    """Lift the attention; the logarithms of its sums are read by its gradient alone. A mask is added to the scores."""
    mask = node.arguments.get("attn_mask")
    if lifting.number(node.arguments.get("dropout_p", 0)) != 0:
        return False
    operands = tuple(given(node, name) for name in ("query", "key", "value"))
    if isinstance(mask, Ref):
        if not lifting.dtype(mask.name).startswith(("float", "bfloat")):
            return False
        operands = (*operands, mask)
    attributes: dict[str, Value] = {"is_causal": bool(node.arguments.get("is_causal", False))}
    scale = node.arguments.get("scale")
    if isinstance(scale, int | float):
        attributes["scale"] = scale
    heads = [lifting.shape(str(lifting.value(operand)))[-3:-2] for operand in operands]
    if heads[1] != heads[0]:
        attributes["enable_gqa"] = True
    lifting.emit(_ATTENTION, operands, node.outputs[:1], node.mark, attributes, node)
    lifting.lifted_from.update(dict.fromkeys(node.outputs, node))
    return True


EQUATIONS = (
    Equation(
        ATTENTION_KERNEL,
        "the kernel without dropout is scaled_dot_product_attention, with the logarithms of its sums; a mask is added",
        _attention,
    ),
    Equation(
        "sigmoid_backward",
        "sigmoid_backward(g, y) is the gradient of the sigmoid that gave y",
        _of_result("torch.sigmoid", "output"),
    ),
    Equation(
        "tanh_backward", "tanh_backward(g, y) is the gradient of the tanh that gave y", _of_result("torch.tanh", "output")
    ),
    Equation("threshold_backward", "threshold_backward(g, y, 0) is the gradient of the relu that gave y", _relu_gradient),
    Equation(
        "nll_loss_forward",
        "nll_loss_forward of targets that are padded with the one that is ignored is nll_loss of the rows without the padding",
        _likelihood_without_padding,
    ),
    Equation(
        "nll_loss_forward", "nll_loss_forward is torch.nn.functional.nll_loss, with the weight of all targets", _likelihood
    ),
    Equation(
        "nll_loss2d_forward", "nll_loss2d_forward is nll_loss of the rows of classes, with a weight", _likelihood_of_planes
    ),
    Equation(
        "nll_loss2d_backward",
        "nll_loss2d_backward(g, x, t, weight) is the gradient of the loss of the rows of classes with that weight",
        _likelihood_gradient_of_planes,
    ),
    Equation(
        "nll_loss_backward",
        "the gradient of the loss without padding is nothing for the rows of padding",
        _likelihood_gradient_without_padding,
    ),
    Equation(
        "nll_loss_backward",
        "nll_loss_backward(g, x, t, weight) is the gradient of the loss with that weight",
        _likelihood_gradient,
    ),
    Equation("embedding", "embedding(table, indices) is torch.nn.functional.embedding(indices, table)", _lookup),
    Equation(
        "embedding_dense_backward",
        "embedding_dense_backward(g, indices, n) is the gradient of the lookup for its table of n rows",
        _lookup_gradient,
    ),
)
