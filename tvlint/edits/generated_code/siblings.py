"""Propose what stands on the ranks that run the same, where one rank has it otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tvlint.edits.generated_code.code import Code, Line, Proposal, rename, short, tokens_of
from tvlint.edits.generated_code.collectives import all_reduced, in_groups

_SPAN = re.compile(r"slice\((\d+), (\d+)")


def like_siblings(code: Code) -> Iterator[Proposal]:
    """Yield what one file has otherwise than the one that is most like it, in the words of the latter and the names of the
    former.
    """
    from difflib import SequenceMatcher

    forms = {path: [line.form for line in lines] for path, lines in code.lines.items()}
    for path, names in forms.items():
        counts = Counter(names)
        others = [(sum((Counter(other) & counts).values()), name) for name, other in forms.items() if name != path]
        if not others:
            return
        common, nearest = max(others)
        if common == len(names) == len(forms[nearest]) or common < 0.9 * len(names):
            continue
        matcher = SequenceMatcher(None, forms[nearest], names, autojunk=False)
        renamed: dict[str, str] = {}
        for block in matcher.get_matching_blocks():
            for at in range(block.size):
                there, here = code.lines[nearest][block.a + at], code.lines[path][block.b + at]
                renamed.update(zip(tokens_of(there.text), tokens_of(here.text), strict=False))
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "equal" or max(b - a, d - c) > 2:
                continue
            new = [rename(line.text, renamed) for line in code.lines[nearest][a:b]]
            lines = code.lines[path]
            if tag == "insert":
                edits: dict[Line, Sequence[str]] = dict.fromkeys(lines[c:d], ())
                yield code.proposal(f"remove `{short(lines[c].text)}`", edits)
            elif tag == "delete" and 0 < c < len(lines) and lines[c - 1].method == lines[c].method:
                yield code.proposal(f"insert `{short(new[0])}` after the line", {lines[c - 1]: (lines[c - 1].text, *new)})
            elif tag == "delete" and c < len(lines):
                yield code.proposal(f"insert `{short(new[0])}`", {lines[c]: (*new, lines[c].text)})
            elif tag == "replace":
                edits = dict.fromkeys(lines[c:d], ())
                edits[lines[c]] = tuple(new)
                yield code.proposal(f"write `{short(new[0])}`", edits)


def of_initialisation(code: Code, near: Sequence[Line]) -> Iterator[Proposal]:
    yield from all_reduced(code, near)
    named = any(line.method == "__init__" for line in near)
    for line in [line for lines in code.lines.values() for line in lines if named and "adapter.Reducer(" in line.text]:
        yield from in_groups(code, line)
    yield from _covering(code)


def _covering(code: Code) -> Iterator[Proposal]:
    """Slices of parameters that two ranks hold and another one lacks, and slices of two ranks in each other's places."""
    holders: dict[str, list[tuple[Line, str]]] = {}
    for lines in code.lines.values():
        for line in lines:
            found = re.search(r"add_full_map\('\w+', \d+, \w+, '([\w.]+)', .*?(\(slice\(.*\),?\)), \d+\)", line.text)
            if found is not None:
                holders.setdefault(found[1], []).append((line, found[2]))
    for holder in holders.values():
        counts = Counter(slices for _, slices in holder)
        spans = {slices: [(int(low), int(high)) for low, high in _SPAN.findall(slices)] for slices in counts}
        whole = re.search(r"', \(([\d, ]+)\), \(slice", holder[0][0].text)
        sizes = [int(size) for size in re.findall(r"\d+", whole[1])] if whole is not None else []
        dims = [dim for dim, size in enumerate(sizes) if any(each[dim] != (0, size) for each in spans.values())]
        if len(dims) != 1 or len(holder) > 64:
            continue
        (dim,) = dims
        size = sizes[dim]
        width = min(high - low for low, high in (each[dim] for each in spans.values()))
        lacking = sorted({*range(0, size, width)} - {each[dim][0] for each in spans.values()})
        for line, slices in holder:
            for start in lacking if counts[slices] > 1 or lacking else ():
                parts = re.findall(r"slice\([^)]*\)", slices)
                parts[dim] = f"slice({start}, {start + width}, None)"
                new = line.text.replace(slices, f"({', '.join(parts)}{',' if len(parts) == 1 else ''})")
                yield code.proposal(f"write `{short(new[new.index('slice') :])}`", {line: (new,)})
        for (line, slices), (other, there) in pairwise(holder):
            if spans[slices][dim] > spans[there][dim] and code.ranks[line.path] + 1 == code.ranks[other.path] and lacking == []:
                edits = {line: (line.text.replace(slices, there),), other: (other.text.replace(there, slices),)}
                yield code.proposal(f"exchange the slices `{slices}` and `{there}`", edits)
