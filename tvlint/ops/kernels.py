"""Functions whose kind the table states, and not what they compute: kernels and modules under the names of their libraries.

A function is of a kind because its own name, the last part of its path, stands here to the letter. One whose name only
sounds like one of these is unknown. What a project declares of a function comes before what stands here.
"""

from __future__ import annotations

from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError


def _bind(call: Call) -> Bound:
    raise UnsupportedError(f"what `{call.op}` computes is not known")


def _kernels(
    names: str, *traits: Trait, sequence: int | None = None, dimension: tuple[int, int | None] | None = None
) -> tuple[OpSpec, ...]:
    """Return a row for each name."""
    return tuple(
        OpSpec(name, (name,), _bind, traits=frozenset(traits), sequence=sequence, dimension=dimension) for name in names.split()
    )


KERNELS = (
    *_kernels(
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math "
        "scaled_dot_product_flash_attention flex_attention sageattn",
        Trait.ATTENTION,
        sequence=-2,
    ),
    *_kernels(
        "flash_attn_func _flash_attn_forward _flash_attention_forward _efficient_attention_forward "
        "memory_efficient_attention memory_efficient_attention_forward",
        Trait.ATTENTION,
        sequence=1,
    ),
    *_kernels(
        "flash_attn flash_attention flash_attn_forward flash_attention_forward flash_block flash_attention_block "
        "flash_attn_varlen_func flash_attn_with_kvcache flash_attn_unpadded_func flash_attn_3_func fused_attention fused_attn "
        "npu_fusion_attention core_attention CoreAttention dot_product_attention DotProductAttention TEDotProductAttention "
        "FusedAttention FlashAttention UnfusedDotProductAttention attention_block attention_step "
        "ring_attention_step grouped_attention",
        Trait.ATTENTION,
    ),
    *_kernels(
        "ring_flash_attn_func ring_flash_attn_varlen_func zigzag_ring_flash_attn_func zigzag_ring_flash_attn_varlen_func "
        "stripe_flash_attn_func llama3_flash_attn_varlen_func wrap_ring_attn_func wrap_ring_attn_varlen_func "
        "wrap_zigzag_attn_func ring_attention ring_attn_func ring_flash_attention zigzag_ring_attention "
        "_scaled_dot_product_ring_flash_attention _scaled_dot_product_ring_efficient_attention "
        "_scaled_dot_product_ring_cudnn_attention attn_forward_with_cp attn_forward_func_with_cp "
        "attn_fwd_func_with_cp AttnFuncWithCPAndKVP2P AttnFuncWithCPAndKVAllGather AttnFuncWithCPAndQKVOA2A "
        "ulysses_attn_func ulysses_attention UlyssesAttention DistributedAttention LongContextAttention "
        "long_context_attn_func usp_attn_func context_parallel_attention",
        Trait.COMMUNICATING_ATTENTION,
    ),
    *_kernels(
        "merge_lse lse_merge merge_attention merge_log_sum_exp merge_logsumexp merge_attention_states merge_attn_states "
        "merge_state merge_states merge update_out_and_lse _update_out_and_lse combine_lse combine_attention",
        Trait.LOG_SUM_EXP_MERGE,
    ),
    *_kernels(
        "adam adamw sgd sgd_momentum momentum adagrad adadelta adafactor adamax nadam radam rmsprop lamb lars lion muon "
        "shampoo soap Adam AdamW SGD Adagrad Adadelta Adafactor Adamax NAdam RAdam RMSprop Lamb LAMB LARS Lion Muon "
        "Shampoo SOAP FusedAdam FusedAdamW FusedSGD FusedLAMB FusedLion FusedAdagrad FusedNovoGrad DeepSpeedCPUAdam "
        "DeepSpeedCPULion DeepSpeedCPUAdagrad CPUAdam fused_adam fused_adamw fused_sgd fused_lamb fused_lion cpu_adam "
        "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_ multi_tensor_adam multi_tensor_adam_fp8 "
        "multi_tensor_sgd multi_tensor_adagrad multi_tensor_lamb multi_tensor_novograd lamb_step lars_step lion_step "
        "muon_step adagrad_step adafactor_step rmsprop_step fused_adam_step fused_adamw_step optimizer_step",
        Trait.OPTIMIZER,
    ),
    *_kernels(
        "gelu_new gelu_fast gelu_tanh gelu_pytorch_tanh quick_gelu fast_gelu squared_relu relu2 prelu rrelu threshold "
        "hardshrink softshrink",
        Trait.ACTIVATION,
    ),
    *_kernels(
        "geglu reglu bias_swiglu bias_geglu silu_and_mul gelu_and_mul swiglu_impl bias_swiglu_impl exp2 erfc erfinv "
        "logit sinc tan asin acos atan atan2 sinh cosh asinh acosh atanh ceil floor round trunc frac lgamma digamma "
        "softmin sparsemax gumbel_softmax normalize instance_norm native_batch_norm native_group_norm cosine_similarity "
        "cdist min median mode quantile std_mean",
        Trait.NONLINEAR,
    ),
    *_kernels(
        "LayerNorm RMSNorm native_layer_norm fused_layer_norm fused_layer_norm_affine fast_layer_norm FusedLayerNorm "
        "layer_norm_fn fused_rms_norm fused_rms_norm_affine _fused_rms_norm FusedRMSNorm rms_norm_fn",
        Trait.NORMALISATION,
    ),
    *_kernels("cross_entropy_loss softmax_cross_entropy", Trait.CLASS_LOSS, Trait.NONLINEAR),
    *_kernels("argmin", Trait.CHOICE, Trait.NONLINEAR, dimension=(0, None)),
    *_kernels("sort", Trait.CHOICE, Trait.NONLINEAR, dimension=(0, -1)),
    *_kernels("kthvalue", Trait.CHOICE, Trait.NONLINEAR, dimension=(1, -1)),
    *_kernels("cumprod cummax cummin logcumsumexp", Trait.SCAN, Trait.NONLINEAR, dimension=(0, None)),
    *_kernels("causal_conv1d causal_conv1d_fn convolution depthwise_conv1d", Trait.CONVOLUTION),
    *_kernels(
        "selective_scan selective_scan_fn mamba_chunk_scan_combined mamba_split_conv1d_scan_combined chunk_scan "
        "ssd_chunk_scan associative_scan parallel_scan linear_scan chunk_gated_delta_rule "
        "fused_recurrent_gated_delta_rule chunk_delta_rule chunk_gla",
        Trait.RECURRENCE,
    ),
    *_kernels(
        "expert_mlp expert_ffn expert_linear experts moe_experts moe_mlp moe_ffn grouped_mlp GroupedMLP TEGroupedMLP "
        "SequentialMLP fused_experts fused_moe grouped_gemm gmm grouped_mm _grouped_mm",
        Trait.EXPERTS,
    ),
    *_kernels("permute_tokens moe_permute token_permute dispatch_tokens token_dispatch", Trait.TOKEN_DISPATCH),
    *_kernels("unpermute unpermute_tokens moe_unpermute token_unpermute combine_tokens token_combine", Trait.TOKEN_COMBINE),
    *_kernels("gather_target gather_targets target_gather masked_target_gather", Trait.MASKED_LOOKUP),
    *_kernels("absmax abs_max maxabs max_abs compute_amax tensor_amax", Trait.NONLINEAR, Trait.PEAK),
    *_kernels(
        "quantize quantize_fp8 quantize_to_fp8 fp8_quantize quantize_float8 quantize_int8 quantize_per_tensor "
        "quantize_per_channel quantize_mxfp8 to_fp8 to_float8 cast_to_fp8 cast_to_float8 cast_to_f8",
        Trait.QUANTISATION,
    ),
    *_kernels(
        "dequantize dequantize_fp8 dequantize_from_fp8 fp8_dequantize dequantize_float8 dequantize_int8 dequantize_per_tensor "
        "dequantize_per_channel dequantize_mxfp8 from_fp8 from_float8 cast_from_fp8 cast_from_float8 cast_from_f8",
        Trait.DEQUANTISATION,
    ),
    *_kernels(
        "compute_scale update_scale set_scale amax_to_scale scale_from_amax compute_scaling_factor update_amax_and_scale",
        Trait.SCALE,
    ),
    *_kernels(
        "cast convert cast_to cast_to_fp32 cast_to_bf16 cast_to_fp16 cast_to_float32 cast_to_bfloat16 cast_to_float16 "
        "_cast_Float _cast_Half convert_element_type type",
        Trait.CONVERSION,
    ),
    *_kernels("fp8_linear fp8_gemm scaled_mm _scaled_mm", Trait.CONTRACTION),
)

_EXCHANGES = (
    "all_reduce allreduce all_reduce_ all_reduce_coalesced all_gather allgather all_gather_coalesced all_gather_object "
    "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_tensor _all_gather_base reduce_scatter reducescatter "
    "reduce_scatter_tensor reduce_scatter_tensor_coalesced _reduce_scatter_base all_to_all alltoall all_to_all_single "
    "broadcast_coalesced broadcast_object_list scatter_object_list gather_object monitored_barrier isend irecv "
    "batch_isend_irecv send_object_list recv_object_list send_forward recv_forward send_backward recv_backward "
    "send_forward_recv_backward send_backward_recv_forward finalize_model_grads allreduce_gradients"
)
_EXCHANGES_OF_A_LIBRARY = "broadcast reduce scatter gather barrier send recv"
_LIBRARIES = "dist distributed distributed_c10d c10d _c10d_functional nccl hccl"


def communicates(op: str) -> bool:
    """Return whether the function exchanges values between ranks, or stands for one that does where it names no module."""
    *modules, name = op.split(".")
    return name in _EXCHANGES.split() or (
        name in _EXCHANGES_OF_A_LIBRARY.split() and (not modules or modules[-1] in _LIBRARIES.split())
    )
