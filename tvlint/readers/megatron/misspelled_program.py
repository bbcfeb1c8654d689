"""Programs that a launch names with a letter too many, too few or in another place."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tvlint.checkout.opening import names_ending, real_path
from tvlint.checkout.top import folder_around, is_within
from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.location import Location
from tvlint.near_names import are_swapped, is_a_letter_off
from tvlint.readers.megatron.launcher import Launch
from tvlint.readers.megatron.parser_source import source_of_program
from tvlint.readers.megatron.program import MAIN, around
from tvlint.readers.shell.values import location_of, span_of

LONGEST = 80
SURELY_A_WORD = 5
"""Of so many letters, a word is no other one's that differs by a letter."""


def misspelled_program(launch: Launch, script: str) -> Iterator[Finding]:
    """Yield a finding where nothing around the script is the program, and a program of the folder that it names, or the one
    that every Megatron has, differs by a letter.
    """
    if launch.name is None or source_of_program(launch.path, script):
        return
    near = next((name for name in (MAIN, *_beside(launch.path, script)) if _is_meant(launch.program, name)), "")
    if near:
        span = span_of(launch.name.pieces[-1:])
        message, help = f"there is no program `{launch.program[:LONGEST]}`", f"did you mean `{near[:LONGEST]}`?"
        place = location_of(span)
        text = span.source.text[span.start : span.end]
        fixes = (_renamed(place, text, launch.program, near),) if text.endswith(launch.program) else ()
        yield Finding("misspelled-program", Severity.ERROR, message, place, help, fixes=fixes)


def _renamed(place: Location, text: str, program: str, near: str) -> Fix:
    return Fix(f"write `{near}`", (Edit(place, text.removesuffix(program) + near),))


def _beside(program: str, script: str) -> Iterator[str]:
    """Yield the programs of the folders of the checkout that the path may lead to."""
    top, below = folder_around(script), os.path.dirname(program).lstrip("/")
    for folder in around(os.path.abspath(os.path.dirname(script))):
        if is_within(real := real_path(os.path.join(folder, below)), top):
            yield from names_ending(real, ".py")


def _is_meant(program: str, name: str) -> bool:
    """Return whether the names differ in one word, by two letters that are swapped, or a long one by a letter."""
    both = (program.removesuffix(".py").split("_"), name.removesuffix(".py").split("_"))
    if len(both[0]) != len(both[1]):
        return False
    differ = [pair for pair in zip(*both, strict=True) if pair[0] != pair[1]]
    return len(differ) == 1 and any(
        are_swapped(*pair) or (min(map(len, pair)) >= SURELY_A_WORD and is_a_letter_off(*pair)) for pair in differ
    )
