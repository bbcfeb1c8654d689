"""Propose other collectives, groups and dimensions for lines that communicate, and collectives where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from tvlint.edits.generated_code.code import COLLECTIVE, Code, Line, Proposal, replacements, rewrites, short, targets_of

_ALONG = ("allgather_split", "allgather_reducescatter", "split_allgather", "reducescatter_allgather")
_WHOLE = ("allreduce_identity", "identity_allreduce")
_HANDED_ON = re.compile(r" = nnscaler\.runtime\.function\.identity\((\w+)\)$")
_MOST_DIMENSIONS = 4


def in_groups(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield the line with the ranks of another group that its file makes."""
    for key in code.groups[line.path]:
        yield from rewrites(code, line, lambda changed, key=key: _in_group(code, changed, key))  # type: ignore[misc]


def _in_group(code: Code, line: Line, key: tuple[int, int]) -> str | None:
    group = code.groups[line.path].get(key)
    return None if group is None else re.sub(r"ranks=\[[\d, ]*\]", f"ranks={group}", line.text)


def all_reduced(code: Code, near: Sequence[Line]) -> Iterator[Proposal]:
    """Calls of reducers that the step lacks, before it returns, and parameters that no reducer has."""
    calls: dict[Line, Sequence[str]] = {}
    added: dict[Line, Sequence[str]] = {}
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
            yield code.proposal(f"insert `{short(text)}`", edits)


def of_communication(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield a collective of another group, dimension or kind, or none."""
    match = COLLECTIVE.search(line.text)
    if match is None:
        return
    yield from in_groups(code, line)
    yield from of_dimensions(code, line)
    for kind, words in _kinds(match["kind"], match["words"]):
        yield from _of_kind(code, line, kind, words)
    yield from replacements(code, line, COLLECTIVE.pattern, r"\g<operand>")


def of_dimensions(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield a collective along another dimension."""
    if COLLECTIVE.search(line.text):
        yield from replacements(code, line, r"idim=(\d), odim=(\d)", r"idim=\2, odim=\1")
        for dim in range(_MOST_DIMENSIONS):
            yield from replacements(code, line, r"(?<= dim=)\d", str(dim))


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


def _of_kind(code: Code, line: Line, kind: str, words: str) -> Iterator[Proposal]:
    yield from replacements(code, line, COLLECTIVE.pattern, rf"nnscaler.runtime.adapter.{kind}(\g<operand>, {words}\g<ranks>)")


_PARTNERS = {
    "nn.allgather_split": ("nn.allgather_reducescatter",),
    "nn.allgather_reducescatter": ("nn.allgather_split",),
    "nn.split_allgather": ("nn.reducescatter_allgather",),
    "nn.reducescatter_allgather": ("nn.split_allgather",),
    "nn.allreduce_identity": ("nn.identity_allreduce", "nn.allreduce_allreduce"),
    "nn.identity_allreduce": ("nn.allreduce_identity", "nn.allreduce_allreduce"),
    "nn.allreduce_allreduce": ("nn.allreduce_identity", "nn.identity_allreduce"),
    "all_gather": ("nn.allgather_split", "nn.allgather_reducescatter"),
    "all_reduce": ("nn.allreduce_identity", "nn.identity_allreduce"),
    "chunk": ("nn.split_allgather",),
}
"""By collective those that do the same in one of the two directions, or the other way round."""


def of_partners(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield a collective as one that does the same in one direction, or the other way round."""
    match = COLLECTIVE.search(line.text)
    for kind in _PARTNERS.get(match["kind"], ()) if match is not None else ():
        along = re.search(r"(?<!o)(?<!i)dim=\d, ", line.text)
        yield from _of_kind(code, line, kind, along[0] if along else "")


def exchanged_results(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield the results of a call under each other's names."""
    made = targets_of(line) if line.method not in ("__init__", "_train_step") else []
    for one, other in combinations(made, 2) if "multiref" not in line.text else ():
        at = made.index(one), made.index(other)
        yield from rewrites(code, line, lambda each, at=at: _with_exchanged(each.text, *at))  # type: ignore[misc]


def _with_exchanged(text: str, one: int, other: int) -> str:
    targets, _, value = text.strip().partition(" = ")
    names = targets.split(", ")
    names[one], names[other] = names[other], names[one]
    return f"{text[: len(text) - len(text.lstrip())]}{', '.join(names)} = {value}"


def inserted(code: Code, line: Line) -> Iterator[Proposal]:
    """Yield a sum over a group, forwards or backwards, of what a line makes."""
    if line.method in ("__init__", "_train_step") or COLLECTIVE.search(line.text):
        return
    for place, name in enumerate(targets_of(line)):
        for kind in _WHOLE:
            for key in code.groups[line.path]:
                edits: dict[Line, Sequence[str]] = {}
                for each in code.alike[line.form, line.turn]:
                    group, made = code.groups[each.path].get(key), targets_of(each)
                    indent = each.text[: len(each.text) - len(each.text.lstrip())]
                    handed = _HANDED_ON.search(each.text)
                    call = f"nnscaler.runtime.adapter.nn.{kind}({made[place] if handed is None else handed[1]}, ranks={group})"
                    if group is not None:
                        rows = (each.text, f"{indent}{made[place]} = {call}")
                        edits[each] = rows if handed is None else rows[1:]
                if line in edits:
                    how = "write" if len(edits[line]) == 1 else "insert"
                    where = "" if how == "write" else f" after the line that makes `{name}`,"
                    yield code.proposal(f"{how} `{short(edits[line][-1])}`{where}", edits)
