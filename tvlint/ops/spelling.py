"""Other names under which frameworks and traces write a function that the operator table has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tvlint.ir.operators import Literal, Operand, Value
from tvlint.ops.keywords import usual_keyword

_MODULES = {
    "F": "torch.nn.functional",
    "nn.functional": "torch.nn.functional",
    "functional": "torch.nn.functional",
    "Tensor": "torch.Tensor",
    "_operator": "operator",
    "aten": "torch",
    "ops.aten": "torch",
    "torch.ops.aten": "torch",
    "torch.special": "torch",
}
"""Modules by other names; a function of `aten` or `torch.special` takes what the function of `torch` takes."""

_OVERLOADS = frozenset(
    {"default", "Tensor", "Scalar", "int", "dim", "dim_IntList", "self", "Tensor_Scalar", "Tensor_Tensor", "Scalar_Tensor",
     "float", "dtype", "dtype_layout", "correction", "Dimname", "sizes", "using_ints", "split_size", "ScalarSelf", "dim_max"}
)  # fmt: skip

_RENAMED = {
    "_softmax": "softmax", "_log_softmax": "log_softmax", "_unsafe_view": "reshape", "_to_copy": "to", "alias": "clone",
    "lift_fresh_copy": "clone", "_unsafe_index": "index", "concatenate": "cat", "subtract": "sub", "multiply": "mul",
    "divide": "div", "true_divide": "div", "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div",
    "__matmul__": "matmul", "__neg__": "neg", "__pow__": "pow", "negative": "neg", "absolute": "abs", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "expit": "sigmoid",
}  # fmt: skip
"""Functions of `torch` and `aten` that are another one of `torch` by its usual name."""

_FUNCTIONAL = frozenset({"linear", "scaled_dot_product_attention"})
"""Functions that take in `torch` and `aten` what they take in `torch.nn.functional`, which not all do."""

_SAME_OBJECT = frozenset(
    {"avg_pool2d", "avg_pool3d", "gelu", "linear", "one_hot", "scaled_dot_product_attention", "softplus", "softshrink"}
)
"""Functions of `torch._C._nn` that `torch.nn.functional` has as they are."""

OF_ANOTHER_ORDER = frozenset({"torch.Tensor.where"})
"""Methods that do not take first what the function of that name takes first: `x.where(mask, y)` is `where(mask, x, y)`."""

HALF_TO_FLOAT = frozenset({"_softmax", "_log_softmax"})
"""Functions of `aten` whose third argument says that the result is wider."""

SHARING_A_GRADIENT: Mapping[str, tuple[str, ...]] = {
    "threshold": ("relu",), "hardtanh": ("relu6",), "elu": ("selu", "celu"),
}  # fmt: skip
"""Operators by the one whose function of `aten` for the gradient (`threshold_backward`) theirs is too."""


def is_captured(op: str) -> bool:
    """Return whether the name is that of an operator of `aten` with its overload, as captures have them."""
    return op.startswith("aten.") and op.count(".") == 2


def without_overload(op: str) -> str:
    """Return the function without the overload of `aten` that is meant, which says only which arguments are given.

    `aten::add.Tensor` is `aten.add`; what the table has a function for of its own (`torch.Tensor.float`) stays.
    """
    if is_captured(op):
        return op.rpartition(".")[0]
    parts = op.replace("::", ".").split(".")
    if len(parts) > 2 and parts[-1] in _OVERLOADS and parts[-2] not in ("aten", "Tensor", "torch", "functional"):
        parts.pop()
    return ".".join(parts)


@cache
def spellings(op: str) -> tuple[str, ...]:
    """Return the whole names that `op` may stand for, with the module as the table has it."""
    *modules, name = without_overload(op).split(".")
    module = ".".join(modules)
    module = _MODULES.get(module, module)
    if module == "torch._C._nn" and name in _SAME_OBJECT:
        module = "torch.nn.functional"
    if module not in ("torch", "torch.Tensor") or f"{module}.{name}" in OF_ANOTHER_ORDER:
        return (f"{module}.{name}",) if module else ()
    name = _RENAMED.get(name, name)
    others = ("torch", "torch.Tensor", "torch.ops.aten", *(("torch.nn.functional",) if name in _FUNCTIONAL else ()))
    return tuple(f"{prefix}.{name}" for prefix in (module, *others))


OF_FLAGS: Mapping[str, str] = {
    "bitwise_and": "torch.logical_and", "bitwise_or": "torch.logical_or", "bitwise_not": "torch.logical_not",
    "bitwise_xor": "torch.ne", "logical_xor": "torch.ne", "__and__": "torch.logical_and", "__or__": "torch.logical_or",
    "__xor__": "torch.ne", "__invert__": "torch.logical_not", "and_": "torch.logical_and", "or_": "torch.logical_or",
    "xor": "torch.ne", "invert": "torch.logical_not",
}  # fmt: skip
"""What functions that work bit by bit are of flags, by the last word of their names; of whole numbers they are others."""


_OF_TWO = ("add", "sub", "mul", "div", "matmul", "maximum", "minimum", "eq", "ne", "lt", "gt", "le", "ge")
_OF_WEIGHTS = ("linear", "layer_norm", "rms_norm", "group_norm", "conv1d", "conv2d", "conv3d", "embedding")
_ATTENTIONS = ("scaled_dot_product_attention", "attention")
_LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")
OPERAND_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_TWO, ("other",)),
    **dict.fromkeys(_OF_WEIGHTS, ("weight", "bias")),
    **dict.fromkeys(_ATTENTIONS, ("key", "value")),
    "pow": ("exponent",),
    **dict.fromkeys(("mm", "bmm"), ("mat2",)),
    **dict.fromkeys(_LOSSES, ("target",)),
    **dict.fromkeys(("cross_entropy", "nll_loss"), ("target", "weight")),
}
"""Operands that may be given by name: those that follow the first, in the order of the function's own."""


def with_second_in_place(
    op: str, operands: tuple[Operand, ...], attributes: Mapping[str, Value]
) -> tuple[tuple[Operand, ...], dict[str, Value]]:
    """Return the operands and attributes of a call of which a second operand that is given by its name stands in its place.

    Of a function of two operands that is `pow(x, exponent=2)` for a number, or `mul(x, other=y)` for a tensor, which readers
    append. Functions of `torch` and methods take arguments by the names of NumPy too (`sum(x, axis=1)`).
    """
    function = without_overload(op)
    named = {name: usual_keyword(function, name) for name in attributes}
    attributes = {name if named[name] in attributes else named[name]: value for name, value in attributes.items()}
    last = function.rsplit(".", 1)[-1]
    (key,) = OPERAND_NAMES["pow"] if last == "pow" else OPERAND_NAMES[last] if last in _OF_TWO else ("",)
    left = {name: value for name, value in attributes.items() if name != key}
    given = attributes.get(key)
    if len(operands) == 1 and isinstance(given, int | float) and not isinstance(given, bool):
        return (*operands, Literal(given)), left
    if len(operands) == 2 and given == "operand 1":
        return operands, left
    return operands, dict(attributes)


def in_torch(*names: str) -> tuple[str, ...]:
    """Return the functions of the names, and the methods of tensors."""
    return tuple(f"{module}.{name}" for name in names for module in ("torch", "torch.Tensor"))


def in_functional(*names: str) -> tuple[str, ...]:
    """Return the functions of the names, also those of `torch.nn.functional`, and the methods of tensors."""
    return tuple(f"{module}.{name}" for name in names for module in ("torch", "torch.Tensor", "torch.nn.functional"))
