"""Configurations of Hugging Face's accelerate, as `accelerate launch --config_file` takes them: what it refuses of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.megatron import Option
from tvlint.ir.configuration import Setting
from tvlint.ir.patterns import Pattern
from tvlint.near_names import has_same_words, is_a_slip
from tvlint.readers.megatron.option_ranges import out_of_range
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlScalar

TELLING = frozenset({"compute_environment", "distributed_type"})
"""Keys that each such file has, and no other one."""
KEYS = frozenset(
    {
        *("command_file", "commands", "compute_environment", "debug", "deepspeed_config", "distributed_type", "downcast_bf16"),
        *("dynamo_backend", "dynamo_config", "enable_cpu_affinity", "fp16", "fp8_config", "fsdp_config", "gpu_ids"),
        *("ipex_config", "machine_rank", "main_process_ip", "main_process_port", "main_training_function"),
        *("megatron_lm_config", "mixed_precision", "mpirun_config", "num_machines", "num_processes", "parallelism_config"),
        *("rdzv_backend", "same_network", "tpu_env", "tpu_name", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_zone"),
        *("use_cpu",),
    }
)
"""What releases up to 1.14 take (accelerate/commands/config/config_args.py); others stop the launch."""
_DEVICES = ("none", "cpu", "nvme")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "mixed_precision": ("no", "fp16", "bf16", "fp8"),
    "distributed_type": (
        *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU"),
        *("MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "TPU", "MEGATRON_LM", "DATA_PARALLEL", "MODEL_PARALLEL"),
    ),
    "deepspeed_config.offload_optimizer_device": _DEVICES,
    "deepspeed_config.offload_param_device": _DEVICES,
}
"""What settings take of a few words (accelerate/utils/dataclasses.py)."""
PLAIN = Pattern(r"\w{1,40}")
LONGEST = 80


def mistakes(root: YamlMapping) -> Iterator[Finding]:
    """Yield what accelerate refuses of the file: keys a slip away from its own, and values that it does not take."""
    given = {key.text for key, _ in root.entries if isinstance(key, YamlScalar)}
    for key, node in root.entries:
        if not isinstance(key, YamlScalar):
            continue
        near = [name for name in KEYS - given if is_a_slip(key.text, name) or has_same_words(key.text, name)]
        if key.text not in KEYS and len(near) == 1 and len(key.text) <= LONGEST:
            fix = Fix(f"write `{near[0]}`", (Edit(key.location, near[0]),), is_safe=True)
            help = f"did you mean `{near[0]}`?"
            yield Finding(
                "misspelled-option", Severity.ERROR, f"accelerate has no setting `{key.text}`", key.location, help, fixes=(fix,)
            )
        for name, setting in _settings("", key, node):
            yield from _refused(name, setting)


def _settings(section: str, key: object, node: object) -> Iterator[tuple[str, Setting]]:
    """Yield a value with its path, and those of a section."""
    if isinstance(key, YamlScalar) and isinstance(node, YamlScalar):
        value = yaml_typed(None, node.text, node.plain)
        yield f"{section}{key.text}", Setting(key.text, value, key.text, node.location, key.location)
    elif isinstance(key, YamlScalar) and isinstance(node, YamlMapping) and not section:
        for name, inner in node.entries:
            yield from _settings(f"{key.text}.", name, inner)


def _refused(name: str, setting: Setting) -> Iterator[Finding]:
    value, choices = setting.value, CHOICES.get(name, ())
    if choices and isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in map(str.lower, choices):
        message = f"`{name}` does not take `{value}`"
        help = f"one of {', '.join(f'`{choice}`' for choice in choices)}"
        yield Finding("option-value-not-a-choice", Severity.ERROR, message, setting.location, help)
    elif name == "deepspeed_config.zero_stage":
        beyond = out_of_range(setting, Option(setting.name, (), default=0))
        yield from () if beyond is None else (beyond,)
