"""The settings of nnScaler's `ComputeConfig`, `pas_config` and trainer arguments, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.configuration import SettingValue

COMPUTE: Mapping[str, SettingValue] = {
    "plan_ngpus": None,
    "runtime_ngpus": None,
    "constant_folding": False,
    "trace_strategy": "cuda_run_cpu_offload",
    "use_zero": False,
    "zero_ngroups": 1,
    "zero_use_reduce_scatter": False,
    "inference_only": False,
    "use_end2end": False,
    "use_async_reducer": False,
    "reducer_bucket_cap_mb": None,
    "pas_config": None,
    "user_config": None,
    "zero_param_level_sharding": False,
    "use_fbw": False,
    "use_async_comm": False,
    "reducer_replicated_params": False,
    "reducer_none_grad": False,
}
"""The fields of `ComputeConfig` (nnscaler/parallel.py:71); the last five came with 0.9."""

EARLY_COMPUTE: Mapping[str, SettingValue] = {
    "dynamic_shape": True,
    "reuse_module": False,
    "use_pipeline": False,
    "pipeline_nmicros": None,
    "pipeline_nstages": None,
    "pipeline_scheduler": "1f1b",
}
"""Fields that only releases before 0.4 have."""

POLICY: Mapping[str, SettingValue] = {
    "pipeline_nmicros": None,
    "pipeline_nstages": "auto",
    "pipeline_scheduler": "1f1b",
    "pp_size": None,
    "pipeline_pivots": None,
    "max_partition_degree": None,
    "load_plan_path": None,
    "save_plan_path": None,
    "partition_constraints_path": None,
    "recompute_modules": None,
    "mem_constraint": -1,
    "max_pipeline_bubble_ratio": 0.2,
    "max_pipeline_unbalance_ratio": 0.5,
    "update_freq": 1,
    "use_fp16": False,
    "use_bf16": False,
}
"""What rules ask about of `pas_config`, as the shipped policies read it (nnscaler/policies.py:221)."""

FURTHER_POLICY = frozenset(
    {
        *("constraints", "constraints_path", "disable_shared_param_constraint", "enable_random_replicated"),
        *("explore_pipeline", "fixed_partition_descs", "max_pipeline_stages", "mesh_col", "parallel_profile", "pipeline_size"),
        *("pipeline_multiref_replicated_params", "profile_dir", "re_profile", "recompute_ratio", "recomputes", "seed"),
        *("solver", "task_name", "transient_mem_coef", "use_apex_fused_adam_v2", "use_memory_efficient_bf16"),
        *("use_memory_efficient_fp16", "verbose"),
    }
)
"""What else some release's shipped policies read of `pas_config`."""

SHIPPED = frozenset({"autodist", "dp", "tp", "pp", "data", "hybrid"})
"""The policies that come with nnScaler (nnscaler/policies.py)."""

TRAINER: Mapping[str, SettingValue] = {
    "pas_policy": "autodist",
    "micro_batch_size": 1,
    "global_batch_size": None,
    "grad_accumulation_steps": None,
    "max_epochs": None,
    "max_train_steps": None,
    "run_mode": "run",
    "gen_reuse": "auto",
    "broadcast_strategy": "all",
    "precision": None,
    "seed": None,
    "init_env_fn": None,
}
"""The scalar trainer arguments that rules ask about (nnscaler/cli/trainer_args.py:560)."""

TRAINER_FIELDS = frozenset(TRAINER) | {
    *("init_module", "vars", "compute_config", "gen_savedir", "instance_name", "dummy_sample_gen_fn"),
    *("dummy_sample_post_process_fn", "tracing_from_weights", "model", "optimizer", "dataset", "dataloader", "dataset_sampler"),
    *("lr_scheduler", "checkpoint", "log", "hook", "debug", "max_val_steps", "val_every_n_train_steps", "val_every_n_epochs"),
    *("enable_progress_bar", "log_progress_every_n_train_steps"),
}
"""Every argument of the trainer in some release; it refuses all others."""

NESTED: Mapping[str, SettingValue] = {
    "checkpoint_save_type": "sharded",
    "checkpoint_every_n_epochs": None,
    "checkpoint_every_n_train_steps": None,
    "checkpoint_keep_last_n_checkpoints": None,
    "optimizer_grad_reduction": "mean",
    "optimizer_loss_reduction": "mean",
    "optimizer_aggregate_outputs_fn": None,
    "checkpoint_no_save": False,
    "dataloader_batch_size": None,
    "dataloader_type": "torch.utils.data.DataLoader",
    "dataset_sampler_type": "torch.utils.data.DistributedSampler",
    "dataset_type": None,
    "lr_scheduler_interval": "epoch",
    "lr_scheduler_type": None,
    "model_type": None,
    "optimizer_type": None,
}
"""Trainer arguments of a section, under `section_name`."""

SAVED_PLAN: Mapping[str, SettingValue] = {"saved_plan_devices": None, "saved_plan_stages": None}
"""What the plan that `load_plan_path` names says of itself."""

DEFAULTS: Mapping[str, SettingValue] = {**EARLY_COMPUTE, **COMPUTE, **POLICY, **TRAINER, **NESTED, **SAVED_PLAN}
"""Every setting by its canonical name."""
