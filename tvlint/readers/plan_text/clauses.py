"""Parse the clauses that close an operator of plan text: groups, streams, handles, places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Compute, Group
from tvlint.ir.plan import Tensor
from tvlint.readers.plan_text.lexer import Line

MOST_LISTED = 2**22


@dataclass(slots=True)
class Scope:
    """The names in scope of one section; `declare` takes the tensors of annotations."""

    mesh: Mesh
    communicators: dict[str, Group]
    declare: Callable[[Line, int, Tensor, bool], None]
    rank_lists: dict[str, tuple[int, ...]]
    computes: dict[str, Compute] = field(default_factory=dict)


def _ranks(line: Line, mesh: Mesh, known: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return a rank list; equal ones are one tuple, and all of them together are bounded."""
    end = line.index
    while line.tokens[end][:1].isdigit() or line.tokens[end][:1] in (",", "-"):
        end += 1
    text = " ".join(line.tokens[line.index : end])
    if text in known:
        line.index = end
        return known[text]
    if sum(map(len, known.values())) > MOST_LISTED:
        line.fail(f"the plan's groups list more than {MOST_LISTED} ranks", "name axes, or declare communicators")
    start = line.index
    ranks = line.rank_list("rank", max(mesh.size, 1))
    if len(set(ranks)) < len(ranks):
        line.fail("a group names a rank twice", "name each rank once", start)
    known[text] = ranks
    return ranks


def parse_group(line: Line, scope: Scope) -> Group:
    """`tp`, `dp,cp`, `ranks 0,2`, a declared communicator, `world`, `self`; and `named NAME`."""
    mesh, communicators = scope.mesh, scope.communicators
    known = [axis.name for axis in mesh.axes]
    group = Group()
    word = line.peek()
    if line.accept("ranks"):
        group = Group(ranks=_ranks(line, mesh, scope.rank_lists))
    elif line.accept("world"):
        group = Group(tuple(known))
    elif not line.accept("self"):
        name = line.name("a group")
        if name in communicators and name not in known:
            group = communicators[name]
        elif name not in known:
            choices = [*known, *communicators, "ranks", "world", "self"]
            line.fail_unknown("an axis of the mesh or a communicator", name, choices, line.index - 1)
        else:
            line.index -= 1
            group = Group(_axes(line, known))
    if line.accept("named"):
        if word in communicators and group.name:
            line.fail(f"communicator `{word}` has a name already", index=line.index - 1)
        return Group(group.axes, group.ranks, line.name("the communicator's name"))
    return group


def _axes(line: Line, known: list[str]) -> tuple[str, ...]:
    """Return the axes of a list of them, each named once."""
    axes: list[str] = []
    while not axes or line.accept(","):
        axes.append(line.name("an axis"))
        if axes[-1] not in known:
            line.fail_unknown("an axis of the mesh", axes[-1], known, line.index - 1)
        if axes[-1] in axes[:-1]:
            line.fail(f"axis `{axes[-1]}` is named twice", "name each axis once", line.index - 1)
    return tuple(axes)


def parse_clauses(line: Line, scope: Scope, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return the clauses that close an operator, by the fields that they give; those not in `allowed` are errors."""
    found: dict[str, Any] = {}
    seen: set[str] = set()
    while True:
        word = line.peek()
        if not word or word == "of":
            break
        if word not in allowed:
            line.fail_unknown("a clause of this operator", word, list(allowed))
        if word in seen:
            line.fail(f"`{word}` is given twice")
        seen.add(word)
        line.index += 1
        match word:
            case "over":
                found["group"] = parse_group(line, scope)
            case "draws":
                known = [axis.name for axis in scope.mesh.axes]
                found["draws_over"] = () if line.accept("alike") else _drawn_over(line, known)
            case "as":
                found["annotation"] = line.string("an annotation")
            case "tag":
                found["tag"] = line.integer("tag", -(2**31))
            case "by":
                found["reduce"] = line.reduction()
            case "divide":
                found["divisor"] = 0 if line.accept("unknown") else line.integer("divisor", 1, 2**62)
            case "scatter" | "replicated":
                found[word] = True
            case "at":
                found["source"] = _source(line)
            case _:
                name, what = _NAMES[word]
                found[name] = line.name(what)
    if "source" not in found:
        found["source"] = line.whole()
    return found


_NAMES = {
    "on": ("stream", "a stream"), "label": ("label", "a label"), "async": ("handle", "a handle"),
    "via": ("communicator", "a communicator"), "batch": ("batch", "a batch"),
}  # fmt: skip
"""By the first word of clauses that give a name: the field, and what the name is."""


def _drawn_over(line: Line, known: list[str]) -> tuple[str, ...]:
    if not line.accept("over"):
        line.fail_unknown("how random numbers differ", line.peek(), ["over", "alike"])
    return _axes(line, known)


def _source(line: Line) -> Location:
    """`"FILE":LINE:COLUMN-LINE:COLUMN pointer "POINTER" text "TEXT"`, everything after FILE optional."""
    path = line.string("a file")
    numbers: list[int | None] = [None, None, None, None]
    for position in (0, 1):
        if not line.accept(":"):
            break
        numbers[position] = line.integer("line" if position == 0 else "column", 0, 2**62)
    if line.accept("to"):
        numbers[2] = line.integer("line", 0, 2**62)
        if line.accept(":"):
            numbers[3] = line.integer("column", 0, 2**62)
    pointer = line.string("a pointer") if line.accept("pointer") else ""
    text = line.string("a line of source") if line.peek()[:1] == '"' else ""
    return Location(path, numbers[0], numbers[1], numbers[2], numbers[3], pointer, text)
