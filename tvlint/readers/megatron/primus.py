"""The presets that a module of Primus builds on: `config:` and `model:`, which its `overrides:` complete.

Primus keeps them in `primus/configs/modules/<framework>` and `primus/configs/models/<framework>` of its own tree. Of a setting
that both presets give, that of `config:` counts; the overrides win over both.
"""

from __future__ import annotations

import os
from pathlib import Path

from tvlint.checkout.opening import is_folder, real_path
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.composed_files import Composing, Uncertain, composing, content_of, joined
from tvlint.readers.megatron.hydra_defaults import composed_alone
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlNode, YamlScalar

FRAMEWORK = "megatron"
MODULES = "modules"
OVERRIDES = "overrides"
CONFIGS = Path("primus", "configs")
ENVIRONMENT = Pattern(r"\$\{[A-Za-z_]\w*:([\w.-]*)\}")
PRESET = Pattern(r"\w[\w.-]*")
SPLIT_BY_HAND = "decoder_pipeline_manual_split_list"
"""The setting by which Primus splits layers over pipeline stages in place of Megatron."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment with its presets, and the paths of the sections that are complete with them.

    What neither the presets nor the overrides set, Megatron's own parser does.
    """

    root: YamlMapping
    whole: frozenset[tuple[str, ...]]


def with_presets(path: str, root: YamlMapping) -> Experiment | None:
    """Return the experiment at `path` with the presets of its modules below their overrides; None where there are none to be
    found.

    A name that the environment may change is taken at its default, as the values of the file are.
    """
    modules = _entry(root, MODULES)
    if not isinstance(modules, YamlMapping):
        return None
    known = composing(path)
    entries: list[tuple[YamlNode, YamlNode]] = []
    whole: set[tuple[str, ...]] = set()
    for key, value in modules.entries:
        found = _module(known, value) if isinstance(value, YamlMapping) else None
        entries.append((key, value if found is None else found))
        if found is not None and isinstance(key, YamlScalar):
            whole.add((MODULES, key.text, OVERRIDES))
    return Experiment(_with(root, MODULES, YamlMapping(entries, modules.location)), frozenset(whole)) if whole else None


def _module(known: Composing, module: YamlMapping) -> YamlMapping | None:
    framework, overrides = _entry(module, "framework"), _entry(module, OVERRIDES)
    if not isinstance(framework, YamlScalar) or framework.text != FRAMEWORK:
        return None
    if overrides is not None and not isinstance(overrides, YamlMapping):
        return None
    config = _preset(known, _entry(module, "config"), "modules")
    model = _preset(known, _entry(module, "model"), "models")
    if config is None or model is None:
        return None
    try:
        whole = joined(model, config, known.visits)
        whole = joined(whole, overrides, known.visits) if overrides is not None else whole
    except ReadError:
        return None
    place = module.location if overrides is None else overrides.location
    return _with(module, OVERRIDES, YamlMapping(whole.entries, place)) if isinstance(whole, YamlMapping) else None


def _preset(known: Composing, name: YamlNode | None, kind: str) -> YamlMapping | None:
    """Return the content of the preset, joined with what it extends, from the nearest tree of Primus around the experiment."""
    if not isinstance(name, YamlScalar):
        return None
    text = ENVIRONMENT.sub(r"\1", name.text)
    if PRESET.fullmatch(text) is None:
        return None
    file = text if text.endswith((".yaml", ".yml")) else f"{text}.yaml"
    folder = Path(known.project)
    start = Path(real_path(known.folder))
    for above in (start, *start.parents):
        presets = above / CONFIGS / kind / FRAMEWORK
        if is_folder(presets):
            return _content(known, os.path.join(presets, file))
        if above == folder:
            return None
    return None


def _content(known: Composing, wanted: str) -> YamlMapping | None:
    try:
        read = content_of(known, wanted)
    except Uncertain:
        return None
    if read is None:
        return None
    root, _ = read
    this_composing = composing(wanted)
    found = composed_alone(this_composing, wanted, root)
    return found if found is not None and not this_composing.missing else None


def _entry(mapping: YamlMapping, name: str) -> YamlNode | None:
    return next((value for key, value in mapping.entries if isinstance(key, YamlScalar) and key.text == name), None)


def _with(mapping: YamlMapping, name: str, value: YamlNode) -> YamlMapping:
    """Return the mapping with another value under `name`, which it need not have."""
    entries = [(key, value if isinstance(key, YamlScalar) and key.text == name else old) for key, old in mapping.entries]
    if _entry(mapping, name) is None:
        entries.append((YamlScalar(name, False, mapping.location), value))
    return YamlMapping(entries, mapping.location)
