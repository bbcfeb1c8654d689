"""`tvlint capture`."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvlint.checkout.opening import content
from tvlint.cli.arguments import fail
from tvlint.cli.session import note, unreadable, write
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.launch_script import LARGEST
from tvlint.reporters.escape.terminal import terminal
from tvlint.run.output.exit_code import CLEAN
from tvlint.run.output.outputs import Output, OutputError, write_capture
from tvlint.run.proof.captures import is_capture
from tvlint.run.proof.launches import Made, Ran

if TYPE_CHECKING:
    from tvlint.capture.launch import Launch
    from tvlint.run.project.values import ProofPair


def run(options: argparse.Namespace) -> int:
    """Run the program, record one training step, and write the capture and its plan.

    Exit 2 where the program does not come to the end of a step, or no plan is what it computed.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.name) or options.name.startswith("."):
        fail(f"`--name {options.name}` is no name of a file", "use letters, digits, `-`, `_` and `.`")
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    path = capture_to(launch_of(words, options), options.output, options.name, float(options.timeout))
    if isinstance(path, Problem):
        return unreadable(path)
    note(f"one training step is recorded in `{path}`")
    return _write_plan(path, options.reference)


def launch_of(command: Sequence[str] | str, options: argparse.Namespace) -> Launch:
    """Return the launch that a command is; end the process where it is none."""
    from tvlint.capture.launch import LaunchError

    try:
        return launched(words_of(command) if isinstance(command, str) else command, options)
    except LaunchError as error:
        fail(str(error), error.help)


def words_of(command: str) -> list[str]:
    """Return the words of a command. Raises LaunchError where a quotation has no end."""
    from tvlint.capture.launch import LaunchError

    try:
        return shlex.split(command)
    except ValueError as error:
        raise LaunchError(f"the command cannot be split into words: {str(error).lower()}") from None


def launched(words: Sequence[str], options: argparse.Namespace) -> Launch:
    """Return the launch that a command is, or that a launch script starts, with the sizes that the options give.

    Raises LaunchError where it is none that can be captured.
    """
    from tvlint.capture.fitting import fitted
    from tvlint.capture.launch import Sizes, assignments, parse_launch

    environment, rest = assignments(words)
    script = rest[1:] if rest[:1] and os.path.basename(rest[0]) in _SHELLS else rest
    started = bool(script) and script[0].endswith(_SCRIPTS)
    launch = _of_script(script[0], environment, script[1:]) if started else parse_launch(words)
    return fitted(replace(launch, sizes=Sizes(options.layers, options.hidden, options.sequence)))


_SHELLS = frozenset({"bash", "sh", "sbatch", "source"})
_SCRIPTS = (".sh", ".sbatch", ".slurm", ".bash")


def _of_script(path: str, environment: Sequence[tuple[str, str]], arguments: Sequence[str]) -> Launch:
    """Return the launch of the one program with Megatron's options that a script starts, whose words are read, not run."""
    from tvlint.capture.launch import Launch, LaunchError
    from tvlint.frameworks.megatron_on_cpu import OUTSIDE_THE_STEP
    from tvlint.readers.megatron.started_programs import started_by

    unread = frozenset("--" + name.replace("_", "-") for name in OUTSIDE_THE_STEP)
    try:
        given = {"PWD": os.getcwd(), "HOME": os.path.expanduser("~"), **dict(environment)}
        found = started_by(path, content(path, LARGEST), given, arguments or None, unread)
    except ReadError as error:
        where = error.problem.location
        raise LaunchError(f"{where.path}:{where.line}: {error.problem.message}", error.problem.help or "") from None
    except OSError:
        raise LaunchError(f"there is no script `{path}`", "name it from this folder") from None
    if len(found) != 1:
        lines = ", ".join(str(each_started.location.line) for each_started in found)
        text = f"`{path}` starts {len(found)} programs with Megatron's options" + (f", at lines {lines}" if found else "")
        raise LaunchError(text, "give the command that it starts: `-- torchrun ... pretrain_gpt.py ARGS`")
    (started,) = found
    for words in started.left_out:
        note(f"`{words}` in `{path}` is not known, and left out")
    known = dict((*environment, *started.environment))
    return Launch(started.ranks, _beside(started.program, path), started.arguments, environment=tuple(known.items()))


def _beside(program: str, script: str) -> str:
    """Return the path of a program whose folder may not be known: in this folder, or in one above that of the script."""
    folder = os.path.dirname(os.path.abspath(script))
    while True:
        for name in (program, os.path.join(folder, program.lstrip("/")), os.path.join(folder, os.path.basename(program))):
            if os.path.isfile(name):
                return os.path.relpath(name)
        if folder == os.path.dirname(folder):
            return program
        folder = os.path.dirname(folder)


def capture_proof(proof: ProofPair, folder: str, options: argparse.Namespace) -> Made | Problem:
    """Capture the program that a `[[proof]]` launches, and its reference, into a folder; or return why that cannot be."""
    from tvlint.capture.launch import LaunchError
    from tvlint.capture.processes import Failure, capture

    wanted, made = {}, {}
    files, folders = set[str](), set[str]()
    try:
        wanted["parallel"] = launched(words_of(proof.launch), options)
        if is_capture(proof.reference):
            made["reference"] = os.path.abspath(proof.reference)
            files.add(made["reference"])
        else:
            words = words_of(proof.reference)
            wanted["reference"] = launched(words, options) if words else wanted["parallel"].single
        for name, launch in wanted.items():
            found = capture(launch, float(options.timeout))
            made[name] = os.path.join(folder, f"{name}.capture.jsonl.gz")
            write_capture(made[name], found.data)
            files.update(found.files)
            folders.update(found.folders)
    except LaunchError as error:
        return Problem(f"`{proof.launch}`: {error}", proof.location, error.help)
    except Failure as failure:
        return Problem(str(failure), Location(failure.path, failure.line), failure.help)
    return Made(made["parallel"], made["reference"], Ran(tuple(sorted(files)), tuple(sorted(folders))))


def capture_to(launch: Launch, folder: str, name: str, seconds: float) -> str | Problem:
    """Run a program and write its capture; return the path, or why there is none."""
    from tvlint.capture.launch import LaunchError
    from tvlint.capture.processes import Failure, capture

    try:
        data = capture(launch, seconds).data
    except LaunchError as error:
        fail(str(error), error.help)
    except Failure as failure:
        return Problem(str(failure), Location(failure.path, failure.line), failure.help)
    path = os.path.join(folder, f"{name}.capture.jsonl.gz")
    try:
        write_capture(path, data)
    except OutputError as error:
        fail(str(error), error.help)
    return path


def _write_plan(path: str, reference: str) -> int:
    """Write the plan beside its capture, where its replay gives what the program computed."""
    from tvlint.reporters.plan import json as plan_json
    from tvlint.run.proof.captures import read_captures, read_single, replayed

    single = read_single(path) if not reference else None
    if single is None and not reference:
        note("a plan of several ranks is written with the single-device capture: `--reference CAPTURE`")
        return CLEAN
    found = read_captures(path, reference) if single is None else single
    if isinstance(found, Problem):
        return unreadable(found)
    recorded = found[0] if isinstance(found, tuple) else found
    if recorded.problem is not None:
        return unreadable(recorded.problem)
    this_replayed = replayed(recorded)
    if this_replayed.problem:
        return unreadable(
            Problem(
                f"the plan {this_replayed.problem}", this_replayed.location or Location(path), "the capture is kept; no plan is"
            )
        )
    target = path.removesuffix(".capture.jsonl.gz") + ".plan.json"
    write({Output("json", target): terminal(plan_json.write(recorded.plan).removesuffix("\n").split("\n"))})
    note(f"its plan is `{target}`: {this_replayed.compared} gradients agree with the program")
    return CLEAN
