"""Settings that follow from others, each written once, in the expression language.

A derived name shadows nothing: no option has it (a test asserts that). Sources are Megatron-LM's, where it computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping

DERIVED: Mapping[str, str] = {
    # megatron/training/arguments.py:423 (the weight-shard axis of generalised tensor parallelism counts as a factor)
    "weight_shards": "1 if tensor_parallel_num_weight_shards == none"
    " else exact(tensor_parallel_num_weight_shards, tensor_model_parallel_size)",
    "dense_grid_size": "tensor_model_parallel_size * pipeline_model_parallel_size * context_parallel_size * weight_shards",
    # megatron/training/arguments.py:588
    "effective_expert_tensor_parallel_size": "default(expert_tensor_parallel_size, tensor_model_parallel_size)",
    # megatron/core/parallel_state.py:870
    "expert_weight_shards": "1 if expert_tensor_parallel_num_weight_shards == none"
    " else exact(expert_tensor_parallel_num_weight_shards, effective_expert_tensor_parallel_size)",
    "expert_grid_size": "effective_expert_tensor_parallel_size * expert_model_parallel_size"
    " * pipeline_model_parallel_size * expert_weight_shards",
    "minimum_world_size": "lcm(dense_grid_size, expert_grid_size)",
    # megatron/training/arguments.py:454; the ranks over which a batch is split, weight shards among them
    "data_parallel_size": "exact(world_size, dense_grid_size) * weight_shards",
    "expert_data_parallel_size": "exact(world_size, expert_grid_size)",
    # megatron/arguments.py:65, before core 0.9: sizes above the number of ranks are cut to it
    "cut_tensor_size": "min(tensor_model_parallel_size, world_size)",
    "cut_pipeline_size": "min(pipeline_model_parallel_size, world_size // cut_tensor_size)",
    "cut_grid_size": "cut_tensor_size * cut_pipeline_size * context_parallel_size",
    # megatron/training/arguments.py:703
    "batch_per_step": "micro_batch_size * data_parallel_size",
    "effective_global_batch_size": "default(global_batch_size, batch_per_step)",
    "micro_batches": "exact(effective_global_batch_size, batch_per_step)",
    "scheduled_batch_sizes": "batch_schedule_sizes(step_batch_size_schedule) if step_batch_size_schedule != none"
    " else ramp_sizes(rampup_batch_size, global_batch_size) if rampup_batch_size != none else none",
    # megatron/training/argument_utils.py:331
    "effective_query_groups": "num_query_groups if group_query_attention else num_attention_heads",
    # megatron/training/arguments.py:940-996
    "has_uneven_split": "decoder_first_pipeline_num_layers != none or decoder_last_pipeline_num_layers != none",
    "middle_removed": "(1 if decoder_first_pipeline_num_layers != none else 0)"
    " + (1 if decoder_last_pipeline_num_layers != none else 0)",
    "middle_layers": "default(num_layers, encoder_num_layers) - default(decoder_first_pipeline_num_layers, 0)"
    " - default(decoder_last_pipeline_num_layers, 0)",
    "layers_to_split": "default(num_layers, decoder_num_layers) + (1 if account_for_embedding_in_pipeline_split else 0)"
    " + (1 if account_for_loss_in_pipeline_split else 0)",
    "virtual_stages": "exact(layout_stages(pipeline_model_parallel_layout), pipeline_model_parallel_size)"
    " if pipeline_model_parallel_layout != none"
    " else num_virtual_stages_per_pipeline_rank if num_virtual_stages_per_pipeline_rank != none"
    " else exact(exact(layers_to_split, pipeline_model_parallel_size), num_layers_per_virtual_pipeline_stage)"
    " if num_layers_per_virtual_pipeline_stage != none else 1",
    "interleaved": "hybrid_layer_pattern == none and virtual_stages > 1",
    # what each virtual pipeline stage holds, in model order, in the letters of layouts
    "stage_layouts": "hybrid_stages(hybrid_layer_pattern, pipeline_model_parallel_size,"
    " decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers) if hybrid_layer_pattern != none"
    " else layout_list(pipeline_model_parallel_layout) if pipeline_model_parallel_layout != none"
    " else split_layers(num_layers, pipeline_model_parallel_size, virtual_stages,"
    " decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers,"
    " account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split, default(mtp_num_layers, 0))",
    # megatron/training/initialize.py:395, fastest axis first
    "rank_order": "'tp-cp-ep-pp-dp' if use_tp_pp_dp_mapping else 'tp-cp-ep-dp-pp'",
    # megatron/core/model_parallel_config.py:600: the group of micro-batches that one virtual stage runs in a row
    "micro_batch_group": "default(microbatch_group_size_per_vp_stage, pipeline_model_parallel_size)",
    # megatron/training/arguments.py:1318
    "effective_ffn_hidden_size": "ffn_hidden_size if ffn_hidden_size != none"
    " else 8 * hidden_size // 192 * 64 if swiglu else 4 * hidden_size",
    # megatron/training/arguments.py:608
    "effective_recompute_granularity": "'selective' if recompute_activations else recompute_granularity",
    "effective_kv_channels": "default(kv_channels, exact(hidden_size, num_attention_heads))",
    # megatron/training/arguments.py:1206: bf16 accumulates and reduces in fp32 by default
    "gradient_dtype": "('bf16' if grad_reduce_in_bf16"
    " or (not accumulate_allreduce_grads_in_fp32 and main_grads_dtype != 'fp32') else 'fp32') if bf16 else ('fp32'"
    " if accumulate_allreduce_grads_in_fp32 else 'fp16') if fp16 else 'fp32'",
    # slime/backends/megatron_utils/model.py:203 makes iterations of its rollouts
    "trains": "set(train_iters) or set(train_samples) or set(num_rollout)",
    "has_experts": "num_experts != none and num_experts > 0",
    # megatron/core/models/gpt/gpt_layer_specs.py:643
    "layers_with_experts": "expert_layers(moe_layer_freq, num_layers) if has_experts else none",
    # attention keeps its scores unless it is fused; Megatron picks a fused one where nothing forbids it
    "keeps_attention_scores": "not use_flash_attn and (transformer_impl == 'local'"
    " or (set(attention_backend) and text(attention_backend) in ['unfused', 'local']))",
    # torchtitan torchtitan/distributed/parallel_dims.py:180
    "degrees_besides_sharding": "data_parallel_replicate_degree * tensor_parallel_degree * pipeline_parallel_degree"
    " * context_parallel_degree",
    # gpt-neox megatron/neox_arguments/arguments.py:919: a pipeline of size 0 is none, and takes no more ranks than one of 1
    "neox_grid_size": "max(pipe_parallel_size, 1) * max(model_parallel_size, 1)",
    "neox_data_parallel_size": "exact(world_size, neox_grid_size)",
    # nnscaler/cli/trainer_args.py:821: how many copies of the plan run beside one another
    "scale_units": "exact(runtime_ngpus, plan_ngpus)",
    # nnscaler/cli/trainer_args.py:660
    "update_frequency": "exact(exact(global_batch_size, micro_batch_size), scale_units) if global_batch_size != none"
    " else default(grad_accumulation_steps, 1)",
    # nnscaler/policies.py:176
    "plan_stages": "plan_ngpus if text(default(pipeline_nstages, 'auto')) == 'auto' else pipeline_nstages",
    "plan_pipeline_groups": "default(pp_size, plan_stages)",
    # megatron/core/tokenizers/utils/build_tokenizer.py:133: the vocabulary is padded to this multiple
    "vocabulary_multiple": "make_vocab_size_divisible_by * tensor_model_parallel_size",
    "padded_vocabulary": "padded_vocab_size if set(padded_vocab_size) else multiple_above(vocab_size, vocabulary_multiple)",
}
"""Derived name -> expression over settings and other derived names."""

SIZES_OF_MODEL = frozenset(
    {
        "num_layers",
        "encoder_num_layers",
        "hidden_size",
        "num_attention_heads",
        "hybrid_layer_pattern",
        "hybrid_override_pattern",
        "heterogeneous_layers_config_path",
        "heterogeneous_layers_config_encoded_json",
        "yaml_cfg",
    }
)
"""Megatron's parser needs one of these of each model: a program that is given none has the model from elsewhere, by a name."""

KEPT_FROM_CHECKPOINT = frozenset(
    {
        "num_layers",
        "hidden_size",
        "ffn_hidden_size",
        "seq_length",
        "num_attention_heads",
        "kv_channels",
        "max_position_embeddings",
        "moe_token_dispatcher_type",
        "hybrid_layer_pattern",
        "padded_vocab_size",
        "ckpt_format",
    }
)
"""What `--use-checkpoint-args` takes from the checkpoint where it is not given (megatron/training/checkpointing.py:2272)."""

TAKEN_FROM_CHECKPOINT = frozenset(
    {
        "num_query_groups",
        "group_query_attention",
        "position_embedding_type",
        "add_position_embedding",
        "use_rotary_position_embeddings",
        "rotary_base",
        "rotary_percent",
        "rotary_interleaved",
        "add_bias_linear",
        "add_qkv_bias",
        "squared_relu",
        "swiglu",
        "untie_embeddings_and_output_weights",
        "normalization",
        "apply_query_key_layer_scaling",
        "attention_dropout",
        "hidden_dropout",
        "mtp_hybrid_override_pattern",
        "mtp_num_layers",
        "mtp_use_repeated_layer",
        "spec",
        "num_experts",
        "moe_layer_freq",
        "moe_ffn_hidden_size",
        "moe_router_topk",
        "moe_router_pre_softmax",
        "moe_grouped_gemm",
        "moe_single_grouped_weight",
        "moe_single_grouped_bias",
        "moe_shared_expert_intermediate_size",
        "moe_router_score_function",
        "moe_router_enable_expert_bias",
        "moe_router_topk_scaling_factor",
        "mamba_state_dim",
        "mamba_head_dim",
        "mamba_num_groups",
        "mamba_num_heads",
        "gdp_num_householder",
        "heterogeneous_layers_config_path",
        "heterogeneous_layers_config_encoded_json",
        "moe_latent_size",
        "tokenizer_model",
        "tokenizer_type",
        "tiktoken_pattern",
    }
)
"""What `--use-checkpoint-args` replaces even where it is given (megatron/training/checkpointing.py:2277-2348)."""

GRID_FROM_CHECKPOINT = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
        "expert_model_parallel_size",
    }
)
"""What `--use-mp-args-from-checkpoint-args` adds to that (megatron/training/checkpointing.py:2355)."""
