"""Words of a command line that no parser takes for what they were meant for, whatever options it has."""

from __future__ import annotations

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.configuration import Setting
from tvlint.ir.patterns import Pattern
from tvlint.readers.megatron.arguments import DASH
from tvlint.readers.shell.values import Span, Word, before, leading_text, location_of, span_of

LONGEST = 80
COMMENT = Pattern(r"#+(?:[A-Za-z]|\Z)")
JOINED = Pattern(r"--[A-Za-z][\w-]*[ \t]+\S")


def misplaced_word(setting: Setting, word: Word) -> Finding | None:
    """Return the finding about a word that is a slip of whoever wrote it; None for any other. `setting` stands before it."""
    text = leading_text(word.pieces)
    span = span_of(before(word.pieces, len(text)) or word.pieces)
    place, shown = location_of(span), f"`{text[:LONGEST]}`"
    if text.startswith("="):
        message = f"`{setting.written}` takes {shown} for its value: a blank stands before `=`"
        return Finding(
            "misplaced-equals-sign", Severity.ERROR, message, place, "remove the blank", fixes=_without_blank(setting, span)
        )
    if dash := DASH.match(text):
        message = f"{shown} is no option: it begins with a dash that is no hyphen"
        fix = Fix("write `--`", (Edit(location_of(Span(span.source, span.start, span.start + len(dash[0]))), "--"),))
        return Finding("unknown-option", Severity.ERROR, message, place, "write `--`", fixes=(fix,))
    if JOINED.match(text):
        message = f"{shown} is no option: quotes join it and its value to one word"
        return Finding("unknown-option", Severity.ERROR, message, place, "remove the quotes, or write `=` between the two")
    if COMMENT.match(text):
        message = f"{shown} is passed as an argument: in quotes nothing is a comment"
        return Finding("value-after-complete-option", Severity.ERROR, message, place, "put the comment elsewhere")
    return None


def _without_blank(setting: Setting, value: Span) -> tuple[Fix, ...]:
    """Return the fix where the option stands right before the value."""
    text = value.source.text
    end = len(text[: value.start].rstrip(" \t"))
    if not text.endswith(setting.written, 0, end) or text[value.start : value.start + 1] != "=":
        return ()
    return (Fix("remove the blank", (Edit(location_of(Span(value.source, end, value.start)), ""),), is_safe=True),)
