"""Repairs of generated code, as edits of its lines in the files of all ranks that run the same.

What is made here are proposals, the likeliest first: what differs from the traced graph, what stands otherwise on one rank than
on its siblings, and small changes near the places that a verdict names. Whoever applies one reads the folder again and proves
it. Changes that can be made of every plan are made in `equivalence/explain/repair.py`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import PurePath

from tvlint.ir.operators import Compute, Literal, Value
from tvlint.ir.ranks import describe

_TRAILING = re.compile(r"_\d+$")
_NUMBERS = re.compile(
    r"(?<=_)\d+\b(?!\s*=\s*\d)|(?<=segment)\d+|(?<=adapter)\d+|(?<=reducer)\d+|(?<=ranks=)\[[\d, ]*\]"
    r"|(?<=^rank = )\d+|(?<=src=)\d+|(?<=dst=)\d+|(?<=start=)\d+|(?<=stop=)\d+|(?<=slice\()[^)]*"
)
_COLLECTIVE = re.compile(
    r"nnscaler\.runtime\.adapter\.(?P<kind>(?:nn\.)?(?!move)[a-z_]+)"
    r"\((?P<operand>\w+), (?P<words>.*)(?P<ranks>ranks=\[[\d, ]*\])\)$"
)
_SPAN = re.compile(r"slice\((\d+), (\d+)")
_RUN = re.compile(r"executor\.(?P<how>fexecute|aexecute|backward)\((?:'\w+', )?(?:model\.)?(?P<what>'?\w+'?)")
_ALONG = ("allgather_split", "allgather_reducescatter", "split_allgather", "reducescatter_allgather")
_WHOLE = ("allreduce_identity", "identity_allreduce")
_HANDED_ON = re.compile(r" = nnscaler\.runtime\.function\.identity\((\w+)\)$")
_ON_ITSELF = re.compile(r"\s*(\w+) = \1")
_BEGIN = re.compile(r"\b\w+=(?!=)|\(")
_END = re.compile(r", \w+=|\)")
_LONGEST = 100
"""The longest line of code that a message shows whole."""
_MOST_DIMENSIONS = 4
_LEVELS = 8
"""What a line uses was made by so many lines before it."""
_CLOSE, _AROUND = 24, 4
"""So many lines near the places are tried with the partners of their collectives, and so many with other changes."""
_SIZES = frozenset({"size", "shape", "start", "stop", "sizes"})
"""Keywords that each rank may have its own numbers for."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change in words, the files after it, and the places that change, the first one first."""

    message: str
    contents: Mapping[str, str]
    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _Line:
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
    def lines(self) -> dict[str, list[_Line]]:
        """The statements of each file, without the schedule of inference."""
        return {path: list(_lines(path, text)) for path, text in self.texts.items()}

    @cached_property
    def alike(self) -> dict[tuple[str, int], list[_Line]]:
        """The lines that several files have in common."""
        found: dict[tuple[str, int], list[_Line]] = {}
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
                for name in _made(line)[:1]:
                    found.setdefault(_stem(name), set()).add(line.text.partition(" = ")[2].partition("(")[0])
        return found

    def makers(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield where segments make one of the names, from the last place on."""
        for path, lines in self.lines.items():
            for line in reversed(lines):
                if line.method != "_train_step" and not set(_made(line)).isdisjoint(names):
                    yield path, line.number

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each file."""
        return {path: rank for rank, path in enumerate(self.texts)}

    def groups(self, path: str) -> dict[tuple[int, int], str]:
        """Return the groups that a file makes and its rank is in, by their number of ranks and the step between these."""
        found = {}
        for line in self.lines[path]:
            if "self.init_group(" in line.text:
                ranks = [int(rank) for rank in re.findall(r"\d+", line.text)]
                if self.ranks[path] in ranks and len(ranks) > 1:
                    found[len(ranks), ranks[1] - ranks[0]] = str(ranks)
        return found

    @property
    def size(self) -> int:
        """Return how many lines are read again for each proposal."""
        return sum(map(len, self.lines.values()))

    def proposal(self, message: str, edits: Mapping[_Line, Sequence[str]]) -> Proposal:
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


def proposals(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[Proposal]:
    """Yield changes of the code, each different; `places` are files and lines that a verdict names."""
    seen = set()
    for proposal in _proposals(code, places):
        key = tuple(sorted(proposal.contents.items()))
        if key not in seen:
            seen.add(key)
            yield proposal


def _proposals(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[Proposal]:
    near = list(_near(code, places))
    yield from _like_the_graph(code)
    yield from _like_siblings(code)
    collectives = [line for line in near[:_CLOSE] if _COLLECTIVE.search(line.text)]
    for line in collectives[:_AROUND]:
        yield from _of_partners(code, line)
        yield from _of_dimensions(code, line)
    for line in collectives[_AROUND:]:
        yield from _of_partners(code, line)
    for line in near[:_CLOSE]:
        yield from _exchanged_results(code, line)
    yield from _of_initialisation(code, near)
    for line in near[:_AROUND]:
        yield from _inserted(code, line)
    if near and near[0].method == "__init__":
        yield from _of_gradients(code, near)
    for line in near[:3]:
        yield from _of_communication(code, line)
    yield from _of_the_step(code, near)
    yield from _of_gradients(code, near)
    for line in near[3:]:
        yield from _of_communication(code, line)


def _lines(path: str, text: str) -> Iterator[_Line]:
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
            yield _Line(path, number, row, method, form, turns[form])


def _near(code: Code, places: Sequence[tuple[str, int]]) -> Iterator[_Line]:
    """Yield the lines at the places, those that make or take what these name, and those around them, each once.

    Of a parameter that is the statement that uses it, the last one first: what is wrong with gradients came from behind it.
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
    found.update(dict.fromkeys(sorted(uses, key=lambda line: -line.number)))
    for line in list(found):
        siblings = [other for other in code.lines[line.path] if other.method == line.method != "__init__"]
        names = set(line.names)
        found.update(dict.fromkeys(_taking(code, line)))
        for _ in range(_LEVELS):
            makers = [other for other in siblings if other.number < line.number and set(_made(other)) & names]
            found.update(dict.fromkeys(reversed(makers)))
            names |= {name for other in makers for name in other.names}
        found.update(dict.fromkeys(other for other in siblings if set(_made(line)) & set(other.names)))
        found.update(dict.fromkeys(other for other in siblings if abs(other.number - line.number) <= 8))
    yield from found


def _taking(code: Code, line: _Line) -> Iterator[_Line]:
    """Yield the collectives by which a segment takes the values of which a backward in the step gives the gradients."""
    run = re.search(r"executor\.backward\('(\w+)'", line.text)
    segment = "" if run is None else run[1]
    for other in code.lines[line.path]:
        match = _COLLECTIVE.search(other.text) if other.method == segment else None
        if match is not None and _stem(match["operand"]) in map(_stem, line.names):
            yield other


def _made(line: _Line) -> list[str]:
    targets, equals, _ = line.text.partition(" = ")
    return re.findall(r"[A-Za-z]\w*", targets) if equals else []


def _stem(name: str) -> str:
    return _TRAILING.sub("", name)


def _short(text: str) -> str:
    line = text.strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST].rpartition(' ')[0]} ..."


def _alike(one: str, other: str) -> int:
    """Return with how many same characters two texts begin."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _instead(old: str, new: str) -> str:
    """Return what to write: a short line as it is, of a long one the arguments that change."""
    old, new = old.strip(), new.strip()
    first, last = _alike(old, new), _alike(old[::-1], new[::-1])
    begins = [match.end() if match[0] == "(" else match.start() for match in _BEGIN.finditer(new[: first + 1])]
    begins = [at for at in begins if new[at:first].count(")") <= new[at:first].count("(")]
    end = _END.search(new, max(first, len(new) - min(last, len(old) - first, len(new) - first)))
    if len(new) <= _LONGEST or not begins or end is None or begins[-1] >= len(old) - (len(new) - end.start()):
        return f"write `{_short(new)}`"
    before = old[begins[-1] : len(old) - (len(new) - end.start())]
    return f"write `{_short(new[begins[-1] : end.start()])}` instead of `{_short(before)}`"


def _rewritten(code: Code, line: _Line, change: Callable[[_Line], str | None]) -> Iterator[Proposal]:
    """Yield the change of a line on all ranks that have it, and on its own rank alone; what would only name itself is removed.
    """
    changed = ((each_line, change(each_line)) for each_line in code.alike[line.form, line.turn])
    edits = {
        each_line: () if _ON_ITSELF.fullmatch(new) else (new,)
        for each_line, new in changed
        if new is not None and new != each_line.text
    }
    if edits:
        shown, new = (line, edits[line]) if line in edits else next(iter(edits.items()))
        message = _instead(shown.text, new[0]) if new else f"remove `{_short(shown.text)}`"
        yield code.proposal(message, edits)
        if len(edits) > 1 and line in edits:
            yield code.proposal(message, {line: edits[line]})


def _replaced(code: Code, line: _Line, pattern: str, new: str) -> Iterator[Proposal]:
    yield from _rewritten(code, line, lambda changed: re.sub(pattern, new, changed.text))


# ---- the traced graph ----


def _like_the_graph(code: Code) -> Iterator[Proposal]:
    """Yield the statements that call another operator, with other constants or on other tensors than the traced graph does."""
    found: dict[str, dict[_Line, Sequence[str]]] = {}
    for lines in code.lines.values():
        full = dict(re.findall(r"add_full_map\('(\w+)', \d+, \w+, '([\w.]+)'", "\n".join(line.text for line in lines)))
        for line in lines:
            made = _made(line)
            traced = code.calls.get(_stem(made[0])) if made and line.method not in ("__init__", "_train_step") else None
            lost = traced is not None and traced.op not in code.called.get(_stem(made[0]), ())
            new = _as_traced(line, traced, full, lines, lost) if traced is not None else None
            if new is not None and new.strip() != line.text.strip():
                found.setdefault(_stem(made[0]), {})[line] = (new,)
    for edits in found.values():
        shown, replaced = next(iter(edits.items()))
        yield code.proposal(_instead(shown.text, replaced[0]), edits)
    if len(found) > 1:
        every = {line: new for edits in found.values() for line, new in edits.items()}
        names = ", ".join(f"`{name}`" for name in list(found)[:4])
        yield code.proposal(f"call the operators {names} as they were traced,", every)


def _as_traced(
    line: _Line, traced: Compute, full: Mapping[str, str], lines: Sequence[_Line], lost: bool
) -> str | None:
    """Return the statement as the graph has it; None where it is not one that can be compared with it.

    What hands a value on can be where the operator that makes it is `lost`.
    """
    target, _, value = line.text.partition(" = ")
    try:
        call = ast.parse(value.strip(), mode="eval").body
    except SyntaxError:
        return None
    if isinstance(call, ast.Name):
        call = ast.Call(ast.Name(""), [], [])
    if not isinstance(call, ast.Call) or "operands" in traced.attributes:
        return None
    name = ast.unparse(call.func)
    indexed = name.endswith(("getitem", "fullslice")) and name == traced.op
    if indexed:
        return _with_index(line, call, traced)
    if "adapter" in name or name.endswith(("multiref", "checkpoint")) or (name.endswith("identity") and not lost):
        return None
    known = [name for other in lines if other.method == line.method and other.number < line.number for name in other.names]
    used = [name for other in lines if other.method == line.method and other.number != line.number for name in other.names]
    arguments: list[str] = []
    given = [ast.unparse(argument) for argument in call.args]
    count = sum(not (isinstance(value, str) and value.startswith("operand")) for value in traced.attributes.values())
    positional = traced.inputs[: len(traced.inputs) - (len(traced.attributes) - count)]
    for position, operand in enumerate(positional):
        text = given[position] if position < len(given) else ""
        arguments.append(_operand(operand, text, full, known, used, same=len(given) == len(positional)))
    words = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg is not None}
    same = name == traced.op
    for word, wanted in traced.attributes.items():
        if isinstance(wanted, str) and wanted.startswith("operand "):
            operand = traced.inputs[int(wanted.split()[1])]
            words[word] = _operand(operand, words.get(word, ""), full, known, used, same=True)
        elif word not in words and same:
            continue
        elif word not in _SIZES and not _equal(words.get(word), wanted):
            words[word] = _literal(wanted)
    if not same:
        words = {word: name for word, name in words.items() if word in traced.attributes}
    if not all(arguments):
        return None
    every = ", ".join((*arguments, *(f"{word}={name}" for word, name in words.items())))
    return f"{target} = {traced.op}({every})"


def _with_index(line: _Line, call: ast.Call, traced: Compute) -> str | None:
    """Return an indexing at the places of the graph; ranges may be those of a rank."""
    given, wanted = [ast.unparse(each) for each in call.args], traced.inputs
    if len(given) != len(wanted):
        return None
    for at, operand in enumerate(wanted):
        if isinstance(operand, Literal) and isinstance(operand.value, int) and not _equal(given[at], operand.value):
            given[at] = _literal(operand.value)
    return f"{line.text.partition(' = ')[0]} = {traced.op}({', '.join(given)})"


def _operand(
    operand: str | Literal, word: str, full: Mapping[str, str], known: Sequence[str], used: Sequence[str], *, same: bool
) -> str:
    """Return the argument that stands for an operand of the graph: its own where that may be meant."""
    if isinstance(operand, Literal):
        fits = word and same and (isinstance(operand.value, tuple) or _equal(word, operand.value))
        return word if fits else _literal(operand.value)
    if word.startswith("self."):
        if full.get(word.removeprefix("self."), "") == operand or (word and operand not in full.values()):
            return word
    elif word and _stem(word) == operand.replace(".", "_"):
        return word
    for weight, name in full.items():
        if name == operand:
            return f"self.{weight}"
    candidates = [name for name in dict.fromkeys(known) if _stem(name) == operand]
    counts = Counter(used)
    return min(candidates, key=lambda name: (counts[name] > 1, -known[::-1].index(name))) if candidates else word


def _equal(text: str | None, wanted: Value) -> bool:
    if text is None:
        return False
    try:
        given = ast.literal_eval(text)
        return bool(given == wanted) or (isinstance(wanted, str) and not isinstance(given, str))
    except (ValueError, SyntaxError):
        return True


def _literal(value: Value) -> str:
    return repr(value)


# ---- siblings ----


def _like_siblings(code: Code) -> Iterator[Proposal]:
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
                renamed.update(zip(_tokens(there.text), _tokens(here.text), strict=False))
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "equal" or max(b - a, d - c) > 2:
                continue
            new = [_renamed_as(line.text, renamed) for line in code.lines[nearest][a:b]]
            lines = code.lines[path]
            if tag == "insert":
                edits: dict[_Line, Sequence[str]] = dict.fromkeys(lines[c:d], ())
                yield code.proposal(f"remove `{_short(lines[c].text)}`", edits)
            elif tag == "delete" and c < len(lines):
                yield code.proposal(f"insert `{_short(new[0])}`", {lines[c]: (*new, lines[c].text)})
            elif tag == "replace":
                edits = dict.fromkeys(lines[c:d], ())
                edits[lines[c]] = tuple(new)
                yield code.proposal(f"write `{_short(new[0])}`", edits)


_TOKEN = re.compile(r"[A-Za-z]\w*\d\b|ranks=\[[\d, ]*\]|src=\d+|dst=\d+|slice\([^)]*\)|st(?:art|op)=\d+")


def _renamed_as(text: str, names: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda match: names.get(match[0], match[0]), text)


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


# ---- parameters and reducers ----


def _of_initialisation(code: Code, near: Sequence[_Line]) -> Iterator[Proposal]:
    yield from _all_reduced(code, near)
    named = any(line.method == "__init__" for line in near)
    for line in [line for lines in code.lines.values() for line in lines if named and "adapter.Reducer(" in line.text]:
        yield from _in_groups(code, line)
    yield from _covering(code)


def _in_groups(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield the line with the ranks of another group that its file makes."""
    for key in code.groups(line.path):
        yield from _rewritten(code, line, lambda changed, key=key: _in_group(code, changed, key))  # type: ignore[misc]


def _in_group(code: Code, line: _Line, key: tuple[int, int]) -> str | None:
    group = code.groups(line.path).get(key)
    return None if group is None else re.sub(r"ranks=\[[\d, ]*\]", f"ranks={group}", line.text)


def _all_reduced(code: Code, near: Sequence[_Line]) -> Iterator[Proposal]:
    """Calls of reducers that the step lacks, before it returns, and parameters that no reducer has."""
    calls: dict[_Line, Sequence[str]] = {}
    added: dict[_Line, Sequence[str]] = {}
    for path, lines in code.lines.items():
        step = [line for line in lines if line.method == "_train_step"]
        methods = re.findall(r"def (reducer\d+)\(", code.texts[path])
        missing = [name for name in methods if not any(f"model.{name}," in line.text for line in step)]
        end = next((line for line in reversed(step) if line.text.strip().startswith("return ")), None)
        if missing and end is not None:
            run = "    _ = nnscaler.runtime.executor.aexecute(model.{}, *(), requires_grad=False)"
            calls[end] = (*map(run.format, missing), end.text)
        weights = [weight for line in lines for weight in re.findall(r"register_parameter\('(\w+)'", line.text)]
        reduced = {weight for line in lines for weight in re.findall(r"add_param\(self\.(\w+)\)", line.text)}
        last = [line for line in lines if ".add_param(" in line.text]
        near_text = " ".join(line.text for line in near if line.method == "__init__")
        lacking = [weight for weight in weights if weight not in reduced and f"'{weight}'" in near_text]
        if last and lacking:
            rest = (re.sub(r"\(self\.\w+\)", f"(self.{weight})", last[-1].text) for weight in lacking)
            added[last[-1]] = (last[-1].text, *rest)
    for edits in (calls, added):
        if edits:
            line, new = next(iter(edits.items()))
            text = next(name for name in new if name != line.text)
            yield code.proposal(f"insert `{_short(text)}`", edits)


def _covering(code: Code) -> Iterator[Proposal]:
    """Slices of parameters that two ranks hold and another one lacks, and slices of two ranks in each other's places."""
    holders: dict[str, list[tuple[_Line, str]]] = {}
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
                yield code.proposal(f"write `{_short(new[new.index('slice') :])}`", {line: (new,)})
        for (line, slices), (other, there) in pairwise(holder):
            if spans[slices][dim] > spans[there][dim] and code.ranks[line.path] + 1 == code.ranks[other.path] and lacking == []:
                edits = {line: (line.text.replace(slices, there),), other: (other.text.replace(there, slices),)}
                yield code.proposal(f"exchange the slices `{slices}` and `{there}`", edits)


# ---- the schedule ----


def _of_the_step(code: Code, near: Sequence[_Line]) -> Iterator[Proposal]:
    if not any(line.method == "_train_step" for line in near):
        return
    steps = [[line for line in lines if line.method == "_train_step"] for lines in code.lines.values()]
    for step in steps:
        yield from _of_repeated_runs(code, step, near)
    flags = (line for lines in code.lines.values() for line in lines if "skip_reducer" in line.text)
    for line in flags:
        yield from _replaced(code, line, "True$", "False")
        yield from _replaced(code, line, "False$", "True")
    yield from _with_cleared_gradients(code, steps)
    for step in steps:
        close = [line for line in step if line in set(near)] or step
        for line in close:
            if "executor." in line.text:
                yield from _of_run(code, line, step)


def _with_cleared_gradients(code: Code, steps: Sequence[Sequence[_Line]]) -> Iterator[Proposal]:
    firsts = [step[0] for step in steps if step and not any("zero_grad()" in line.text for line in step)]
    if firsts:
        yield code.proposal("insert `model.zero_grad()`", {line: ("    model.zero_grad()", line.text) for line in firsts})


def _of_repeated_runs(code: Code, step: Sequence[_Line], near: Sequence[_Line]) -> Iterator[Proposal]:
    """Runs with the values of one micro-batch, of which there are several, with those of another one; those near first."""
    names: dict[str, list[str]] = {}
    for line in step:
        for name in _made(line):
            if name not in names.setdefault(_stem(name), []):
                names[_stem(name)].append(name)
    runs = [(line, line.text.partition(" model.")[2] or line.text.partition("(model.")[2]) for line in step]
    runs = [(line, call or line.text) for line, call in runs if _RUN.search(line.text)]
    counts = Counter(call for _, call in runs)
    most = max(map(len, names.values()), default=0)
    for line, call in sorted(runs, key=lambda run: (run[0] not in near[:_CLOSE], -run[0].number)):
        for at in range(most) if counts[call] > 1 and "()" not in call else ():
            changes = {name: _of_batch(name, names, at) for name in re.findall(r"\w+_\d+", call.partition(",")[2])}
            yield from _rewritten(code, line, lambda each, changes=changes: _renamed_as(each.text, changes))  # type: ignore[misc]


def _of_batch(name: str, names: Mapping[str, Sequence[str]], batch: int) -> str:
    known = names.get(_stem(name), ())
    return known[batch] if name in known and batch < len(known) else name


def _of_run(code: Code, line: _Line, step: list[_Line]) -> Iterator[Proposal]:
    """Yield a run with another micro-batch's values, exchanged with its neighbours, or with the other flag."""
    made = [name for other in step for name in _made(other)]
    for name in dict.fromkeys(re.findall(r"\w+_\d+", line.text.partition(" = ")[2])):
        for other in dict.fromkeys(each_name for each_name in made if _stem(each_name) == _stem(name) and each_name != name):
            yield from _renamed(code, line, name, other)
    if "reducer" not in line.text:
        yield from _replaced(code, line, "requires_grad=False", "requires_grad=True")
    at = step.index(line)
    for neighbour in (step[at + 1 : at + 4] + step[max(0, at - 3) : at])[::-1]:
        first, second = sorted((line, neighbour), key=lambda line_of_run: line_of_run.number)
        if "return" in neighbour.text or first.text == second.text:
            continue
        yield code.proposal(f"run `{_short(second.text)}` before what stands", {first: (second.text, first.text), second: ()})
        yield code.proposal(f"run `{_short(first.text)}` after what stands", {first: (), second: (second.text, first.text)})


def _renamed(code: Code, line: _Line, name: str, other: str) -> Iterator[Proposal]:
    word = re.compile(rf"\b{name}\b")
    alike = (each_line for each_line in code.alike[line.form, line.turn] if name in each_line.text)
    edits = {each_line: (word.sub(other, each_line.text),) for each_line in alike}
    yield code.proposal(_instead(line.text, word.sub(other, line.text)), edits)


# ---- collectives ----


def _of_communication(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield a collective of another group, dimension or kind, or none."""
    match = _COLLECTIVE.search(line.text)
    if match is None:
        return
    yield from _in_groups(code, line)
    yield from _of_dimensions(code, line)
    for kind, words in _kinds(match["kind"], match["words"]):
        yield from _of_kind(code, line, kind, words)
    yield from _replaced(code, line, _COLLECTIVE.pattern, r"\g<operand>")


def _of_dimensions(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield a collective along another dimension."""
    if _COLLECTIVE.search(line.text):
        yield from _replaced(code, line, r"idim=(\d), odim=(\d)", r"idim=\2, odim=\1")
        for dim in range(_MOST_DIMENSIONS):
            yield from _replaced(code, line, r"(?<= dim=)\d", str(dim))


def _kinds(kind: str, words: str) -> Iterator[tuple[str, str]]:
    """Yield other collectives and the keywords before their ranks, those of the same keywords first."""
    along = re.search(r"(?<!o)(?<!i)dim=(\d)", words)
    dims = [along[1]] if along is not None else ["0", "1", "2"]
    found = [(f"nn.{name}", f"dim={dim}, ") for dim in dims for name in _ALONG]
    found += [(kind_of_call, f"dim={dim}, ") for dim in dims for kind_of_call in ("all_gather", "chunk", "reduce_scatter")]
    whole = [*((f"nn.{name}", "") for name in _WHOLE), ("all_reduce", "")]
    for kind_of_call in (*found, *whole) if along is not None else (*whole, *found):
        if kind_of_call[0] != kind:
            yield kind_of_call


def _of_kind(code: Code, line: _Line, kind: str, words: str) -> Iterator[Proposal]:
    yield from _replaced(code, line, _COLLECTIVE.pattern, rf"nnscaler.runtime.adapter.{kind}(\g<operand>, {words}\g<ranks>)")


_PARTNERS = {
    "nn.allgather_split": ("nn.allgather_reducescatter",),
    "nn.allgather_reducescatter": ("nn.allgather_split",),
    "nn.split_allgather": ("nn.reducescatter_allgather",),
    "nn.reducescatter_allgather": ("nn.split_allgather",),
    "nn.allreduce_identity": ("nn.identity_allreduce",),
    "nn.identity_allreduce": ("nn.allreduce_identity",),
    "all_gather": ("nn.allgather_split", "nn.allgather_reducescatter"),
    "all_reduce": ("nn.allreduce_identity", "nn.identity_allreduce"),
    "chunk": ("nn.split_allgather",),
}
"""By collective those that do the same in one of the two directions, or the other way round."""


def _of_partners(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield a collective as one that does the same in one direction, or the other way round."""
    match = _COLLECTIVE.search(line.text)
    for kind in _PARTNERS.get(match["kind"], ()) if match is not None else ():
        along = re.search(r"(?<!o)(?<!i)dim=\d, ", line.text)
        yield from _of_kind(code, line, kind, along[0] if along else "")


def _exchanged_results(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield the results of a call under each other's names."""
    made = _made(line) if line.method not in ("__init__", "_train_step") else []
    for one, other in combinations(made, 2) if "multiref" not in line.text else ():
        at = made.index(one), made.index(other)
        yield from _rewritten(code, line, lambda each, at=at: _with_exchanged(each.text, *at))  # type: ignore[misc]


def _with_exchanged(text: str, one: int, other: int) -> str:
    targets, _, value = text.strip().partition(" = ")
    names = targets.split(", ")
    names[one], names[other] = names[other], names[one]
    return f"{text[: len(text) - len(text.lstrip())]}{', '.join(names)} = {value}"


def _inserted(code: Code, line: _Line) -> Iterator[Proposal]:
    """Yield a sum over a group, forwards or backwards, of what a line makes."""
    if line.method in ("__init__", "_train_step") or _COLLECTIVE.search(line.text):
        return
    for place, name in enumerate(_made(line)):
        for kind in _WHOLE:
            for key in code.groups(line.path):
                edits: dict[_Line, Sequence[str]] = {}
                for each in code.alike[line.form, line.turn]:
                    group, made = code.groups(each.path).get(key), _made(each)
                    indent = each.text[: len(each.text) - len(each.text.lstrip())]
                    handed = _HANDED_ON.search(each.text)
                    call = f"nnscaler.runtime.adapter.nn.{kind}({made[place] if handed is None else handed[1]}, ranks={group})"
                    if group is not None:
                        rows = (each.text, f"{indent}{made[place]} = {call}")
                        edits[each] = rows if handed is None else rows[1:]
                if line in edits:
                    how = "write" if len(edits[line]) == 1 else "insert"
                    where = "" if how == "write" else f" after the line that makes `{name}`,"
                    yield code.proposal(f"{how} `{_short(edits[line][-1])}`{where}", edits)


def _of_gradients(code: Code, near: Sequence[_Line]) -> Iterator[Proposal]:
    """Yield the collectives of the files that are named with another direction, from the loss on."""
    for path in dict.fromkeys(line.path for line in near):
        for line in reversed(code.lines[path]):
            partners = list(_of_partners(code, line))
            yield from (each for each in partners if len(each.places) == max(len(other.places) for other in partners))
