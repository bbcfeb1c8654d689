"""Options that the parser of a launch does not have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.frameworks.kin import parses_like_megatron
from tvlint.frameworks.megatron import flags, hyphens, is_flag, is_option
from tvlint.ir.configuration import Configuration, Setting
from tvlint.readers.megatron.parser_source import ParserSource

LONGEST = 80
SHORT, LONG = 14, 22
"""Lengths from which one, and from which two letters may differ: shorter names have neighbours that mean something else."""
FEWEST = 8
"""From so many options of Megatron on, among few others, a program whose source is not there takes Megatron's."""
SIZES = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--micro-batch-size",
    "--global-batch-size",
    "--num-layers",
    "--hidden-size",
    "--ffn-hidden-size",
    "--num-attention-heads",
    "--num-query-groups",
    "--seq-length",
    "--max-position-embeddings",
)
"""Options that almost every launch gives, under this name; one that is short for it stands in its place."""
OF_FORKS = frozenset(
    {
        "--data-path2",
        "--data_type",
        "--enable-expert-tensor-parallelism",
        "--fragment-fim-rate",
        "--loader",
        "--mock-dataset-size",
        "--n-group",
        "--patch-size",
        "--prefill-chunk-size",
        "--replicate-size",
        "--rotary-scale-factor",
        "--saver",
        "--special-tokens",
        "--tokenizer",
        "--use-loss-scaling",
        "--use-normhead",
    }
)
"""Options of forks and frameworks that resemble one of Megatron's and are none."""
FILLER = frozenset({"model", "size", "use", "enable"})
"""Words that an option is often remembered with or without."""
STEM = 4
"""Letters by which a word is known: `embedding` and `embeddings`, `grad` and `gradient`."""
NOTHING_ALIKE = "remove it, or have the program take it"
ALIKE = 0.6
"""From this share of words in common on, one name is taken for another."""
SAME_WORD = {"n": "num", "sequence": "seq", "len": "length", "dim": "size", "tp": "tensor", "pp": "pipeline", "cp": "context"}


def unknown_options(
    configuration: Configuration, written: Sequence[Setting], program: str, parser: ParserSource | None
) -> Iterator[Finding]:
    """Yield a finding for each option that the program of the launch does not take.

    Where all of the source of `program` is there, that decides. Elsewhere options are left alone that may be those of a fork;
    errors are those that differ by a letter or two from one of Megatron's, by how its words are joined or put, and those that
    stand in the place of a size.
    """
    if parser is not None and parser.closed:
        for setting in written:
            if setting.written not in parser.flags and not _abbreviates(setting.written, parser):
                yield _finding(setting, f"`{os.path.basename(parser.program)}`", nearest(setting.written, parser.flags))
        return
    given = frozenset(each.written for each in written)
    taken = OF_FORKS | (parser.flags if parser is not None else frozenset())
    strict = parses_like_megatron(configuration.framework)
    certain = strict and (parser is not None or _are_of_megatron(given))
    for setting in written:
        flag = setting.written
        if flag in taken or is_flag(flag):
            continue
        near = _neighbour(hyphens(flag), SHORT if strict else LONG)
        if near.startswith(flag):
            continue
        if near and not is_option(flag):
            message = f"Megatron has no option `{flag[:LONGEST]}`"
            severity = Severity.ERROR if strict else Severity.NOTE
            help = f"did you mean `{near}`?"
            yield Finding("misspelled-option", severity, message, setting.name_location, help, fixes=(_fix(setting, near),))
        elif certain and (meant := _meant(flag)) and meant not in given:
            yield _finding(setting, "Megatron", meant)


def _are_of_megatron(given: frozenset[str]) -> bool:
    """Return whether a program with these options surely has Megatron's parser."""
    known = sum(map(is_flag, given))
    return known >= FEWEST and known * 5 >= len(given) * 4


def _meant(flag: str) -> str:
    """Return the option of Megatron that the flag is another spelling of; empty where there is none, or several."""
    if is_option(flag):
        return hyphens(flag)
    for key in (flag[2:].replace("-", "").replace("_", ""), _stems(flag)):
        meant = _spellings().get(key, ())
        if len(meant) == 1:
            return meant[0]
    return _size_meant(flag)


@cache
def _spellings() -> Mapping[str | frozenset[str], tuple[str, ...]]:
    """The options of Megatron by their letters, and by the stems of their words."""
    found: dict[str | frozenset[str], tuple[str, ...]] = {}
    for flag in flags():
        for key in (flag[2:].replace("-", "").replace("_", ""), _stems(flag)):
            found[key] = tuple(dict.fromkeys((*found.get(key, ()), flag)))
    return found


def _stems(flag: str) -> frozenset[str]:
    words = _words(flag) - FILLER
    return words if len(words) < 2 else frozenset(word[:STEM] for word in words)


def _finding(setting: Setting, parser: str, near: str) -> Finding:
    message = f"{parser} has no option `{setting.written[:LONGEST]}`"
    if not near:
        return Finding("unknown-option", Severity.ERROR, message, setting.name_location, NOTHING_ALIKE)
    help = f"did you mean `{near}`?"
    return Finding("unknown-option", Severity.ERROR, message, setting.name_location, help, fixes=(_fix(setting, near),))


def _fix(setting: Setting, near: str) -> Fix:
    """The name that was meant, which is surely that where only a letter or how the words are joined differs."""
    is_safe = _distance(hyphens(setting.written), hyphens(near), 2) <= 2
    return Fix(f"write `{near}`", (Edit(setting.name_location, near),), is_safe=is_safe)


def _size_meant(flag: str) -> str:
    """Return the size that the words of the flag are short for; empty where there is none, or several."""
    own = _words(flag) - FILLER
    meant = [
        (len(words), each)
        for each in SIZES
        if (words := _words(each) - FILLER) and all(any(_same(word, of) for of in words) for word in own)
    ]
    meant.sort()
    return meant[0][1] if len(own) > 1 and meant and (len(meant) == 1 or meant[0][0] < meant[1][0]) else ""


def _abbreviates(flag: str, parser: ParserSource) -> bool:
    """Return whether the parser takes the flag for the beginning of one of its own."""
    return parser.abbreviates and any(each.startswith(flag) for each in parser.flags)


def nearest(flag: str, known: Iterable[str]) -> str:
    """Return the flag among `known` that was probably meant: of the same words, a letter or two away, or of similar words."""
    flags_known = frozenset(known)
    for variant in (hyphens(flag), flag[:2] + flag[2:].replace("-", "_")):
        if variant in flags_known:
            return variant
    if len(flag) > LONGEST:
        return ""
    found = [(_distance(flag, each, 2), each) for each in flags_known if abs(len(each) - len(flag)) <= 2]
    close = min(found, default=(3, ""))
    if close[0] <= (2 if len(flag) >= SHORT else 1):
        return close[1]
    own = _words(flag)
    share, _, best = max(((_alike(own, _words(each)), -len(each), each) for each in flags_known), default=(0.0, 0, ""))
    return best if share >= ALIKE else ""


def _words(flag: str) -> frozenset[str]:
    return frozenset(SAME_WORD.get(word, word) for word in flag[2:].replace("_", "-").lower().split("-"))


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that both have; the beginning of a word counts as the word."""
    common = sum(any(_same(word, each) for each in other) for word in one)
    return 2 * common / (len(one) + len(other))


def _same(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) >= 4 and (one.startswith(other) or other.startswith(one)))


def _neighbour(flag: str, shortest: int) -> str:
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
