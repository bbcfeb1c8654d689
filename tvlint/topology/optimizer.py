"""Bytes of weights, gradients and optimizer state for one parameter on a rank.

The source is docs/user-guide/features/dist_optimizer.md of Megatron-LM: with Adam, 18 bytes for bf16 parameters and fp32
gradients, 6 + 12/d of them with the distributed optimizer over d ranks. Its rows are the sums that `Precision` takes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tvlint.ir.configuration import Unknown
from tvlint.topology.quantity import Settings, Undecided

SOURCE = "Megatron-LM docs/user-guide/features/dist_optimizer.md; d is the size of the dp-cp group (experts: expert-dp)"
_BYTES = {
    "fp32": 4, "float32": 4, "float": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "half": 2, "fp8": 1, "uint8": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes a parameter: what every rank holds (`weight`, `gradient`) and what the distributed optimizer splits (`state`).

    `state` is the main copy of the weight, its gradient where that is another, and the moments.
    """

    name: str
    weight: int
    gradient: int
    state: int
    distributed: bool
    instances: int = 1
    """Into how many parts the data-parallel ranks fall, each of which holds the whole optimizer state."""
    offloaded: Fraction = Fraction(0)
    """The part of the parameters whose state lies in the memory of the host."""

    def formula(self) -> str:
        """`6 + 12/d`, or the sum without the distributed optimizer."""
        held = self.weight + self.gradient
        if self.offloaded == 1:
            return str(held)
        state = self.state * (1 - self.offloaded)
        return f"{held} + {float(state):g}/d" if self.distributed else f"{float(held + state):g}"


def precision(settings: Settings) -> Precision:
    """Return the bytes as the settings choose them; raises `Undecided` for optimizers whose state this does not count."""
    sharding = settings.any_of("use_megatron_fsdp", "use_torch_fsdp2")
    if sharding is not None:
        raise Undecided(Unknown(f"`{sharding}` places parameters and state in ways that this formula does not cover"))
    optimizer = settings.text("optimizer")
    if optimizer != "adam":
        raise Undecided(Unknown(f"the formula is for Adam, not for `{optimizer}`"))
    name = "bf16" if settings.flag("bf16") else "fp16" if settings.flag("fp16") else "fp32"
    distributed = settings.flag("use_distributed_optimizer")
    instances = settings.count("num_distributed_optimizer_instances", 1) if distributed else 1
    weight = 1 if settings.flag("fp8_param_gather") and name != "fp32" else _BYTES[name]
    gradient = 4 if _gradients_in_fp32(settings, name) else _BYTES[name]
    if settings.flag("use_precision_aware_optimizer"):
        gradient = _bytes(settings, "main_grads_dtype")
        moments = _bytes(settings, "exp_avg_dtype") + _bytes(settings, "exp_avg_sq_dtype")
        state = _bytes(settings, "main_params_dtype") + moments
        return Precision(name, weight, gradient, state, distributed, instances, _offloaded(settings))
    main = 0 if name == "fp32" else 4
    copied_gradient = 0 if gradient == 4 else 4
    return Precision(name, weight, gradient, main + copied_gradient + 8, distributed, instances, _offloaded(settings))


def _offloaded(settings: Settings) -> Fraction:
    """Return the part of the parameters that the host updates.

    The source is megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py:258.
    """
    if not settings.flag("optimizer_cpu_offload"):
        return Fraction(0)
    part = settings.number("optimizer_offload_fraction")
    if not 0 <= part <= 1:
        raise Undecided(Unknown(f"`optimizer_offload_fraction` is {part}, not between 0 and 1"))
    return Fraction(part).limit_denominator(10_000)


def _gradients_in_fp32(settings: Settings, name: str) -> bool:
    """Return whether gradients are accumulated in fp32; bf16 does so by default
    (megatron/training/arguments.py:1206).
    """
    if name == "fp32":
        return True
    if name == "bf16" and settings.flag("grad_reduce_in_bf16"):
        return False
    if settings.flag("accumulate_allreduce_grads_in_fp32"):
        return True
    return name == "bf16" and _bytes(settings, "main_grads_dtype") == 4


def _bytes(settings: Settings, name: str) -> int:
    written = settings.text(name).removeprefix("torch.")
    size = _BYTES.get(written)
    if size is None:
        raise Undecided(Unknown(f"`{name}` is `{written[:40]}`, no known type"))
    return size
