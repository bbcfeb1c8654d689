"""What the command line's parser itself would refuse: values that an option does not take, and options that are misspelled."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.megatron_options import Option, flags, hyphens, is_option, option

NUMBERS = {"int": "an integer", "float": "a number"}
LONGEST = 80
SHORT, LONG = 14, 22
"""Lengths from which one, and from which two letters may differ: shorter names have neighbours that mean something else."""


def option_mistakes(configuration: Configuration) -> Iterator[Finding]:
    """Findings about the options of one command line, each as it is written.

    Values are judged only where every option is Megatron-LM's, for no older version: a program that has options of its own may
    take other values too.
    """
    written = [each for each in (*configuration.overridden, *configuration.settings.values()) if each.written.startswith("--")]
    judged = configuration.framework == "megatron-lm" and not configuration.version
    own = judged and all(is_option(each.written) for each in written)
    for setting in written:
        known = option(setting.written)
        if known is not None:
            if own and known.kind == "store":
                yield from _refused(setting, known)
            continue
        near = _nearest(hyphens(setting.written), LONG if configuration.framework != "megatron-lm" else SHORT)
        if near:
            message = f"Megatron has no option `{setting.written[:LONGEST]}`"
            yield Finding("misspelled-option", Severity.NOTE, message, setting.name_location, f"did you mean `{near}`?")


def _refused(setting: Setting, known: Option) -> Iterator[Finding]:
    if isinstance(setting.value, Unknown):
        return
    for value in setting.value if isinstance(setting.value, tuple) else (setting.value,):
        shown = str(value)[:LONGEST]
        if known.type in NUMBERS and isinstance(value, str):
            message = f"`{setting.written}` takes {NUMBERS[known.type]}, not `{shown}`"
            yield Finding("option-value-not-a-number", Severity.ERROR, message, setting.location)
            return
        choices = [str(choice) for choice in known.choices if known.type != "other"] or [*_members(known)]
        if choices and value is not None and str(value) not in choices:
            message = f"`{setting.written}` does not take `{shown}`"
            help = f"one of {', '.join(f'`{choice}`' for choice in choices)}"
            yield Finding("option-value-not-a-choice", Severity.ERROR, message, setting.location, help)
            return


def _members(known: Option) -> Iterator[str]:
    """What an option takes whose choices are members of an enumeration, which the parser finds by their names."""
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
    """How many letters are put in, taken out, changed or swapped to make one of the other; some number above `most` else."""
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
