"""The names by which functions of torch and of nnScaler take their arguments: a call with any other fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TAKEN: tuple[tuple[str, str], ...] = (
    (
        "abs acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 fix "
        "floor frac log log10 log1p log2 log_sigmoid logical_not neg reciprocal rsqrt sgn sigmoid sign sin sinh sqrt "
        "square tan tanh trunc",
        "input out",
    ),
    ("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "input out output_size"),
    ("add sub", "alpha input other out"),
    ("addcdiv addcmul", "input out tensor1 tensor2 value"),
    ("addmm", "alpha beta input mat1 mat2 out out_dtype"),
    ("amax amin argmax argmin logsumexp", "dim input keepdim out"),
    ("arange", "device dtype end layout out pin_memory start step"),
    ("argsort", "descending dim input out stable"),
    ("avg_pool1d", "ceil_mode count_include_pad input kernel_size out padding stride"),
    ("avg_pool2d avg_pool3d", "ceil_mode count_include_pad divisor_override input kernel_size out padding stride"),
    ("baddbmm", "alpha batch1 batch2 beta input out out_dtype"),
    ("batch_norm", "bias cudnn_enabled eps input momentum running_mean running_var training weight"),
    ("binary_cross_entropy mse_loss", "input out reduce reduction size_average target weight"),
    ("binary_cross_entropy_with_logits", "input out pos_weight reduce reduction size_average target weight"),
    ("bmm mm", "input mat2 out out_dtype"),
    ("broadcast_to", "input size"),
    ("cat concat stack", "dim out tensors"),
    ("celu", "alpha inplace input out"),
    ("chunk", "chunks dim input"),
    ("clamp clip", "input max min out"),
    ("clamp_max", "input max out"),
    ("clamp_min", "input min out"),
    ("clone", "input memory_format out"),
    ("contiguous", "input memory_format"),
    ("conv1d conv2d conv3d", "bias dilation groups input padding stride weight"),
    ("conv_transpose1d conv_transpose2d conv_transpose3d", "bias dilation groups input output_padding padding stride weight"),
    ("cosine_similarity", "dim eps x1 x2"),
    ("cross_entropy", "ignore_index input label_smoothing reduce reduction size_average target weight"),
    ("cumsum", "dim dtype input out"),
    ("detach ravel softsign t tanhshrink", "input"),
    ("diagonal", "dim1 dim2 input offset"),
    ("div", "input other out rounding_mode"),
    ("dot", "input out tensor"),
    ("dropout", "inplace input p train training"),
    ("einsum", "args equation path tensors"),
    ("elu", "alpha inplace input input_scale out scale"),
    ("embedding", "indices input max_norm norm_type out padding_idx scale_grad_by_freq sparse weight"),
    (
        "eq floor_divide fmax fmin fmod ge gt le logaddexp logical_and logical_or lt matmul maximum minimum mul ne"
        " remainder xlogy",
        "input other out",
    ),
    ("expand", "implicit input size"),
    ("flatten", "end_dim input start_dim"),
    ("flip", "dims input out"),
    ("full", "device dtype fill_value layout names out pin_memory size"),
    ("full_like", "device dtype fill_value input layout memory_format out pin_memory"),
    ("gather", "dim index input out sparse_grad"),
    ("gelu", "approximate input out"),
    ("glu", "dim input out"),
    ("group_norm", "bias cudnn_enabled eps input num_groups weight"),
    ("hardshrink softshrink", "input lambd out"),
    ("hardsigmoid hardswish mish relu silu", "inplace input out"),
    ("hardtanh", "inplace input max_val min_val out"),
    ("huber_loss", "delta input out reduction target weight"),
    ("index_add", "alpha dim index input out source"),
    ("index_reduce", "dim include_self index input out reduce source"),
    ("index_select", "dim index input out"),
    ("interpolate", "align_corners antialias input mode recompute_scale_factor scale_factor size"),
    ("kl_div", "input log_target reduce reduction size_average target"),
    ("l1_loss", "input reduce reduction size_average target weight"),
    ("layer_norm", "bias cudnn_enable eps input normalized_shape weight"),
    ("leaky_relu", "inplace input negative_slope out"),
    ("lerp", "end input out weight"),
    ("linear", "bias input out weight"),
    ("log_softmax softmax", "_stacklevel dim dtype input out"),
    ("logit", "eps input out"),
    ("masked_fill", "input mask out value"),
    ("max", "dim input keepdim max max_values other out"),
    ("max_pool1d max_pool2d max_pool3d", "ceil_mode dilation input kernel_size padding return_indices stride"),
    ("mean prod sum", "dim dtype input keepdim out"),
    ("min", "dim input keepdim min min_indices other out"),
    ("moveaxis movedim", "destination input source"),
    ("mv", "input out vec"),
    ("narrow", "dim input length start"),
    ("nll_loss", "ignore_index input out reduce reduction size_average target weight"),
    ("norm", "dim dtype input keepdim out p"),
    ("normalize", "dim eps input out p"),
    ("one_hot", "input num_classes"),
    ("ones zeros", "device dtype layout out pin_memory size"),
    ("ones_like zeros_like", "device dtype input layout memory_format out pin_memory"),
    ("outer", "input out vec2"),
    ("pad", "input mode pad value"),
    ("permute tile", "dims input"),
    ("pow", "exponent input out"),
    ("relu6 selu", "inplace input"),
    ("repeat", "input out repeats"),
    ("repeat_interleave", "dim input out output_size repeats"),
    ("reshape", "input shape"),
    ("rms_norm", "eps input normalized_shape weight"),
    ("roll", "dims input out shifts"),
    ("round", "decimals input out"),
    ("scaled_dot_product_attention", "attn_mask dropout_p enable_gqa is_causal key query scale value"),
    ("scatter", "dim index input out reduce src value"),
    ("scatter_add", "dim index input out src"),
    ("scatter_reduce", "dim include_self index input out reduce src"),
    ("select", "dim index input"),
    ("smooth_l1_loss", "beta input out reduce reduction size_average target"),
    ("softmin", "_stacklevel dim dtype input"),
    ("softplus", "beta input out threshold"),
    ("sort", "descending dim indices input out reverse stable values"),
    ("split", "dim input max split_size split_size_or_sections split_sizes tensor"),
    ("squeeze unbind unsqueeze", "dim input"),
    ("std var", "correction dim input keepdim out unbiased"),
    ("swapaxes", "axis0 axis1 input"),
    ("swapdims transpose", "dim0 dim1 input"),
    ("threshold", "inplace input out threshold value"),
    ("tensor_split", "dim indices input sections tensor_indices_or_sections"),
    ("to", "copy device dtype input layout memory_format non_blocking other pin_memory"),
    ("topk", "dim indices input k largest out sorted values"),
    ("tril triu", "diagonal input out"),
    ("type_as", "input other"),
    ("unflatten", "dim input sizes"),
    ("view", "dtype input size"),
    ("where", "condition input other out"),
)
"""Functions of `torch`, `torch.Tensor` and `torch.nn.functional`, and the names that any of these takes of them."""

_MODULES = ("torch", "torch.Tensor", "torch.nn.functional")

_ALSO: Mapping[str, str] = {"dim": "axis", "keepdim": "keepdims", "input": "x a x1", "other": "x2", "layout": "requires_grad"}
"""Names that torch takes where it takes others, separated by spaces."""

_OF_NUMPY: Mapping[str, str] = {"axis": "dim", "keepdims": "keepdim"}

_IN_PYTHON = frozenset(
    {"norm", "torch.norm", "torch.Tensor.norm", "split", "torch.split", "torch.Tensor.split", "torch.Tensor.unflatten"}
)
"""Functions of `torch` and methods that torch writes in Python: they know no names of NumPy."""

_OF_NNSCALER: Mapping[str, frozenset[str]] = {
    "nnscaler.runtime.function.embedding": frozenset({"input", "weight", "padding_idx", "start", "stop"}),
    "nnscaler.runtime.function.identity": frozenset({"tensor"}),
    "nnscaler.runtime.function.multiref": frozenset({"tensor", "times"}),
    "nnscaler.runtime.function.to": frozenset({"tensor", "dtype_or_device"}),
}


def _with_others(taken: Sequence[str]) -> frozenset[str]:
    return frozenset(taken).union(*(others.split() for name, others in _ALSO.items() if name in taken))


_OF_TORCH: Mapping[str, frozenset[str]] = {
    name: _with_others(taken.split()) for names, taken in _TAKEN for name in names.split()
}


def is_refused(op: str, keyword: str) -> bool:
    """Return whether the function `op` is known to take no argument of that name."""
    module, _, name = op.rpartition(".")
    taken = _OF_TORCH.get(name) if module in _MODULES else _OF_NNSCALER.get(op)
    return taken is not None and keyword not in taken and (module, keyword) != ("torch", "self")


def usual_keyword(op: str, keyword: str) -> str:
    """Return the name that `op` has for an argument, where `keyword` is the one that NumPy has for it; else `keyword`.

    Functions that torch writes in Python (`torch.nn.functional`, and some others) know no names of NumPy.
    """
    module, _, name = op.rpartition(".")
    knows = module in ("", "aten", "torch", "torch.Tensor") and op not in _IN_PYTHON
    usual = _OF_NUMPY.get(keyword, "") if knows else ""
    return usual if usual in _OF_TORCH.get(name, ()) else keyword
