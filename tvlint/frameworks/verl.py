"""The settings of verl's trainer beside those of Megatron core that rules ask about, and where its configuration has them."""

from __future__ import annotations

from collections.abc import Mapping

PLACES: Mapping[str, str] = {
    "train_batch_size": "data.train_batch_size",
    "rollout_n": "actor_rollout_ref.rollout.n",
    "actor_strategy": "actor_rollout_ref.actor.strategy",
    "use_dynamic_bsz": "actor_rollout_ref.actor.use_dynamic_bsz",
    "ulysses_sequence_parallel_size": "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "use_legacy_worker_impl": "trainer.use_legacy_worker_impl",
    "ppo_mini_batch_size": "actor_rollout_ref.actor.ppo_mini_batch_size",
    "ppo_micro_batch_size": "actor_rollout_ref.actor.ppo_micro_batch_size",
    "ppo_micro_batch_size_per_gpu": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
}
"""Setting -> path in the configuration."""
PACKAGED: Mapping[str, bool] = {"use_dynamic_bsz": False}
"""The same in the configurations of every release (v0.1 to v0.7, verl/trainer/config)."""

TRAINER = "verl.trainer.main_ppo"
"""The program that checks these settings; others that take the same configuration check what they like."""

KL = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "full")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "algorithm.adv_estimator": (
        *("gae", "grpo", "grpo_passk", "grpo_vectorized", "gpg", "opo", "remax", "rloo", "rloo_vectorized"),
        *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "optimal_token_baseline", "tir_optimal_token_baseline"),
    ),
    "algorithm.kl_penalty": KL,
    "actor_rollout_ref.actor.kl_loss_type": KL,
    "actor_rollout_ref.actor.loss_agg_mode": ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"),
    "actor_rollout_ref.actor.strategy": ("fsdp", "fsdp2", "megatron", "veomni", "torchtitan"),
    "actor_rollout_ref.rollout.name": ("vllm", "sglang", "trtllm", "hf", "naive"),
    "critic.strategy": ("fsdp", "fsdp2", "megatron", "veomni", "torchtitan"),
    "data.truncation": ("left", "right", "middle", "error"),
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
}
"""What settings of verl take by its own code, to which projects add more (verl/trainer/ppo/core_algos.py, v0.7)."""
