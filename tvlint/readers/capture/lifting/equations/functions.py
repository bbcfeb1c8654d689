"""Functions of `aten` that are functions of torch with the same arguments, and the kernels that give their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tvlint.ir.operators import Value
from tvlint.readers.capture.lifting.equations.kernels import ATTENTION_KERNEL, gradients_asked, reduction_of
from tvlint.readers.capture.lifting.lift import Call, Equation, Lifting, function_of, given, nearest, sizes
from tvlint.readers.capture.lifting.made_again import is_made_again
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref

_MADE_ANEW = frozenset({"weight", "bias"})
"""Tensors that may be gathered anew for a gradient."""

_OF_GRADIENT = frozenset({"grad_output", "grad_out", "output_mask", "bias_sizes"})

_SAYS_RESULT = ("self_is_result", "is_result")
"""Flags that say that a gradient's kernel is given the result in the place of the operand."""

_RESULTS: Mapping[str, int] = {"mean": 1, "rstd": 2, "indices": 1, "buffer": 1, "out": 0, "logsumexp": 1}
"""Arguments of gradients' kernels that are results of the function, by their places among these."""

_USUAL: Mapping[str, Argument] = {
    "negative_slope": 0.01, "alpha": 1, "scale": 1, "input_scale": 1, "beta": 1, "threshold": 20, "min_val": -1, "max_val": 1,
    "reduction": 1, "delta": 1, "dim": -1, "padding": 0, "dilation": 1, "ceil_mode": False, "count_include_pad": True,
    "approximate": "none",
}  # fmt: skip
"""What functions, and the kernels of their gradients, take where an argument is left out."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of `aten` that is `op`: its tensors, and what the other arguments are called in torch.

    `only` are arguments that have to have one value (a number, none), with it; `implied` those that the shapes say too;
    `gradient` is the kernel of its gradient.
    """

    aten: str
    op: str
    tensors: tuple[str, ...] = ("self",)
    options: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, Argument] = field(default_factory=dict)
    gradient: str = ""
    implied: tuple[str, ...] = ()


def _named(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_IN_TORCH = "torch.nn.functional."
_POOLED = _named("kernel_size", "stride", "padding", "ceil_mode")
_WINDOWS = (*_POOLED, "dilation")
_AVERAGED = {**_POOLED, **_named("count_include_pad", "divisor_override")}
_CONVOLVED = _named("stride", "padding", "dilation", "groups")

_FUNCTIONS = (
    _Function("gelu", f"{_IN_TORCH}gelu", options=_named("approximate"), gradient="gelu_backward"),
    _Function("silu", f"{_IN_TORCH}silu", gradient="silu_backward"),
    _Function("leaky_relu", f"{_IN_TORCH}leaky_relu", options=_named("negative_slope"), gradient="leaky_relu_backward"),
    _Function(
        "elu", f"{_IN_TORCH}elu", options=_named("alpha"), only={"scale": 1, "input_scale": 1}, gradient="elu_backward"
    ),
    _Function("softplus", f"{_IN_TORCH}softplus", options=_named("beta", "threshold"), gradient="softplus_backward"),
    _Function("hardtanh", f"{_IN_TORCH}hardtanh", options=_named("min_val", "max_val"), gradient="hardtanh_backward"),
    _Function("hardswish", f"{_IN_TORCH}hardswish", gradient="hardswish_backward"),
    _Function("hardsigmoid", f"{_IN_TORCH}hardsigmoid", gradient="hardsigmoid_backward"),
    _Function("mish", f"{_IN_TORCH}mish", gradient="mish_backward"),
    _Function("log_sigmoid_forward", f"{_IN_TORCH}logsigmoid", gradient="log_sigmoid_backward"),
    _Function("glu", f"{_IN_TORCH}glu", options=_named("dim"), gradient="glu_backward"),
    _Function(
        "mse_loss", f"{_IN_TORCH}mse_loss", ("self", "target"), _named("reduction"), gradient="mse_loss_backward"
    ),
    _Function(
        "smooth_l1_loss", f"{_IN_TORCH}smooth_l1_loss", ("self", "target"), _named("reduction", "beta"),
        gradient="smooth_l1_loss_backward",
    ),
    _Function(
        "huber_loss", f"{_IN_TORCH}huber_loss", ("self", "target"), _named("reduction", "delta"), gradient="huber_loss_backward"
    ),
    _Function(
        "binary_cross_entropy", f"{_IN_TORCH}binary_cross_entropy", ("self", "target"), _named("reduction"), {"weight": None},
        "binary_cross_entropy_backward",
    ),
    _Function(
        "binary_cross_entropy_with_logits", f"{_IN_TORCH}binary_cross_entropy_with_logits", ("self", "target"),
        _named("reduction"), {"weight": None, "pos_weight": None},
    ),
    _Function("linalg_vector_norm", "torch.linalg.vector_norm", options=_named("ord", "dim", "keepdim")),
    _Function("logaddexp", "torch.logaddexp", ("self", "other")),
    _Function("xlogy", "torch.xlogy", ("self", "other")),
    _Function("roll", "torch.roll", options=_named("shifts", "dims")),
    _Function("flip", "torch.flip", options=_named("dims")),
    _Function("addcmul", "torch.addcmul", ("self", "tensor1", "tensor2"), _named("value")),
    _Function("max_pool2d_with_indices", f"{_IN_TORCH}max_pool2d", options=_named(*_WINDOWS),
              gradient="max_pool2d_with_indices_backward"),
    _Function("max_pool3d_with_indices", f"{_IN_TORCH}max_pool3d", options=_named(*_WINDOWS),
              gradient="max_pool3d_with_indices_backward"),
    _Function("avg_pool2d", f"{_IN_TORCH}avg_pool2d", options=_AVERAGED, gradient="avg_pool2d_backward"),
    _Function("avg_pool3d", f"{_IN_TORCH}avg_pool3d", options=_AVERAGED, gradient="avg_pool3d_backward"),
    *(
        _Function(f"_adaptive_avg_pool{n}d", f"{_IN_TORCH}adaptive_avg_pool{n}d", options=_named("output_size"),
                  gradient=f"_adaptive_avg_pool{n}d_backward")
        for n in (2, 3)
    ),
    _Function(
        "native_layer_norm", f"{_IN_TORCH}layer_norm", ("input", "weight", "bias"), _named("normalized_shape", "eps"),
        gradient="native_layer_norm_backward",
    ),
    _Function(
        "native_group_norm", f"{_IN_TORCH}group_norm", ("input", "weight", "bias"), {"group": "num_groups", "eps": "eps"},
        gradient="native_group_norm_backward", implied=("N", "C", "HxW"),
    ),
)  # fmt: skip


def _options(node: Apply, function: _Function) -> dict[str, Value] | None:
    """Return the arguments beside tensors by their names in torch; None where one has a value that is not spoken of."""
    if any(node.arguments.get(name, wanted) != wanted for name, wanted in function.only.items()):
        return None
    if any(isinstance(node.arguments.get(name), Ref) for name in function.implied):
        return None
    known = {name: node.arguments[name] for name in function.options if name in node.arguments}
    if any(isinstance(argument, Ref) for argument in known.values()):
        return None
    found: dict[str, Value] = {}
    for name, argument in known.items():
        known_option = reduction_of(node) if name == "reduction" else argument
        if known_option is not None and known_option != ():
            found[function.options[name]] = known_option  # type: ignore[assignment]
    return found


def _called(lifting: Lifting, node: Apply, op: str, tensors: Sequence[str], options: Mapping[str, Value]) -> bool:
    """Lift a call of a function on those of its tensors that are given; its gradient alone reads results behind the first."""
    operands = [node.arguments.get(name) for name in tensors]
    while operands and operands[-1] is None:
        operands.pop()
    if not operands or not all(isinstance(operand, Ref) for operand in operands):
        return False
    lifting.emit(op, tuple(operands), node.outputs[:1], node.mark, options, node)
    lifting.lifted_from.update(dict.fromkeys(node.outputs, node))
    return True


def _same(function: _Function) -> Callable[[Lifting, Apply], bool]:
    def lift(lifting: Lifting, node: Apply) -> bool:
        options = _options(node, function)
        return options is not None and _called(lifting, node, function.op, function.tensors, options)

    return lift


def _weighted_chances(lifting: Lifting, node: Apply) -> bool:
    """Lift the loss of chances whose scores are `x`, with targets `y`, in which places or positive targets count more.

    It is `(1 - y) x - (1 + (p - 1) y) log sigmoid(x)`, times the weight of each place, as torch computes it.
    """
    reduction, scores = reduction_of(node), lifting.value(given(node, "self"))
    counts = [node.arguments.get(name) for name in ("pos_weight", "weight")]
    if scores is None or not reduction or not any(isinstance(count, Ref) for count in counts):
        return False
    shape, target = lifting.shape(scores), given(node, "target")

    def made(op: str, *operands: Argument) -> Ref:
        return lifting.temporary(node, op, operands, shape)

    certain = made("torch.nn.functional.logsigmoid", Ref(scores))
    positive, weight = counts
    if isinstance(positive, Ref):
        more = lifting.temporary(node, "torch.sub", (positive, 1), lifting.shape(positive.name))
        certain = made("torch.mul", made("torch.add", made("torch.mul", target, more), 1), certain)
    each = made("torch.sub", made("torch.mul", made("torch.add", made("torch.neg", target), 1), Ref(scores)), certain)
    each = made("torch.mul", each, weight) if isinstance(weight, Ref) else each
    if reduction == "none":
        return lifting.equate(node.outputs[0], each)
    return lifting.call(node, f"torch.{reduction}", (each,), dim=tuple(range(len(shape))), keepdim=False)


def _convolution(lifting: Lifting, node: Apply) -> bool:
    dims = len(lifting.shape(str(lifting.value(given(node, "weight"))))) - 2
    around = node.arguments.get("output_padding", ())
    if node.arguments.get("transposed") or dims not in (1, 2, 3) or not isinstance(around, tuple) or any(around):
        return False
    options = _options(node, _Function("convolution", "", options=_CONVOLVED))
    op = f"{_IN_TORCH}conv{dims}d"
    return options is not None and _called(lifting, node, op, ("input", "weight", "bias"), options)


def _enlarged(lifting: Lifting, node: Apply) -> bool:
    """Lift what enlarges images by taking the nearest places, where scales say no more than the sizes do."""
    source = lifting.value(given(node, "self"))
    before, made = lifting.shape(source) if source is not None else (), lifting.shape(node.outputs[0])
    if len(before) != 4 or len(made) != 4 or 0 in before or sizes(given(node, "output_size")) != made[2:]:
        return False
    scales = [node.arguments.get(name) for name in ("scales_h", "scales_w")]
    fits = all(scale in (None, new / old) for scale, new, old in zip(scales, made[2:], before[2:], strict=True))
    return fits and lifting.call(node, f"{_IN_TORCH}interpolate", (given(node, "self"),), size=made[2:])


def _enlarged_gradient(lifting: Lifting, node: Apply) -> bool:
    forward = lifting.forward_of(node.mark, f"{_IN_TORCH}interpolate")
    source = lifting.maker(Ref(forward.outputs[0])) if forward is not None else None
    if forward is None or source is None or not isinstance(forward.inputs[0], Ref):
        return False
    fits = all(node.arguments.get(name) == source.arguments.get(name) for name in ("output_size", "scales_h", "scales_w"))
    is_of_it = sizes(given(node, "input_size")) == lifting.shape(forward.inputs[0].name)
    return fits and is_of_it and lifting.gradient(forward, (given(node, "grad_output"),), node.outputs, node.mark)


def _gradient_of(function: str, tensors: tuple[str, ...]) -> Callable[[Lifting, Apply], bool]:
    """Lift the gradient of the call, of the same operands and options, that autograd names or that is the last of them.

    A function of one operand that is not called on it, as in a segment that is computed again only as far as gradients need it,
    is here. Of calls that differ, such as norms of one value with other epsilons, the kernel has to say which by its arguments.
    """

    def lift(lifting: Lifting, node: Apply) -> bool:
        first = lifting.value(node.arguments.get(tensors[0], node.arguments.get("self_or_result")))
        calls = [call for call in lifting.uses.get(str(first), ()) if _is_like(lifting, node, call, function)]
        if any((call.inputs, call.attributes) != (calls[0].inputs, calls[0].attributes) for call in calls):
            return False
        forward = nearest(lifting, node, calls) or _called_anew(lifting, node, function)
        gradient = node.arguments.get("grad_output", node.arguments.get("grad_out"))
        if forward is None or not isinstance(gradient, Ref):
            return False
        outputs = gradients_asked(node, forward)
        return bool(outputs) and lifting.gradient(forward, (gradient,), outputs, node.mark)

    return lift


def _called_anew(lifting: Lifting, node: Apply, function: str) -> Call | None:
    """Return a call of the function of one operand that a gradient's kernel is given with all options, and no result of it."""
    row = next((row for row in _FUNCTIONS if row.aten == function and row.tensors == ("self",)), None)
    known = {"self", "self_or_result", "grad_output", *_SAYS_RESULT}
    known |= set() if row is None else {*row.options, *row.only}
    operand = node.arguments.get("self", node.arguments.get("self_or_result"))
    name, of_result = lifting.value(operand), any(node.arguments.get(flag, False) for flag in _SAYS_RESULT)
    if row is None or name is None or of_result or not known.issuperset(node.arguments):
        return None
    options, gradient = _options(node, row), lifting.value(node.arguments.get("grad_output"))
    if options is None or gradient is None or lifting.shape(gradient) != lifting.shape(name):
        return None
    return lifting.call_of(lifting.temporary(node, row.op, (operand,), lifting.shape(name), **options).name)


def _is_like(lifting: Lifting, node: Apply, call: Call, function: str) -> bool:
    """Return whether a call is one of the function, with the arguments and the other results that the gradient's kernel has."""
    source = lifting.lifted_from.get(call.outputs[0])
    if source is None or function_of(source.op) != function:
        return False
    needed = {name for name, argument in source.arguments.items() if isinstance(argument, Ref)} - {"bias"}
    if not needed <= {name.removesuffix("_or_result") for name in node.arguments}:
        return False
    left_out = {name: usual for name, usual in _USUAL.items() if name in source.arguments}
    return all(
        _fits(lifting, name.removesuffix("_or_result"), argument, source)
        for name, argument in {**left_out, **node.arguments}.items()
        if name not in _OF_GRADIENT
    )


def _fits(lifting: Lifting, name: str, argument: Argument, source: Apply) -> bool:
    """Return whether an argument of a gradient's kernel is that of the function, a result of it, or a flag that is not set."""
    value, known = lifting.value(argument), source.arguments.get(name, _USUAL.get(name))
    if value is None:
        if name == "stride":
            argument, known = (each or source.arguments.get("kernel_size") for each in (argument, known))
        return _is_number(argument, known) if known is not None else not argument
    if name not in source.arguments:
        return name in _RESULTS and lifting.is_result(argument, source, _RESULTS[name])
    other = lifting.value(known)
    if other is not None and name in _MADE_ANEW:
        return is_made_again(lifting, value, other)
    return value == other


def _is_number(one: Argument, other: Argument) -> bool:
    """Return whether two arguments are the same, one number for all dimensions as well as one for each."""
    if isinstance(one, tuple) and not isinstance(other, tuple):
        return all(each == other for each in one)
    return one == other


EQUATIONS = (
    *(Equation(row.aten, f"{row.aten} is {row.op} of the same arguments", _same(row)) for row in _FUNCTIONS),
    *(
        Equation(row.gradient, f"{row.gradient} is the gradient of {row.aten}", _gradient_of(row.aten, row.tensors))
        for row in _FUNCTIONS
        if row.gradient
    ),
    Equation(
        f"{ATTENTION_KERNEL}_backward",
        "the gradient kernel is the gradient of the attention with these operands, result and logarithms",
        _gradient_of(ATTENTION_KERNEL, ("query", "key", "value")),
    ),
    Equation(
        "binary_cross_entropy_with_logits",
        "with weights it is (1 - y) x - (1 + (pos_weight - 1) y) logsigmoid(x), times the weight of each place",
        _weighted_chances,
    ),
    Equation(
        "upsample_nearest2d",
        "upsample_nearest2d is torch.nn.functional.interpolate to the size, which its scales do not contradict",
        _enlarged,
    ),
    Equation(
        "upsample_nearest2d_backward", "the kernel is the gradient of upsample_nearest2d of the same sizes", _enlarged_gradient
    ),
    Equation("convolution", "convolution, not transposed, is torch.nn.functional.conv1d, conv2d or conv3d", _convolution),
    Equation(
        "convolution_backward",
        "convolution_backward is the gradient of convolution",
        _gradient_of("convolution", ("input", "weight", "bias")),
    ),
)
