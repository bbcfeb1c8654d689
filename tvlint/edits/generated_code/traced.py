"""Propose what the traced graph says of an operator, where the code says otherwise."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tvlint.edits.generated_code.code import Code, Line, Proposal, instead, stem, targets_of
from tvlint.ir.operators import Compute, Literal, Value

_SIZES = frozenset({"size", "shape", "start", "stop", "sizes"})
"""Keywords that each rank may have its own numbers for."""


def like_the_graph(code: Code) -> Iterator[Proposal]:
    """Yield the statements that call another operator, with other constants or on other tensors than the traced graph does."""
    found: dict[str, dict[Line, Sequence[str]]] = {}
    for lines in code.lines.values():
        full = dict(re.findall(r"add_full_map\('(\w+)', \d+, \w+, '([\w.]+)'", "\n".join(line.text for line in lines)))
        for line in lines:
            made = targets_of(line)
            traced = code.calls.get(stem(made[0])) if made and line.method not in ("__init__", "_train_step") else None
            lost = traced is not None and traced.op not in code.called.get(stem(made[0]), ())
            new = _as_traced(line, traced, full, lines, lost) if traced is not None else None
            if new is not None and new.strip() != line.text.strip():
                found.setdefault(stem(made[0]), {})[line] = (new,)
    for edits in found.values():
        shown, replaced = next(iter(edits.items()))
        yield code.proposal(instead(shown.text, replaced[0]), edits)
    if len(found) > 1:
        every = {line: new for edits in found.values() for line, new in edits.items()}
        names = ", ".join(f"`{name}`" for name in list(found)[:4])
        yield code.proposal(f"call the operators {names} as they were traced,", every)


def _as_traced(line: Line, traced: Compute, full: Mapping[str, str], lines: Sequence[Line], lost: bool) -> str | None:
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
            words[word] = repr(wanted)
    if not same:
        words = {word: name for word, name in words.items() if word in traced.attributes}
    if not all(arguments):
        return None
    every = ", ".join((*arguments, *(f"{word}={name}" for word, name in words.items())))
    return f"{target} = {traced.op}({every})"


def _with_index(line: Line, call: ast.Call, traced: Compute) -> str | None:
    """Return an indexing at the places of the graph; ranges may be those of a rank."""
    given, wanted = [ast.unparse(each) for each in call.args], traced.inputs
    if len(given) != len(wanted):
        return None
    for at, operand in enumerate(wanted):
        if isinstance(operand, Literal) and isinstance(operand.value, int) and not _equal(given[at], operand.value):
            given[at] = repr(operand.value)
    return f"{line.text.partition(' = ')[0]} = {traced.op}({', '.join(given)})"


def _operand(
    operand: str | Literal, word: str, full: Mapping[str, str], known: Sequence[str], used: Sequence[str], *, same: bool
) -> str:
    """Return the argument that stands for an operand of the graph: its own where that may be meant."""
    if isinstance(operand, Literal):
        fits = word and same and (isinstance(operand.value, tuple) or _equal(word, operand.value))
        return word if fits else repr(operand.value)
    if word.startswith("self."):
        if full.get(word.removeprefix("self."), "") == operand or (word and operand not in full.values()):
            return word
    elif word and stem(word) == operand.replace(".", "_"):
        return word
    for weight, name in full.items():
        if name == operand:
            return f"self.{weight}"
    candidates = [name for name in dict.fromkeys(known) if stem(name) == operand]
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
