"""The options that several commands take, and what their values may be."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvlint.findings import Severity
from tvlint.reporters import FORMATS
from tvlint.run.process.budget import MOST, NAMES

if TYPE_CHECKING:
    from tvlint.topology.known import Accelerator


def outputs(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """`-o`, with the formats that the command writes; the first one is what it writes unasked."""
    parser.add_argument(
        "-o", "--output", action="append", default=[], metavar="FORMAT[:PATH]",
        help=f"{', '.join(formats)}; to a file with PATH; repeatable (default: {formats[0]})",
    )  # fmt: skip
    parser.set_defaults(formats=tuple(formats))


def color(parser: argparse.ArgumentParser) -> None:
    """`--color`: when text has colours."""
    choice(parser, "--color WHEN", ("auto", "always", "never"), "colours of text (default: auto)", default="auto")


def choice(parser: argparse.ArgumentParser, option: str, choices: Sequence[str], help: str, default: str | None = None) -> None:
    """An option that takes one of a few words, which the help lists."""
    name, metavar = option.split()

    def chosen(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"`{text}` is none of {', '.join(f'`{word}`' for word in choices)}")
        return text

    parser.add_argument(name, type=chosen, default=default, metavar=metavar, help=f"{', '.join(choices)}: {help}")


def project_file(parser: argparse.ArgumentParser) -> None:
    """`--config`: the project file."""
    parser.add_argument("--config", metavar="FILE", help="the project file (default: the nearest tvlint.toml, pyproject.toml)")
    parser.add_argument(
        "--policy", default="", metavar="REV[:PATH]",
        help="take the project file of this git revision (base branch)",
    )  # fmt: skip


def world_size(parser: argparse.ArgumentParser) -> None:
    """`--world-size`: how many ranks run."""
    parser.add_argument("--world-size", type=positive, metavar="N", help="number of ranks, for files that do not say it")


def judging(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which rules judge and which findings fail the run."""
    severities = [severity.value for severity in Severity]
    parser.add_argument("--select", action="append", default=[], metavar="RULE", help="only these rules; repeatable, or a,b,c")
    parser.add_argument("--ignore", action="append", default=[], metavar="RULE", help="leave these rules out")
    choice(parser, "--fail-on SEVERITY", severities, "the mildest severity that exits 1 (default: error)")
    parser.add_argument("--no-ignore-comments", action="store_true", help="also report what `tvlint: ignore` comments silence")
    parser.add_argument("--show-unknown", action="store_true", help="list rules that could not be evaluated")
    world_size(parser)


def reporting(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a report goes and how it looks, and which project file counts."""
    outputs(parser, tuple(FORMATS))
    color(parser)
    project_file(parser)


def excluding(parser: argparse.ArgumentParser) -> None:
    """`--exclude`: files of folders that are left out."""
    help = "files in folders to leave out; repeatable, or a,b,c"
    parser.add_argument("--exclude", type=patterns, action="extend", default=[], metavar="PATTERN", help=help)


def quiet(parser: argparse.ArgumentParser) -> None:
    """`--quiet`: findings and verdicts alone."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print findings and verdicts only")


def fixing(parser: argparse.ArgumentParser) -> None:
    """`--fix`, what it does, and what it would do."""
    parser.add_argument("--fix", action="store_true", help="apply the fixes that leave no choice")
    parser.add_argument("--unsafe-fixes", action="store_true", help="with `--fix`: also the first of several repairs")
    parser.add_argument("--diff", action="store_true", help="show what `--fix` would change, and change nothing")
    parser.add_argument(
        "--add-ignores", type=reason, metavar="REASON", help="silence each finding by a comment that gives this reason"
    )


def remembering(parser: argparse.ArgumentParser) -> None:
    """`--jobs` and `--no-cache`."""
    parser.add_argument(
        "-j", "--jobs", type=positive, default=1, metavar="N", help="work on N files at a time (default: 1)"
    )  # fmt: skip
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep earlier results")


class _Limits(argparse.Action):
    """Collects `NAME=VALUE`."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), values[0]: values[1]})


def budget(parser: argparse.ArgumentParser) -> None:
    """`--budget`: what the run and each file of it may take."""
    help = f"limit {', '.join(NAMES)} (seconds, MiB)"
    parser.add_argument("--budget", type=limit, action=_Limits, default={}, metavar="NAME=VALUE", help=help)


def limit(text: str) -> tuple[str, float]:
    """Return a part of the budget and how much it is."""
    name, _, value = text.partition("=")
    if name not in NAMES:
        raise argparse.ArgumentTypeError(f"`{name}` is none of {', '.join(f'`{known}`' for known in NAMES)}")
    if not re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,3})?", value) or not 0 < float(value) <= MOST:
        raise argparse.ArgumentTypeError(f"`{value}` is no amount: a number above 0, up to {MOST:,}")
    return name, float(value)


def path(text: str) -> str:
    """Return the name of a file or folder; an empty one is what an unset variable of a shell leaves."""
    if not text:
        raise argparse.ArgumentTypeError("an empty text names no file")
    return text


def patterns(text: str) -> list[str]:
    """Return the patterns of files; those with a folder in full, since they are meant from the current one."""
    found = [part for part in text.split(",") if part]
    if not found:
        raise argparse.ArgumentTypeError("an empty text names no file")
    return [os.path.abspath(part) if "/" in part else part for part in found]


def reason(text: str) -> str:
    """Return the reason that a comment gives, on one line."""
    if not text.strip() or not text.isprintable() or "tvlint:" in text:
        raise argparse.ArgumentTypeError("a reason is a line of text, without `tvlint:`")
    return text.strip()


def natural(text: str) -> int:
    """Return the number of a rank."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of a rank")
    return int(text)


def accelerator(text: str) -> Accelerator:
    """Return an accelerator whose memory is known, or a size of memory."""
    from tvlint.topology.known import accelerator as named
    from tvlint.topology.known import sizes_of

    found = named(text)
    if found is None and (sizes := sizes_of(text)):
        raise argparse.ArgumentTypeError(
            f"`{text}` is sold with more or less memory: write {' or '.join(f'`{each}`' for each in sizes)}"
        )
    if found is None:
        raise argparse.ArgumentTypeError(f"the memory of `{text}` is not known: give its size, such as `80GB`")
    return found


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)
