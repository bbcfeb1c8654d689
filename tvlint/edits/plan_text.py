"""Repairs of what plan rules find in plan text, as edits of its lines.

What is made here is a proposal: whoever applies it checks the plan again and sees that the mistake is gone and none has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from tvlint.edits.apply import Text
from tvlint.findings import Edit, Finding, Fix
from tvlint.ir.patterns import Pattern

_PLAN = Pattern(r"^mesh\s", re.MULTILINE)
_MOST_DIMS = 4
_NAME = r"(?<![\w.\-/]){}(?![\w.\-/])"


class _Lines:
    """The lines of a plan, from 1, and edits of them."""

    def __init__(self, path: str, text: Text) -> None:
        self.path, self.text = path, text
        self.all = ["", *text.text.split("\n")]
        self.starts = [0]
        for line in self.all[1:]:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def indent(self, line: int) -> str:
        text = self.all[line]
        return text[: len(text) - len(text.lstrip(" \t"))]

    def before(self, line: int, statement: str) -> Edit:
        start = self.starts[line - 1]
        return self.text.edit(self.path, (start, start), f"{self.indent(line)}{statement}\n")

    def behind(self, line: int, statement: str) -> Edit:
        end = self.starts[line - 1] + len(self.all[line].rstrip("\r"))
        return self.text.edit(self.path, (end, end), f"\n{self.indent(line)}{statement}")

    def without(self, line: int) -> Edit:
        return self.text.edit(self.path, (self.starts[line - 1], min(self.starts[line], len(self.text.text))), "")

    def other(self, line: int, match: re.Match[str], text: str) -> Edit:
        start = self.starts[line - 1]
        return self.text.edit(self.path, (start + match.start(), start + match.end()), text)


def repairs(finding: Finding, text: Text) -> Iterator[Fix]:
    """Yield repairs of the finding, the best first; none where the text is no plan text."""
    line = finding.location.line or 0
    lines = _Lines(finding.location.path, text)
    names = finding.about or ()
    least, repair = REPAIRS.get(finding.rule, (0, None))
    if repair is not None and len(names) >= least and _PLAN.search(text.text) and 0 < line < len(lines.all):
        yield from repair(finding, names, line, lines)


def _wait_before(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """The wait, moved up where it stands later."""
    statement = f"wait {names[1]}"
    later = [number for number in range(line + 1, len(lines.all)) if lines.all[number].split("#")[0].strip() == statement]
    for number in later[:1]:
        yield Fix(f"move `{statement}` before the read", (lines.before(line, statement), lines.without(number)))
    yield Fix(f"insert `{statement}`", (lines.before(line, statement),))


def _wait_behind(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    yield Fix(f"insert `wait {names[0]}`", (lines.behind(line, f"wait {names[0]}"),))


def _removed(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    yield Fix(f"remove `{lines.all[line].strip()}`", (lines.without(line),))


def _reduced(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the all-reduce behind the operator that makes the partial value, which gets another name, also in its backward."""
    name, axis = names[:2]
    pattern = Pattern(_NAME.format(re.escape(name)))
    made = Pattern(rf"[ \t]*({pattern.pattern})(?=[ \t]*(?::[^=]*)?=[^=])")
    number = next((number for number in range(line, 0, -1) if made.match(lines.all[number])), 0)
    partial = f"{name}_partial"
    while partial in lines.text.text:
        partial += "_"
    statement = f"{name} = all-reduce({partial}) over {axis}"
    first = pattern.search(lines.all[number])
    if not number or first is None:
        return
    backward = Pattern(rf"(?<=\bbackward ){pattern.pattern}")
    found = ((later, backward.search(text)) for later, text in enumerate(lines.all) if later > number)
    renamed = (lines.other(later, match, partial) for later, match in found if match is not None)
    yield Fix(f"insert `{statement}`", (lines.other(number, first, partial), lines.behind(number, statement), *renamed))


def _gradient_reduced(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    statement = f"reduce-gradients {names[0]} over {names[2]}"
    yield Fix(f"insert `{statement}`", (lines.before(line, statement),))


def _updated_later(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the update, moved behind what changes the gradient."""
    statement = lines.all[line].strip()
    for related in finding.related:
        later = related.location.line or 0
        if related.location.path == lines.path and line < later < len(lines.all):
            yield Fix(f"move `{statement}` behind line {later}", (lines.without(line), lines.behind(later, statement)))


def _other_dim(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    written = re.search(r"\bdim=\d+", lines.all[line])
    if written is not None:
        for text in (f"dim={dim}" for dim in range(_MOST_DIMS)):
            yield Fix(f"write `{text}`", (lines.other(line, written, text),))


def _summed(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    operation = re.search(r"(?<=-reduce)[ \t]+\w+(?=\()", lines.all[line])
    if operation is not None:
        yield Fix("reduce with a sum", (lines.other(line, operation, ""),))


REPAIRS: Mapping[str, tuple[int, Callable[[Finding, tuple[str, ...], int, _Lines], Iterator[Fix]]]] = {
    "double-wait": (0, _removed),
    "handle-never-waited": (1, _wait_behind),
    "missing-allreduce": (2, _reduced),
    "missing-gradient-reduction": (3, _gradient_reduced),
    "missing-wait": (2, _wait_before),
    "partial-through-nonlinear": (2, _reduced),
    "update-before-final-gradient": (0, _updated_later),
    "wrong-gather-dim": (0, _other_dim),
    "wrong-reduce-op": (0, _summed),
}
"""By rule: of how many names a finding has to be, and what makes the repairs of these names, in order, and the line."""
