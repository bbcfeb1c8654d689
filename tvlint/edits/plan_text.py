"""Repairs of what plan rules find in plan text, as edits of its lines.

What is made here is a proposal: whoever applies it checks the plan again and sees that the mistake is gone and none has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product

from tvlint.edits.apply import Text
from tvlint.findings import Edit, Finding, Fix
from tvlint.ir.patterns import Pattern

_PLAN = Pattern(r"^mesh\s", re.MULTILINE)
_MOST_DIMS = 4
_COLLECTIVE = Pattern(r"[ \t]*(?P<result>\S+?)(?::[^=]*)? = [a-z-]+(?: \w+)?\((?P<operand>[^,()]+(?:\([^()]*\))?)[,)]")
_OPERANDS = Pattern(r"=\s*[\w.-]+\((.*)\)")
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

    def axes(self) -> list[str]:
        """Return the axes of the mesh."""
        return Pattern(r"(\w+)=\d+").findall(next((text for text in self.all if text.startswith("mesh")), ""))

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
    axes = lines.axes()
    for name, axis in product((name for name in names if name not in axes), [name for name in names if name in axes] or axes):
        yield from _reduced_over(name, axis, line, lines)


def _reduced_over(name: str, axis: str, line: int, lines: _Lines) -> Iterator[Fix]:
    pattern = Pattern(_NAME.format(re.escape(name)))
    made = Pattern(rf"[ \t]*(?:[\w.\-/()]+,[ \t]*)*({pattern.pattern})(?=[ \t]*(?:[:,][^=]*)?=[^=])")
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
    yield from _inserted(names[1:2], "all-reduce({name}) over " + names[2], "sum", line, lines)
    yield from _reduced_over(names[1], names[2], line, lines)


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
        return
    before = re.search(r"(?<=-reduce)(?=\()", lines.all[line])
    if before is not None:
        for other in ("avg", "max"):
            yield Fix(f"reduce with `{other}`", (lines.other(line, before, f" {other}"),))


def _left_out(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the plan without the collective of the line: whoever reads its result reads its operand."""
    found = _COLLECTIVE.match(lines.all[line])
    if lines.all[line].strip().startswith("reduce-gradients"):
        yield from _removed(finding, names, line, lines)
    if found is None:
        return
    result = Pattern(_NAME.format(re.escape(found["result"])))
    others = ((number, match) for number, text in enumerate(lines.all) if number > line for match in result.finditer(text))
    declared = Pattern(rf"(?<=^output ){result.pattern}")
    outputs = ((number, declared.search(text)) for number, text in enumerate(lines.all) if number < line)
    renamed = [lines.other(number, match, found["operand"]) for number, match in others]
    renamed += [lines.other(number, match, found["operand"]) for number, match in outputs if match is not None]
    yield Fix(f"leave out `{lines.all[line].strip()}`", (lines.without(line), *renamed))


def _over_another_axis(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the collective of the line over the axis that the finding names, over others, and the plan without it."""
    yield from _over_the_others(finding, names, line, lines)
    yield from _left_out(finding, names, line, lines)


def _over_the_others(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the collective of the line, which something needs, over the axis that the finding names, and over others."""
    found = re.search(r"(?<=\bover )(ranks )?[\w,-]+", lines.all[line])
    if found is not None:
        axes = lines.axes()
        named = [name for name in names if name in axes and f"`{name}`" in finding.help]
        for axis in dict.fromkeys([*named, *axes]):
            if axis != found[0]:
                yield Fix(f"run it over `{axis}`", (lines.other(line, found, axis),))


def _over(text: str) -> set[str]:
    """Return the axes over which the collective of a line runs."""
    found = re.search(r"(?<=\bover )[\w,]+", text)
    return set() if found is None else set(found[0].split(","))


def _exchanged_alike(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the exchange of the line, or the one that it undoes, over another axis; first one that splits no experts."""
    there = [related.location.line or 0 for related in finding.related if related.location.path == lines.path]
    split = {axis for text in lines.all if text.startswith("weight ") for axis in re.findall(r"(\w+):S\(0\)", text)}
    for number in sorted(dict.fromkeys([line, *there]), key=lambda number: not _over(lines.all[number]).isdisjoint(split)):
        found = re.search(r"(?<=\bover )[\w,]+", lines.all[number])
        if found is not None:
            where = "it" if number == line else f"`{lines.all[number].strip()}`"
            others = (axis for axis in lines.axes() if axis != found[0])
            yield from (Fix(f"run {where} over `{axis}`", (lines.other(number, found, axis),)) for axis in others)


def _gathers(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the sum of the line as a gather, and over other axes."""
    kind = re.search(r"\ball-reduce[^(]*\((?P<operand>[^,()]+(?:\([^()]*\))?)\)", lines.all[line])
    if kind is not None:
        for statement in (f"all-gather({kind['operand']}, dim={dim})" for dim in range(_MOST_DIMS)):
            yield Fix(f"write `{statement}`", (lines.other(line, kind, statement),))
    yield from _over_another_axis(finding, names, line, lines)


def _summed_before(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the gather of the line as a sum, and sums of the operands of the line before it."""
    kind = re.search(r"\ball-gather\((?P<operand>[^,()]+(?:\([^()]*\))?), [^()]*\)", lines.all[line])
    if kind is not None:
        statement = f"all-reduce({kind['operand']})"
        yield Fix(f"write `{statement}`", (lines.other(line, kind, statement),))
    for name, axis in product(_operands(lines.all[line], names), _axes(names, lines)):
        yield from _inserted((name,), f"all-reduce({{name}}) over {axis}", "sum", line, lines)


def _other_dims(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    written = re.search(r"\bdim=\d+, concat-dim=\d+", lines.all[line])
    if written is not None:
        for text in (f"dim={dim}, concat-dim={other}" for dim, other in permutations(range(_MOST_DIMS), 2)):
            yield Fix(f"write `{text}`", (lines.other(line, written, text),))


def _gathered(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield gathers of one operand of the line, and of those besides the first together, before it."""
    read = _operands(lines.all[line], ())
    chosen = [(name,) for name in _operands(lines.all[line], names)] + ([tuple(read[1:3])] if len(read) > 2 else [])
    for some, axis, dim in product(chosen, _axes(names, lines), range(_MOST_DIMS)):
        yield from _inserted(some, f"all-gather({{name}}, dim={dim}) over {axis}", "whole", line, lines)


def _gathered_or_exchanged(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield gathers of operands of the line, the exchanges that the finding leads to over other axes, and new exchanges."""
    yield from _gathered(finding, names, line, lines)
    yield from _exchanged_alike(finding, names, line, lines)
    read, dims = _operands(lines.all[line], names), permutations(range(_MOST_DIMS), 2)
    for (dim, other), name, axis in product(dims, read, _axes(names, lines)):
        made = f"all-to-all({{name}}, dim={dim}, concat-dim={other}) over {axis}"
        yield from _inserted((name,), made, "exchanged", line, lines)


def _operands(text: str, names: Sequence[str]) -> list[str]:
    """Return the tensors that the operator of a line reads, those that a finding names first."""
    found = _OPERANDS.search(text)
    given = [name.strip() for name in found[1].split(",") if "=" not in name] if found is not None else []
    read = [name for name in given if name and not name[0].isdigit() and not name.startswith(("[", "("))]
    return [*dict.fromkeys([*(name for name in names if name in read), *read])]


def _axes(names: Sequence[str], lines: _Lines) -> list[str]:
    """Return the axes that a finding names; where it names none, those of the mesh."""
    axes = lines.axes()
    return [name for name in names if name in axes] or axes


def _inserted(names: Sequence[str], made: str, suffix: str, line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the line with other values in the place of these, each made by a statement before it."""
    edits, statements = list[Edit](), list[str]()
    for name in names:
        first, last = lines.all[line].find("(") + 1, lines.all[line].rfind(")") + 1
        matches = list(Pattern(_NAME.format(re.escape(name))).finditer(lines.all[line], first, last or len(lines.all[line])))
        other = f"{Pattern(r'[^A-Za-z0-9_.]+').sub('_', name).strip('_')}_{suffix}"
        if not matches or other in lines.text.text:
            return
        statements.append(f"{other} = {made.format(name=name)}")
        edits.extend(lines.other(line, match, other) for match in matches)
    inserted = f"\n{lines.indent(line)}".join(statements)
    shown = " and ".join(f"`{statement}`" for statement in statements)
    yield Fix(f"insert {shown} and read that", (lines.before(line, inserted), *edits))


def _meant(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the name that is near to the one that nothing makes."""
    near = re.search(r"`(.+)`", finding.help) if finding.help.startswith("did you mean") else None
    match = Pattern(_NAME.format(re.escape(names[0]))).search(lines.all[line])
    if near is not None and match is not None:
        yield Fix(f"write `{near[1]}`", (lines.other(line, match, near[1]),))


def _pieces_gathered(finding: Finding, names: tuple[str, ...], line: int, lines: _Lines) -> Iterator[Fix]:
    """Yield the gather of a weight's pieces, as the chunk of the weight took them."""
    for related in finding.related:
        taken = re.search(r"\bchunk\((.+?), dim=(\d+)\) over (\S+)", lines.all[related.location.line or 0])
        if taken is not None:
            statement = f"{taken[1]} = all-gather({names[0]}, dim={taken[2]}) over {taken[3]}"
            yield Fix(f"insert `{statement}`", (lines.behind(line, statement),))


REPAIRS: Mapping[str, tuple[int, Callable[[Finding, tuple[str, ...], int, _Lines], Iterator[Fix]]]] = {
    "allreduce-of-shards": (0, _gathers),
    "attention-over-local-keys": (0, _gathered),
    "broadcast-of-partial": (0, _summed_before),
    "choice-over-shards": (0, _gathered),
    "contraction-of-mismatched-shards": (0, _gathered),
    "double-wait": (0, _removed),
    "doubled-allreduce": (0, _left_out),
    "doubled-gradient-reduction": (0, _left_out),
    "expert-exchange-not-undone": (0, _exchanged_alike),
    "gather-of-partial": (0, _summed_before),
    "gather-of-unsharded": (0, _over_another_axis),
    "handle-never-waited": (1, _wait_behind),
    "loss-over-shards": (0, _gathered),
    "mismatched-shards": (0, _gathered_or_exchanged),
    "missing-allreduce": (2, _reduced),
    "missing-gradient-reduction": (3, _gradient_reduced),
    "missing-wait": (2, _wait_before),
    "norm-over-shards": (0, _gathered),
    "partial-through-nonlinear": (2, _reduced),
    "partial-times-partial": (0, _summed_before),
    "scan-over-shards": (0, _gathered),
    "softmax-over-shards": (0, _gathered),
    "update-before-final-gradient": (0, _updated_later),
    "updated-pieces-not-gathered": (1, _pieces_gathered),
    "use-before-definition": (1, _meant),
    "wrong-all-to-all-dim": (0, _other_dims),
    "wrong-collective-group": (0, _over_the_others),
    "wrong-gather-dim": (0, _other_dim),
    "wrong-reduce-op": (0, _summed),
}
"""By rule: of how many names a finding has to be, and what makes the repairs of these names, in order, and the line."""

LEFT_OPEN = frozenset(
    {"allreduce-of-shards", "expert-exchange-not-undone", "gather-of-partial", "gather-of-unsharded"}
    | {"mismatched-shards", "wrong-all-to-all-dim", "wrong-collective-group", "wrong-gather-dim", "wrong-reduce-op"}
)
"""Rules whose help leaves open which edit is meant; a repair that holds says it."""
