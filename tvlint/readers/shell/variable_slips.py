"""Slips in how a script sets and reads its variables, after which it goes on with other values than those meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.patterns import Pattern
from tvlint.near_names import are_swapped, by_slips, is_a_letter_off, is_a_word_misspelled, near
from tvlint.readers.shell.command_tree import CommandTree
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.values import Array, Fork, Item, Source, Value, Word, leading_text, location_of, span_of_bytes
from tvlint.readers.shell.words import split_value

LONGEST = 80
MOST = 500
"""Places of each kind that are looked up in the tree, which takes the longer the more statements there are."""
SPACED = Pattern(rb"^[ \t]*([A-Za-z_]\w*)(?:([ \t]+=)(?=[ \t]|\w)|(=[ \t]+)(?=\d+[ \t]*\r?$))", re.MULTILINE)
"""A line that reads as an assignment and has blanks beside its sign; of those behind it alone, one of a number."""
MARKED = Pattern(rb"^[ \t]*(?:(\$)([A-Za-z_]\w*)=|([A-Za-z_]\w*)(:)=)(?=[\w\"'$./])", re.MULTILINE)
"""A line that reads as an assignment and has a sign too much."""
DOUBLED = Pattern(rb"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(=)(?=[\w\"'$./])", re.MULTILINE)
DEFAULT = Pattern(rb"\$\{([A-Za-z_]\w*|\d+)(-:|:(?=\d+\}))([^{}\n]*)\}")
OWN_DEFAULT = Pattern(rb'"?\$\{(\w+):?[-=]')
EXPANSION = Pattern(rb"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?\})")
NAME = Pattern(rb"[A-Za-z_]\w*")
END = Pattern(rb'"?(?:[\s;&|]|\Z)')
SET = Pattern(rb"(?<![\w$])([A-Za-z_]\w*)\+?=")
READ_IN = Pattern(rb"(?:^|[;&|({]|\b(?:then|do|else))[ \t]*(?:source|\.)[ \t]", re.MULTILINE)
NAMED = Pattern(rb"^[ \t]*#[^\n]*|([A-Za-z_]\w*)", re.MULTILINE)
"""A comment or a name."""
INDIRECT = Pattern(
    rb"\$\{!|\b(?:declare|local|typeset)[ \t]+-\w*n|^[ \t]*eval\b[^\n$]*\\\$|\bset[ \t]+(?:-\w*a|-o[ \t]+allexport)",
    re.MULTILINE,
)
"""What reads variables that it does not name, and what exports all that follow."""
SETS_ANY = Pattern(rb"\b(?:export|declare|local|readonly|typeset)[ \t]+(?:-\w+[ \t]+)*[\"']?\$")
"""What sets variables that it does not name (`export "$KEY"="$VALUE"`)."""
SURELY_NAMED = 8
"""Of so many letters, a name is no other one's that differs by a letter."""
OF_SHELL = frozenset(("HOSTNAME", "HOSTTYPE", "OSTYPE", "LOGNAME", "USERNAME", "OLDPWD"))
"""Variables that a shell sets itself, with names that scripts give their own ones with a sign more (`HOST_NAME`)."""
OF_JOBS = frozenset(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"))
"""Variables that job systems and launchers set, beside which a script may have its own."""
LONG_ENOUGH = 6
"""Letters of the shortest name that is meant for a variable which the script reads as well."""
MOST_LISTS = 50
"""Of more lists of options that are named nowhere, only the first are looked at."""
VITAL = frozenset(("--num-layers", "--hidden-size", "--micro-batch-size", "--tensor-model-parallel-size"))
"""Options for the size of the model and of its layout, of which scripts hold lists to give them to launches."""
SIZED_ELSEWHERE = frozenset(("--use-checkpoint-args", "--yaml-cfg"))
"""Options by which a launch takes sizes from a checkpoint or a file."""
OF_LAUNCHER = frozenset(("--nproc-per-node",))
LAUNCHERS = frozenset(("torchrun", "torch.distributed.launch", "torch.distributed.run"))
"""What starts one rank without that."""


def variable_slips(evaluation: Evaluation, commands: CommandTree, starts_some: bool) -> Iterator[Finding]:
    """Yield a finding for each assignment that is none, or sets another value, and for each variable that is misspelled.

    Where the script `starts_some` program with options, lists of options count that no program is given.
    """
    source = evaluation.source
    yield from _spaced(source, commands)
    yield from _marked(source, commands)
    yield from _defaults(evaluation, commands)
    unread = dict(_unread(evaluation)) if starts_some else {}
    lost = dict(islice(_options_of(evaluation, unread), MOST_LISTS))
    misspelled = () if SETS_ANY.search(source.data) else tuple(_misspelled(evaluation, commands, lost, unread))
    yield from (finding for _, finding in misspelled)
    given = frozenset(_flags(word for command in evaluation.commands for word in command.words))
    meant = {name for name, _ in misspelled}
    vital = (OF_LAUNCHER if LAUNCHERS & given else frozenset()) | (frozenset() if SIZED_ELSEWHERE & given else VITAL)
    for name, (start, options) in lost.items():
        if name not in meant and vital & options - given and commands.is_assignment(start):
            read = f"${{{name[:LONGEST]}[@]}}" if isinstance(evaluation.variables[name], Array) else f"${name[:LONGEST]}"
            message = f"the options of `{name[:LONGEST]}` are passed to nothing"
            place = location_of(span_of_bytes(source, start, start + len(name)))
            yield Finding("options-not-passed", Severity.ERROR, message, place, f"pass `{read}` to the launch")


def _spaced(source: Source, commands: CommandTree) -> Iterator[Finding]:
    for match in islice(SPACED.finditer(source.data), MOST):
        command = commands.command(match.start(1) if match[2] else match.end())
        if command is None or command.start_byte != match.start(1):
            continue
        end = match.end(2) if match[2] else match.end(3)
        after = len(source.data[end:]) - len(source.data[end:].lstrip(b" \t"))
        blanks = location_of(span_of_bytes(source, match.end(1), end + after))
        yield _run_as_command(source, match.span(1), "blanks beside `=`", "remove the blanks", Edit(blanks, "="))


def _marked(source: Source, commands: CommandTree) -> Iterator[Finding]:
    for match in islice(MARKED.finditer(source.data), MOST):
        sign, name = (1, 2) if match[1] else (4, 3)
        if commands.command(min(match.start(sign), match.start(name))) is not None:
            mark = match[sign].decode()
            edit = Edit(location_of(span_of_bytes(source, *match.span(sign))), "")
            yield _run_as_command(source, match.span(name), f"`{mark}` in it", f"remove the `{mark}`", edit)
    for match in islice(DOUBLED.finditer(source.data), MOST):
        if commands.is_assignment(match.start(1)):
            place = location_of(span_of_bytes(source, *match.span(2)))
            message = f"the value of `{match[1].decode()[:LONGEST]}` begins with `=`"
            fix = Fix("remove one `=`", (Edit(place, ""),), is_safe=True)
            yield Finding("misplaced-equals-sign", Severity.ERROR, message, place, "remove one `=`", fixes=(fix,))


def _run_as_command(source: Source, name: tuple[int, int], why: str, help: str, edit: Edit) -> Finding:
    text = source.data[slice(*name)].decode()[:LONGEST]
    message = f"`{text}` is not set: with {why} the shell runs a command"
    place = location_of(span_of_bytes(source, *name))
    return Finding("assignment-run-as-command", Severity.ERROR, message, place, help, fixes=(Fix(help, (edit,), is_safe=True),))


def _defaults(evaluation: Evaluation, commands: CommandTree) -> Iterator[Finding]:
    """Yield a finding for each default whose colon and hyphen are exchanged, or whose hyphen is missing.

    The former counts where a program is given what begins with the colon: a display and a list of paths do. The latter counts
    of a variable that stands nowhere before what the expansion sets, which so is one of the environment.
    """
    source = evaluation.source
    found = [*islice(DEFAULT.finditer(source.data), MOST)]
    passed = set(_passed(evaluation)) if found else set[str]()
    times = Counter(SET.findall(source.data)) if found else Counter[bytes]()
    first: dict[bytes, int] = {}
    for named in NAMED.finditer(source.data) if found else ():
        first.setdefault(named[1], named.start())
    reads_in = READ_IN.search(source.data) if found else None
    for match in found:
        before = source.data[max(match.start() - LONGEST, 0) : match.start()].removesuffix(b'"')
        is_swapped = match[2] == b"-:"
        if is_swapped and f":{match[3].decode(errors='replace')}" not in passed:
            continue
        start = match.start() - source.data.startswith(b'"', match.start() - 1) - len(match[1]) - 1
        sets_itself = times[match[1]] == 1 and before.endswith(match[1] + b"=")
        sets_itself = sets_itself and first.get(match[1]) == start and not (reads_in and reads_in.start() < start)
        leaves_none_out = match[1].decode() not in evaluation.variables and match[3] == b"0"
        if not (is_swapped or sets_itself or leaves_none_out) or not commands.is_expansion(*match.span()):
            continue
        place = location_of(span_of_bytes(source, *match.span(2)))
        shown = f"`{match[0].decode(errors='replace')[:LONGEST]}`"
        why = "begins its default with `:`" if is_swapped else "is a part of the value, and has no default"
        fix = Fix("write `:-`", (Edit(place, ":-"),), is_safe=True)
        yield Finding("misspelled-default", Severity.ERROR, f"{shown} {why}", place, "write `:-`", fixes=(fix,))


def _passed(evaluation: Evaluation) -> Iterator[str]:
    """Yield the values that programs are given."""
    for command in evaluation.commands:
        for word in command.words:
            for item in chain.from_iterable(word.alternatives) if isinstance(word, Fork) else (word,):
                if isinstance(item, Word):
                    yield leading_text(item.pieces).rpartition("=")[2]


def _unread(evaluation: Evaluation) -> Iterator[tuple[str, int]]:
    """Yield the variables that are named nowhere but where they are set, with the first place.

    What is exported, and what is set before another script is read in, may be read elsewhere.
    """
    data = evaluation.source.data
    if INDIRECT.search(data):
        return
    named = Counter(NAME.findall(data))
    first: dict[bytes, int] = {}
    for match in SET.finditer(data):
        default = OWN_DEFAULT.match(data, match.end())
        sets_itself = default is not None and default[1] == match[1]
        first.setdefault(match[1], match.start())
        named[match[1]] -= 2 if sets_itself else 1
    last = max((match.start() for match in READ_IN.finditer(data)), default=-1)
    for name in evaluation.variables:
        start = first.get(name.encode(), -1)
        before = data[max(start - LONGEST, 0) : max(start, 0)].rstrip()
        if start > last and not named[name.encode()] and not before.endswith((b"export", b"-x")):
            yield name, start


def _options_of(evaluation: Evaluation, unread: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, frozenset[str]]]]:
    """Yield those of the unread variables that hold options, with the place and the options."""
    for name, start in unread.items():
        value = evaluation.variables[name]
        if _is_list(value):
            yield name, (start, frozenset(_flags(split_value(value))))


def _is_list(value: Value) -> bool:
    words = value.items[:1] if isinstance(value, Array) else split_value(value)[:1]
    return any(isinstance(word, Word) and leading_text(word.pieces).startswith("--") for word in words)


def _flags(words: Iterable[Item]) -> Iterator[str]:
    """Yield the options among words, those on undecided paths too."""
    for word in words:
        if isinstance(word, Word):
            yield leading_text(word.pieces).partition("=")[0].replace("_", "-")
        elif isinstance(word, Fork):
            yield from _flags(chain.from_iterable(word.alternatives))


def _misspelled(
    evaluation: Evaluation, commands: CommandTree, lost: Collection[str], unread: Collection[str]
) -> Iterator[tuple[str, Finding]]:
    """Yield what was meant and a finding for each variable that is named nowhere but where it is read, and is a variable of the
    script but for two letters that are swapped, or but for a letter: one of the `lost` ones, or of those with a long name in
    small letters, which no environment has, or, where a word of it is misspelled, of the `unread` ones. Where the script
    reads what is set as well, the environment might have the other, and where it reads in another script that is not there,
    that one: the finding is a warning.
    """
    source = evaluation.source
    set_names = {"".join(sorted(name)): name for name in evaluation.variables}
    near_names = {*lost, *(name for name in evaluation.variables if len(name) >= SURELY_NAMED and name.islower())}
    unset: dict[str, list[re.Match[bytes]]] = {}
    for match in EXPANSION.finditer(source.data):
        name = (match[1] or match[2]).decode()
        if name not in evaluation.variables and name not in OF_SHELL:
            unset.setdefault(name, []).append(match)
    known = by_slips(evaluation.variables) if unset else {}
    meant: dict[str, str] = {}
    unsure = set[str](unset if evaluation.unresolved_sources else ())
    for name in unset:
        swapped = set_names.get("".join(sorted(name)), "")
        found = swapped if are_swapped(name, swapped) else ""
        found = found or next((each for each in near(name, known) if _is_meant(name, each, near_names, unread)), "")
        if not found and len(name) >= LONG_ENOUGH and name not in OF_JOBS:
            found = next((each for each in near(name, known) if is_a_word_misspelled(name, each)), "")
            unsure.add(name)
        if found:
            meant[name] = found
    read = {name: unset[name] for name in meant}
    counts = Counter(NAME.findall(source.data)) if read else Counter[bytes]()
    slips = {
        name: places
        for name, places in read.items()
        if counts[name.encode()] <= len(places) and not any(_is_copied(source.data, match, meant[name]) for match in places)
    }
    every = ((match, name) for name, places in slips.items() for match in places)
    for match, name in islice(every, MOST):
        if commands.is_expansion(*match.span()):
            place = location_of(span_of_bytes(source, *match.span(2 if match[2] else 1)))
            message, help = f"the script sets no `{name[:LONGEST]}`", f"did you mean `{meant[name][:LONGEST]}`?"
            fix = Fix(f"write `{meant[name]}`", (Edit(place, meant[name]),), is_safe=name not in unsure)
            severity = Severity.WARNING if name in unsure else Severity.ERROR
            yield meant[name], Finding("misspelled-variable", severity, message, place, help, fixes=(fix,))


def _is_meant(name: str, each: str, near: Collection[str], unread: Collection[str]) -> bool:
    """Return whether a variable is surely another one: a name that no environment has, or one that nothing reads."""
    return (each in near and is_a_letter_off(name, each)) or (each in unread and is_a_word_misspelled(name, each))


def _is_copied(data: bytes, match: re.Match[bytes], name: str) -> bool:
    """Return whether a variable is set to what is read and nothing more: with its name there it would be set to itself."""
    before = data[max(match.start() - LONGEST, 0) : match.start()].rstrip(b'"')
    is_value = re.search(rb"(?<!\w)%s=\Z" % name.encode(), before) is not None
    return is_value and END.match(data, match.end()) is not None
