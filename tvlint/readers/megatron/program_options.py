"""Options of any program in the tree that has a parser of its own, whatever framework it is of."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tvlint.checkout.opening import is_file
from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.contradictions import contradictions
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.arguments import flag_of, read_arguments
from tvlint.readers.megatron.declared_options import declared
from tvlint.readers.megatron.hydra_overrides import refused
from tvlint.readers.megatron.invalid_options import left_over, refused_by_source
from tvlint.readers.megatron.launcher import LAUNCHERS, Launch, split_launch
from tvlint.readers.megatron.launcher_options import SRUN, mistaken_launcher_options
from tvlint.readers.megatron.local_parser import local_parser
from tvlint.readers.megatron.nested_commands import name_of, readings
from tvlint.readers.megatron.packaged_parser import packaged_parser
from tvlint.readers.megatron.parser_source import ParserSource
from tvlint.readers.megatron.program import around
from tvlint.readers.megatron.unknown_options import slips_of_options, unknown_options
from tvlint.readers.megatron.visible_gpus import beyond_visible
from tvlint.readers.shell.evaluate import evaluate
from tvlint.readers.shell.values import Word, known_text, source_of
from tvlint.readers.torchtitan_source import declared_tables

LARGEST = 1 << 18
STEPS = 40_000
STARTS = Pattern(
    rb"(?:^|\s)(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|-m|--module|swift|llamafactory-cli|lmf)\s|\.py\b"
)
OF_TRAINER = frozenset({"--per_device_train_batch_size", "--load_best_model_at_end"})
"""Options by which a parser is known to have the training arguments of transformers."""
OPTION = Pattern(rb"\s--")
OF_TRAINING = Pattern(r"(?:micro|train|device)[-_]batch[-_]size|parallel[-_]size|zero[-_]stage|--deepspeed$")
"""Options that a program has which trains on many ranks, even one that starts them by itself."""
TRAINS_JOBS = Pattern(r"(?:^|/)train\.py$|^torchtitan\.train$")
"""How the program of torchtitan is called."""
MOVES = frozenset({"cd", "pushd"})
"""Behind which a program may be one of another folder."""
MOVES_IN = Pattern(rb"(?<!\$\()(?<!\$\( )\b(?:cd|pushd)\s")
"""The same in a text for another shell, of which only the commands with options are seen; what looks for a folder moves
nothing (`$(cd "$(dirname "$0")" && pwd)`)."""


def option_mistakes_of_programs(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what launchers refuse of their options, and programs of theirs that alone say what they take."""
    if not OPTION.search(data) or len(data) > LARGEST or b"\0" in data or not STARTS.search(data):
        return
    try:
        evaluation = evaluate(source_of(path, data), steps=STEPS)
    except ReadError:
        return
    is_moved = False
    for command in () if evaluation.gave_up else evaluation.commands:
        is_moved = is_moved or name_of(command) in MOVES
        for words in readings(evaluation, command, lambda words: any(map(flag_of, words))):
            launch = split_launch(words)
            yield from mistaken_launcher_options(launch) if launch.path or name_of(command) == SRUN else ()
            yield from beyond_visible(launch, command.exported)
            may_be_moved = is_moved or (words is not command.words and MOVES_IN.search(data) is not None)
            program = _only_file(launch.path, path) if launch.path and not may_be_moved else ""
            parser = (local_parser(program, path) if program else None) or packaged_parser(launch.program, launch.path)
            if parser is None and TRAINS_JOBS.search(launch.path):
                parser = _parser_of_jobs(launch.path, path)
            if parser is not None and (_starts_ranks(launch) or any(map(OF_TRAINING.search, parser.flags))):
                yield from _mistakes(path, launch, parser)
    yield from () if evaluation.gave_up or is_moved else refused(evaluation)


def _parser_of_jobs(program: str, script: str) -> ParserSource | None:
    """Return what torchtitan takes, `--table.field` for each field of the tree around the script; None where there is none."""
    tables = declared_tables(script)
    flags = {f"--{table}.{name}" for table, fields in tables.items() if table for name in fields}
    both = frozenset((*flags, *(flag.replace("_", "-") for flag in flags)))
    parser = ParserSource(program, both, closed=False, takes_words=True, abbreviates=True, naming={}, checkout="")
    return replace(parser, declares=False, is_packaged=True) if flags else None


def _starts_ranks(launch: Launch) -> bool:
    """Return whether a program is started as the ranks of a job: options of other programs are no matter of parallelism."""
    words = (known_text(item.pieces) or "" for item in launch.launcher if isinstance(item, Word))
    names = {word.rpartition("/")[2] for word in words}
    return not names.isdisjoint(LAUNCHERS) or names.issuperset(("ray", "submit"))


def _only_file(program: str, script: str) -> str:
    """Return the one file that the program may be, from whichever folder around the script it is started; empty for several.

    Behind a folder that is not known, it may be a file of another repository.
    """
    if program.startswith("/"):
        return ""
    module = program.replace(".", os.sep)
    names = (program,) if program.endswith(".py") else (f"{module}.py", os.path.join(module, "__main__.py"))
    folders = tuple(around(os.path.abspath(os.path.dirname(script))))
    paths = (os.path.normpath(os.path.join(folder, name)) for folder in folders for name in names)
    found = [path for path in paths if is_file(path)]
    return found[0] if len(found) == 1 else ""


def _mistakes(path: str, launch: Launch, parser: ParserSource) -> Iterator[Finding]:
    arguments = read_arguments(launch.arguments, known_of=lambda flag: declared(parser, flag))
    configuration = Configuration(path, "", "", {each.name: each for each in arguments.settings})
    if parser.closed:
        yield from unknown_options(configuration, arguments.settings, launch.path, parser)
    else:
        yield from slips_of_options(arguments.settings, parser)
    for setting in arguments.settings:
        yield from refused_by_source(setting, configuration, parser)
    if parser.stated.keys() >= OF_TRAINER:
        yield from contradictions(configuration.settings)
    for setting, word in () if parser.takes_words else arguments.surplus:
        if (known := declared(parser, setting.written)) is not None:
            yield from left_over(setting, known, word)
