"""Values and names that no parser like Megatron's reads: those a letter or two away from what Megatron core takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.kin import parses_like_megatron
from tvlint.frameworks.megatron import Option, flags, has_changed, option, option_of
from tvlint.frameworks.verl import CHOICES
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.patterns import Pattern
from tvlint.near_names import distance, is_a_slip
from tvlint.readers.megatron.invalid_options import CHOICE, LONGEST, SURELY_MISSPELT, choices_of, is_misspelt, letters
from tvlint.readers.megatron.unknown_options import SIZES, misspelled_names

FEWEST_LETTERS = 4
"""From so many letters on, a value that is one letter away from a choice that no release has changed is no other word."""
NUMBER = Pattern(r"[-+]?\d")
INTEGER = Pattern(r"[-+]?[\d_]+")
TRUTHS = {
    slip: word
    for word in ("true", "false")
    for at in range(len(word))
    for slip in (
        word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[: at + 1] + word[at:],
    )
    if slip != word
}
"""Truth values with two letters swapped, or one lost or doubled: no words, each of which a program takes for a text, so for
true."""
COUNTED = Pattern(r"(?:\w+_)?(?:batch|parallel)_size(?:_per_\w+)?|n_gpus_per_node|nnodes|num_nodes")
"""Names of sections' settings that count something, whoever reads them."""
NEVER_NONE = Pattern(r"(?:\w+_)?(?:micro_batch|mini_batch|parallel)_size(?:_per_\w+)?")
"""Names of what is at least one: verl's asynchronous trainers have a train batch of 0."""
SCALED = Pattern(r"(?:\w+_)?(?:coeff?|lr|ratio|weight_decay|epochs|length|temperature|top_p)")
"""Names of settings that are numbers, whoever reads them."""
UNIT = Pattern(r"[-+]?\d+(?:(?:\.\d+)?(?:e-?\d+)?[a-zA-Z]|\.\d+\.\d+)")
"""A number with a letter behind it, or with two points."""
SHARES = {"gpu_memory_utilization": (0, 1), "top_p": (0, 1)}
VERL = "verl"
LONGEST_PATH = 200
"""So long may be a name with the names of all sections that it stands in, as those of verl are."""
FURTHER = "override_"
"""How verl calls mappings that it hands to classes of Megatron core as they are."""


def mistaken_values(configuration: Configuration) -> Iterator[Finding]:
    """Yield a warning for each value that Megatron core does not take, and that is surely none of a framework's own.

    Frameworks have words of their own for much, and spell others otherwise (`rms_norm`): that is left alone. What a parser like
    Megatron's takes, that decides.
    """
    if parses_like_megatron(configuration.framework):
        return
    settings = [(each, option_of(each.name)) for each in configuration.settings.values()]
    for setting, known in (*settings, *((each, None) for each in configuration.beside.values())):
        if setting.location.path != configuration.path:
            continue
        meant = TRUTHS.get(setting.value.lower(), "") if isinstance(setting.value, str) else ""
        is_refused = known is not None and known.kind != "store" and configuration.framework == "ms-swift"
        if meant and not is_refused:
            message = f"`{_end_of(setting.written)}` is the text `{setting.value}`, which is no truth value"
            fix = Fix(f"write `{meant}`", (Edit(setting.location, meant),))
            yield Finding(CHOICE, Severity.WARNING, message, setting.location, f"did you mean `{meant}`?", fixes=(fix,))
        is_size = known is not None and known.flags[0] in SIZES
        near = _choice_near(known, setting) if known is not None else _choice_of_verl(setting)
        if near:
            message = f"`{_end_of(setting.written)}` does not take `{str(setting.value)[:LONGEST]}`"
            fix = Fix(f"write `{near}`", (Edit(setting.location, near),))
            yield Finding(CHOICE, Severity.WARNING, message, setting.location, f"did you mean `{near}`?", fixes=(fix,))
        elif (is_size or COUNTED.fullmatch(_last(setting))) and not _may_be_whole(setting.value):
            message = f"`{_end_of(setting.written)}` takes an integer, not `{str(setting.value)[:LONGEST]}`"
            yield Finding("option-value-not-a-number", Severity.WARNING, message, setting.location, "write an integer")
        elif isinstance(setting.value, str) and SCALED.fullmatch(_last(setting)) and UNIT.fullmatch(setting.value):
            message = f"`{_end_of(setting.written)}` takes a number, not `{setting.value[:LONGEST]}`"
            yield Finding("option-value-not-a-number", Severity.WARNING, message, setting.location, "write a number")
        elif configuration.framework == VERL and not is_size:
            yield from _beyond(setting)


def _beyond(setting: Setting) -> Iterator[Finding]:
    """Yield a warning for a number of verl that nothing takes."""
    value = setting.value
    least, most = (1, math.inf) if NEVER_NONE.fullmatch(_last(setting)) else SHARES.get(_last(setting), (-math.inf, math.inf))
    if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value <= most:
        help = f"use {least} or more" if most == math.inf else f"use a number from {least} to {most}"
        message = f"`{_end_of(setting.written)}` is {value}"
        yield Finding("option-value-out-of-range", Severity.WARNING, message, setting.location, help)


def misspelled_overrides(configuration: Configuration) -> Iterator[Finding]:
    """Yield a warning for each override of what verl hands on to Megatron core that is a letter or two away from a setting."""
    paths = {
        setting.name_location: (path.rpartition(".")[0], setting.name)
        for path, setting in configuration.beside.items()
        if path.rpartition(".")[0].rpartition(".")[2].startswith(FURTHER)
    }
    for finding in misspelled_names([(name, place) for place, (_, name) in paths.items()]):
        section, _ = paths[finding.location]
        meant = f"{_end_of(section)}.{finding.fixes[0].edits[0].text}"
        yield Finding(finding.rule, finding.severity, finding.message, finding.location, f"did you mean `{meant}`?")


def _last(setting: Setting) -> str:
    """Return the name of a setting without those of the sections around it."""
    return setting.name.rpartition(".")[2]


def _end_of(path: str) -> str:
    return path if len(path) <= LONGEST_PATH else f"...{path[-LONGEST_PATH:]}"


def _choice_near(known: Option, setting: Setting) -> str:
    """Return the choice that a value was meant to be; empty where it is one, or may be a framework's."""
    value = setting.value
    choices = choices_of(known)
    if not isinstance(value, str) or value in _words() or any(letters(choice) == letters(value) for choice in choices):
        return ""
    return next((choice for choice in choices if is_misspelt(value, choice) or _is_off_by_one(setting.name, value, choice)), "")


def _choice_of_verl(setting: Setting) -> str:
    """Return the word of verl that a value of one of its settings is a slip away from; empty where there is none."""
    choices, value = CHOICES.get(setting.written, ()), setting.value
    if not isinstance(value, str) or value in choices:
        return ""
    return next((each for each in choices if is_a_slip(value, each)), "")


@cache
def _words() -> frozenset[str]:
    """Return what some option of Megatron takes, which is no slip where another one stands."""
    return frozenset(word for flag in flags() if (known := option(flag)) is not None for word in choices_of(known))


def _is_off_by_one(name: str, value: str, choice: str) -> bool:
    is_short = FEWEST_LETTERS <= len(choice) < SURELY_MISSPELT
    return is_short and choice.isalpha() and value.isalpha() and not has_changed(name) and distance(value, choice, 1) <= 1


def _may_be_whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return not isinstance(value, str) or NUMBER.match(value) is None or INTEGER.fullmatch(value) is not None
