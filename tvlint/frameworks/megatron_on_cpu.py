"""What of Megatron's arguments cannot be as it is where one training step runs on CPUs, and in a single-device reference."""

from __future__ import annotations

from collections.abc import Mapping

ON_CPU: Mapping[str, object] = {
    "transformer_impl": "local", "attention_backend": "unfused", "distributed_backend": "gloo",
    "masked_softmax_fusion": False, "bias_gelu_fusion": False, "bias_swiglu_fusion": False, "bias_dropout_fusion": False,
    "apply_rope_fusion": False, "gradient_accumulation_fusion": False, "cross_entropy_loss_fusion": False,
    "moe_grouped_gemm": False, "moe_permute_fusion": False, "moe_router_fusion": False, "use_flash_attn": False,
    "tp_comm_overlap": False, "overlap_moe_expert_parallel_comm": False, "defer_embedding_wgrad_compute": False,
    "delay_wgrad_compute": False,
    "bf16": False, "fp16": False, "fp8": None, "fp4": None, "fp8_param_gather": False, "use_precision_aware_optimizer": False,
    "cpu_offloading_num_layers": 0, "optimizer_cpu_offload": False, "fine_grained_activation_offloading": False,
    "enable_cuda_graph": False, "external_cuda_graph": False, "cuda_graph_impl": "none", "deterministic_mode": False,
    "nccl_ub": False, "use_sharp": False, "te_rng_tracker": False,
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "moe_input_jitter_eps": None,
}  # fmt: skip
"""Arguments that need a GPU, or chance, by what they are replaced with."""

VARIABLES_ON_CPU: Mapping[str, str | None] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVTE_FLASH_ATTN": None, "NVTE_FUSED_ATTN": None, "NVTE_UNFUSED_ATTN": None,
}  # fmt: skip
"""Variables that Megatron compares with the GPU that runs it, or with `attention_backend`, by what they are on a CPU."""

OF_A_MICRO_BATCH: Mapping[str, object] = {
    "moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0, "moe_expert_capacity_factor": None,
    "moe_pad_expert_input_to_capacity": False,
}  # fmt: skip
"""Arguments that make what becomes of a token depend on the others that a rank has with it: no other cut of the batch, as
that of a single-device reference, computes the same."""

OUTSIDE_THE_STEP: Mapping[str, object] = {
    "use_cpu_initialization": True, "no_persist_layer_norm": True, "create_attention_mask_in_dataloader": False,
    "mock_data": True, "data_path": None, "train_data_path": None, "valid_data_path": None, "test_data_path": None,
    "data_args_path": None, "data_cache_path": None, "per_split_data_args_path": None, "fim_data": False, "sft": False,
    "num_workers": 0,
    "tokenizer_type": "NullTokenizer", "tokenizer_model": None, "vocab_file": None, "merge_file": None, "vocab_extra_ids": 0,
    "save": None, "load": None, "pretrained_checkpoint": None, "ckpt_convert_format": None, "use_checkpoint_args": False,
    "finetune": False, "exit_on_missing_checkpoint": False, "async_save": False, "use_persistent_ckpt_worker": False,
    "non_persistent_ckpt_type": None, "non_persistent_save_interval": None, "save_interval": None,
    "tensorboard_dir": None, "wandb_project": None, "enable_one_logger": False, "log_straggler": False, "log_energy": False,
    "profile": False, "enable_ft_package": False, "inprocess_restart": False, "rerun_mode": "disabled", "manual_gc": False,
    "eval_iters": 0, "full_validation": False, "rampup_batch_size": None, "exit_duration_in_mins": None,
    "train_samples": None, "lr_decay_samples": None, "lr_warmup_samples": 0, "train_iters": 2, "lr_warmup_iters": 0,
    "lr_warmup_fraction": None, "lr_decay_iters": None, "check_for_nan_in_loss_and_grad": False, "yaml_cfg": None,
}  # fmt: skip
"""Arguments about data, tokenizers, checkpoints and logs, by what they are while one step runs."""

OF_REFERENCE: Mapping[str, object] = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
    "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1, "sequence_parallel": False,
    "num_layers_per_virtual_pipeline_stage": None, "num_virtual_stages_per_pipeline_rank": None,
    "pipeline_model_parallel_layout": None, "microbatch_group_size_per_vp_stage": None,
    "overlap_p2p_comm_warmup_flush": False,
    "decoder_first_pipeline_num_layers": None, "decoder_last_pipeline_num_layers": None,
    "account_for_embedding_in_pipeline_split": False, "account_for_loss_in_pipeline_split": False,
    "use_distributed_optimizer": False, "overlap_grad_reduce": False, "overlap_param_gather": False,
    "overlap_param_gather_with_optimizer_step": False, "num_distributed_optimizer_instances": 1,
    "ddp_average_in_collective": False, "use_torch_fsdp2": False, "use_megatron_fsdp": False,
    "recompute_granularity": None, "recompute_method": None,
    "recompute_num_layers": None, "distribute_saved_activations": False,
    "hierarchical_context_parallel_sizes": None, "use_tp_pp_dp_mapping": False,
}  # fmt: skip
"""Arguments of the parallel program, by what they are in its single-device reference."""
