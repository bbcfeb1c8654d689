"""Training files of FlagScale: their sections `system`, `model` and `data` make one command line of Megatron's options.

FlagScale flattens them (flagscale/runner/utils.py: `flatten_dict_to_args`): a mapping in a section only groups what it holds,
`true` passes the key as a switch, and `false` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvlint.frameworks.megatron import option
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.megatron.yaml_options import OFF, argument
from tvlint.readers.sources.interpolation import Interpolation
from tvlint.readers.sources.rank_counts import product_of_counts
from tvlint.readers.sources.yaml_nodes import Visits, YamlMapping, YamlNode, YamlScalar, merged

FRAMEWORK = "flagscale"
SECTIONS = ("system", "model", "data")
"""In the order of the command line; of an option that stands in two of them, the later counts."""
MODEL = frozenset({"num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "global_batch_size"})
FEWEST = 3
"""So many of these settings has the section of a model that Megatron trains."""
EXPERIMENT = "train"
"""Where an experiment keeps the sections that its `defaults:` name."""
RUNNER = ("experiment", "runner")
HETEROGENEOUS = "enable_hetero"
"""With this, sizes are those of several meshes of devices, and none of the options that stand beside it."""
BLANK = Pattern(r"x{2,}(?:[ ,]+x{2,})*")
"""What FlagScale's examples have in the place of what the user is to fill in."""


def experiment(path: str, format: str, root: YamlMapping, visits: Visits) -> Configuration | None:
    """Return the command line of a training file or of the experiment that is composed with one; None for other files."""
    top = dict(_named(root, visits))
    where = () if set(SECTIONS) <= top.keys() else (EXPERIMENT,)
    holder = top.get(EXPERIMENT) if where else root
    if not isinstance(holder, YamlMapping):
        return None
    sections = dict(_named(holder, visits))
    found = [sections.get(name) for name in SECTIONS]
    mappings = [each for each in found if isinstance(each, YamlMapping)]
    if len(mappings) < len(SECTIONS) or len(MODEL & dict(_named(sections["model"], visits)).keys()) < FEWEST:
        return None
    interpolation = Interpolation(root, visits)
    settings: dict[str, Setting] = {}
    overridden: list[Setting] = []
    for name, mapping in zip(SECTIONS, mappings, strict=True):
        for setting in _options(mapping, (*where, name), interpolation):
            if setting.name in settings:
                overridden.append(settings[setting.name])
            settings[setting.name] = setting
    if HETEROGENEOUS in settings and settings[HETEROGENEOUS].value is not False:
        return None
    if (ranks := _world_size(interpolation)) is not None:
        settings["world_size"] = ranks
    return Configuration(
        path,
        format,
        FRAMEWORK,
        settings,
        {},
        ".".join(where),
        True,
        holder.location,
        overridden=tuple(overridden),
    )


def as_command(configuration: Configuration) -> Configuration:
    """Return the configuration with its options as the command line has them, for those who judge what a parser takes."""
    if configuration.framework != FRAMEWORK:
        return configuration
    settings = {each.name: each for each in _passed(configuration.settings.values())}
    return replace(configuration, settings=settings, overridden=tuple(_passed(configuration.overridden)))


def _passed(settings: Iterable[Setting]) -> Iterator[Setting]:
    """Yield the settings that stand for an option of Megatron's, as it is passed; FlagScale has more."""
    yield from (replace(each, written=_flag(each.written)) for each in settings if option(_flag(each.written)) is not None)


def _named(mapping: YamlNode, visits: Visits) -> Iterator[tuple[str, YamlNode]]:
    if isinstance(mapping, YamlMapping):
        yield from ((key.text, value) for key, value in merged(mapping, visits))


def _options(mapping: YamlMapping, where: tuple[str, ...], interpolation: Interpolation) -> Iterator[Setting]:
    for key, value in merged(mapping, interpolation.visits):
        stands_for = interpolation.resolve(value, where)
        if isinstance(stands_for, YamlMapping):
            yield from _options(stands_for, (*where, key.text), interpolation)
            continue
        setting = argument(YamlScalar(_flag(key.text), key.plain, key.location), stands_for, OFF)
        if isinstance(stands_for, YamlScalar) and (stands_for.text in ("null", "~", "") or BLANK.fullmatch(stands_for.text)):
            setting = replace(setting, value=Unknown("a blank to be filled in"))
        yield replace(setting, written=key.text)


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _world_size(interpolation: Interpolation) -> Setting | None:
    """Return how many ranks a runner starts, where it says so in plain numbers and no list of hosts may change it."""
    nodes, per_node, hosts = (interpolation.at((*RUNNER, name)) for name in ("nnodes", "nproc_per_node", "hostfile"))
    if not isinstance(nodes, YamlScalar) or not isinstance(per_node, YamlScalar) or hosts is not None:
        return None
    if not all(each.text.isascii() and each.text.isdigit() and len(each.text) < 6 for each in (nodes, per_node)):
        return None
    ranks = product_of_counts((int(nodes.text), int(per_node.text)))
    location = per_node.location
    return Setting("world_size", ranks, "nproc_per_node", location, location) if ranks else None
