"""Functions that are known not to be linear, for uses that the table gives no annotation to."""

from __future__ import annotations

_FUNCTIONS = frozenset(
    {
        "abs", "argmax", "argmin", "batch_norm", "celu", "clamp", "cos", "cross_entropy", "dropout", "elu", "exp", "gelu",
        "group_norm", "hardtanh", "layer_norm", "layernorm", "leaky_relu", "log", "log_softmax", "logsigmoid", "logsumexp",
        "max", "min", "mish", "nll_loss", "norm", "pow", "relu", "relu6", "rms_norm", "rmsnorm", "rsqrt",
        "scaled_dot_product_attention",
        "sigmoid", "silu", "sin", "softmax", "softplus", "sqrt", "square", "swiglu", "swish", "tanh", "topk",
    }
)  # fmt: skip


def never_linear(op: str) -> bool:
    """Return whether `op` is not linear in its first operand, whatever its attributes are."""
    return op.rsplit(".", 1)[-1].replace("-", "_") in _FUNCTIONS
