"""The language that a text is written in, as far as readers must tell it: shell, YAML, or something else."""

from __future__ import annotations

import os
import re
from functools import cache

from tvlint.ir.patterns import Pattern

SHELL_NAMES = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch", ".pbs", ".lsf", ".job")
YAML_NAMES = (".yaml", ".yml", ".json")
OTHER_NAMES = (".toml", ".ini", ".cfg", ".xml", ".csv", ".ipynb")
"""Files of languages that are neither; such a file may quote settings."""
PROSE_NAMES = (
    ".md", ".mdx", ".markdown", ".rst", ".txt", ".adoc", ".html", ".log", ".out", ".err", ".patch", ".diff", ".sarif",
)  # fmt: skip
"""Text for people, which shows commands and settings without being run or loaded: documents, logs, differences, reports."""

INTERPRETER = Pattern(rb"#![ \t]*(?:\S*/)?(?:env[ \t]+(?:-\S+[ \t]+|\w+=\S*[ \t]+)*(?:\S*/)?)?([^\s/]*)")
OTHERS = Pattern(rb"(?:i?python|pypy|perl|ruby|node|deno|lua|php|awk|gawk|make|tclsh|expect|Rscript|julia|swift)[\d.]*")
"""Interpreters of other languages; any other runs the commands of a shell."""
HERE_DOCUMENT = Pattern(rb"<<-?[ \t]*[\"'\\]?[A-Za-z_]")
"""What opens lines of another language in a shell script."""
NO_COMMAND = Pattern(
    rb"(?:from [\w.]+ import |import [\w.]+(?: as \w+)?$|(?:async )?def \w+\(|class \w+[(:]|@\w+|\"\"\"|<[!?\w]|[{[]$|\{\S|```"
    rb"|- |[\w.-]+:(?:[ \t]|$)|\[(?!\[?(?:\s|$)))"
)
"""A line that no shell runs: Python, markup, a literal, a key or an item of YAML, a time or a level in brackets."""
OTHER_THAN_SHELL = Pattern(rb"^(?:```|from [\w.]+ import |import [\w.]+$|class \w+|def \w+\(|<\w+|(?<!\)\n)\{$)", re.MULTILINE)
SHOWN_COMMAND = Pattern(rb"^[ \t]*[^\s#-][^\n]*[^\s\\(\"'][ \t]*\n[ \t]*--[A-Za-z]", re.MULTILINE)
"""A command whose options stand on further lines, without what a shell needs between them: as text shows what was run."""
OPENERS = Pattern(
    rb"(?:[A-Za-z_]\w*(?:\[[^\]\n]*\])?\+?=|(?:export|declare|local|readonly|set|unset|source|\.|if|for|while|case|function|cd|"
    rb"mkdir|echo|torchrun|python3?|srun|sbatch|deepspeed|mpirun|bash|sh|exec|eval|module|conda|pip3?|ulimit|trap|nohup|env|sudo|"
    rb"megatron|swift|ft_launcher|accelerate|nsys|shopt|\[\[?|\{|\()(?=[\s;\"'$]|$)|[A-Za-z_]\w*\s*\(\)|: )"
)
"""The beginning of a command as launch scripts have them."""
OTHER_THAN_YAML = Pattern(
    rb"^(?:[ \t]*(?:```|from [\w.]+ import |import [\w.]+$|class \w+|def \w+\(|@\w+)|#!.*(?:sh|python)"
    rb"|\*\*\w|[*+] |<\w+[ >]|={4,}[ \t]*$|\.\. [\w-]+::)",
    re.MULTILINE,
)
TEST_NAME = Pattern(r"test_.*\.py|.*_test\.py|conftest\.py")
TEST = Pattern(rb"^[ \t]*(?:(?:from|import)[ \t]+(?:pytest|unittest)\b|(?:async )?def test)", re.MULTILINE)
PART = Pattern(rb"[A-Za-z]+")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NUMERIC = b"0123456789.,[]{} \t\r\n"
UNDERSCORED = bytes.maketrans(b"-", b"_")
LONG = 4096


def condensed(path: str, data: bytes) -> bytes:
    """Return a text in which every word without digits, blanks and brackets is still found, with underscores for hyphens.

    Large JSON is mostly of what is left out.
    """
    return data.translate(UNDERSCORED, NUMERIC if len(data) > LONG and path.endswith(".json") else b"")


def names(data: bytes, words: tuple[bytes, ...]) -> bool:
    """Return whether one of the words is in the text; to look for each takes a tenth of the time of one pattern for all."""
    return any(part in data and any(word in data for word in sharing) for part, sharing in _by_part(words))


def named(data: bytes, words: tuple[bytes, ...]) -> frozenset[bytes]:
    """Return which of the words are in the text."""
    return frozenset(word for part, sharing in _by_part(words) if part in data for word in sharing if word in data)


@cache
def _by_part(words: tuple[bytes, ...]) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """Return the words by the parts of theirs that tell most, and each that shares none by itself."""
    if not words:
        return ()
    parts = {part for word in words for part in PART.findall(word)}
    most = max(sorted(parts), key=lambda part: len(part) * sum(part in word for word in words))
    sharing = tuple(word for word in words if most in word)
    shared = most if len(sharing) > 1 else sharing[0]
    return ((shared, sharing), *_by_part(tuple(word for word in words if word not in sharing)))


def is_prose(path: str) -> bool:
    """Return whether the file's name says that it is text for people."""
    return path.lower().endswith(PROSE_NAMES)


def is_test(path: str, data: bytes) -> bool:
    """Return whether a runner of tests finds the file by its name, and finds a test in it; what it sets is meant for no
    training.
    """
    return TEST_NAME.fullmatch(os.path.basename(path)) is not None and TEST.search(data) is not None


def is_yaml(path: str, data: bytes) -> bool:
    """Return whether the text may be YAML: its name says so, or it is a text and neither its name nor a line is of another
    language.
    """
    if path.lower().endswith(YAML_NAMES):
        return True
    return (
        not path.lower().endswith(OTHER_NAMES)
        and b"\0" not in data
        and OTHER_THAN_YAML.search(data.removeprefix(BYTE_ORDER_MARK)) is None
    )


def is_shell(path: str, data: bytes, named_at: int) -> bool:
    """Return whether a shell runs the text: the first line or the name says so, or it begins like a launch script.

    `named_at` is where the text names what makes it a launch. What stands before that decides where neither says anything.
    """
    start = data.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start.startswith(b"#!"):
        interpreter = INTERPRETER.match(start)
        return interpreter is None or OTHERS.fullmatch(interpreter[1]) is None
    if path.lower().endswith(".py"):
        return False
    end = data.find(b"\n", named_at)
    lines = [line.strip() for line in data[: end if end >= 0 else None].removeprefix(BYTE_ORDER_MARK).splitlines()]
    commands = [line for line in lines if line and not line.startswith(b"#")]
    if commands and NO_COMMAND.match(commands[0]):
        return False
    if is_prose(path) and ((commands and NO_COMMAND.match(commands[-1])) or SHOWN_COMMAND.search(data)):
        return False
    if path.lower().endswith(SHELL_NAMES):
        return True
    other = OTHER_THAN_SHELL.search(data)
    if other and not HERE_DOCUMENT.search(data, 0, other.start()):
        return False
    return any(OPENERS.match(line) for line in (commands[:1] if is_prose(path) else commands))
