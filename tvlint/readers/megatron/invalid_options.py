"""Mistakes that the command line's own parser refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.kin import BEFORE_RELEASES, FRAMEWORKS, MEGATRON, parses_like_megatron
from tvlint.frameworks.megatron import RETIRED, Option, has_changed, is_option, option, takes_the_same
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.near_names import are_swapped, distance, is_a_letter_off, nearest
from tvlint.readers.megatron.arguments import TRUTH, VALUELESS
from tvlint.readers.megatron.misplaced_words import misplaced_word
from tvlint.readers.megatron.option_ranges import out_of_range
from tvlint.readers.megatron.packaged_parser import packaged_parser
from tvlint.readers.megatron.parser_source import ParserSource, changes_choices, may_take, parser_of, programs_of
from tvlint.readers.megatron.unknown_options import OF_MEGATRON, is_listed_for, unknown_options, unknown_short_options
from tvlint.readers.shell.values import Source, Span, Word, known_text, location_of, span_of
from tvlint.readers.sources.scalar_values import typed

NUMBERS = {"int": "an integer", "float": "a number"}
CHOICE = "option-value-not-a-choice"
REFUSALS = frozenset({CHOICE, "option-value-not-a-number"})
MISSPELLED = frozenset({"unknown-option", "misspelled-option"})
LONGEST = 80
SURELY_MISSPELT = 6
"""From so many letters on, a value that is a letter or two away from a choice of Megatron's is no other one of a fork."""
WORD = Pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
TEMPLATE = Pattern(r"<[^<>]+>")
"""A value that a reader of the script is to fill in."""
WHOLE = Pattern(r"(?<=\d)\.0*\Z")
"""What makes a number of an integer (`500000.0`)."""
DOUBLED = Pattern(r"([a-z])\1+")
SHORT = 3
"""So many letters make a word of which a letter or two make another."""
EXTENDED = frozenset({"tokenizer_type"})
"""Options to which almost every fork adds choices: a script without a tree may be started in that of a fork."""
SPELLINGS = {
    **dict.fromkeys(
        ("moe_layer_freq", "linear_attention_freq", "no_rope_freq", "window_attn_skip_freq"),
        (Pattern(r"[\d,+*()\s]*\[[\d,+*()\[\]\s]*"), "a number, or a list of 0 and 1 such as `([0]*3+[1])*6`"),
    ),
    "window_size": (Pattern(r"[()]*\s*-?\d+(?:\s*,\s*-?\d+)*\s*[()]*"), "two numbers such as `128,0`"),
}
"""How a value is spelled that the parser converts by itself, and that in words."""
BLANK = Pattern(
    r"(?i:(?:the +)?(?:path +(?:of|to) +)?your +|[a-z]+ +(?:file|path|dir|directory|folder|name) +)|[A-Z]{2,} +[A-Z]{2,} "
)
"""How a value begins that whoever takes the script is to fill in (`LOAD="your checkpoint"`, `LOAD="PATH TO CHECKPOINT"`)."""
UNQUOTED = 'quote what expands to it (`"${ARGS[@]}"`): without quotes the shell splits the text at its blanks'
TAKEN = ("no value", "one value")
TRUE = frozenset({"true", "1", "yes", "on"})
"""What people write after a switch to say that it is on."""


def option_mistakes(
    configuration: Configuration,
    surplus: Iterable[tuple[Setting, Word]] = (),
    program: str = "",
    short: Iterable[Setting] = (),
    *,
    is_listed: bool = False,
) -> Iterator[Finding]:
    """Findings about the options of one command line, each as it is written; `surplus` are words that belong to none, `short`
    those with one hyphen.

    `program` is what the launch starts; its source decides where it lies around the script. Options that are only listed may go
    to a launcher before it.
    """
    written = [each for each in (*configuration.overridden, *configuration.settings.values()) if each.written.startswith("--")]
    parser = packaged_parser(program, program) or parser_of(program, configuration.path)
    if is_listed and parser is not None:
        parser = replace(parser, closed=False)
    yield from unknown_options(configuration, written, program, parser)
    yield from unknown_short_options(configuration, short, program, parser)
    left: list[tuple[Setting, Word]] = []
    for setting, word in surplus:
        misplaced = misplaced_word(setting, word)
        if misplaced is None:
            left.append((setting, word))
        else:
            yield misplaced
    if not parses_like_megatron(configuration.framework):
        if parser is not None and parser.is_packaged and not parser.is_own:
            yield from (finding for setting in written for finding in refused_by_source(setting, configuration, parser))
        return
    is_megatron = configuration.framework == MEGATRON and all(is_option(setting.written) for setting in written)
    version = configuration.version
    by_source = parser if parser is not None and parser.declares else None
    if parser is not None and is_listed_for(parser, frozenset(each.written for each in written), program):
        parser = replace(parser, is_own=True)
    for setting in written:
        known = option(setting.written)
        if known is None:
            if by_source is not None:
                yield from refused_by_source(setting, configuration, by_source)
            continue
        if known.dest in RETIRED:
            continue
        if known.kind == "store":
            refused = _refused(setting, replace(known, choices=_stated_choices(setting.written, by_source) or known.choices))
            yield from (
                each for each in refused if _is_of_parser(each, setting, configuration, parser, is_megatron=is_megatron)
            )
        elif (is_megatron and not (version and not takes_the_same(known.dest, version))) or _takes_as_few(
            by_source, known, setting.written
        ):
            yield from _switched(setting)
    for setting, word in left:
        known = option(setting.written)
        if parser is not None and known_text(word.pieces) in parser.flags:
            continue
        if known is not None and (
            (is_megatron and not version)
            or _takes_as_few(by_source, known, setting.written)
            or _is_switch_of(parser, program, known, setting.written)
        ):
            yield from left_over(setting, known, word)


def with_meant(configuration: Configuration, mistakes: Iterable[Finding]) -> Configuration:
    """Return the configuration with the settings that its misspelled options mean, so that none of them counts as left out.

    Their values are not judged before they are repaired.
    """
    edits = (edit for each in mistakes if each.rule in MISSPELLED for fix in each.fixes for edit in fix.edits)
    named = ((edit, known) for edit in edits if (known := option(edit.text)) is not None)
    meant = {
        known.dest: Setting(
            known.dest, Unknown("the option is misspelled", given=True), edit.text, edit.location, edit.location
        )
        for edit, known in named
        if known.dest not in configuration.settings
    }
    return replace(configuration, settings={**configuration.settings, **meant}) if meant else configuration


def _declared(parser: ParserSource, flag: str) -> Option | None:
    """Return the option as the source declares it; only where there is one, Python has to be parsed."""
    from tvlint.readers.megatron.declared_options import declared

    return declared(parser, flag)


def listed_option_mistakes(configuration: Configuration) -> Iterator[Finding]:
    """Yield findings about options that a launcher written in Python lists: those of every program that may take them."""
    flags = frozenset(setting.written for setting in configuration.settings.values() if not is_option(setting.written))
    first, *others = [
        tuple(option_mistakes(configuration, program=program, is_listed=True))
        for program in programs_of(configuration.path, flags) or ("",)
    ]
    places = [{(finding.rule, finding.location) for finding in found} for found in others]
    yield from (finding for finding in first if all((finding.rule, finding.location) in found for found in places))


def _stated_choices(flag: str, parser: ParserSource | None) -> tuple[str | int | float, ...]:
    """Return the choices that the source of the program states for an option of Megatron; empty where it states none."""
    known = option(flag)
    if parser is None or not parser.declares or known is None or not known.choices or known.type == "other":
        return ()
    declared = _declared(parser, flag)
    return declared.choices if declared is not None and not changes_choices(parser, flag) else ()


def _is_of_parser(
    refusal: Finding, setting: Setting, configuration: Configuration, parser: ParserSource | None, *, is_megatron: bool = False
) -> bool:
    """Return whether what the parser of Megatron-LM refuses, the parser of the launch refuses too.

    `is_megatron` says that all options of the launch are Megatron-LM's. Numbers stay numbers in forks and in older versions;
    choices may be others there. Then the source decides, by the choices that it states, else by whether it quotes the value;
    and where it says nothing of the option, whether the value looks like a choice misspelt. Forks of old versions had some
    options before Megatron had them, with choices in other case.
    """
    version = configuration.version
    if parser is not None and parser.is_packaged and not parser.is_own:
        return True
    if refusal.rule != CHOICE:
        return not (version and has_changed(setting.name) and not takes_the_same(setting.name, version))
    if _stated_choices(setting.written, parser):
        return True
    value = str(setting.value)
    meant = [edit.text for fix in refusal.fixes for edit in fix.edits]
    is_older = configuration.framework in FRAMEWORKS and FRAMEWORKS[configuration.framework].version == BEFORE_RELEASES
    if is_older and not (parser is not None and parser.is_own) and any(name.lower() == value.lower() for name in meant):
        return False
    is_open = parser is None and setting.name in EXTENDED
    if is_megatron and not is_open and (not version or takes_the_same(setting.name, version)):
        return True
    if parser is not None and parser.is_own and setting.written in parser.flags:
        is_slip = any(_same_letters(value, name) for name in meant)
        return not may_take(parser, setting.written, value, is_slip=is_slip)
    if has_changed(setting.name):
        return any(_same_letters(value, name) or (is_misspelt(value, name) and name not in value) for name in meant)
    return (parser is not None and parser.is_own) or any(is_misspelt(value, name) for name in meant)


def is_misspelt(value: str, choice: str) -> bool:
    """Return whether a value is one or two letters away from a choice; with other digits, or where a short word is another one
    (`HFTokenizer`, `SFTTokenizer`), it may be one of a fork.
    """
    if _same_letters(value, choice):
        return True
    digits = re.findall(r"\d", value) == re.findall(r"\d", choice)
    if not digits or max(len(value), len(choice)) < SURELY_MISSPELT or distance(value, choice, 2) > 2:
        return False
    other = set(WORD.findall(value)) ^ set(WORD.findall(choice))
    return any(len(word) > SHORT for word in other) or letters(value) == letters(choice)


def _same_letters(value: str, choice: str) -> bool:
    """Return whether two words differ in case, joints, letters that are doubled, two that are swapped, or one lost, alone."""
    both = letters(value), letters(choice)
    has_lost = len(value) > SHORT and (value[0], value[-1], len(value) + 1) == (choice[0], choice[-1], len(choice))
    is_slip = DOUBLED.sub(r"\1", both[0]) == DOUBLED.sub(r"\1", both[1]) or are_swapped(*both)
    return is_slip or (has_lost and is_a_letter_off(*both))


def letters(value: str) -> str:
    """Return the letters and digits of a value, without how its words are joined and written."""
    return re.sub(r"[\W_]", "", value).lower()


def still_refused(findings: Iterable[Finding], configurations: Iterable[Configuration]) -> Iterator[Finding]:
    """Yield the findings of a file, without refusals of values by options that are otherwise in the version that is known by
    now.

    What was refused, was so by the parser of the launch: here the one around the script is as good.
    """
    otherwise = {
        setting.location: (configuration, setting)
        for configuration in configurations
        if configuration.version
        for setting in configuration.settings.values()
        if not takes_the_same(setting.name, configuration.version)
    }
    for finding in findings:
        at = otherwise.get(finding.location) if finding.rule in REFUSALS else None
        parser = parser_of("", at[0].path) if at is not None else None
        known = parser and replace(parser, is_own=True, declares=True)
        if at is None or _is_of_parser(finding, at[1], at[0], known):
            yield finding


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


def _switched(setting: Setting) -> Iterator[Finding]:
    """Yield a finding for a switch that a mapping gives a value which no boolean is: it stands after the option as a word."""
    if isinstance(setting.value, str):
        message = f"`{setting.written}` takes no value, and `{setting.value[:LONGEST]}` stands after it"
        help = f"write `true`, or leave `{setting.written}` out"
        fixes = (Fix("write `true`", (Edit(setting.location, "true"),)),) if setting.value.lower() in TRUE else ()
        yield Finding("value-after-complete-option", Severity.ERROR, message, setting.location, help, fixes=fixes)


def refused_by_source(setting: Setting, configuration: Configuration, parser: ParserSource) -> Iterator[Finding]:
    """Yield findings about the value of an option that is not Megatron-LM's, by how the source of the program declares it."""
    words = setting.value if isinstance(setting.value, tuple) else (setting.value,)
    if any(word is None or isinstance(word, bool | Unknown) for word in words):
        return
    option = _declared(parser, setting.written)
    if option is None:
        return
    if option.type == "truth":
        yield from _no_truth(setting, words)
        return
    if option.arity is not None:
        words = tuple(part for word in words for part in str(word).split())
    most = 0 if option.kind != "store" else 1 if option.arity is None else len(words)
    if len(words) <= most:
        values = tuple(typed(option, str(word)) for word in words)
        read = replace(setting, value=values[0] if option.arity is None and values else values)
        refused = [*_refused(read, option)]
        yield from (each for each in refused if each.rule != CHOICE or _is_of_parser(each, read, configuration, parser))
        beyond = out_of_range(read, option) if not refused else None
        yield from () if beyond is None else (beyond,)
    elif not parser.takes_words and not BLANK.match(" ".join(map(str, words)) + " "):
        message = f"`{setting.written}` takes {TAKEN[most]}, and `{str(words[most])[:LONGEST]}` stands after it"
        yield Finding("value-after-complete-option", Severity.ERROR, message, setting.location, "remove it")


def _no_truth(setting: Setting, words: Iterable[object]) -> Iterator[Finding]:
    """Yield a finding for a word that the parser of transformers takes for no truth value."""
    for word in words:
        if str(word).lower() not in TRUTH:
            near = nearest(str(word).lower(), ("true", "false"))
            message = f"`{setting.written}` does not take `{str(word)[:LONGEST]}`"
            fixes = (Fix(f"write `{near}`", (Edit(setting.location, near),)),) if near else ()
            yield Finding(CHOICE, Severity.ERROR, message, setting.location, "one of `true`, `false`", fixes=fixes)
            return


def _takes_as_few(parser: ParserSource | None, known: Option, flag: str) -> bool:
    """Return whether by the source the option takes no more words than Megatron-LM's, and none may be left over.

    An option that the source does not name is the one of the Megatron that it calls.
    """
    if parser is None or parser.takes_words:
        return False
    if flag not in parser.flags:
        return True
    option = _declared(parser, flag)
    return option is not None and (option.kind == "store") == (known.kind == "store") and option.arity == known.arity


def _is_switch_of(parser: ParserSource | None, program: str, known: Option, flag: str) -> bool:
    """Return whether the source of a program of Megatron or of its kin declares the option as a switch, as Megatron does.

    A package that adds options to the parser, as DeepSpeed's does, changes no other, and takes no words besides.
    """
    if parser is None or parser.takes_words or known.kind == "store" or not OF_MEGATRON.fullmatch(os.path.basename(program)):
        return False
    option = _declared(parser, flag)
    return option is not None and option.kind != "store"


def left_over(setting: Setting, known: Option, word: Word) -> Iterator[Finding]:
    """Yield the finding about a word too many that stands after an option.

    A line with `<` (`--save <PATH TO DIRECTORY>`) is a blank to be filled in. Backslashes before a carriage return have one
    finding of their own.
    """
    text = known_text(word.pieces)
    span = span_of(word.pieces)
    if (
        not text
        or _is_carriage_return(span)
        or "<" in span.source.text[span.source.text.rfind("\n", 0, span.start) + 1 : span.start]
    ):
        return
    message = f"`{setting.written}` takes {TAKEN[known.kind == 'store']}, and `{text[:LONGEST]}` stands after it"
    place = location_of(span)
    if setting.location.path == place.path and _is_split(setting, span):
        if BLANK.match(f"{setting.value} {text} "):
            return
        yield Finding("value-after-complete-option", Severity.ERROR, message, place, UNQUOTED)
        return
    help = "remove it" if text.strip(" \\") else "remove the space after the backslash"
    fix = Fix("remove it", (Edit(location_of(_with_blanks_before(span)), ""),), is_safe=text.lower() in TRUE)
    yield Finding("value-after-complete-option", Severity.ERROR, message, place, help, fixes=(fix,))


def _is_carriage_return(word: Span) -> bool:
    """Return whether the word is a backslash that escapes a carriage return."""
    return word.source.text[word.start : word.end + 1] in ("\\\r", "\\\r\n")


def _is_split(setting: Setting, word: Span) -> bool:
    """Return whether the value and the word stood together in quotes, which an unquoted expansion takes away."""
    text = word.source.text
    start = max(text.rfind('"', 0, word.start), text.rfind("'", 0, word.start))
    between = text[start + 1 : word.start] if start >= 0 else ""
    return "\n" not in between and between.rstrip(" \t") == str(setting.value)


def _with_blanks_before(span: Span) -> Span:
    before = span.source.text[: span.start]
    return Span(span.source, len(before.rstrip(" \t")), span.end)


def _refused(setting: Setting, known: Option) -> Iterator[Finding]:
    if setting.value == VALUELESS:
        message = f"`{setting.written}` needs a value, and none stands after it"
        help = f"write a value behind it, or remove `{setting.written}`"
        yield Finding("option-without-value", Severity.ERROR, message, setting.name_location, help)
    if isinstance(setting.value, Unknown):
        return
    for value in setting.value if isinstance(setting.value, tuple) else (setting.value,):
        shown = str(value)[:LONGEST]
        if TEMPLATE.fullmatch(shown):
            continue
        if known.type in NUMBERS and isinstance(value, str):
            message = f"`{setting.written}` takes {NUMBERS[known.type]}, not `{shown}`"
            whole = WHOLE.sub("", value) if known.type == "int" else value
            help = f"write {NUMBERS[known.type]}" if whole == value else f"write `{whole}`"
            number = (Fix(help, (Edit(setting.location, whole),)),) if whole != value else ()
            yield Finding("option-value-not-a-number", Severity.ERROR, message, setting.location, help, fixes=number)
            return
        pattern, spelling = SPELLINGS.get(known.dest, (None, ""))
        if pattern is not None and isinstance(value, str) and not pattern.fullmatch(value):
            message = f"`{setting.written}` does not take `{shown}`"
            yield Finding(CHOICE, Severity.ERROR, message, setting.location, spelling)
            return
        choices = choices_of(known)
        if choices and value is not None and str(value) not in choices:
            message = f"`{setting.written}` does not take `{shown}`"
            help = f"one of {', '.join(f'`{choice}`' for choice in choices)}"
            near = "" if isinstance(setting.value, tuple) else nearest(shown, choices)
            fixes = (Fix(f"write `{near}`", (Edit(setting.location, near),)),) if near else ()
            yield Finding(CHOICE, Severity.ERROR, message, setting.location, help, fixes=fixes)
            return


def choices_of(known: Option) -> list[str]:
    """Return the values that an option takes, of an enumeration the names of its members; none where it takes any."""
    if known.type != "other":
        return [str(choice) for choice in known.choices]
    return [choice.rpartition(".")[2] for choice in known.choices if isinstance(choice, str) and "." in choice]
