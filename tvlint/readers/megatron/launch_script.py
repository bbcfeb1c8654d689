"""Launch scripts that pass Megatron options: every launch becomes a configuration; nothing in the script is run."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tvlint.findings import Finding, Severity
from tvlint.frameworks.kin import parses_like_megatron
from tvlint.frameworks.megatron import hyphens, is_option
from tvlint.ir.configuration import Configuration, Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.megatron import hydra_overrides
from tvlint.readers.megatron.arguments import Arguments, flag_of, read_arguments
from tvlint.readers.megatron.detect_framework import SWIFT, framework_of_launch, version_of_script
from tvlint.readers.megatron.gpus import generation_of
from tvlint.readers.megatron.invalid_options import carriage_return, option_mistakes, with_meant
from tvlint.readers.megatron.launcher import Launch, begins_with_file, split_launch, world_size
from tvlint.readers.megatron.launcher_options import mistaken_launcher_options
from tvlint.readers.megatron.misspelled_program import misspelled_program
from tvlint.readers.megatron.nested_commands import readings
from tvlint.readers.megatron.recognise_launch import names_options, starts_others
from tvlint.readers.megatron.section_values import mistaken_values
from tvlint.readers.megatron.visible_gpus import beyond_visible
from tvlint.readers.not_followed import launches_in
from tvlint.readers.shell.alternatives import alternatives
from tvlint.readers.shell.evaluate import STEPS, Evaluation, evaluate
from tvlint.readers.shell.lexer import commands_in
from tvlint.readers.shell.slips import slips
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import (
    Fork,
    Gap,
    Item,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    known_text,
    line_of,
    location_of,
    source_of,
    span_of,
    unknown_reason,
)
from tvlint.readers.shell.words import split_value
from tvlint.readers.sources.rank_counts import product_of_counts
from tvlint.readers.sources.scalar_values import environment_value

FORMAT = "megatron-shell"
LARGEST = 2 << 20
DISTINCT = frozenset(
    {
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--context-parallel-size",
        "--expert-model-parallel-size",
        "--expert-tensor-parallel-size",
        "--num-layers-per-virtual-pipeline-stage",
        "--sequence-parallel",
        "--micro-batch-size",
        "--global-batch-size",
        "--num-attention-heads",
        "--max-position-embeddings",
        "--use-distributed-optimizer",
    }
)
SIZES_OF_ANY = frozenset({"--micro-batch-size", "--global-batch-size", "--num-attention-heads", "--max-position-embeddings"})
"""Those of them that other programs have too, as all their options spelled with underscores."""
FEWEST_SIZES = 3
"""So many of them no other program has."""
MOST_CASES = 32
"""Of more texts that a script names of its variables, only the first are tried."""
NOT_TRIED = "branches-not-tried"
TRAINS = frozenset({"global_batch_size", "train_iters", "train_samples"})
"""Settings that a launch which trains gives one of; what converts checkpoints gives sizes that it does not use."""
MOST_SHOWN = 2
"""Of more words that may set more, only the first are named."""
LINES = re.compile(r"[\\\n]")
"""What only a text of several lines or of commands holds."""
STEPS_OF_STARTER = 40_000
"""So much work is worth a script that names no option of Megatron, and may start one that does."""


def read(path: str, data: bytes) -> Document | None:
    """Return the configurations of the script; None where it passes Megatron options to nothing."""
    refuse_larger(path, data, LARGEST, "script")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise ReadError("the script contains a NUL byte", Location(path, line))
    is_telling = names_options(path, data) or not starts_others(path, data)
    try:
        evaluation = evaluate(source_of(path, data), steps=STEPS if is_telling else STEPS_OF_STARTER)
    except ReadError:
        if is_telling:
            raise
        return None
    if evaluation.gave_up and not is_telling:
        return None
    if evaluation.gave_up:
        raise ReadError("the script is too complex to be followed statically", Location(path, 1))
    findings: dict[Finding, None] = {}
    version = version_of_script(evaluation.source.text)
    configurations = list[Configuration]()
    launches: list[Span] = []
    for configuration, command, launch, arguments in launched(evaluation, version):
        mistakes = [*option_mistakes(configuration, arguments.surplus, launch.path or launch.program, arguments.short)]
        configurations.append(with_meant(configuration, mistakes))
        findings.update(dict.fromkeys((*mistakes, *mistaken_values(configuration), *mistaken_launcher_options(launch))))
        findings.update(
            dict.fromkeys((*misspelled_program(launch, configuration.path), *beyond_visible(launch, command.exported)))
        )
        launches.append(command.span)
    if not configurations:
        overrides, refused = _overridden(evaluation)
        if overrides or refused:
            refused.update(dict.fromkeys((*hydra_overrides.mistaken(overrides), *carriage_return(evaluation.source))))
            refused.update(dict.fromkeys(slips(evaluation, (), starts_some=False)))
            return Document(path, hydra_overrides.FORMAT, configurations=overrides, findings=tuple(refused))
    only_lists = not configurations
    if only_lists:
        configurations, surplus = of_lists(evaluation, version)
        mistaken = [(each, [*option_mistakes(each, surplus)]) for each in configurations]
        configurations = [with_meant(each, mistakes) for each, mistakes in mistaken]
        findings.update(dict.fromkeys(finding for _, mistakes in mistaken for finding in mistakes))
    if not configurations:
        return None
    configurations, beyond = _with_cases(evaluation, configurations, version, only_lists)
    findings.update(dict.fromkeys(beyond))
    findings.update(dict.fromkeys(carriage_return(evaluation.source)))
    starts_some = bool(launches) or any(_options(command.words) for command in evaluation.commands)
    findings.update(dict.fromkeys(slips(evaluation, launches, starts_some)))
    findings.update(dict.fromkeys(_not_followed(evaluation, configurations)))
    return Document(path, FORMAT, configurations=_named(configurations), findings=tuple(findings))


def _overridden(evaluation: Evaluation) -> tuple[tuple[Configuration, ...], dict[Finding, None]]:
    """Return what the commands override, those too that are reached for a text of a variable only, and what Hydra refuses."""
    found = {(each.location, each.section): each for each in hydra_overrides.configurations(evaluation)}
    refused = dict.fromkeys(hydra_overrides.refused(evaluation))
    if found or refused:
        for condition, case in _supposed(evaluation, _texts(evaluation)):
            for each in hydra_overrides.configurations(case):
                found.setdefault((each.location, each.section), replace(each, condition=condition))
            refused.update(dict.fromkeys(hydra_overrides.refused(case)))
    return tuple(found.values()), refused


def launched(evaluation: Evaluation, version: str) -> Iterable[tuple[Configuration, Command, Launch, Arguments]]:
    """Yield the configuration of each command that passes Megatron options, and what it was read from."""
    for command, words in _launches(evaluation, evaluation.commands):
        launch = split_launch(words)
        arguments = read_arguments(launch.arguments, with_truth=launch.program in SWIFT)
        yield _configuration(evaluation, command, launch, arguments, version), command, launch, arguments


def _with_cases(
    evaluation: Evaluation, configurations: Sequence[Configuration], version: str, only_lists: bool
) -> tuple[list[Configuration], list[Finding]]:
    """Return the configurations with what they train for each text that the script names of a variable, one at a time.

    A launch that is reached for such a text only comes after them. Where the script launches something, what it does not launch
    for a text is trained by nothing else. Beside them stand mistakes in the options of each. Of too
    many texts, the first are tried, and a finding says so.
    """
    named = _texts(evaluation)
    cases: dict[Location | None, list[Configuration]] = {configuration.location: [] for configuration in configurations}
    mistakes: dict[Finding, None] = {}
    tried = 0
    for condition, this_evaluation in _supposed(evaluation, named):
        tried += 1
        found = [
            (configuration, launch.path or launch.program) for configuration, _, launch, _ in launched(this_evaluation, version)
        ]
        for each_configuration, program in found or [
            (configuration, "") for configuration in (of_lists(this_evaluation, version)[0] if only_lists else ())
        ]:
            mistakes.update(dict.fromkeys(option_mistakes(each_configuration, program=program)))
            if TRAINS & each_configuration.settings.keys():
                cases.setdefault(each_configuration.location, []).append(replace(each_configuration, condition=condition))
    whole = {configuration.location: configuration for configuration in configurations}
    judged = [replace(each, cases=tuple(distinct_cases(each, cases[each.location]))) for each in configurations]
    judged += [
        replace(findings[0], cases=tuple(findings[1:]))
        for location, findings in cases.items()
        if findings and location not in whole
    ]
    return judged, [*mistakes, *([_untried(evaluation, tried, len(named))] if tried < len(named) else [])]


def _texts(evaluation: Evaluation) -> list[tuple[str, str]]:
    tree = evaluation.syntax.tree(evaluation.source)
    return [(name, text) for name, texts in alternatives(evaluation.source, tree).items() for text in texts]


def _supposed(evaluation: Evaluation, named: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Evaluation]]:
    """Yield what the script does where a variable has one of the first texts, with that condition; all within its steps."""
    steps = evaluation.steps
    for name, text in named[:MOST_CASES]:
        case = evaluate(evaluation.source, supposed={name: text}, steps=steps, syntax=evaluation.syntax)
        steps = case.steps
        if case.gave_up:
            return
        yield f" with `{name}={text}`" if not name.isdigit() else f" with `{text}` as argument {name}", case


def distinct_cases(configuration: Configuration, cases: Iterable[Configuration]) -> Iterable[Configuration]:
    """Yield the cases that set something else than the configuration and the cases before."""
    seen = [_set_by(configuration)]
    for case in cases:
        names = _set_by(case)
        if names not in seen:
            seen.append(names)
            yield case


def _set_by(configuration: Configuration) -> dict[str, SettingValue | Unknown]:
    both = (*configuration.settings.values(), *configuration.environment.values())
    return {setting.written: setting.value for setting in both}


def _untried(evaluation: Evaluation, tried: int, count: int) -> Finding:
    message = f"the script branches on {count} texts of variables, and {tried} of them are tried"
    place = Location(evaluation.source.path, 1)
    return Finding(NOT_TRIED, Severity.NOTE, message, place, "split the script, or check it with the others by hand")


def _not_followed(evaluation: Evaluation, configurations: Iterable[Configuration]) -> Iterable[Finding]:
    """Return the options that the script passes where it is no syntax of a shell, and that no configuration has."""
    settings = (
        setting for configuration in configurations for setting in (*configuration.overridden, *configuration.settings.values())
    )
    lines = frozenset(each.name_location.line for each in settings if each.name_location.path == evaluation.source.path)
    return launches_in(evaluation.source.path, evaluation.source.data, evaluation.errors, lines)


def _launches(evaluation: Evaluation, commands: Iterable[Command]) -> Iterable[tuple[Command, tuple[Item, ...]]]:
    """Every command that passes Megatron options, looked for also in the strings that it hands to another shell."""
    seen: set[tuple[int, int]] = set()
    for command in commands:
        for words in readings(evaluation, command, lambda words: bool(_options(words))):
            if not is_launch(words):
                continue
            key = (id(command.span.source), command.span.start)
            if key in seen:
                continue
            seen.add(key)
            yield command, words


def _options(words: Sequence[Item]) -> list[str]:
    """Return the Megatron options among `words` as they are spelled, those on undecided paths too."""
    found: list[str] = []
    pending = list(words)
    while pending:
        item = pending.pop()
        if isinstance(item, Fork):
            for alternative in item.alternatives:
                pending.extend(alternative)
        elif (flag := flag_of(item)) and is_option(flag):
            found.append(flag)
    return found


def is_launch(words: Sequence[Item]) -> bool:
    """Return whether the words pass options that only Megatron has."""
    found = set(_options(words))
    return (len(found) >= 2 and _are_distinct(found)) or "--tensor-model-parallel-size" in map(hyphens, found)


def _are_distinct(flags: Collection[str]) -> bool:
    """Return whether only Megatron has such options; where all are spelled with underscores, few sizes that any program has do
    not tell.
    """
    distinct = DISTINCT.intersection(map(hyphens, flags))
    has_hyphens = any("-" in flag[2:] for flag in flags)
    return bool(distinct if has_hyphens or len(distinct) >= FEWEST_SIZES else distinct - SIZES_OF_ANY)


def _configuration(
    evaluation: Evaluation, command: Command, launch: Launch, arguments: Arguments, version: str
) -> Configuration:
    settings, overridden = _last_wins(arguments)
    variables = evaluation.variables if command.variables is None else command.variables
    settings["world_size"] = world_size(launch, variables, command.exported, command.span)
    environment = {name: _exported(name, value, command) for name, value in command.exported.items()}
    path = evaluation.source.path
    flags = [setting.written for setting in settings.values()]
    launchers = [known_text(item.pieces) or "" for item in launch.launcher if isinstance(item, Word)]
    framework = framework_of_launch(launch.path or launch.program, path, flags, launchers, command.exported, _modules(settings))
    if framework == "slime":
        settings["world_size"] = _actors(settings) or settings["world_size"]
    elsewhere = _elsewhere(evaluation, launch, arguments)
    known = not elsewhere and "yaml_cfg" not in settings
    return Configuration(
        path,
        FORMAT,
        framework,
        settings,
        environment,
        f"line {line_of(command.span)}{_of_other_file(command.span, path)}",
        known and parses_like_megatron(framework),
        location_of(command.span),
        version,
        tuple(overridden),
        known and launch.program in SWIFT and not begins_with_file(launch.arguments),
        elsewhere if parses_like_megatron(framework) and "yaml_cfg" not in settings else "",
        gpus=generation_of(path, evaluation.source.text),
    )


def _of_other_file(span: Span, path: str) -> str:
    """Return the name of the file that a command stands in, where it is another than the script."""
    other = span.source.path
    return "" if other == path else f" of {os.path.basename(other)}"


def _elsewhere(evaluation: Evaluation, launch: Launch, arguments: Arguments) -> str:
    """Return what may set more than what is read, as the file writes it; empty where nothing does."""
    if arguments.gaps:
        return " or ".join([*dict.fromkeys(arguments.gaps)][:MOST_SHOWN])
    if launch.gaps:
        return "the words before its options"
    return "a script that is read in before" if evaluation.unresolved_sources else ""


def _modules(settings: Mapping[str, Setting]) -> frozenset[str]:
    """Return the modules that the launch names as the ones that build its layers."""
    value = settings["spec"].value if "spec" in settings else ()
    return frozenset(str(word) for word in (value if isinstance(value, tuple) else (value,)))


def _actors(settings: Mapping[str, Setting]) -> Setting | None:
    """Return the number of ranks that train, where the launch says how many nodes of how many GPUs do."""
    nodes, per_node = settings.get("actor_num_nodes"), settings.get("actor_num_gpus_per_node")
    if nodes is None or per_node is None:
        return None
    value = product_of_counts((nodes.value, per_node.value)) or Unknown("the number of GPUs that train is not known")
    return Setting("world_size", value, "world size", per_node.location, per_node.name_location)


def _last_wins(arguments: Arguments) -> tuple[dict[str, Setting], list[Setting]]:
    settings: dict[str, Setting] = {}
    overridden: list[Setting] = []
    for setting in arguments.settings:
        if setting.name in settings:
            overridden.append(settings[setting.name])
        settings[setting.name] = setting
    return settings, overridden


def _exported(name: str, value: Value, command: Command) -> Setting:
    scalar = value if isinstance(value, Scalar) else None
    text = known_text(scalar.pieces) if scalar is not None else None
    span = span_of(scalar.pieces) if scalar is not None and scalar.pieces else command.span
    known: SettingValue | Unknown
    if text is not None:
        known = environment_value(text)
    else:
        known = Unknown(unknown_reason(scalar.pieces) if scalar is not None else "an array")
    return Setting(name, known, name, location_of(span), location_of(span))


def of_lists(evaluation: Evaluation, version: str) -> tuple[list[Configuration], list[tuple[Setting, Word]]]:
    """Return the one configuration of a script that only sets option lists for another: all lists together, never complete.

    Beside it stand the words that belong to no option, each with the option before it.
    """
    found: dict[str, Setting] = {}
    surplus: list[tuple[Setting, Word]] = []
    for value in evaluation.variables.values():
        words = split_value(value)
        if not _are_distinct(_options(words)) and len(_options(words)) < 3:
            continue
        commands = [(*words, Gap("what stands behind the list", span_of(value.pieces))) if isinstance(value, Scalar) else words]
        if isinstance(value, Scalar) and any(isinstance(piece, Text) and LINES.search(piece.text) for piece in value.pieces):
            commands = [command for command in commands_in(value.pieces, lambda _: None) if _options(command)]
        for command in commands:
            arguments = read_arguments(split_launch(command).arguments)
            surplus += arguments.surplus
            for setting in arguments.settings:
                _add(found, setting)
    if not _are_distinct([setting.written for setting in found.values()]):
        return [], []
    framework = framework_of_launch("", evaluation.source.path, [setting.written for setting in found.values()])
    first = min(found.values(), key=lambda setting: (setting.name_location.path, setting.name_location.line or 0))
    if framework == "slime" and (actors := _actors(found)) is not None:
        found["world_size"] = actors
    path = evaluation.source.path
    taken_by = "the launch that takes these lists" if parses_like_megatron(framework) else ""
    whole = Configuration(
        path, FORMAT, framework, found, complete=False, location=first.name_location, version=version, elsewhere=taken_by
    )
    return [whole], surplus


def _add(found: dict[str, Setting], setting: Setting) -> None:
    other = found.get(setting.name)
    if other is None or other.name_location == setting.name_location:
        found[setting.name] = setting
    elif other.value != setting.value:
        unknown = Unknown("the lists of options in this file disagree on it")
        found[setting.name] = Setting(setting.name, unknown, setting.written, setting.location, setting.name_location)


def _named(configurations: list[Configuration]) -> tuple[Configuration, ...]:
    if len(configurations) > 1:
        return tuple(configurations)
    return (replace(configurations[0], section=""),)
