"""Slips that a shell takes for something else, and so reports late or never: a launch loses options by each."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.syntax import errors_in
from tvlint.readers.shell.values import Array, Source, Span, Word, leading_text, location_of, span_of_bytes

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 80
MOST = 500
"""Places of each kind that are looked up in the tree, which takes the longer the more statements there are."""
OPTION = Pattern(rb"^[ \t]*(--[A-Za-z][\w-]*)", re.MULTILINE)
"""A line that begins with an option; most such lines go on with a command."""
ASSIGNMENT = Pattern(rb"^[ \t]*([A-Za-z_]\w*)(?:([ \t]+=)(?=[ \t]|\w)|(=[ \t]+)(?=\d+[ \t]*\r?$))", re.MULTILINE)
"""A line that reads as an assignment and has blanks beside its sign; of those behind it alone, one of a number."""
EXPANSION = Pattern(rb"\$(?:(\w+)|\{(\w+)\})")
NAME = Pattern(rb"(?<![\w$])[A-Za-z_]\w*")
CONTINUED = Pattern(r"\\[ \t]+\Z")
COMMENT = Pattern(r"[ \t]*#")


def slips(evaluation: Evaluation, launches: Iterable[Span]) -> Iterator[Finding]:
    """Yield a finding for each line of the script that is cut off a command, for each assignment with blanks, and for each
    list of options of which a launch takes the first word.
    """
    commands = _Commands(evaluation.syntax.tree(evaluation.source).root_node)
    yield from _cut_off(evaluation, commands)
    yield from _assignments(evaluation, commands)
    if not evaluation.unresolved_sources:
        yield from _swapped_letters(evaluation)
    lists = any(isinstance(value, Array) for value in evaluation.variables.values())
    for launch in dict.fromkeys(launches) if lists else ():
        if launch.source is evaluation.source:
            yield from _first_words(evaluation, launch)


class _Commands:
    """The commands of a script, but for those in text that is no syntax of a shell."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.wrong = sorted((node.start_byte, node.end_byte) for node in errors_in(root))

    def at(self, start: int) -> Node | None:
        """Return the command whose name begins at the byte; None where none does."""
        place = bisect(self.wrong, start, key=lambda each: each[0])
        if place and start < self.wrong[place - 1][1]:
            return None
        node = self.root.descendant_for_byte_range(start, start + 1)
        while node is not None and node.type != "command_name":
            if node.start_byte != start:
                return None
            node = node.parent
        return node.parent if node is not None else None


def _cut_off(evaluation: Evaluation, commands: _Commands) -> Iterator[Finding]:
    source = evaluation.source
    begun = (match for match in OPTION.finditer(source.data) if not _is_joined(source.data, match.start()))
    for match in islice(begun, MOST):
        if commands.at(match.start(1)) is None:
            continue
        lost = span_of_bytes(source, *match.span(1))
        option = match[1].decode()[:LONGEST]
        before = _line_before(source, lost)
        text = source.text[before.start : before.end]
        if (space := CONTINUED.search(text)) is not None:
            place = location_of(Span(source, before.start + space.start(), before.end))
            message = f"the command ends here: a space stands after the backslash, so `{option}` is not passed"
            fix = Fix("remove the space", (Edit(place, "\\"),), is_safe=True)
            yield Finding("space-after-backslash", Severity.ERROR, message, place, "remove the space", fixes=(fix,))
            continue
        message = f"`{option}` is run as a command: the command before it has ended"
        help = "end each line but the last in a backslash, and put comments and empty lines elsewhere"
        fixes: tuple[Fix, ...] = ()
        if text.strip() and not COMMENT.match(text):
            end = Span(source, before.start + len(text.rstrip()), before.start + len(text.rstrip()))
            fixes = (Fix("end the line before in a backslash", (Edit(location_of(end), " \\"),)),)
        yield Finding("option-run-as-command", Severity.ERROR, message, location_of(lost), help, fixes=fixes)


def _is_joined(data: bytes, start: int) -> bool:
    """Return whether a backslash joins the line that begins at `start` to the one before, and that is no comment."""
    before = data[data.rfind(b"\n", 0, max(start - 1, 0)) + 1 : start]
    return before.endswith(b"\\\n") and not before.lstrip().startswith(b"#")


def _assignments(evaluation: Evaluation, commands: _Commands) -> Iterator[Finding]:
    source = evaluation.source
    for match in islice(ASSIGNMENT.finditer(source.data), MOST):
        command = commands.at(match.start(1) if match[2] else match.end())
        if command is None or command.start_byte != match.start(1):
            continue
        name = match[1].decode()[:LONGEST]
        message = f"`{name}` is not set: with blanks beside `=` the shell runs a command"
        end = match.end(2) if match[2] else match.end(3)
        after = len(source.data[end:]) - len(source.data[end:].lstrip(b" \t"))
        blanks = location_of(span_of_bytes(source, match.end(1), end + after))
        fix = Fix("remove the blanks", (Edit(blanks, "="),), is_safe=True)
        place = location_of(span_of_bytes(source, match.start(1), match.end(1)))
        yield Finding("assignment-run-as-command", Severity.ERROR, message, place, "remove the blanks", fixes=(fix,))


def _first_words(evaluation: Evaluation, launch: Span) -> Iterator[Finding]:
    """Yield a finding for each array of options that the launch expands without `[@]`."""
    source = evaluation.source
    root = evaluation.syntax.tree(source).root_node
    offsets = source.byte_offsets
    start, end = (place if offsets is None else bisect(offsets, place) - 1 for place in (launch.start, launch.end))
    for match in islice(EXPANSION.finditer(source.data, start, end), MOST):
        name = (match[1] or match[2]).decode()
        value = evaluation.variables.get(name)
        if not isinstance(value, Array) or len(value.items) < 2 or not _is_option(value.items[0]):
            continue
        node = root.descendant_for_byte_range(match.start(), match.end())
        if node is None or node.type not in ("simple_expansion", "expansion"):
            continue
        place = location_of(span_of_bytes(source, *match.span()))
        message = f"`{name[:LONGEST]}` is a list, and only its first word is passed"
        help = f'write `"${{{name[:LONGEST]}[@]}}"`'
        fix = Fix(help, (Edit(place, f"${{{name}[@]}}"),), is_safe=True)
        yield Finding("array-without-subscript", Severity.ERROR, message, place, help, fixes=(fix,))


def _swapped_letters(evaluation: Evaluation) -> Iterator[Finding]:
    """Yield a finding for each variable that is named nowhere but where it is read, and is a variable of the script but for two
    letters that are swapped.
    """
    source = evaluation.source
    root = evaluation.syntax.tree(source).root_node
    set_names = {"".join(sorted(name)): name for name in evaluation.variables}
    read: dict[str, list[re.Match[bytes]]] = {}
    for match in EXPANSION.finditer(source.data):
        name = (match[1] or match[2]).decode()
        if name not in evaluation.variables and "".join(sorted(name)) in set_names:
            read.setdefault(name, []).append(match)
    counts = Counter(match[0].decode() for match in NAME.finditer(source.data)) if read else Counter[str]()
    misspelled = (
        (match, name, meant)
        for name, places in read.items()
        if _are_swapped(name, meant := set_names["".join(sorted(name))])
        and counts[name] <= sum(match[2] is not None for match in places)
        for match in places
    )
    for match, name, meant in islice(misspelled, MOST):
        node = root.descendant_for_byte_range(match.start(), match.end())
        if node is None or node.type not in ("simple_expansion", "expansion"):
            continue
        place = location_of(span_of_bytes(source, *match.span(2 if match[2] else 1)))
        message, help = f"the script sets no `{name[:LONGEST]}`", f"did you mean `{meant[:LONGEST]}`?"
        fix = Fix(f"write `{meant}`", (Edit(place, meant),), is_safe=True)
        yield Finding("misspelled-variable", Severity.ERROR, message, place, help, fixes=(fix,))


def _are_swapped(name: str, meant: str) -> bool:
    """Return whether two letters that stand beside each other are all that differs."""
    differ = [place for place, letters in enumerate(zip(name, meant, strict=True)) if letters[0] != letters[1]]
    return len(differ) == 2 and differ[1] == differ[0] + 1 and name[differ[0] : differ[1] + 1].isalpha()


def _is_option(item: object) -> bool:
    return isinstance(item, Word) and leading_text(item.pieces).startswith("--")


def _line_before(source: Source, place: Span) -> Span:
    """Return the line before the one on which `place` starts, without its end."""
    first = source.text.rfind("\n", 0, place.start)
    if first < 0:
        return Span(source, 0, 0)
    start = source.text.rfind("\n", 0, first) + 1
    return Span(source, start, first - source.text.startswith("\r", first - 1))
