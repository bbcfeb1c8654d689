"""YAML that configures Megatron: `MODEL_ARGS` blocks of command-line options, and sections of snake_case settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.megatron import option_of
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.languages import is_prose, is_yaml
from tvlint.readers.megatron.flagscale import as_command
from tvlint.readers.megatron.functional_tests import gpus_of_case, is_run_by_shell, program_of_case, ranks_of_case
from tvlint.readers.megatron.gpus import generation_of
from tvlint.readers.megatron.invalid_options import option_mistakes, with_meant
from tvlint.readers.megatron.section_values import VERL, mistaken_values
from tvlint.readers.megatron.sections import PARALLEL, configurations
from tvlint.readers.megatron.unknown_options import misspelled_names
from tvlint.readers.megatron.unread_keys import unread_keys
from tvlint.readers.megatron.yaml_options import INTERPOLATED, OFF, argument
from tvlint.readers.sources.doubled_keys import doubled_keys
from tvlint.readers.sources.rank_counts import product_of_counts
from tvlint.readers.sources.scalar_values import OCTAL, SEXAGESIMAL, environment_value, yaml_typed
from tvlint.readers.sources.yaml_nodes import (
    Visits,
    YamlMapping,
    YamlNode,
    YamlScalar,
    documents,
    mappings,
    merged,
    position,
)
from tvlint.topology.role import serves

FORMAT = "megatron-yaml"
LARGEST = 8 << 20
BLOCK = re.compile(r"MODEL_ARGS(?:_\d+)?")
KEYS = re.compile(
    rb"^[ \t]*(?:- )?[\"']?(?:MODEL_ARGS(?:_\d+)?|(?:virtual_)?(?:tensor|pipeline|expert)_(?:model_)?(?:tensor_)?parallel_size"
    rb"|context_parallel_size|sequence_parallel)[\"']?[ \t]*:"
    rb"|[{,][ \t]*[\"']?(?:tensor|pipeline)_model_parallel_size[\"']?[ \t]*:",
    re.MULTILINE,
)
COMPOSED = re.compile(rb"^(?:defaults|extends):|[{, \t]model:[ \t]*\S+\.ya?ml\b", re.MULTILINE)
"""What names other files, all settings of which may stand there."""
FEWEST_OF_SECTION = 4
"""From so many settings of Megatron on, a mapping is a section of its configuration."""
MANY = 8
"""From so many settings of Megatron on, and half of all, a mapping without parallel sizes is handed to it too."""
TEMPLATED = re.compile(rb"\{\{|\{%")


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` has a key of Megatron, or names files that it is composed of, and may be YAML."""
    start = data.removeprefix(b"\xef\xbb\xbf")
    return is_yaml(path, data) and (KEYS.search(start) or COMPOSED.search(start)) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return the configurations of the file; None where its mappings turn out to hold none."""
    refuse_larger(path, data, LARGEST)
    text = _decoded(path, data)
    visits = Visits(path)
    program = program_of_case(path)
    configurations: list[Configuration] = []
    findings: list[Finding] = []
    try:
        for number, root in enumerate(documents(path, text), 1):
            found = list(_configurations(path, root, visits))
            findings.extend(doubled_keys(root, visits))
            findings.extend(_reinterpreted(root, visits))
            mistakes = [[*option_mistakes(as_command(each), (), program)] for each in found]
            findings.extend(dict.fromkeys(chain.from_iterable(mistakes)))
            findings.extend(finding for names in _sections(path, root, visits) for finding in misspelled_names(names))
            findings.extend(dict.fromkeys(mistake for each in found for mistake in mistaken_values(each)))
            findings.extend(unread_keys(path, root, Visits(path)) if any(each.framework == VERL for each in found) else ())
            meant = [with_meant(each, mistaken) for each, mistaken in zip(found, mistakes, strict=True)]
            configurations.extend(_in_document(meant, number))
    except ReadError:
        if not configurations and (TEMPLATED.search(data) or is_prose(path)):
            return None
        raise
    if not configurations:
        return None
    return Document(path, FORMAT, configurations=tuple(configurations), findings=tuple(findings))


def _sections(path: str, root: YamlNode, visits: Visits) -> Iterator[list[tuple[str, Location]]]:
    """Yield the keys of each mapping of the file itself that gives parallel sizes and more of Megatron's settings, or many.

    An inference engine has settings of its own; a folder of Hydra's is named like the section that its files are.
    """
    group = os.path.basename(os.path.dirname(path))
    for where, mapping in mappings(root, visits) if isinstance(root, YamlMapping) else ():
        if serves((group, *where)):
            continue
        keys = [key for key, _ in mapping.entries if isinstance(key, YamlScalar)]
        known = [key for key in keys if option_of(key.text) is not None]
        is_split = len(known) >= FEWEST_OF_SECTION and len(PARALLEL & {key.text for key in known}) > 1
        if is_split or (len(known) >= MANY and 2 * len(known) >= len(keys)):
            yield [(key.text, key.location) for key in keys]


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode()
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise ReadError(message, position(path, good, len(good)), "save the file as UTF-8") from None


def _in_document(found: list[Configuration], number: int) -> list[Configuration]:
    if number == 1:
        return found
    name = f"document {number}"
    return [replace(each, section=f"{name}/{each.section}" if each.section else name) for each in found]


def _configurations(path: str, root: YamlNode, visits: Visits) -> Iterator[Configuration]:
    if not isinstance(root, YamlMapping):
        return
    top = merged(root, visits)
    blocks = [(key, value) for key, value in top if BLOCK.fullmatch(key.text) and isinstance(value, YamlMapping)]
    shared = _mapping_at(top, "ENV_VARS")
    yaml_mapping = _mapping_at(top, "MODEL_ENV_VARS")
    found = False
    for key, value in blocks:
        assert isinstance(value, YamlMapping)
        configuration = _block(path, key, value, (shared, yaml_mapping), visits)
        if configuration is not None:
            found = True
            yield configuration
    if not found:
        yield from configurations(path, root, visits)


def _mapping_at(entries: Iterable[tuple[YamlScalar, YamlNode]], name: str) -> YamlMapping | None:
    return next((value for key, value in entries if key.text == name and isinstance(value, YamlMapping)), None)


def _block(
    path: str,
    key: YamlScalar,
    block: YamlMapping,
    environments: tuple[YamlMapping | None, YamlMapping | None],
    visits: Visits,
) -> Configuration | None:
    settings: dict[str, Setting] = {}
    overridden: list[Setting] = []
    entries = merged(block, visits)
    off = frozenset[str]() if is_run_by_shell(path) else OFF
    for name, value in entries:
        if not name.text.startswith("--"):
            continue
        setting = argument(name, value, off)
        if setting.name in settings:
            overridden.append(settings[setting.name])
        settings[setting.name] = setting
    if not settings:
        return None
    shared, yaml_mapping = environments
    environment = _environment(shared, visits)
    specific = _mapping_at(merged(yaml_mapping, visits), key.text) if yaml_mapping is not None else None
    ours = _environment(specific, visits)
    if "GPUS_PER_NODE" in ours:
        settings["world_size"] = _world_size(ours, environment)
    elif "GPUS_PER_NODE" not in environment and (ranks := ranks_of_case(path)) is not None:
        settings["world_size"] = ranks
    environment.update(ours)
    complete = "yaml_cfg" not in settings
    gpus = generation_of(path) or gpus_of_case(path)
    return Configuration(
        path,
        FORMAT,
        "megatron-lm",
        settings,
        environment,
        key.text,
        complete,
        key.location,
        overridden=tuple(overridden),
        gpus=gpus,
    )


def _environment(mapping: YamlMapping | None, visits: Visits) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for key, value in merged(mapping, visits) if mapping is not None else ():
        known: SettingValue | Unknown = Unknown("not a plain value")
        if isinstance(value, YamlScalar):
            known = environment_value(value.text)
            if INTERPOLATED.search(value.text):
                known = Unknown("depends on a variable that is substituted later")
        found[key.text] = Setting(key.text, known, key.text, value.location, key.location)
    return found


def _world_size(settings: dict[str, Setting], shared: dict[str, Setting]) -> Setting:
    per_node = settings["GPUS_PER_NODE"]
    nodes = [each[name].value for each in (settings, shared) for name in ("NUM_NODES", "NNODES") if name in each]
    total = product_of_counts((per_node.value, *nodes[:1]))
    return replace(per_node, name="world_size", value=total or Unknown("the number of processes is not a plain number"))


def _reinterpreted(root: YamlNode, visits: Visits) -> Iterator[Finding]:
    """Settings whose plain spelling YAML takes for another value: `010`, `1:30`, and `off` where a word is meant."""
    for _, mapping in mappings(root, visits):
        for key, value in mapping.entries:
            known = option_of(key.text) if isinstance(key, YamlScalar) else None
            if known is None or known.kind != "store" or not isinstance(value, YamlScalar) or not value.plain:
                continue
            if known.type in ("int", "float") and (OCTAL.fullmatch(value.text) or SEXAGESIMAL.fullmatch(value.text)):
                meant, help = yaml_typed(known, value.text, True), "write the number in decimal notation"
                plain = value.text.lstrip("0") if value.text.isdigit() else str(meant)
            elif known.type == "str" and value.text.lower() in ("on", "off", "yes", "no"):
                meant, help = value.text.lower() in ("on", "yes"), f'write "{value.text}" in quotes'
                plain = f'"{value.text}"'
            else:
                continue
            text = str(meant).lower()
            message = f"YAML reads `{value.text[:40]}` as {text}"
            fix = Fix(f"write `{plain[:40]}`", (Edit(value.location, plain),))
            yield Finding("yaml-value-reinterpreted", Severity.WARNING, message, value.location, help, fixes=(fix,))
