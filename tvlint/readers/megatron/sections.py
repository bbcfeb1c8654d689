"""Sections of snake_case settings in YAML: each mapping with parallel sizes is a configuration of its own.

One size tells little of a file whose framework nothing else tells, so there a section has two; a rollout of verl has one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from tvlint.frameworks.core_defaults import CANONICAL
from tvlint.frameworks.megatron import Option, option_of
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.megatron.detect_framework import FURTHER, framework_of_sections
from tvlint.readers.megatron.flagscale import experiment
from tvlint.readers.megatron.hydra_defaults import compose
from tvlint.readers.megatron.primus import SPLIT_BY_HAND, with_presets
from tvlint.readers.megatron.yaml_options import INTERPOLATED
from tvlint.readers.sources.interpolation import Interpolation
from tvlint.readers.sources.rank_counts import MOST_RANKS, count_of
from tvlint.readers.sources.scalar_values import typed, yaml_typed
from tvlint.readers.sources.yaml_nodes import (
    Visits,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    mappings,
    merged,
    plain_values,
)

FORMAT = "megatron-yaml"
PARALLEL = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "sequence_parallel",
    }
)
SPLIT = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
"""Sizes that multiply to the ranks of one replica."""
RANKS = (
    ("trainer", "devices", "num_nodes", 2),
    ("trainer", "n_gpus_per_node", "nnodes", 1),
    ("cluster", "gpus_per_node", "num_nodes", 1),
)
"""Where NeMo, verl and NeMo-RL say how many GPUs a node has, and how many nodes there are; fewer nodes than the number mean
any, as in NeMo's configurations, which all have one node before a launcher sets another number."""
NODES = frozenset(nodes for _, _, nodes, _ in RANKS)
DEVICES = Pattern(r"list\(range\((?:(?P<first>\d{1,6}),\s*)?(?P<end>\d{1,6})\)\)")
"""How ROLL lists the GPUs of a role, beside its strategy (roll/configs/worker_config.py: `device_mapping`)."""
SEVERAL_A_WORKER = "num_gpus_per_worker"
RANKS_OF_ROLE: Mapping[tuple[str, ...], tuple[str, ...]] = {("actor_config",): ("rl_config", "actor_resource", "num_npus")}
"""Where MindSpeed-RL says how many processors run a section (mindspeed_rl/config_cls/rl_config.py: `actor_resource`)."""
ELSEWHERE = "another file"
"""What may give more settings of a section: the files that it is composed with, or the command that overrides it."""


def configurations(path: str, root: YamlMapping, visits: Visits) -> Iterator[Configuration]:
    """Yield the sections with parallel sizes of the file as it is composed with others."""
    found = list(_sections(path, root, visits))
    taken = {setting.location for each in found for setting in (*each.settings.values(), *each.overridden)}
    yield from (replace(found[0], beside=_beside(root, taken, Visits(path))), *found[1:]) if found else ()


def _beside(root: YamlMapping, taken: Container[Location], visits: Visits) -> dict[str, Setting]:
    """Return what the file sets outside its sections with parallel sizes, by its path."""
    found: dict[str, Setting] = {}
    for where, mapping in mappings(root, visits):
        last = {key.text: (key, value) for key, value in mapping.entries if isinstance(key, YamlScalar)}
        for key, value in last.values():
            if not isinstance(value, YamlMapping) and value.location not in taken:
                path = ".".join((*where, key.text))
                plain = plain_values(value, lambda item: yaml_typed(None, item.text, item.plain))
                if not isinstance(plain, Unknown):
                    found[path] = Setting(path, plain, path, value.location, key.location)
    return found


def _sections(path: str, root: YamlMapping, visits: Visits) -> Iterator[Configuration]:
    whole: frozenset[tuple[str, ...]] = frozenset()
    composed = compose(path, root)
    if composed is None and (found := with_presets(path, root)) is not None:
        composed, whole = found.root, found.whole
    composed = composed or root
    if (command := experiment(path, FORMAT, composed, visits)) is not None:
        yield command
        return
    keys = [key.text for key, _ in (*root.entries, *composed.entries) if isinstance(key, YamlScalar)]
    framework = framework_of_sections(keys)
    fewest = 1 if framework == "verl" else 2
    interpolation = Interpolation(composed, visits)
    world_size = _world_size(composed, interpolation, visits)
    of_one_rank = any(sizes == (1, 1) for _, _, _, sizes, _ in _stated_ranks(composed, interpolation, visits))
    for where, mapping in mappings(composed, visits):
        entries = merged(mapping, visits)
        if len(PARALLEL & {key.text for key, _ in entries}) < fewest:
            continue
        settings: dict[str, Setting] = {}
        overridden: list[Setting] = []
        for key, value, place in _with_further(entries, where, visits):
            if isinstance(value, YamlMapping) or (option_of(_name(key)) is None and key.text not in PARALLEL):
                continue
            setting = _setting(key, value, place, framework, interpolation)
            if setting.name in settings:
                overridden.append(settings[setting.name])
            settings[setting.name] = setting
        settings.update(_split_by_hand(entries) if framework == "primus" else {})
        if (ranks := _ranks_of_role(where, interpolation)) is not None:
            settings["world_size"] = ranks
        elif world_size is not None and not _has_ranks_of_its_own(composed, where, interpolation, visits):
            settings.setdefault("world_size", world_size)
        placeholder = of_one_rank and _needs_more_ranks(settings)
        yield Configuration(
            path,
            FORMAT,
            framework,
            settings,
            {},
            ".".join(where),
            where in whole,
            mapping.location,
            overridden=tuple(overridden),
            elsewhere="" if placeholder or _takes_further(entries) or _is_off(entries) else ELSEWHERE,
            model=_model(composed, where, interpolation, visits),
        )


def _with_further(
    entries: list[tuple[YamlScalar, YamlNode]], where: tuple[str, ...], visits: Visits
) -> Iterator[tuple[YamlScalar, YamlNode, tuple[str, ...]]]:
    """The entries of a section with the path of the mapping that each stands in, those of its further settings at the end."""
    further: list[tuple[YamlScalar, YamlNode]] = []
    for key, value in entries:
        if key.text == FURTHER and isinstance(value, YamlMapping):
            further = merged(value, visits)
        yield key, value, where
    yield from ((key, value, (*where, FURTHER)) for key, value in further)


def _takes_further(entries: list[tuple[YamlScalar, YamlNode]]) -> bool:
    """Return whether the further settings of a section are those of another mapping."""
    return any(key.text == FURTHER and isinstance(value, YamlScalar) and "${" in value.text for key, value in entries)


def _is_off(entries: list[tuple[YamlScalar, YamlNode]]) -> bool:
    """Return whether a mapping says that what it is about is not used."""
    given = [value for key, value in entries if key.text == "enabled"]
    return any(isinstance(value, YamlScalar) and value.text.lower() == "false" for value in given)


def _shares_ranks(root: YamlMapping, visits: Visits) -> bool:
    """Return whether what draws samples has ranks beside those that train, as NeMo-RL writes it."""
    beside = [mapping for path, mapping in mappings(root, visits) if "colocated" in path]
    entries = [entry for mapping in beside for entry in merged(mapping, visits)]
    return _is_off(entries) or any(key.text in NODES and _count(value) for key, value in entries)


def _setting(key: YamlScalar, value: YamlNode, where: tuple[str, ...], framework: str, interpolation: Interpolation) -> Setting:
    stands_for = interpolation.resolve(value, where)
    value_of = _value(option_of(_name(key)), stands_for)
    if framework != "primus" and key.text in PARALLEL and isinstance(value_of, int) and value_of < 0:
        value_of = Unknown("a negative size stands for one that is taken from elsewhere")
    return Setting(_name(key), value_of, key.text, stands_for.location, key.location)


def _name(key: YamlScalar) -> str:
    """Return what the command line calls the setting of a key."""
    return CANONICAL.get(key.text, key.text)


def _value(known: Option | None, value: YamlNode) -> SettingValue | Unknown:
    """Return what an option gets; one scalar for an option that takes a list is a list of one, or of what its commas part."""
    if isinstance(value, YamlSequence):
        return plain_values(value, lambda item: _scalar(known, item))
    if not isinstance(value, YamlScalar):
        return Unknown("a mapping is no option value")
    takes_list = known is not None and known.arity in ("+", "*")
    if known is not None and takes_list and "," in value.text and not INTERPOLATED.search(value.text):
        return tuple(typed(known, word.strip()) for word in value.text.split(","))
    plain = _scalar(known, value)
    return (plain,) if takes_list and isinstance(plain, (str, int, float)) and not isinstance(plain, bool) else plain


def _scalar(known: Option | None, value: YamlScalar) -> SettingValue | Unknown:
    if INTERPOLATED.search(value.text) or value.text == "???":
        return Unknown("depends on an interpolation")
    return yaml_typed(known, value.text, value.plain)


def _split_by_hand(entries: list[tuple[YamlScalar, YamlNode]]) -> dict[str, Setting]:
    """Return the layout of the pipeline, which Megatron does not decide where Primus splits the layers by a list of its own."""
    for key, value in entries:
        if key.text == SPLIT_BY_HAND and not (isinstance(value, YamlScalar) and value.text in ("null", "~", "")):
            name = "pipeline_model_parallel_layout"
            return {name: Setting(name, Unknown(f"`{SPLIT_BY_HAND}` decides"), key.text, value.location, key.location)}
    return {}


def _world_size(root: YamlMapping, interpolation: Interpolation, visits: Visits) -> Setting | None:
    """The number of ranks that a trainer or a cluster gives in plain numbers; a single rank stands for any number."""
    for section, name, (key, value), (per_node, nodes), fewest in _stated_ranks(root, interpolation, visits):
        if section == "cluster" and _shares_ranks(root, visits):
            return None
        if nodes >= fewest and 1 < per_node * nodes < MOST_RANKS:
            return Setting("world_size", per_node * nodes, f"{section}.{name}", value.location, key.location)
    return None


def _ranks_of_role(where: tuple[str, ...], interpolation: Interpolation) -> Setting | None:
    """Return the number of ranks that a file gives to one role of reinforcement learning, in plain numbers."""
    for length in range(1, len(where)):
        path = (*where[:length], "device_mapping")
        found = interpolation.at(path) if interpolation.at((*where[:length], SEVERAL_A_WORKER)) is None else None
        resolved = interpolation.resolve(found, path[:-1]) if found is not None else None
        match = DEVICES.fullmatch(resolved.text) if isinstance(resolved, YamlScalar) else None
        if resolved is not None and match is not None and (ranks := int(match["end"]) - int(match["first"] or 0)) > 0:
            return Setting("world_size", ranks, ".".join(path), resolved.location, resolved.location)
    path = RANKS_OF_ROLE.get(where, ())
    found = interpolation.at(path) if path else None
    ranks = _count(found) if found is not None else 0
    return Setting("world_size", ranks, ".".join(path), found.location, found.location) if found is not None and ranks else None


def _stated_ranks(
    root: YamlMapping, interpolation: Interpolation, visits: Visits
) -> Iterator[tuple[str, str, tuple[YamlScalar, YamlNode], tuple[int, int], int]]:
    """Yield each section that gives ranks a node and nodes: with the entry of the ranks, both numbers and the fewest nodes."""
    top = {key.text: value for key, value in merged(root, visits)}
    for section, per_node, nodes, fewest in RANKS:
        holder = top.get(section)
        given = {key.text: (key, value) for key, value in merged(holder, visits)} if isinstance(holder, YamlMapping) else {}
        if per_node in given and nodes in given:
            one, other = (_count(interpolation.resolve(given[name][1], (section,))) for name in (per_node, nodes))
            yield section, per_node, given[per_node], (one, other), fewest


def _needs_more_ranks(settings: Mapping[str, Setting]) -> bool:
    """Return whether a model is split over ranks: a file that gives it a single one is no launch as it is."""
    sizes = [settings[name].value for name in SPLIT if name in settings]
    return any(isinstance(size, int) and size > 1 for size in sizes)


def _model(root: YamlMapping, where: tuple[str, ...], interpolation: Interpolation, visits: Visits) -> str:
    """Return the path of the model that is nearest around the section, as verl writes it; empty where there is none."""
    holders = {
        path: mapping
        for path, mapping in mappings(root, visits)
        if path[-1:] == ("model",) and path[:-1] == where[: len(path) - 1]
    }
    for path in sorted(holders, key=len, reverse=True):
        for key, value in merged(holders[path], visits):
            found = interpolation.resolve(value, path) if key.text == "path" else None
            if isinstance(found, YamlScalar):
                return found.text
    return ""


def _has_ranks_of_its_own(root: YamlMapping, where: tuple[str, ...], interpolation: Interpolation, visits: Visits) -> bool:
    """Return whether a mapping around the section, or one of its name at the top, says how many nodes run it.

    Rollouts, teachers and reward models of RL may have GPUs beside those that train.
    """
    paths = [*(where[:length] for length in range(1, len(where) + 1)), where[-1:]]
    holders = {path: mapping for path, mapping in mappings(root, visits) if path in paths}
    return any(
        _count(interpolation.resolve(value, path)) > 0
        for path, mapping in holders.items()
        if path not in {(section,) for section, *_ in RANKS}
        for key, value in merged(mapping, visits)
        if key.text in NODES
    )


def _count(node: YamlNode) -> int:
    """Return the number that a plain scalar is; 0 where it is none."""
    return count_of(yaml_typed(None, node.text, node.plain)) if isinstance(node, YamlScalar) else 0
