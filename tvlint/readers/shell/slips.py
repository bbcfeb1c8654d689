"""Slips that a shell takes for something else, and so reports late or never: a launch loses options by each."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import islice

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.command_tree import CommandTree
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.values import Array, Source, Span, Word, leading_text, location_of, span_of_bytes
from tvlint.readers.shell.variable_slips import LONGEST, MOST, variable_slips

OPTION = Pattern(
    rb"^[ \t]*(--[A-Za-z][\w-]*|--(?=[ \t])|\+{0,2}[A-Za-z_]\w*(?:\.\w+)+(?==)|\"?\$\{?(?P<name>\w+)(?:\[@\])?\}?\"?(?=\s))",
    re.MULTILINE,
)
"""A line that begins with an option, an override, a list, or what ends the options of a launcher; most go on with a command."""
SPACE = Pattern(
    rb"(?P<last>[^\s\\])[ \t]*(?P<place>\\[ \t]+)\n"
    rb"(?=[ \t]*(?P<lost>--?[A-Za-z][\w-]*|--(?=[ \t])|\"?\$[{\w][\w@\[\]}]*|\+{0,2}[A-Za-z_]\w*(?:\.\w+)+(?==)))"
)
"""A backslash that joins no lines, for the blanks after it, before one that goes on with words of a command."""
EXPANSION = Pattern(rb"\$(?:(\w+)|\{(\w+)\})")
CONTINUED = Pattern(r"\\[ \t]+\Z")
COMMENT = Pattern(r"(?:.*[ \t])?#")
ENDED = Pattern(r"(;)[ \t]*\\\Z")


def slips(evaluation: Evaluation, launches: Iterable[Span], starts_some: bool) -> Iterator[Finding]:
    """Yield a finding for each line of the script that is cut off a command, for each slip about a variable, and for each list
    of options of which a launch takes the first word.

    Where the script `starts_some` program with options, it counts which lists of options are passed to none.
    """
    commands = CommandTree(evaluation.syntax.tree(evaluation.source).root_node)
    yield from _spaces(evaluation, commands)
    yield from _cut_off(evaluation, commands)
    yield from variable_slips(evaluation, commands, starts_some)
    lists = any(isinstance(value, Array) for value in evaluation.variables.values())
    for launch in dict.fromkeys(launches) if lists else ():
        if launch.source is evaluation.source:
            yield from _first_words(evaluation, commands, launch)


def _spaces(evaluation: Evaluation, commands: CommandTree) -> Iterator[Finding]:
    """Yield a finding for each backslash with blanks after it, in a command or in a text that is expanded to words of one."""
    source = evaluation.source
    for match in islice(SPACE.finditer(source.data), MOST):
        kind, variable = commands.around(match.start("last"), match.start("place"))
        if not kind or (variable and not (match["lost"].startswith(b"-") and _is_split(source.data, variable))):
            continue
        place = location_of(span_of_bytes(source, *match.span("place")))
        lost = match["lost"].decode()[:LONGEST].strip('"')
        message = f"the command ends here: a space stands after the backslash, so `{lost}` is not passed"
        if kind != "command":
            message = "a space stands after the backslash, and what is passed is no option"
        fix = Fix("remove the space", (Edit(place, "\\"),), is_safe=True)
        yield Finding("space-after-backslash", Severity.ERROR, message, place, "remove the space", fixes=(fix,))


def _is_split(data: bytes, name: str) -> bool:
    """Return whether the script expands the variable without quotes, which makes words of its text, or not at all."""
    read = re.findall(rb"(\S?)\$\{?" + name.encode() + rb"\b", data)
    return not read or any(not re.match(rb"[\"\w\\]", before) for before in read)


def _cut_off(evaluation: Evaluation, commands: CommandTree) -> Iterator[Finding]:
    source = evaluation.source
    begun = (match for match in OPTION.finditer(source.data) if not _is_joined(source.data, match.start()))
    for match in islice(begun, MOST):
        if commands.command(match.start(1)) is None or not _is_lost(match["name"], evaluation):
            continue
        lost = span_of_bytes(source, *match.span(1))
        option = match[1].decode()[:LONGEST]
        before = _line_before(source, lost)
        text = source.text[before.start : before.end]
        if CONTINUED.search(text) is not None:
            continue
        message = f"`{option}` is run as a command: the command before it has ended"
        help = "end each line but the last in a backslash, and put comments and empty lines elsewhere"
        fixes: tuple[Fix, ...] = ()
        if (end_of_command := ENDED.search(text)) is not None:
            here = before.start + end_of_command.start(1)
            help = "remove the `;`"
            fixes = (Fix(help, (Edit(location_of(Span(source, here, here + 1)), ""),), is_safe=True),)
        elif text.strip() and not COMMENT.match(text):
            end = Span(source, before.start + len(text.rstrip()), before.start + len(text.rstrip()))
            fixes = (Fix("end the line before in a backslash", (Edit(location_of(end), " \\"),)),)
        yield Finding("option-run-as-command", Severity.ERROR, message, location_of(lost), help, fixes=fixes)


def _is_lost(name: bytes | None, evaluation: Evaluation) -> bool:
    """Return whether a line begins with an option, where it begins with a variable that is set once, here or in a script that
    is read in.
    """
    if name is None:
        return True
    value = evaluation.variables.get(name.decode())
    if value is None or len(re.findall(rb"\b" + name + rb"=", evaluation.source.data)) > 1:
        return False
    if isinstance(value, Array):
        return bool(value.items) and _is_option(value.items[0])
    return leading_text(value.pieces).lstrip().startswith("--")


def _is_joined(data: bytes, start: int) -> bool:
    """Return whether a backslash joins the line that begins at `start` to a command on the one before, which no sign ends."""
    before = data[data.rfind(b"\n", 0, max(start - 1, 0)) + 1 : start]
    return before.endswith(b"\\\n") and b"#" not in before and not before.rstrip(b"\\ \t\n").endswith(b";")


def _first_words(evaluation: Evaluation, commands: CommandTree, launch: Span) -> Iterator[Finding]:
    """Yield a finding for each array of options that the launch expands without `[@]`."""
    source = evaluation.source
    offsets = source.byte_offsets
    start, end = (place if offsets is None else bisect(offsets, place) - 1 for place in (launch.start, launch.end))
    for match in islice(EXPANSION.finditer(source.data, start, end), MOST):
        name = (match[1] or match[2]).decode()
        value = evaluation.variables.get(name)
        if not isinstance(value, Array) or len(value.items) < 2 or not _is_option(value.items[0]):
            continue
        if not commands.is_expansion(*match.span()):
            continue
        place = location_of(span_of_bytes(source, *match.span()))
        message = f"`{name[:LONGEST]}` is a list, and only its first word is passed"
        help = f'write `"${{{name[:LONGEST]}[@]}}"`'
        is_word = not (source.data[match.start() - 1 : match.start()] + source.data[match.end() : match.end() + 1]).strip()
        quote = '"' if is_word and not commands.is_quoted(match.start()) else ""
        fix = Fix(help, (Edit(place, f"{quote}${{{name}[@]}}{quote}"),), is_safe=True)
        yield Finding("array-without-subscript", Severity.ERROR, message, place, help, fixes=(fix,))


def _is_option(item: object) -> bool:
    return isinstance(item, Word) and leading_text(item.pieces).startswith("--")


def _line_before(source: Source, place: Span) -> Span:
    """Return the line before the one on which `place` starts, without its end."""
    first = source.text.rfind("\n", 0, place.start)
    if first < 0:
        return Span(source, 0, 0)
    start = source.text.rfind("\n", 0, first) + 1
    return Span(source, start, first - source.text.startswith("\r", first - 1))
