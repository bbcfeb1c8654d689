"""Lines of generated code on all ranks, and changes of them that are proposed for all ranks that run the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from tvlint.ir.operators import Compute
from tvlint.ir.ranks import describe

_TRAILING = re.compile(r"_\d+$")
_NUMBERS = re.compile(
    r"(?<=_)\d+\b(?!\s*=\s*\d)|(?<=segment)\d+|(?<=adapter)\d+|(?<=reducer)\d+|(?<=ranks=)\[[\d, ]*\]"
    r"|(?<=^rank = )\d+|(?<=src=)\d+|(?<=dst=)\d+|(?<=start=)\d+|(?<=stop=)\d+|(?<=slice\()[^)]*"
)
COLLECTIVE = re.compile(
    r"nnscaler\.runtime\.adapter\.(?P<kind>(?:nn\.)?(?!move)[a-z_]+)"
    r"\((?P<operand>\w+), (?P<words>.*)(?P<ranks>ranks=\[[\d, ]*\])\)$"
)
_NAMES = re.compile(r"\s*[A-Za-z]\w*(?:, [A-Za-z]\w*)*")
_ON_ITSELF = re.compile(r"\s*(\w+) = \1")
_BEGIN = re.compile(r"\b\w+=(?!=)|\(")
_END = re.compile(r", \w+=|\)")
_LONGEST = 100
"""The longest line of code that a message shows whole."""
CLOSE, AROUND = 24, 4
"""So many lines near the places are tried with the partners of their collectives, and so many with other changes."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change in words, the files after it, and the places that change, the first one first."""

    message: str
    contents: Mapping[str, str]
    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    number: int
    text: str
    method: str
    form: str
    """The line without what differs from rank to rank."""
    turn: int
    """How many lines of the same form stand before it in the file."""

    @property
    def names(self) -> list[str]:
        return re.findall(r"(?<![\w.'])[A-Za-z]\w*_\d+\b(?!')", self.text)


@dataclass
class Code:
    """The files of a folder, by path, the numbers of their ranks and what the traced graph calls."""

    texts: Mapping[str, str]
    calls: Mapping[str, Compute] = field(default_factory=dict)
    """The traced operators by the name that generated code derives the first result's from; tensors by such names too."""

    @cached_property
    def lines(self) -> dict[str, list[Line]]:
        """The statements of each file, without the schedule of inference."""
        return {path: list(_lines(path, text)) for path, text in self.texts.items()}

    @cached_property
    def alike(self) -> dict[tuple[str, int], list[Line]]:
        """The lines that several files have in common."""
        found: dict[tuple[str, int], list[Line]] = {}
        for lines in self.lines.values():
            for line in lines:
                found.setdefault((line.form, line.turn), []).append(line)
        return found

    @cached_property
    def called(self) -> dict[str, set[str]]:
        """Return what the files call to make what the graph calls by a name."""
        found: dict[str, set[str]] = {}
        for lines in self.lines.values():
            for line in lines:
                for name in targets_of(line)[:1]:
                    found.setdefault(stem(name), set()).add(line.text.partition(" = ")[2].partition("(")[0])
        return found

    def makers(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield where segments make one of the names, from the last place on."""
        for path, lines in self.lines.items():
            for line in reversed(lines):
                if line.method != "_train_step" and not set(targets_of(line)).isdisjoint(names):
                    yield path, line.number

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each file."""
        return {path: rank for rank, path in enumerate(self.texts)}

    @cached_property
    def groups(self) -> dict[str, dict[tuple[int, int], str]]:
        """The groups that each file makes and its rank is in, by their number of ranks and the step between these."""
        found: dict[str, dict[tuple[int, int], str]] = {path: {} for path in self.texts}
        for line in (line for lines in self.lines.values() for line in lines if "self.init_group(" in line.text):
            ranks = [int(rank) for rank in re.findall(r"\d+", line.text)]
            if self.ranks[line.path] in ranks and len(ranks) > 1:
                found[line.path][len(ranks), ranks[1] - ranks[0]] = str(ranks)
        return found

    @property
    def size(self) -> int:
        """Return how many lines are read again for each proposal."""
        return sum(map(len, self.lines.values()))

    def proposal(self, message: str, edits: Mapping[Line, Sequence[str]]) -> Proposal:
        """Return the change of some lines into others each."""
        contents, first = {}, min(edits, key=lambda line: (self.ranks[line.path], line.number))
        for path in dict.fromkeys(line.path for line in edits):
            new_lines = {line.number: new for line, new in edits.items() if line.path == path}
            rows = [row for at, row in enumerate(self.texts[path].split("\n"), 1) for row in new_lines.get(at, (row,))]
            contents[path] = "\n".join(rows)
        others = [self.ranks[path] for path in contents if path != first.path]
        also = f", and alike on {describe(tuple(sorted(others)))}" if others else ""
        where = f"at {PurePath(first.path).name}:{first.number}"
        places = tuple(
            (line.path, line.number)
            for line in sorted(edits, key=lambda new_lines: (new_lines != first, new_lines.path, new_lines.number))
        )
        return Proposal(f"{message} {where}{also}", contents, places)


def _lines(path: str, text: str) -> Iterator[Line]:
    method, turns = "", Counter[str]()
    for number, row in enumerate(text.split("\n"), 1):
        bare = row.strip()
        if bare.startswith("def "):
            method = bare[4:].partition("(")[0]
            if method == "_infer_step":
                return
        if bare and not bare.startswith(("#", "def ", "class ", "import ", "from ", "del ")):
            form = f"{'    ' * (method == '_train_step')}{_NUMBERS.sub('', bare)}"
            turns[form] += 1
            yield Line(path, number, row, method, form, turns[form])


def targets_of(line: Line) -> list[str]:
    """Return the names that a line gives values to; none where it changes something else, such as an attribute."""
    targets, equals, _ = line.text.partition(" = ")
    return re.findall(r"\w+", targets) if equals and _NAMES.fullmatch(targets) else []


def stem(name: str) -> str:
    return _TRAILING.sub("", name)


def short(text: str) -> str:
    line = text.strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST].rpartition(' ')[0]} ..."


def alike(one: str, other: str) -> int:
    """Return with how many same characters two texts begin."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def rewrites(code: Code, line: Line, change: Callable[[Line], str | None]) -> Iterator[Proposal]:
    """Yield the change of a line on all ranks that have it, and on its rank alone; what would only name itself is removed."""
    changed = ((each_line, change(each_line)) for each_line in code.alike[line.form, line.turn])
    edits = {
        each_line: () if _ON_ITSELF.fullmatch(new) else (new,)
        for each_line, new in changed
        if new is not None and new != each_line.text
    }
    if edits:
        shown, new = (line, edits[line]) if line in edits else next(iter(edits.items()))
        message = instead(shown.text, new[0]) if new else f"remove `{short(shown.text)}`"
        yield code.proposal(message, edits)
        if len(edits) > 1 and line in edits:
            yield code.proposal(message, {line: edits[line]})


def replacements(code: Code, line: Line, pattern: str, new: str) -> Iterator[Proposal]:
    yield from rewrites(code, line, lambda changed: re.sub(pattern, new, changed.text))


_TOKEN = re.compile(r"[A-Za-z]\w*\d\b|ranks=\[[\d, ]*\]|src=\d+|dst=\d+|slice\([^)]*\)|st(?:art|op)=\d+")


def rename(text: str, names: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda match: names.get(match[0], match[0]), text)


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)


def instead(old: str, new: str) -> str:
    """Return what to write: a short line as it is, of a long one the arguments that change."""
    old, new = old.strip(), new.strip()
    first, last = alike(old, new), alike(old[::-1], new[::-1])
    begins = [match.end() if match[0] == "(" else match.start() for match in _BEGIN.finditer(new[: first + 1])]
    begins = [at for at in begins if new[at:first].count(")") <= new[at:first].count("(")]
    end = _END.search(new, max(first, len(new) - min(last, len(old) - first, len(new) - first)))
    if len(new) <= _LONGEST or not begins or end is None or begins[-1] >= len(old) - (len(new) - end.start()):
        return f"write `{short(new)}`"
    before = old[begins[-1] : len(old) - (len(new) - end.start())]
    return f"write `{short(new[begins[-1] : end.start()])}` instead of `{short(before)}`"
