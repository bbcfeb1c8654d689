"""The words of a Megatron command line as settings: as argparse would read them, with gaps where words are unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tvlint.frameworks.megatron import Option, option
from tvlint.ir.configuration import Setting, SettingValue, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.shell.values import (
    Fork,
    Gap,
    Hole,
    Item,
    Piece,
    Span,
    Text,
    Word,
    after,
    before,
    known_text,
    leading_text,
    line_of,
    location_of,
    span_of,
    unknown_reason,
)
from tvlint.readers.sources.scalar_values import typed

KnownOf: TypeAlias = Callable[[str], Option | None]
FLAG = Pattern(r"--[A-Za-z][\w.-]*")
SHORT = Pattern(r"-[A-Za-z][\w-]*")
DASH = Pattern(r"[\u2010-\u2015\u2212]+(?=[A-Za-z])")
"""What word processors make of the hyphens before an option."""
SPACED = Pattern(r"--[A-Za-z][\w.-]*[ \t]")
"""An option and more in one word, which argparse takes for a value where one is due (`--train-args "--lr 1e-4"`)."""
LONGEST = 40
"""Letters of the longest words that are shown as they stand."""
LONGEST_COMMAND = 24
"""A command that is put in, and is longer, is not written out in a message."""
VALUELESS = Unknown("no value stands after it")
"""The value of an option that needs one and has another option, or the end of the list, where it should stand."""
BARE = Pattern(r"[\"']?(?:[\s\\]+[\"']?--[A-Za-z]|[\s\\]*(?:\)|\Z|[\"'][ \t]*(?:\n|\Z)))")
"""What follows the name of such an option in the text: nothing there could have been a value. A quote at the end of a line
closes the list that the option stands in."""
TRUTH = {**dict.fromkeys(("yes", "true", "t", "y", "1"), True), **dict.fromkeys(("no", "false", "f", "n", "0"), False)}
"""What Hugging Face's parser takes for whether a switch is on (transformers/hf_argparser.py: string_to_bool)."""


@dataclass(slots=True)
class Arguments:
    """The options that a command line sets, in order; `gaps` are the words that may set more, as a message names them.

    `surplus` are words that stand after an option that takes no more of them or none that begins so, each with that option;
    `short` are options with one hyphen, of which Megatron has none.
    """

    settings: list[Setting] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    surplus: list[tuple[Setting, Word]] = field(default_factory=list)
    short: list[Setting] = field(default_factory=list)


def flag_of(item: Item) -> str:
    """Return the flag that `item` begins with; empty where it is no option."""
    if not isinstance(item, Word):
        return ""
    match = FLAG.match(leading_text(item.pieces))
    return match[0] if match else ""


def _is_short(item: Item) -> bool:
    """Return whether a word is an option with one hyphen; argparse takes such a word for the value of no other one."""
    return isinstance(item, Word) and SHORT.fullmatch(known_text(item.pieces) or "") is not None


def read_arguments(items: Sequence[Item], *, with_truth: bool = False, known_of: KnownOf = option) -> Arguments:
    """Return the settings of a command line, `items` being the words after the program.

    `with_truth`, a switch may be followed by whether it is on, as Hugging Face's parser takes it. `known_of` returns the option
    of a flag, where the parser is not Megatron's.
    """
    found = Arguments()
    place = after_option = 0
    while place < len(items):
        item = items[place]
        place += 1
        if isinstance(item, Gap):
            found.gaps.append(_shown(item.span))
        elif isinstance(item, Fork):
            _undecided(found, item, with_truth, known_of)
        elif flag := flag_of(item):
            place = after_option = _flag(found, items, item, flag, known_of(flag), place, with_truth)
        elif _is_short(item):
            here = location_of(span_of(item.pieces))
            found.short.append(Setting("", None, known_text(item.pieces) or "", here, here))
        elif leading_text(item.pieces) == "" and (hole := next((each for each in item.pieces if isinstance(each, Hole)), None)):
            found.gaps.append(_shown(hole.span))
        elif found.settings and (place - 1 == after_option or DASH.match(leading_text(item.pieces))):
            found.surplus.append((found.settings[-1], item))
    return found


def _flag(
    found: Arguments, items: Sequence[Item], item: Word, flag: str, known: Option | None, place: int, with_truth: bool
) -> int:
    rest = after(item.pieces, len(flag))
    name_span = span_of(before(item.pieces, len(flag)))
    if leading_text(rest).startswith("="):
        _store(found, known, flag, name_span, [Word(after(rest, 1) or (Text("", name_span, False),))])
        return place
    if rest and not isinstance(rest[0], Text):
        found.gaps.append(_shown(name_span))
        return place
    if leading_text(rest)[:1].isspace():
        here = location_of(name_span)
        found.surplus.append((Setting("", None, flag, here, here), item))
        return place
    if known is not None and known.kind != "store" and not with_truth:
        _store(found, known, flag, name_span, [])
        return place
    values, place = _values(items, place, known)
    _store(found, known, flag, name_span, values)
    if values and isinstance(values[0], Word) and leading_text(values[0].pieces).startswith("="):
        found.surplus.append((found.settings[-1], values[0]))
    return place


def _values(items: Sequence[Item], place: int, known: Option | None) -> tuple[list[Item], int]:
    """The items that the option takes as its values, and the place after them."""
    arity = known.arity if known is not None else "*"
    most = 1 if arity is None else arity if isinstance(arity, int) else len(items)
    values: list[Item] = []
    while place < len(items) and len(values) < most and _is_value(items[place], known):
        values.append(items[place])
        place += 1
    return values, place


def _is_value(item: Item, known: Option | None) -> bool:
    if isinstance(item, Word):
        text = leading_text(item.pieces)
        return bool(not FLAG.match(text) or SPACED.match(text)) and not _is_short(item) and not DASH.match(text)
    if known is None or isinstance(item, Gap):
        return known is not None
    is_one = known.arity is None
    return all((len(words) == 1 or not is_one) and all(_is_value(word, known) for word in words) for words in item.alternatives)


def _store(found: Arguments, known: Option | None, flag: str, name_span: Span, values: list[Item]) -> None:
    name = known.dest if known is not None else flag[2:].replace("-", "_")
    span = name_span
    value: SettingValue | Unknown
    if known is not None and known.kind != "store":
        value = known.kind == "true" or (known.kind == "boolean" and not flag.startswith("--no-"))
        if values:
            span = _span(values)
            said = _value(None, values)
            is_on = TRUTH.get(str(said).lower(), said)
            value = (value if is_on else not value) if isinstance(is_on, bool) else is_on
    elif not values and known is not None and known.arity != "*":
        value = VALUELESS if BARE.match(name_span.source.text, name_span.end) else Unknown("its value is empty")
    elif not values:
        value = () if known is not None else True
    else:
        span = _span(values)
        value = _value(known, values)
    found.settings.append(Setting(name, value, flag, location_of(span), location_of(name_span)))


def _span(values: list[Item]) -> Span:
    spans = [span_of(value.pieces) if isinstance(value, Word) else value.span for value in values]
    first, last = spans[0], spans[-1]
    if last.source is first.source and last.end >= first.start:
        return Span(first.source, first.start, last.end)
    return first


def _shown(span: Span) -> str:
    """Return the words at `span` as a message names them: as the file writes them where they fit and say what is missing."""
    text = span.source.text[span.start : span.end].strip()
    if text.startswith(("$(", "`")) and len(text) > LONGEST_COMMAND:
        return "what a command prints"
    if "\n" in text:
        return f"the code at line {line_of(span)}"
    return f"`{text}`" if len(text) <= LONGEST else f"`{text[: LONGEST - 3]}...`"


def _value(known: Option | None, values: list[Item]) -> SettingValue | Unknown:
    texts: list[str] = []
    for value in values:
        if not isinstance(value, Word):
            return Unknown(value.reason, given=True)
        text = known_text(value.pieces)
        if text is None:
            return Unknown(unknown_reason(value.pieces), given=True)
        texts.append(text)
    if known is None:
        return typed(None, texts[0]) if len(texts) == 1 else tuple(typed(None, text) for text in texts)
    if known.arity is None:
        return typed(known, texts[0])
    return tuple(typed(known, text) for text in texts)


def _undecided(found: Arguments, fork: Fork, with_truth: bool, known_of: KnownOf) -> None:
    """Settings of words that stand there only on some paths: known where all paths agree, else unknown."""
    branches = [read_arguments(words, with_truth=with_truth, known_of=known_of) for words in fork.alternatives]
    found.gaps += dict.fromkeys(gap for branch in branches for gap in branch.gaps)
    last = [{setting.name: setting for setting in branch.settings} for branch in branches]
    names = dict.fromkeys(name for settings in last for name in settings)
    for name in names:
        settings = [each[name] for each in last if name in each]
        first = settings[0]
        if len(settings) == len(last) and all(_equal(setting.value, first.value) for setting in settings):
            found.settings.append(first)
            continue
        unknown = Unknown(fork.reason, given=len(settings) == len(last) and all(_given(setting.value) for setting in settings))
        found.settings.append(Setting(name, unknown, first.written, first.location, first.name_location))


def _given(value: SettingValue | Unknown) -> bool:
    return value.given if isinstance(value, Unknown) else value is not None


def _equal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def pieces_of(item: Item) -> tuple[Piece, ...]:
    """Return the pieces of a word; a hole for anything else."""
    return item.pieces if isinstance(item, Word) else (Hole(item.reason, item.span),)
