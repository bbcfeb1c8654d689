"""The fields of the training arguments of Hugging Face's transformers, which its parser makes options."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tvlint.frameworks.megatron import Option

PARSER = frozenset({"transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser", "trl.TrlParser"})
"""What makes options of the fields of classes; trl's takes them from a file too."""
CLASSES = frozenset(
    {
        *("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"),
        *("transformers.training_args.TrainingArguments", "transformers.training_args_seq2seq.Seq2SeqTrainingArguments"),
    }
)
"""Classes that have these fields, and others in other versions."""
_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "truth": (
        *("adafactor", "auto_find_batch_size", "average_tokens_across_devices", "batch_eval_metrics", "bf16", "bf16_full_eval"),
        *("activation_checkpointing", "dataloader_drop_last", "dataloader_in_order", "dataloader_persistent_workers"),
        *("dataloader_pin_memory", "ddp_broadcast_buffers", "ddp_find_unused_parameters", "ddp_static_graph", "disable_tqdm"),
        *("dispatch_batches", "do_eval", "do_predict", "do_train", "enable_jit_checkpoint", "eval_do_concat_batches"),
        *("eval_on_start", "eval_use_gather_object", "fp16", "fp16_full_eval", "full_determinism", "gradient_checkpointing"),
        *("greater_is_better", "group_by_length", "hub_always_push", "hub_private_repo", "ignore_data_skip"),
        *("include_inputs_for_metrics", "include_tokens_per_second", "jit_mode_eval", "load_best_model_at_end"),
        *("log_on_each_node", "logging_first_step", "logging_nan_inf_filter", "no_cuda", "overwrite_output_dir"),
        *("predict_with_generate", "prediction_loss_only", "push_to_hub", "remove_unused_columns"),
        *("restore_callback_states_from_checkpoint", "save_on_each_node", "save_only_model", "save_safetensors"),
        *("skip_memory_metrics", "sortish_sampler", "split_batches", "tf32", "torch_compile", "tpu_metrics_debug", "use_cache"),
        *("use_cpu", "use_ipex", "use_legacy_prediction_loop", "use_liger_kernel", "use_mps_device"),
    ),
    "int": (
        *("_n_gpu", "data_seed", "dataloader_num_workers", "dataloader_prefetch_factor", "ddp_bucket_cap_mb", "ddp_timeout"),
        *("eval_accumulation_steps", "fsdp_min_num_params", "generation_max_length", "generation_num_beams"),
        *("gradient_accumulation_steps", "local_rank", "max_steps", "past_index", "per_device_eval_batch_size"),
        *("per_device_train_batch_size", "per_gpu_eval_batch_size", "per_gpu_train_batch_size", "save_total_limit", "seed"),
        *("torch_empty_cache_steps", "tpu_num_cores"),
    ),
    "float": (
        *("adam_beta1", "adam_beta2", "adam_epsilon", "eval_delay", "eval_steps", "label_smoothing_factor", "learning_rate"),
        *("logging_steps", "max_grad_norm", "neftune_noise_alpha", "num_train_epochs", "save_steps", "warmup_ratio"),
        *("warmup_steps", "weight_decay"),
    ),
    "str": (
        *("ddp_backend", "eval_strategy", "evaluation_strategy", "fp16_backend", "fp16_opt_level", "half_precision_backend"),
        *("hub_model_id", "hub_revision", "hub_strategy", "hub_token", "length_column_name", "log_level", "log_level_replica"),
        *("logging_dir", "logging_strategy", "lr_scheduler_type", "metric_for_best_model", "optim", "optim_args", "output_dir"),
        *("project", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token", "ray_scope"),
        *("resume_from_checkpoint", "run_name", "save_strategy", "torch_compile_backend", "torch_compile_mode", "torchdynamo"),
        *("train_sampling_strategy", "trackio_bucket_id", "trackio_space_id", "xpu_backend"),
    ),
    "other": (
        *("accelerator_config", "activation_checkpointing_kwargs", "dataloader_multiprocessing_context", "debug", "deepspeed"),
        *("fsdp", "fsdp_config", "fsdp_transformer_layer_cls_to_wrap", "generation_config", "gradient_checkpointing_kwargs"),
        *("include_for_metrics", "include_num_input_tokens_seen", "label_names", "liger_kernel_config", "lr_scheduler_kwargs"),
        *("mp_parameters", "optim_target_modules", "parallelism_config", "report_to", "sharded_ddp", "trackio_static_space_id"),
    ),
}
FIELDS: Mapping[str, str] = {name: kind for kind, names in _OF_TYPES.items() for name in names}
"""Each field of the versions 4.28 to 5.24 (transformers/training_args.py, training_args_seq2seq.py), with the type of its
value, the wider one where versions differ; `truth` is whether something is on, in words."""
_STRATEGY = ("no", "steps", "epoch")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "lr_scheduler_type": (
        *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"),
        *("reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "greedy"),
    ),
    "eval_strategy": _STRATEGY,
    "evaluation_strategy": _STRATEGY,
    "logging_strategy": _STRATEGY,
    "save_strategy": (*_STRATEGY, "best"),
}
"""What fields take of a few words, by any of those versions (transformers/trainer_utils.py)."""


@cache
def options() -> Mapping[str, Option]:
    """Return the fields as options: whether something is on may stand without a word after it."""
    many = ("truth", "other")
    return {
        name: Option(name, (), "store", kind, "*" if kind in many else None, CHOICES.get(name, ()), None if kind in many else 1)
        for name, kind in FIELDS.items()
    }


def field_option(name: str, kind: str, arity: str | None, choices: tuple[str | int | float, ...]) -> Option:
    """Return the option that the parser of transformers makes of a field."""
    flags = (f"--{name}", f"--{name.replace('_', '-')}")
    negated = (f"--no_{name}", f"--no-{name.replace('_', '-')}") if kind == "truth" else ()
    return Option(name, tuple(dict.fromkeys((*flags, *negated))), "store", kind, "*" if kind == "truth" else arity, choices)
