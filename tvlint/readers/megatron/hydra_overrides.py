"""Dotted overrides of Hydra on a command line (`actor.megatron.tensor_model_parallel_size=2`): a configuration a section."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvlint.findings import Finding, Severity
from tvlint.frameworks.core_defaults import CANONICAL
from tvlint.frameworks.kin import CORE, MEGATRON
from tvlint.frameworks.megatron import option_of
from tvlint.frameworks.usual import USUAL
from tvlint.frameworks.verl import PACKAGED, PLACES, TRAINER
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.megatron.detect_framework import FURTHER, framework_of_launch
from tvlint.readers.megatron.hydra_program import (
    Composed,
    composed_for,
    composed_setting,
    is_read_by_hydra,
    misspelled_configuration,
    mistakes,
    starts_from_package,
)
from tvlint.readers.megatron.launcher import split_launch
from tvlint.readers.megatron.launcher_options import mistaken_hydra_options, mistaken_launcher_options
from tvlint.readers.megatron.nested_commands import readings
from tvlint.readers.megatron.sections import ELSEWHERE
from tvlint.readers.megatron.trainer_checks import counts_otherwise
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import (
    Item,
    Word,
    after,
    before,
    from_outside,
    known_text,
    leading_text,
    location_of,
    span_of,
    unknown_reason,
)
from tvlint.readers.sources.rank_counts import product_of_counts
from tvlint.readers.sources.scalar_values import yaml_typed

FORMAT = "hydra-overrides"
OVERRIDE = Pattern(r"\+{0,2}(?P<section>[A-Za-z_][\w.@-]*)\.(?P<name>[A-Za-z_]\w*)=")
DELETED = Pattern(r"~(?P<path>[A-Za-z_][\w.@-]*)")
SIZES = Pattern(r"(?:tensor|pipeline|context|expert)_(?:model_|tensor_)?parallel_size")
LISTED = Pattern(r"[\[{]")
OPENED = Pattern(r"[\[{\"']")
CLOSED_BY = {"[": "]", "{": "}", '"': '"', "'": "'"}
OTHERWISE = Unknown("the trainer in the checkout does not hold it to the train batch: it may count something else", given=True)
MODEL = Pattern(r"\+{0,2}(?P<holder>[\w.]+)\.model\.path=")
GPUS = (("trainer.n_gpus_per_node", "trainer.nnodes"), ("trainer.devices", "trainer.num_nodes"))
"""Where frameworks say how many GPUs a node has, and how many nodes there are."""
NODES = frozenset(nodes.rpartition(".")[2] for _, nodes in GPUS)


def refused(evaluation: Evaluation) -> Iterator[Finding]:
    """Yield the options that the launcher of a command does not have, and the overrides that its program refuses, where its
    source is around the script.
    """
    for _, words in _launches(evaluation):
        launch = split_launch(words)
        yield from mistaken_launcher_options(launch)
        composed = composed_for(words, evaluation.source.path)
        is_alone = composed is not None and is_read_by_hydra(launch, evaluation.source.path)
        yield from mistaken_hydra_options(launch, is_alone=is_alone)
        yield from misspelled_configuration(words, evaluation.source.path)
        yield from _broken(launch.arguments)
        if composed is not None:
            yield from mistakes(words, composed)


def _broken(words: Iterable[Item]) -> Iterator[Finding]:
    """Yield a finding for each value of an override that opens a list, a mapping or a text and does not close it."""
    for item in words:
        match = OVERRIDE.match(leading_text(item.pieces)) if isinstance(item, Word) else None
        pieces = after(item.pieces, match.end()) if match is not None and isinstance(item, Word) else ()
        text = known_text(pieces) or ""
        open_end = _open_end(text) if OPENED.match(text) else ""
        if open_end:
            message = f"a `{open_end}` is missing in the value of this override"
            yield Finding("broken-override", Severity.ERROR, message, location_of(span_of(pieces)), f"write the `{open_end}`")


def _open_end(text: str) -> str:
    """Return the sign that must still follow the text, or stand in it in another place; empty where all are closed."""
    ends: list[str] = []
    places = iter(range(len(text)))
    for place in places:
        sign = text[place]
        if sign == "\\":
            next(places, None)
        elif ends and ends[-1] in "\"'":
            if sign == ends[-1]:
                ends.pop()
        elif sign in CLOSED_BY:
            ends.append(CLOSED_BY[sign])
        elif ends and sign == ends[-1]:
            ends.pop()
        elif sign in "]}":
            return ends[-1] if ends else ""
    return ends[-1] if ends else ""


def mistaken(configurations: Iterable[Configuration]) -> Iterator[Finding]:
    """Yield the overrides that Megatron core would not take, whatever program hands them on."""
    from tvlint.readers.megatron.section_values import misspelled_overrides, mistaken_values

    for configuration in configurations:
        yield from mistaken_values(configuration)
        yield from misspelled_overrides(configuration)


def _launches(evaluation: Evaluation) -> Iterator[tuple[Command, tuple[Item, ...]]]:
    for command in evaluation.commands:
        yield from ((command, words) for words in readings(evaluation, command, _has_overrides))


def configurations(evaluation: Evaluation) -> Iterator[Configuration]:
    """Yield what each command overrides in each section that has parallel sizes; never complete."""
    for command, words in _launches(evaluation):
        overrides = _overrides(words)
        framework = _framework(evaluation.source.path, words, overrides)
        program = split_launch(words).path.removesuffix(".py").replace("/", ".")
        is_trainer = f".{program}".endswith(f".{TRAINER}")
        trainer = _of_trainer(overrides, composed_for(words, evaluation.source.path)) if is_trainer else {}
        if is_trainer and starts_from_package(words, evaluation.source.path):
            trainer = {**_packaged(location_of(command.span)), **trainer}
        if is_trainer and "ppo_mini_batch_size" in trainer and counts_otherwise(evaluation.source.path):
            trainer["ppo_mini_batch_size"] = replace(trainer["ppo_mini_batch_size"], value=OTHERWISE)
        world_size = _world_size(overrides)
        sections = dict.fromkeys(_section(path) for path in overrides if SIZES.fullmatch(path.rpartition(".")[2]))
        found: list[Configuration] = []
        for section in sections:
            settings = {
                setting.name: setting
                for path, setting in overrides.items()
                if _section(path) == section and (option_of(setting.name) or SIZES.fullmatch(setting.name))
            }
            settings = {**trainer, **_of_others(section, overrides), **settings}
            if world_size is not None and not _has_ranks_of_its_own(section, overrides):
                settings["world_size"] = world_size
            path = evaluation.source.path
            place = location_of(command.span)
            found.append(
                Configuration(
                    path,
                    FORMAT,
                    framework,
                    settings,
                    {},
                    section,
                    False,
                    place,
                    elsewhere=ELSEWHERE,
                    model=_model(section, words),
                )
            )
        yield from (replace(found[0], beside=_beside(found, overrides)), *found[1:]) if found else ()


def _beside(found: Sequence[Configuration], overrides: dict[str, Setting]) -> dict[str, Setting]:
    """Return the overrides that no configuration of the command has as a known setting."""
    settings = (setting for each in found for setting in each.settings.values())
    given = {setting.written for setting in settings if not isinstance(setting.value, Unknown)}
    return {path: setting for path, setting in overrides.items() if path not in given}


def _of_trainer(overrides: dict[str, Setting], composed: Composed | None) -> dict[str, Setting]:
    """Return the settings of verl's trainer that a command gives, or else the configuration that it starts from."""
    found = {name: overrides.get(path) for name, path in PLACES.items()}
    if composed is not None:
        found = {name: given or composed_setting(composed, name, PLACES[name]) for name, given in found.items()}
    return {name: replace(setting, name=name) for name, setting in found.items() if setting is not None}


def _packaged(place: Location) -> dict[str, Setting]:
    return {name: Setting(name, value, PLACES[name], place, place) for name, value in PACKAGED.items()}


def _section(path: str) -> str:
    """Return the section of an override, to which the settings that it has further belong."""
    return path.rpartition(".")[0].removesuffix(f".{FURTHER}")


def _of_others(section: str, overrides: dict[str, Setting]) -> dict[str, Setting]:
    """Return the unusual settings that a command gives to other sections, which this one may take from there."""
    reason = Unknown("another section sets it, and this one may take it from there")
    others = {setting.name: setting for path, setting in overrides.items() if _section(path) != section}
    return {name: replace(other, value=reason) for name, other in others.items() if option_of(name) and name not in USUAL}


def _has_overrides(words: Sequence[Item]) -> bool:
    return any(isinstance(item, Word) and OVERRIDE.match(leading_text(item.pieces)) for item in words)


def _overrides(words: Sequence[Item]) -> dict[str, Setting]:
    """The overrides of a command by their whole path; the last one wins, as it does in Hydra, and `~path` takes one back."""
    found: dict[str, Setting] = {}
    for item in words:
        if not isinstance(item, Word):
            continue
        deleted = DELETED.match(leading_text(item.pieces))
        if deleted is not None:
            gone = deleted["path"]
            found = {path: setting for path, setting in found.items() if path != gone and not path.startswith(f"{gone}.")}
            continue
        match = OVERRIDE.match(leading_text(item.pieces))
        if match is None:
            continue
        path = f"{match['section']}.{match['name']}"
        name = CANONICAL.get(match["name"], match["name"])
        name_span = span_of(before(item.pieces, match.end() - 1))
        pieces = after(item.pieces, match.end())
        text = known_text(pieces)
        value: SettingValue | Unknown
        if text is None:
            value = Unknown(unknown_reason(pieces))
        elif text == "1" and from_outside(pieces) and any(path in paths for paths in GPUS):
            value = Unknown("the environment may set it")
        elif "${" in text or LISTED.match(text):
            value = Unknown("depends on an interpolation or a list")
        else:
            value = yaml_typed(option_of(name), text, True)
        span = span_of(pieces) if pieces else name_span
        found[path] = Setting(name, value, path, location_of(span), location_of(name_span))
    return found


def _world_size(overrides: dict[str, Setting]) -> Setting | None:
    for paths in GPUS:
        given = [overrides[path] for path in paths if path in overrides]
        if len(given) < len(paths):
            continue
        total = product_of_counts(setting.value for setting in given)
        return Setting("world_size", total, "world size", given[0].location, given[0].name_location) if total else None
    return None


def _model(section: str, words: Sequence[Item]) -> str:
    """Return the path of the model that is nearest around the section, from where it is known; empty where none is given."""
    found: dict[str, str] = {}
    for item in words:
        match = OVERRIDE.match(leading_text(item.pieces)) if isinstance(item, Word) else None
        if isinstance(item, Word) and match is not None and (holder := MODEL.fullmatch(match[0])) is not None:
            last = after(item.pieces, match.end())[-1:]
            found[holder["holder"]] = known_text(last) or ""
    around = [holder for holder in found if f"{section}.".startswith(f"{holder}.")]
    return found[max(around, key=len)] if around else ""


def _has_ranks_of_its_own(section: str, overrides: dict[str, Setting]) -> bool:
    """Return whether the command says how many nodes run what is around the section, or has its name at the top."""
    parts = section.split(".")
    holders = {*(".".join(parts[:length]) for length in range(1, len(parts) + 1)), parts[-1]}
    given = (overrides[path] for path in (f"{holder}.{nodes}" for holder in holders for nodes in NODES) if path in overrides)
    return any(setting.value != 0 for setting in given if setting.written not in {nodes for _, nodes in GPUS})


def _framework(script: str, words: Sequence[Item], overrides: dict[str, Setting]) -> str:
    """Return the framework that a command runs; some user of Megatron core where nothing tells."""
    if any(path.startswith("actor_rollout_ref.") for path in overrides):
        return "verl"
    found = framework_of_launch(split_launch(words).path, script, ())
    if found != MEGATRON:
        return found
    return "nemo" if any(path.startswith("exp_manager.") for path in overrides) else CORE
