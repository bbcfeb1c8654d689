"""Propose other calls in the training step: runs of segments, their arguments, and gradients."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tvlint.edits.generated_code.code import (
    CLOSE,
    Code,
    Line,
    Proposal,
    instead,
    rename,
    replacements,
    rewrites,
    short,
    stem,
    targets_of,
)
from tvlint.edits.generated_code.collectives import of_partners

_RUN = re.compile(r"executor\.(?P<how>fexecute|aexecute|backward)\((?:'\w+', )?(?:model\.)?(?P<what>'?\w+'?)")


def of_the_step(code: Code, near: Sequence[Line]) -> Iterator[Proposal]:
    if not any(line.method == "_train_step" for line in near):
        return
    steps = [[line for line in lines if line.method == "_train_step"] for lines in code.lines.values()]
    for step in steps:
        yield from _of_repeated_runs(code, step, near)
    flags = (line for lines in code.lines.values() for line in lines if "skip_reducer" in line.text)
    for line in flags:
        yield from replacements(code, line, "True$", "False")
        yield from replacements(code, line, "False$", "True")
    yield from _with_cleared_gradients(code, steps)
    for step in steps:
        close = [line for line in step if line in set(near)] or step
        for line in close:
            if "executor." in line.text:
                yield from _of_run(code, line, step)


def _with_cleared_gradients(code: Code, steps: Sequence[Sequence[Line]]) -> Iterator[Proposal]:
    firsts = [step[0] for step in steps if step and not any("zero_grad()" in line.text for line in step)]
    if firsts:
        yield code.proposal("insert `model.zero_grad()`", {line: ("    model.zero_grad()", line.text) for line in firsts})
    cleared = ([line for line in step if "zero_grad()" in line.text] for step in steps)
    again: dict[Line, Sequence[str]] = {line: () for lines in cleared for line in lines[1:]}
    if again:
        yield code.proposal("remove `model.zero_grad()`", again)


def _of_repeated_runs(code: Code, step: Sequence[Line], near: Sequence[Line]) -> Iterator[Proposal]:
    """Runs with the values of one micro-batch, of which there are several, with those of another one; those near first."""
    names: dict[str, list[str]] = {}
    for line in step:
        for name in targets_of(line):
            if name not in names.setdefault(stem(name), []):
                names[stem(name)].append(name)
    runs = [(line, line.text.partition(" model.")[2] or line.text.partition("(model.")[2]) for line in step]
    runs = [(line, call or line.text) for line, call in runs if _RUN.search(line.text)]
    counts = Counter(call for _, call in runs)
    most = max(map(len, names.values()), default=0)
    for line, call in sorted(runs, key=lambda run: (run[0] not in near[:CLOSE], -run[0].number)):
        for at in range(most) if counts[call] > 1 and "()" not in call else ():
            changes = {name: _of_batch(name, names, at) for name in re.findall(r"\w+_\d+", call.partition(",")[2])}
            yield from rewrites(code, line, lambda each, changes=changes: rename(each.text, changes))  # type: ignore[misc]


def _of_batch(name: str, names: Mapping[str, Sequence[str]], batch: int) -> str:
    known = names.get(stem(name), ())
    return known[batch] if name in known and batch < len(known) else name


def _of_run(code: Code, line: Line, step: list[Line]) -> Iterator[Proposal]:
    """Yield a run with another micro-batch's values, exchanged with its neighbours, or with the other flag."""
    made = [name for other in step for name in targets_of(other)]
    for name in dict.fromkeys(re.findall(r"\w+_\d+", line.text.partition(" = ")[2])):
        for other in dict.fromkeys(each_name for each_name in made if stem(each_name) == stem(name) and each_name != name):
            yield from _renamed(code, line, name, other)
    if "reducer" not in line.text:
        yield from replacements(code, line, "requires_grad=False", "requires_grad=True")
    at = step.index(line)
    for neighbour in (step[at + 1 : at + 4] + step[max(0, at - 3) : at])[::-1]:
        first, second = sorted((line, neighbour), key=lambda line_of_run: line_of_run.number)
        if "return" in neighbour.text or first.text == second.text:
            continue
        yield code.proposal(f"run `{short(second.text)}` before what stands", {first: (second.text, first.text), second: ()})
        yield code.proposal(f"run `{short(first.text)}` after what stands", {first: (), second: (second.text, first.text)})


def _renamed(code: Code, line: Line, name: str, other: str) -> Iterator[Proposal]:
    word = re.compile(rf"\b{name}\b")
    alike = (each_line for each_line in code.alike[line.form, line.turn] if name in each_line.text)
    edits = {each_line: (word.sub(other, each_line.text),) for each_line in alike}
    yield code.proposal(instead(line.text, word.sub(other, line.text)), edits)


def of_gradients(code: Code, near: Sequence[Line]) -> Iterator[Proposal]:
    """Yield the collectives of the files that are named with another direction, from the loss on."""
    for path in dict.fromkeys(line.path for line in near):
        for line in reversed(code.lines[path]):
            partners = list(of_partners(code, line))
            yield from (each for each in partners if len(each.places) == max(len(other.places) for other in partners))
