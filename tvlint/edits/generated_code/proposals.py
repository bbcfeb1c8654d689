"""Repairs of generated code, as edits of its lines in the files of all ranks that run the same.

What is made here are proposals, the likeliest first: what differs from the traced graph, what stands otherwise on one rank than
on its siblings, and small changes near the places that a verdict names. Whoever applies one reads the folder again and proves
it. Changes that can be made of every plan are made in `equivalence/explain/repair.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tvlint.edits.generated_code.code import AROUND, CLOSE, COLLECTIVE, Code, Line, Proposal, short, stem, targets_of
from tvlint.edits.generated_code.collectives import exchanged_results, inserted, of_communication, of_dimensions, of_partners
from tvlint.edits.generated_code.siblings import like_siblings, of_initialisation
from tvlint.edits.generated_code.steps import of_gradients, of_the_step
from tvlint.edits.generated_code.traced import like_the_graph
from tvlint.ir.once import first_of_each

_LEVELS = 8
"""What a line uses was made by so many lines before it."""


def proposals(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[Proposal]:
    """Yield changes of the code, each different; `places` are files and lines that a verdict names."""
    yield from first_of_each(_proposals(code, places), lambda proposal: tuple(sorted(proposal.contents.items())))


def _proposals(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[Proposal]:
    near = list(_near(code, places))
    yield from _without_twins(code)
    yield from like_the_graph(code)
    yield from like_siblings(code)
    collectives = [line for line in near[:CLOSE] if COLLECTIVE.search(line.text)]
    for line in collectives[:AROUND]:
        yield from of_partners(code, line)
        yield from of_dimensions(code, line)
    for line in collectives[AROUND:]:
        yield from of_partners(code, line)
    for line in near[:CLOSE]:
        yield from exchanged_results(code, line)
    yield from of_initialisation(code, near)
    for line in near[:AROUND]:
        yield from inserted(code, line)
    if near and near[0].method == "__init__":
        yield from of_gradients(code, near)
    for line in near[:3]:
        yield from of_communication(code, line)
    yield from of_the_step(code, near)
    yield from of_gradients(code, near)
    for line in near[3:]:
        yield from of_communication(code, line)


def _without_twins(code: Code) -> Iterator[Proposal]:
    """Yield the code without a statement that stands twice in a row."""
    found: dict[tuple[str, int], dict[Line, Sequence[str]]] = {}
    for lines in code.lines.values():
        for before, line in pairwise(lines):
            if before.text == line.text:
                found.setdefault((line.form, line.turn), {})[line] = ()
    for edits in found.values():
        yield code.proposal(f"remove `{short(next(iter(edits)).text)}`", edits)


def _near(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[Line]:
    """Yield the lines at the places, those that make or take what these name, and those around them, each once.

    Of a parameter that is the statement that uses it, the last one first: what is wrong with gradients came from behind it.
    The collectives behind the last use in a file follow, which all gradients come through.
    """
    at = {(line.path, line.number): line for lines in code.lines.values() for line in lines}
    found = dict.fromkeys(at[place] for place in places if place in at)
    declared = re.compile(r"(?:register_parameter|add_full_map)\('(\w+)'")
    held = {(line.path, name) for line in found for name in declared.findall(line.text)}
    uses = (
        line
        for path in {path for path, _ in held}
        for line in code.lines[path]
        if line.method != "__init__" and any((path, name) in held for name in re.findall(r"self\.(\w+)", line.text))
    )
    used = sorted(uses, key=lambda line: -line.number)
    found.update(dict.fromkeys(used))
    for last in {line.path: line for line in reversed(used)}.values():
        found.update(dict.fromkeys(_behind(code, last)))
    for line in list(found):
        siblings = [other for other in code.lines[line.path] if other.method == line.method != "__init__"]
        names = set(line.names)
        found.update(dict.fromkeys(_taking(code, line)))
        for _ in range(_LEVELS):
            makers = [other for other in siblings if other.number < line.number and set(targets_of(other)) & names]
            found.update(dict.fromkeys(reversed(makers)))
            names |= {name for other in makers for name in other.names}
        found.update(dict.fromkeys(other for other in siblings if set(targets_of(line)) & set(other.names)))
        found.update(dict.fromkeys(other for other in siblings if abs(other.number - line.number) <= 8))
    yield from found


def _behind(code: Code, line: Line) -> Iterator[Line]:
    """Yield the collectives that its method runs after the line."""
    for other in code.lines[line.path]:
        if other.method == line.method and other.number > line.number and COLLECTIVE.search(other.text):
            yield other


def _taking(code: Code, line: Line) -> Iterator[Line]:
    """Yield the collectives by which a segment takes the values of which a backward in the step gives the gradients."""
    run = re.search(r"executor\.backward\('(\w+)'", line.text)
    segment = "" if run is None else run[1]
    for other in code.lines[line.path]:
        match = COLLECTIVE.search(other.text) if other.method == segment else None
        if match is not None and stem(match["operand"]) in map(stem, line.names):
            yield other
