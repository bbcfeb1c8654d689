"""Mistakes that the command line's own parser refuses: invalid values and misspelled options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.megatron import Option, flags, hyphens, is_option, option, takes_the_same
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.readers.megatron.arguments import VALUELESS
from tvlint.readers.shell.values import Source, Span, Word, known_text, location_of, span_of

NUMBERS = {"int": "an integer", "float": "a number"}
REFUSALS = frozenset({"option-value-not-a-choice", "option-value-not-a-number"})
LONGEST = 80
SPELLINGS = {
    **dict.fromkeys(
        ("moe_layer_freq", "linear_attention_freq", "no_rope_freq", "window_attn_skip_freq"),
        (re.compile(r"[\d,+*()\s]*\[[\d,+*()\[\]\s]*"), "a number, or a list of 0 and 1 such as `([0]*3+[1])*6`"),
    ),
    "window_size": (re.compile(r"[()]*\s*-?\d+(?:\s*,\s*-?\d+)*\s*[()]*"), "two numbers such as `128,0`"),
}
"""How a value is spelled that the parser converts by itself, and that in words."""
CUT = re.compile(r"[ \t]*(\\[ \t]+)\n[ \t]*(--[A-Za-z][\w-]*)")
"""After a command: a space that a backslash keeps from joining the next line, which begins with an option."""
TRUE = frozenset({"true", "1", "yes", "on"})
"""What people write after a switch to say that it is on."""
SHORT, LONG = 14, 22
"""Lengths from which one, and from which two letters may differ: shorter names have neighbours that mean something else."""


def option_mistakes(configuration: Configuration, surplus: Iterable[tuple[Setting, Word]] = ()) -> Iterator[Finding]:
    """Findings about the options of one command line, each as it is written; `surplus` are words that belong to none.

    Values are judged only where every option is Megatron-LM's: a program that has options of its own may take other values too.
    Where the script names an older version, they are judged of options that take the same there.
    """
    written = [each for each in (*configuration.overridden, *configuration.settings.values()) if each.written.startswith("--")]
    version = configuration.version
    own = configuration.framework == "megatron-lm" and all(is_option(each.written) for each in written)
    for setting in written:
        known = option(setting.written)
        if known is not None:
            if own and known.kind == "store" and (not version or takes_the_same(known.dest, version)):
                yield from _refused(setting, known)
            continue
        near = _nearest(hyphens(setting.written), LONG if configuration.framework != "megatron-lm" else SHORT)
        if near:
            message = f"Megatron has no option `{setting.written[:LONGEST]}`"
            fix = Fix(f"write `{near}`", (Edit(setting.name_location, near),), is_safe=True)
            place, help = setting.name_location, f"did you mean `{near}`?"
            yield Finding("misspelled-option", Severity.NOTE, message, place, help, fixes=(fix,))
    for setting, word in surplus if own and not version else ():
        yield from _left_over(setting, word)


def still_refused(findings: Iterable[Finding], configurations: Iterable[Configuration]) -> Iterator[Finding]:
    """The findings of a file, without refusals of values by options that are otherwise in the version that is known by now."""
    otherwise = {
        setting.location
        for each in configurations
        if each.version
        for setting in each.settings.values()
        if not takes_the_same(setting.name, each.version)
    }
    yield from (each for each in findings if each.rule not in REFUSALS or each.location not in otherwise)


def cut_short(command: Span) -> Iterator[Finding]:
    """The finding about a command that ends earlier than it is meant to, with the first option that it loses."""
    match = CUT.match(command.source.text, command.end)
    if match is not None:
        message = f"the command ends here: a space stands after the backslash, so `{match[2][:LONGEST]}` is not passed"
        place = location_of(Span(command.source, *match.span(1)))
        fix = Fix("remove the space", (Edit(place, "\\"),), is_safe=True)
        yield Finding("space-after-backslash", Severity.ERROR, message, place, "remove the space", fixes=(fix,))


def carriage_return(source: Source) -> Iterator[Finding]:
    """The finding about the first line that is meant to go on and ends, for the shell, in an escaped carriage return."""
    at = source.text.find("\\\r\n")
    if at >= 0:
        message = "the command ends here: a carriage return stands after the backslash"
        place = location_of(Span(source, at, at + 1))
        help = "save the script with LF line ends"
        ends = [match.start() for match in re.finditer("\r(?=\n)", source.text)]
        fix = Fix(help, tuple(Edit(location_of(Span(source, end, end + 1)), "") for end in ends), is_safe=True)
        yield Finding("carriage-return-after-backslash", Severity.WARNING, message, place, help, fixes=(fix,))


def _left_over(setting: Setting, word: Word) -> Iterator[Finding]:
    """The finding about a word too many; a line with `<` (`--save <PATH TO DIRECTORY>`) is a blank to be filled in."""
    known = option(setting.written)
    text = known_text(word.pieces)
    span = span_of(word.pieces)
    if known is None or not text or "<" in span.source.text[span.source.text.rfind("\n", 0, span.start) + 1 : span.start]:
        return
    takes = "one value" if known.kind == "store" else "no value"
    message = f"`{setting.written}` takes {takes}, and `{text[:LONGEST]}` stands after it"
    help = "remove it" if text.strip() else "remove the space after the backslash"
    fix = Fix("remove it", (Edit(location_of(_with_blanks_before(span)), ""),), is_safe=text.lower() in TRUE)
    yield Finding("value-after-complete-option", Severity.ERROR, message, location_of(span), help, fixes=(fix,))


def _with_blanks_before(span: Span) -> Span:
    before = span.source.text[: span.start]
    return Span(span.source, len(before.rstrip(" \t")), span.end)


def _refused(setting: Setting, known: Option) -> Iterator[Finding]:
    if setting.value == VALUELESS:
        message = f"`{setting.written}` needs a value, and none stands after it"
        yield Finding("option-without-value", Severity.ERROR, message, setting.name_location)
    if isinstance(setting.value, Unknown):
        return
    for value in setting.value if isinstance(setting.value, tuple) else (setting.value,):
        shown = str(value)[:LONGEST]
        if known.type in NUMBERS and isinstance(value, str):
            message = f"`{setting.written}` takes {NUMBERS[known.type]}, not `{shown}`"
            yield Finding("option-value-not-a-number", Severity.ERROR, message, setting.location)
            return
        pattern, spelling = SPELLINGS.get(known.dest, (None, ""))
        if pattern is not None and isinstance(value, str) and not pattern.fullmatch(value):
            message = f"`{setting.written}` does not take `{shown}`"
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, setting.location, spelling)
            return
        choices = [str(choice) for choice in known.choices if known.type != "other"] or [*_members(known)]
        if choices and value is not None and str(value) not in choices:
            message = f"`{setting.written}` does not take `{shown}`"
            help = f"one of {', '.join(f'`{choice}`' for choice in choices)}"
            near = () if isinstance(setting.value, tuple) else get_close_matches(shown, choices, 1)
            fixes = tuple(Fix(f"write `{choice}`", (Edit(setting.location, choice),)) for choice in near)
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, setting.location, help, fixes=fixes)
            return


def _members(known: Option) -> Iterator[str]:
    """Yield what an option takes whose choices are members of an enumeration, which the parser finds by their names."""
    for choice in known.choices:
        if isinstance(choice, str) and "." in choice:
            yield choice.rpartition(".")[2]


def _nearest(flag: str, shortest: int) -> str:
    """The option that `flag` is one or two letters away from; empty where there is none, or several equally near."""
    most = 0 if len(flag) < shortest or len(flag) > LONGEST else 1 if len(flag) < LONG else 2
    near: list[tuple[int, str]] = []
    for known in flags() if most else ():
        if abs(len(known) - len(flag)) <= most and len(set(known) ^ set(flag)) <= 2 * most:
            distance = _distance(flag, known, most)
            if distance <= most:
                near.append((distance, known))
    near.sort()
    return near[0][1] if near and (len(near) == 1 or near[0][0] < near[1][0]) else ""


def _distance(one: str, other: str, most: int) -> int:
    """Return how many letters are put in, taken out, changed or swapped to make one of the other; some number above `most`
    else.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        last, before, row = before, row, [place]
        for at, against in enumerate(other, 1):
            cost = min(before[at] + 1, row[at - 1] + 1, before[at - 1] + (letter != against))
            if place > 1 and at > 1 and letter == other[at - 2] and one[place - 2] == against:
                cost = min(cost, last[at - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
