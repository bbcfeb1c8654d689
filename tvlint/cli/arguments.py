"""The arguments of every command."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import zip_longest
from typing import Any, NoReturn

from tvlint import __version__
from tvlint.cli.options import (
    accelerator,
    budget,
    choice,
    color,
    excluding,
    fixing,
    judging,
    natural,
    outputs,
    path,
    positive,
    project_file,
    quiet,
    remembering,
    reporting,
    world_size,
)
from tvlint.findings import Severity
from tvlint.near_names import did_you_mean
from tvlint.rule import RuleKind
from tvlint.run.output.exit_code import INPUT
from tvlint.run.output.outputs import say

_ABOUT = """\
Lint parallel training configurations and prove that a parallel plan trains the same model.
No GPU, no cluster, no network: tvlint reads files and runs nothing that is in them."""

_EXAMPLES = """\
examples:
  tvlint check                                  check what the project file names, or this folder
  tvlint check train.sh configs/                check a launch script and a folder
  tvlint check -o text -o sarif:tvlint.sarif    readable on the screen, SARIF in a file
  tvlint prove tp2.pkl --reference single.pkl   prove a parallel plan against its reference
  tvlint explain heads-not-divisible-by-tp      what a rule says, and why

exit codes:
  0  clean                         3  internal error
  1  findings, or a refuted proof  4  nothing to check
  2  usage or input problem        5  a proof is unknown, none is refuted"""


ELSEWHERE = {
    "fix": "check --fix",
    "format": "check --fix",
    "help": "--help",
    "lint": "check",
    "linters": "rules",
    "ls-lint-rules": "rules",
    "rule": "explain RULE",
    "run": "check",
    "server": "lsp",
    "version": "--version",
}
"""What commands of other linters are here."""
_WITHOUT_BUDGET = frozenset({"rules", "explain", "completion"})
"""Commands that open no file of the user."""


class _Shape(argparse.RawDescriptionHelpFormatter):
    """Help that fits on a screen: a short usage, and each option on a line where there is room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_OPTIONS, width=_OPTIONS * 4)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal: its width is not asked for each argument that a command has."""
        import shutil

        self._width = shutil.get_terminal_size().columns - 2
        self._max_help_position = min(_OPTIONS, max(self._width - 20, 4))
        return super().format_help()

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Name the arguments; the options are listed below."""
        plain = [action for action in actions if not action.option_strings]
        if len(plain) < len(actions) and usage is None and len(actions) > _FEW:
            words = " ".join(self._format_args(action, action.dest) for action in plain)
            usage = f"%(prog)s [OPTIONS] {words}".rstrip()
        super().add_usage(usage, actions, groups, prefix)


_OPTIONS = 28
"""The columns of an option, before its help."""
_FEW = 4
"""So many options stand in the usage of a command."""


_RARE = frozenset({
    "--stdin-filename", "--timeout", "--layers", "--hidden", "--sequence", "--no-ignore-comments", "--may-be-empty",
    "--exit-zero", "--no-baseline", "--show-files", "--unsafe-fixes", "--add-ignores", "--policy", "--budget", "--traceback",
    "--color", "--statistics",
})  # fmt: skip
"""Options that `--help` leaves to `--help-all` where a command has more than fit on a screen."""
_MANY = 30
"""So many options do not fit."""


class _HelpOnAll(argparse.Action):
    """Shows the help with the rare options."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> NoReturn:
        parser.shows_rare = True
        parser.print_help()
        raise SystemExit(0)


class _Parser(argparse.ArgumentParser):
    """Errors say what was meant, without the whole usage; help fits on a screen."""

    shows_rare = False

    def format_help(self) -> str:
        """Return the help, without the rare ones of many options unless they are asked for."""
        if self.shows_rare or len(self._actions) < _MANY:
            return super().format_help()
        helps = {action: action.help for action in self._actions if _RARE.intersection(action.option_strings)}
        try:
            for action in helps:
                action.help = argparse.SUPPRESS
            return super().format_help()
        finally:
            for action, help in helps.items():
                action.help = help

    def error(self, message: str) -> NoReturn:
        named = re.sub(r"^argument (\S+):", r"`\1`:", message)
        named = re.sub(r"^the following arguments are required: (\S+)$", r"`\1` is missing", named)
        fail(named[:1].lower() + named[1:], f"`{self.prog} --help` lists what it takes")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual, with the nearest option for one that does not exist."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            actions = getattr(options, "command_actions", self._actions)
            known = [name for action in actions for name in action.option_strings if name.startswith("--")]
            word = rest[0].partition("=")[0]
            if word in known:
                fail(f"`{word}` stands before the command", "put it behind the command")
            lists = f"`{' '.join([self.prog, *args[:1]])} --help` lists what it takes"
            meant = did_you_mean(word, known) or _about(word, actions) if word.startswith("-") else ""
            fail(f"unknown argument `{word}`", meant or lists)
        return options


def _about(word: str, actions: Iterable[argparse.Action]) -> str:
    """Return a help line with the options that are described by the word, as another linter may call them; empty for none."""
    named = re.compile(rf"\b{re.escape(word.lstrip('-'))}s?\b", re.IGNORECASE)
    found = [action.option_strings[-1] for action in actions if action.option_strings and named.search(_described(action))]
    return did_you_mean("", found) if found else ""


def _described(action: argparse.Action) -> str:
    return f"{action.metavar or ''} {action.help or ''}"


def fail(message: str, help: str = "") -> NoReturn:
    """Say what is wrong with how tvlint was called, and stop with the exit code for it."""
    say(f"tvlint: error: {message}", *((f"  help: {help}",) if help else ()))
    raise SystemExit(INPUT)


def build(names: Iterable[str] = ()) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and that of each command; with `names` it knows those commands only."""
    parser = _Parser(prog="tvlint", description=_ABOUT, epilog=_EXAMPLES, formatter_class=_Shape, allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"tvlint {__version__}")
    commands = parser.add_subparsers(prog="tvlint", metavar="COMMAND", parser_class=_Parser)
    for name in names or COMMANDS:
        COMMANDS[name](commands)
    for name, command in commands.choices.items():
        if name not in _WITHOUT_BUDGET:
            budget(command)
        command.add_argument("--traceback", action="store_true", help="show where tvlint itself failed")
        if len(command._actions) >= _MANY:
            command.add_argument("--help-all", action=_HelpOnAll, nargs=0, help="also show the options that few need")
    return parser, commands.choices


def parse(argv: list[str]) -> argparse.Namespace:
    """The options, with `run` as the command to call; ends the process where they are wrong or ask for help."""
    _refuse_unknown_command(argv)
    parser, commands = build(argv[:1] if argv and argv[0] in COMMANDS else ())
    actions = commands[argv[0]]._actions if argv and argv[0] in commands else []
    known = {name: action.nargs is None for action in actions for name in action.option_strings}
    options: argparse.Namespace = parser.parse_args([*argv[:1], *_as_files(argv[1:], known)])
    if not hasattr(options, "run"):
        parser.print_help()
        raise SystemExit(0 if not argv else INPUT)
    return options


def _as_files(words: list[str], options: dict[str, bool]) -> Iterator[str]:
    """Yield the arguments, files whose names begin with `-` as paths that cannot be taken for options.

    Names of files come from whoever writes a commit: by `tvlint check *`, or from pre-commit, which puts them behind the
    options of a hook. One that would be read as an option ends the process, since it is not known which of the two is meant,
    unless a `--` that is no file's name tells them apart, or it is an option with a value (`options` says of each whether it
    has one) before a word that no file is called.
    """
    trusted = "--" in words and not os.path.lexists("--")
    separated = False
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == "--" and not separated:
            separated = True
            yield word
        elif separated and _is_hyphened_file(word):
            yield os.path.join(os.curdir, word)
        elif trusted or not _is_hyphened_file(word) or (options.get(word) and following and not os.path.lexists(following)):
            yield word
        elif word in options or word.partition("=")[0] in options or word[:2] in options:
            fail(f"`{word}` is an option and the name of a file here", f"rename the file, or write `./{word}` for it")
        else:
            yield os.path.join(os.curdir, word)


def _is_hyphened_file(word: str) -> bool:
    return word.startswith("-") and word != "-" and os.path.lexists(word)


def _refuse_unknown_command(argv: list[str]) -> None:
    if not argv or argv[0].startswith("-") or argv[0] in COMMANDS:
        return
    if argv[0] in ELSEWHERE:
        help = f"`tvlint {ELSEWHERE[argv[0]]}` does that here"
    else:
        help = f"did you mean `tvlint check {argv[0]}`?" if os.path.exists(argv[0]) else did_you_mean(argv[0], COMMANDS)
    fail(f"unknown command `{argv[0]}`", help)


def _command(commands: Any, name: str, module: str, summary: str, examples: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=_Shape,
        allow_abbrev=False,
    )

    def run(options: argparse.Namespace) -> int:
        code: int = import_module(f"tvlint.cli.{module}").run(options)
        return code

    parser.set_defaults(run=run, command_actions=parser._actions)
    return parser


def _init(commands: Any) -> None:
    parser = _command(commands, "init", "init", "look at this repository and write a project file for it", "  tvlint init")
    remembering(parser)
    parser.set_defaults(config=None, policy="")


def _check(commands: Any) -> None:
    parser = _command(
        commands, "check", "check", "check configurations and plans, then prove the project's pairs",
        "  tvlint check train.sh\n  tvlint check plans/ --select missing-allreduce,missing-wait\n"
        "  tvlint check --fail-on warning -o concise",
    )  # fmt: skip
    parser.add_argument(
        "paths", nargs="*", type=path, metavar="PATH",
        help="files, folders (default: the project's); `-`: stdin",
    )  # fmt: skip
    parser.add_argument("--stdin-filename", default="", metavar="FILE", help="read `-` as the text of this file")
    excluding(parser)
    parser.add_argument("--no-prove", action="store_true", help="leave out the project's `[[proof]]` pairs")
    parser.add_argument(
        "--capture", action="store_true",
        help="run the programs that `[[proof]]` launches",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=positive, default=600, metavar="SECONDS", help="with `--capture`: limit of a program (default: 600)"
    )
    _sizes(parser)
    judging(parser)
    parser.add_argument("--may-be-empty", action="store_true", help="exit 0 where there is nothing to check (hooks)")
    parser.add_argument(
        "--changed", action="store_true",
        help="PATHs are files that changed: check them and what reads them, but no excluded ones",
    )  # fmt: skip
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 despite findings and unproved pairs")
    parser.add_argument(
        "--baseline", default="", metavar="FILE", help="report only findings that FILE lacks (default: the project's)"
    )
    parser.add_argument("--no-baseline", action="store_true", help="also report what the baseline holds")
    parser.add_argument("--new-from", default="", metavar="REV", help="report only what is new since REV (origin/main)")
    parser.add_argument("--show-files", action="store_true", help="say what each file is taken for, and check none")
    parser.add_argument("--statistics", action="store_true", help="count findings by rule and file, in text")
    fixing(parser)
    remembering(parser)
    quiet(parser)
    reporting(parser)


def _baseline(commands: Any) -> None:
    parser = _command(
        commands, "baseline", "baseline", "record the findings of today, so that only new ones fail",
        "  tvlint baseline write\n  tvlint baseline prune\n  tvlint baseline verify",
    )  # fmt: skip
    choice(
        parser, "action write|prune|verify", ("write", "prune", "verify"),
        "record all findings (in CI, only remove some), remove those that are gone, or fail if some are gone",
    )  # fmt: skip
    parser.add_argument(
        "paths", nargs="*", default=[], type=path, metavar="PATH", help="files or folders (default: the project's paths)"
    )
    parser.add_argument(
        "--baseline", default="", metavar="FILE", help="the baseline (default: the project's, else tvlint-baseline.json)"
    )
    remembering(parser)
    judging(parser)
    reporting(parser)


def _prove(commands: Any) -> None:
    parser = _command(
        commands, "prove", "prove", "prove that parallel plans train the same model as their reference plan",
        "  tvlint prove plan.pkl --reference single.pkl\n  tvlint prove a.pkl b.pkl --reference single.pkl --jobs 2 -o json\n"
        "  tvlint prove .nnscaler/_parallel_modules/my_model/_\n"
        "  tvlint prove --captured -- torchrun --nproc-per-node 2 train.py",
    )  # fmt: skip
    parser.add_argument("parallel", nargs="+", type=path, metavar="PARALLEL", help="a plan to prove")
    parser.add_argument(
        "--captured", action="store_true",
        help="run the command after `--` on CPU processes, capture the program and prove it; "
        "`--reference` is then the command (or capture) of the reference (default: the same program on one process)",
    )  # fmt: skip
    parser.add_argument("--captures", default="", metavar="FOLDER", help="with `--captured`: keep the captures in FOLDER")
    parser.add_argument(
        "--timeout", type=positive, default=600, metavar="SECONDS", help="with `--captured`: limit of a program (default: 600)"
    )
    _sizes(parser)
    parser.add_argument(
        "--reference", default="", metavar="PLAN",
        help="the single-device plan to compare with (default: `graph.ckp` beside generated code)",
    )  # fmt: skip
    parser.add_argument(
        "--assume", action="append", default=[], metavar="NAME", help="weaken a check; the verdict lists it as an assumption"
    )
    choice(
        parser, "--solver WHICH", ("rules", "all"),
        "with `all`, Z3 confirms each operator annotation that a proof relies on (default: rules)", "rules",
    )  # fmt: skip
    parser.add_argument(
        "--solver-timeout", type=positive, default=10, metavar="SECONDS", help="limit of Z3 for each annotation (default: 10)"
    )
    parser.add_argument(
        "--replay", action="store_true",
        help="run proved pairs on random numbers too; undecided pairs always are",
    )  # fmt: skip
    remembering(parser)
    quiet(parser)
    reporting(parser)


def _convert(commands: Any) -> None:
    parser = _command(
        commands, "convert", "convert", "write a plan as neutral JSON or as plan text",
        "  tvlint convert plan.pkl.xz -o json:plan.json\n  tvlint convert plan.json -o text",
    )  # fmt: skip
    parser.add_argument("plan", type=path, metavar="PLAN", help="a plan in any format that tvlint reads")
    outputs(parser, ("json", "text"))


def _capture(commands: Any) -> None:
    parser = _command(
        commands, "capture", "capture", "run a training program on CPU processes and record one step of it",
        "  tvlint capture -o plans/ -- torchrun --nproc-per-node 2 train.py --batch 8\n"
        "  tvlint capture -o plans/ --name reference -- python train.py",
    )  # fmt: skip
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER", help="folder of the capture (default: this one)")
    parser.add_argument("--name", default="parallel", metavar="NAME", help="write NAME.capture.jsonl.gz (default: parallel)")
    parser.add_argument("--timeout", type=positive, default=600, metavar="SECONDS", help="limit of the program (default: 600)")
    parser.add_argument(
        "--reference", default="", metavar="CAPTURE", help="the single-device capture; NAME.plan.json is then written too"
    )
    _sizes(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command that starts the program")


def _sizes(parser: Any) -> None:
    """Add the options that say with which sizes a training script of Megatron is captured."""
    for name, what in (("layers", "number of layers"), ("hidden", "hidden size"), ("sequence", "sequence length")):
        text = f"{what} of Megatron in a capture (default: small)"
        parser.add_argument(f"--{name}", type=positive, default=0, metavar="N", help=text)


def _schedule(commands: Any) -> None:
    parser = _command(
        commands, "schedule", "schedule", "name a pipeline schedule, count how long ranks idle, and draw it",
        "  tvlint schedule 1f1b.csv\n  tvlint schedule 1f1b.csv -o html:1f1b.html",
    )  # fmt: skip
    parser.add_argument("file", type=path, metavar="FILE", help="a schedule of torch.distributed.pipelining as CSV")
    parser.add_argument(
        "--activation-budget", type=positive, metavar="N", help="most micro-batches whose activations a rank may hold"
    )
    outputs(parser, ("text", "json", "html"))
    color(parser)
    project_file(parser)


def _topology(commands: Any) -> None:
    parser = _command(
        commands, "topology", "topology", "show the ranks, groups, layers and memory that follow from a file",
        "  tvlint topology train.sh\n  tvlint topology train.sh --world-size 1024 --rank 9\n"
        "  tvlint topology train.sh -o html:topology.html",
    )  # fmt: skip
    parser.add_argument("file", type=path, metavar="FILE", help="a configuration or a plan in any format that tvlint reads")
    world_size(parser)
    parser.add_argument("--rank", type=natural, metavar="N", help="show the place and the groups of rank N")
    parser.add_argument(
        "--gpu", type=accelerator, metavar="GPU", help="say whether its memory is enough: a name (`H100`) or a size (`80GB`)"
    )
    outputs(parser, ("text", "json", "html"))
    color(parser)
    project_file(parser)


def _diff(commands: Any) -> None:
    parser = _command(
        commands, "diff", "diff", "show the derived settings that a change of configurations alters",
        "  tvlint diff old.sh new.sh\n  tvlint diff main -- configs/\n"
        "  tvlint diff v1.2 HEAD -o text -o markdown:summary.md",
    )  # fmt: skip
    parser.add_argument(
        "what", nargs="+", type=path, metavar="VERSION",
        help="two files or folders; or a git revision, a second one (default: the files on disk), and the files to compare",
    )  # fmt: skip
    judging(parser)
    reporting(parser)


def _rules(commands: Any) -> None:
    rules = _command(
        commands, "rules", "rules", "list the rules, or those that a search finds",
        "  tvlint rules pipeline layers\n  tvlint rules --framework nnscaler --severity error -o json",
    )  # fmt: skip
    rules.add_argument("words", nargs="*", metavar="WORD", help="only rules with all these words in their name or page")
    rules.add_argument("--topic", default="", metavar="TOPIC", help="only rules of a topic, such as megatron/pipeline or plan")
    rules.add_argument("--framework", default="", metavar="NAME", help="only rules that hold for it, such as megatron-lm")
    kinds = [kind.value for kind in RuleKind]
    choice(rules, "--kind KIND", kinds, "only rules of this kind")
    choice(rules, "--severity SEVERITY", [severity.value for severity in Severity], "only rules of this severity")
    outputs(rules, ("text", "json"))


def _explain(commands: Any) -> None:
    explain = _command(commands, "explain", "explain", "explain a rule with an example", "  tvlint explain missing-allreduce")
    explain.add_argument("rule", metavar="RULE", help="the rule's name, as findings show it")


def _config(commands: Any) -> None:
    parser = _command(commands, "config", "config", "verify the project file", "  tvlint config verify")
    parser.add_argument("action", choices=("verify",), metavar="verify", help="`verify` reads it and names every mistake in it")
    reporting(parser)


def _lsp(commands: Any) -> None:
    parser = _command(commands, "lsp", "lsp", "serve an editor: findings as you type, hover and quick fixes", "  tvlint lsp")
    parser.add_argument("--stdio", action="store_true", help="use the standard streams (it always does)")
    parser.set_defaults(serves=True)


def _completion(commands: Any) -> None:
    parser = _command(
        commands, "completion", "completion", "print the script by which a shell completes commands and options",
        '  tvlint completion bash > ~/.local/share/bash-completion/completions/tvlint',
    )  # fmt: skip
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="{bash,zsh,tcsh}", help="the shell")


COMMANDS: Mapping[str, Callable[[Any], None]] = {
    "init": _init,
    "check": _check,
    "baseline": _baseline,
    "prove": _prove,
    "convert": _convert,
    "capture": _capture,
    "schedule": _schedule,
    "topology": _topology,
    "diff": _diff,
    "rules": _rules,
    "explain": _explain,
    "config": _config,
    "lsp": _lsp,
    "completion": _completion,
}
"""Every command, in the order of the help, and what adds its arguments; a run builds those of its own command alone."""
