"""YAML that configures nnScaler: a `compute_config`, alone or within the arguments of its trainer."""

from __future__ import annotations

import re

from tvlint.findings import Finding
from tvlint.frameworks.nnscaler import NESTED, TRAINER
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.languages import is_yaml
from tvlint.readers.nnscaler.trainer import autodist_plan
from tvlint.readers.nnscaler.trainer.arguments import misspelled_arguments, module_mistakes, surplus_settings
from tvlint.readers.sources.doubled_keys import doubled_keys
from tvlint.readers.sources.scalar_values import yaml_typed
from tvlint.readers.sources.sibling_files import content_beside
from tvlint.readers.sources.yaml_nodes import (
    Visits,
    YamlMapping,
    YamlNode,
    YamlScalar,
    documents,
    mappings,
    merged,
    plain_values,
)

FORMAT = "nnscaler-yaml"
LARGEST = 8 << 20
KEYS = re.compile(rb"^[ \t]*[\"']?compute_config[\"']?[ \t]*:", re.MULTILINE)
PLAN = re.compile(rb"\bplan_ngpus\b")
VARIABLE = re.compile(r"\$[({A-Za-z_]|\{\{")
TRAINED = frozenset({"micro_batch_size", "global_batch_size", "max_train_steps", "max_epochs", "pas_policy", "run_mode"})
"""Keys that only the trainer's arguments have."""
EARLY = frozenset({"use_pipeline", "pipeline_nmicros", "pipeline_nstages", "pipeline_scheduler"})


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` has a `compute_config` with a number of GPUs to plan for, and may be YAML."""
    return KEYS.search(data) is not None and PLAN.search(data) is not None and is_yaml(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return the configurations of the file, one for each `compute_config`; None where it turns out to hold none."""
    refuse_larger(path, data, LARGEST)
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise ReadError(message, Location(path, line), "save the file as UTF-8") from None
    visits = Visits(path)
    configurations: list[Configuration] = []
    findings: list[Finding] = []
    for root in documents(path, text):
        before = len(configurations)
        for where, mapping in mappings(root, visits):
            entries = merged(mapping, visits)
            compute = next((value for key, value in entries if key.text == "compute_config"), None)
            if not isinstance(compute, YamlMapping):
                continue
            inner = merged(compute, visits)
            if not any(key.text == "plan_ngpus" for key, _ in inner):
                continue
            configurations.append(_configuration(path, ".".join(where), entries, inner, visits, compute.location))
            findings.extend(misspelled_arguments(entries) if configurations[-1].complete else ())
            findings.extend((*surplus_settings(inner, _policy(configurations[-1]), visits), *module_mistakes(entries, visits)))
        findings.extend(doubled_keys(root, visits) if len(configurations) > before else ())
    if not configurations:
        return None
    return Document(path, FORMAT, configurations=tuple(configurations), findings=tuple(findings))


def _configuration(
    path: str,
    section: str,
    entries: list[tuple[YamlScalar, YamlNode]],
    compute: list[tuple[YamlScalar, YamlNode]],
    visits: Visits,
    location: Location,
) -> Configuration:
    settings: dict[str, Setting] = {}
    trainer = bool(TRAINED & {key.text for key, _ in entries})
    for key, value in entries if trainer else ():
        if key.text in TRAINER:
            _add(settings, key, key.text, "", value)
        for inner, each in merged(value, visits) if isinstance(value, YamlMapping) else ():
            if f"{key.text}_{inner.text}" in NESTED:
                _add(settings, inner, f"{key.text}_{inner.text}", f"{key.text}.", each)
            for deepest, given in merged(each, visits) if key.text == "dataloader" and isinstance(each, YamlMapping) else ():
                if deepest.text == "batch_size":
                    _add(settings, deepest, "dataloader_batch_size", f"dataloader.{inner.text}.", given)
    for key, value in compute:
        if key.text == "pas_config" and isinstance(value, YamlMapping):
            for inner, each in merged(value, visits):
                _add(settings, inner, inner.text, "pas_config.", each)
        else:
            _add(settings, key, key.text, "", value)
    _add_saved_plan(path, settings)
    version = "0.3" if EARLY & {key.text for key, _ in compute} else ""
    return Configuration(path, FORMAT, "nnscaler", settings, {}, section, trainer, location, version)


def _add(settings: dict[str, Setting], key: YamlScalar, name: str, prefix: str, node: YamlNode) -> None:
    settings.setdefault(name, Setting(name, plain_values(node, _value), prefix + key.text, node.location, key.location))


def _add_saved_plan(path: str, settings: dict[str, Setting]) -> None:
    """Add what the plan that `load_plan_path` names says of itself, where that file lies beside the configuration."""
    given = settings.get("load_plan_path")
    if given is None or not isinstance(given.value, str):
        return
    data = content_beside(path, given.value, autodist_plan.LARGEST)
    shape = autodist_plan.shape_of(given.value, data[1]) if data is not None else None
    if data is None or shape is None:
        return
    place = replace(shape.location, path=data[0])
    for name, count in (("saved_plan_devices", shape.devices), ("saved_plan_stages", shape.stages)):
        settings[name] = Setting(name, count, given.written, place, given.name_location)


def _value(node: YamlScalar) -> SettingValue | Unknown:
    if VARIABLE.search(node.text):
        return Unknown("depends on an interpolation")
    return yaml_typed(None, node.text, node.plain)


def _policy(configuration: Configuration) -> str:
    """Return the policy that is named, or the default of the trainer's arguments; empty where neither is given."""
    given = configuration.settings.get("pas_policy")
    named = given.value if given is not None else TRAINER["pas_policy"] if configuration.complete else ""
    return named if isinstance(named, str) else ""
