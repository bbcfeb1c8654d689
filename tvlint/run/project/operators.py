"""The `[[operator]]` tables of a project file: operators that the project's own code registers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tvlint.ir.location import Location
from tvlint.near_names import did_you_mean
from tvlint.ops.annotations.declared import AnnotationError, Declared, parse
from tvlint.plurals import counted

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


def declared_operators(
    written: Sequence[dict[str, Any]],
    tables: Sequence[dict[str, Any]],
    place: Callable[[int, str], Location],
    wrong: Callable[[Location, str, str], None],
) -> tuple[Declared, ...]:
    """Return the declarations in `tables`, the values by field name; `wrong` is called with what cannot be one, and where.

    `place` gives the place of a key in a table, or of the table.
    """
    found: list[Declared] = []
    for index, (given, values) in enumerate(zip(written, tables, strict=True)):
        if {key.replace("-", "_") for key in given} != values.keys():
            continue
        if "name" not in given:
            help = "it is the function's name in the code, with or without its module"
            wrong(place(index, ""), "an `[[operator]]` needs `name`", help)
        elif "annotation" not in given and "same-as" not in given:
            help = 'say what it does to the dimensions of its tensors: `annotation = "b l^ h -> b l^ h"`'
            wrong(place(index, ""), "an `[[operator]]` needs `annotation` or `same-as`", help)
        else:
            one = _declared(values, lambda key, index=index: place(index, key), wrong)  # type: ignore[misc]
            if one is not None and any(one.name == other.name for other in found):
                wrong(place(index, "name"), f"`{one.name}` is declared twice", "")
            elif one is not None:
                found.append(one)
    return tuple(found)


def _declared(
    values: dict[str, Any], place: Callable[[str], Location], wrong: Callable[[Location, str, str], None]
) -> Declared | None:
    from tvlint.ops.kernels import communicates
    from tvlint.ops.table import has_no_effect, row_of

    name, annotation, linear = values["name"], values.get("annotation", ""), values.get("linear_in", ())
    same_as = values.get("same_as", "")
    if not _NAME.fullmatch(name):
        wrong(
            place("name"),
            f"`{name[:80]}` is no name of a function",
            "write it as the code calls it: `my_norm` or `package.module.my_norm`",
        )
        return None
    if known := _known(name):
        wrong(place("name"), f"`{name}` is an operator that tvlint knows", f"leave the declaration out; it is `{known}`")
        return None
    if communicates(name):
        wrong(place("name"), f"`{name}` exchanges values with other ranks, which no declaration says", "leave it out")
        return None
    if same_as:
        if annotation or linear or values.get("arguments") or values.get("random"):
            said = "`same-as` says everything: leave `annotation`, `arguments`, `linear-in` and `random` out"
            wrong(place("same-as"), said, "")
            return None
        if not _known(same_as):
            wrong(place("same-as"), f"`{same_as[:80]}` is no operator that tvlint knows", did_you_mean(same_as, _names()))
            return None
        if has_no_effect(same_as) and (row := row_of(name)) is not None:
            kinds = ", ".join(sorted(trait.value for trait in row.traits))
            said = f"`{name}` is known as a function with an effect" + (f" ({kinds})" if kinds else "")
            wrong(place("same-as"), said, f"only a call without any is the same as `{same_as}`")
            return None
        return Declared(name, same_as=same_as)
    try:
        parsed = parse(annotation)
    except AnnotationError as error:
        wrong(place("annotation"), str(error), "the syntax is that of nnScaler's annotations: `b l^ h, h -> b l^ h`")
        return None
    arguments, count = values.get("arguments", ()), len(parsed.operands)
    if arguments and (len(arguments) != count or len(set(arguments)) != count):
        said = (
            f"the declaration lists {counted(len(arguments), 'argument')}, and the annotation has {counted(count, 'operand')}"
        )
        wrong(place("arguments"), said, "name the tensors, each once, in the order of the annotation; leave constants out")
        return None
    positions = tuple(tuple(_position(one, arguments) for one in one_set) for one_set in linear)
    beyond = next(
        (
            one
            for names, found in zip(linear, positions, strict=True)
            for one, at in zip(names, found, strict=True)
            if at >= count
        ),
        None,
    )
    if beyond is not None:
        said = f"there is no operand {beyond}: the annotation has {count}, counted from 0"
        if isinstance(beyond, str):
            said = f"there is no operand `{beyond[:80]}` in `arguments`" if arguments else f"`{beyond[:80]}` needs `arguments`"
        wrong(place("linear-in"), said, 'such as `arguments = ["x", "weight"]`' if isinstance(beyond, str) else "")
        return None
    return Declared(name, annotation, positions, random=values.get("random", False))


def _position(operand: int | str, arguments: Sequence[str]) -> int:
    """Return where an operand stands among the tensors; beyond them all where there is none of the name."""
    if isinstance(operand, int):
        return operand
    return arguments.index(operand) if operand in arguments else sys.maxsize


def _known(name: str) -> str:
    """Return the operator of a framework that `name` is; empty where tvlint knows none, or only the name of an author's
    function.
    """
    from tvlint.ops.table import interpreted

    return interpreted(name)


def _names() -> tuple[str, ...]:
    from tvlint.ops.table import SPECS

    return tuple(key for spec in SPECS for key in (spec.name, *spec.signatures))
