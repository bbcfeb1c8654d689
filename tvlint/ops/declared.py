"""Operators that a project declares in its configuration: annotated, not interpreted.

A declared operator carries its declaration in its name, `declared(b l^ h -> b l^ h|0).model.my_norm`, so that whoever looks
it up in the operator table finds what was declared, and nothing else decides what a plan means. The declaration is an
assumption, which every verdict that uses it lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvlint.ir.plan import Literal, Value
from tvlint.ops.spec import ONE, Bound, Call, Names, OpSpec, UnsupportedError

PREFIX = "declared("
_NAME = re.compile(r"(?:[A-Za-z_]\w*|1|\*)(?:[+^]?)", re.ASCII)
_STAR = "*"
_MOST_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Declared:
    """One `[[operator]]`: the function's name, with or without its module, and what it means.

    `annotation` names the dimensions of its tensors as nnScaler does (`b l^ h, h -> b l^ h`). `linear` are sets of operands,
    by position among the tensors, in each of which it is linear. `same_as` is an operator of the table instead.
    """

    name: str
    annotation: str = ""
    linear: tuple[tuple[int, ...], ...] = ()
    same_as: str = ""


class AnnotationError(Exception):
    """The annotation does not say what the operator table needs; the message says why."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation, taken apart: the dimensions of operands and results, `*` for any number of leading ones."""

    operands: tuple[Names, ...]
    outputs: tuple[Names, ...]
    reduced: frozenset[str]
    whole: frozenset[str]


def parse(text: str) -> Annotation:
    """The parts of an annotation. Raises AnnotationError."""
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise AnnotationError("an annotation has one `->` between operands and results")
    reduced, whole = set[str](), set[str]()
    sides = [tuple(_tensor(part, reduced, whole) for part in side.split(",")) for side in (left, right)]
    operands, outputs = sides
    made = {name for names in outputs for name in names}
    for name in sorted(made - {ONE} - {name for names in operands for name in names}):
        raise AnnotationError(f"the dimension `{name}` of a result is in no operand, so its size is not known")
    for names in operands:
        for name in names:
            if name not in made and name not in reduced | whole | {ONE}:
                raise AnnotationError(
                    f"the dimension `{name}` is in no result: mark it `{name}+` if it is summed over, else `{name}^`"
                )
    if reduced & made:
        raise AnnotationError(f"the dimension `{min(reduced & made)}` is summed over and is in a result")
    return Annotation(operands, outputs, frozenset(reduced), frozenset(whole))


def _tensor(text: str, reduced: set[str], whole: set[str]) -> Names:
    names = []
    for token in text.split():
        if not _NAME.fullmatch(token):
            what = "dimensions in brackets are" if "(" in text or ")" in text else f"`{token[:40]}` is"
            raise AnnotationError(f"{what} not understood; a dimension is a name, `*` or `1`, with `+` or `^` after it")
        name = token.rstrip("+^")
        if token.endswith("+"):
            reduced.add(name)
        if token.endswith("^"):
            whole.add(name)
        names.append(name)
    if not names or len(names) > _MOST_DIMENSIONS:
        raise AnnotationError("a tensor without dimensions" if not names else f"a tensor of {len(names)} dimensions")
    if _STAR in names[1:]:
        raise AnnotationError("`*` stands for leading dimensions and comes first")
    if len(set(names) - {ONE}) != len([name for name in names if name != ONE]):
        raise AnnotationError(f"a dimension stands twice in `{text.strip()[:60]}`")
    return tuple(names)


def declared_name(op: str, declared: Declared) -> str:
    """The name of the function `op` that carries its declaration."""
    linear = ";".join(",".join(map(str, positions)) for positions in declared.linear)
    said = f"={declared.same_as}" if declared.same_as else f"{declared.annotation}|{linear}"
    return f"{PREFIX}{said}).{op}"


def spec_of_declared(op: str, known: Callable[[str], OpSpec | None]) -> OpSpec | None:
    """The meaning that the name of a declared operator carries; `known` is the operator table."""
    said, closed, name = op.removeprefix(PREFIX).partition(").")
    if not closed or not name or op == said:
        return None
    if said.startswith("="):
        spec = known(said[1:])
        return None if spec is None else _same(spec, name, said[1:])
    annotation, _, linear = said.partition("|")
    try:
        parsed = parse(annotation)
        sets = tuple(frozenset(map(int, part.split(","))) for part in linear.split(";") if part)
    except (AnnotationError, ValueError):
        return None
    assumption = f"`{name}` is the function its declaration describes: {annotation.strip()}{_told(sets)}"
    return OpSpec(name, (op,), _binding(parsed, sets), assumption=assumption)


def _told(linear: Sequence[frozenset[int]]) -> str:
    if not linear:
        return ""
    return ", linear in operand " + " and in ".join("+".join(map(str, sorted(positions))) for positions in linear)


def _same(spec: OpSpec, name: str, other: str) -> OpSpec:
    def bind(call: Call) -> Bound:
        bound = spec.bind(replace(call, op=other))
        said = f"`{name}` computes what `{other}` does, as the configuration says"
        return replace(bound, assumption=f"{said}; {bound.assumption}" if bound.assumption else said)

    return replace(spec, bind=bind)


def _binding(annotation: Annotation, linear: tuple[frozenset[int], ...]) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        shapes = [operand for operand in call.inputs if not isinstance(operand, Literal)]
        if len(shapes) != len(annotation.operands):
            raise UnsupportedError(
                f"`{_own(call.op)}` is used with {len(shapes)} tensors and declared with {len(annotation.operands)}"
            )
        leading: int | None = None
        for position, (names, shape) in enumerate(zip(annotation.operands, shapes, strict=True)):
            extra = len(shape) - len(names) + 1 if names[0] == _STAR else 0
            fits = extra >= 0 if names[0] == _STAR else len(shape) == len(names)
            if not fits or (names[0] == _STAR and leading not in (None, extra)):
                raise UnsupportedError(
                    f"operand {position} of `{_own(call.op)}` has shape {shape}, which is not the declared `{' '.join(names)}`"
                )
            leading = extra if names[0] == _STAR else leading
            for name, size in zip(reversed(names), reversed(shape), strict=False):
                if name == ONE and size != 1:
                    raise UnsupportedError(f"operand {position} of `{_own(call.op)}` has shape {shape}, and 1 is declared")
        stars = tuple(f"*{number}" for number in range(leading or 0))

        def full(names: Names) -> Names:
            return (*stars, *names[1:]) if names[0] == _STAR else names

        def all_of(marked: frozenset[str]) -> frozenset[str]:
            return (marked - {_STAR}) | (frozenset(stars) if _STAR in marked else frozenset())

        literals = tuple((i, _exact(operand.value)) for i, operand in enumerate(call.inputs) if isinstance(operand, Literal))
        return Bound(
            tuple(map(full, annotation.operands)),
            tuple(map(full, annotation.outputs)),
            all_of(annotation.reduced),
            whole=all_of(annotation.whole),
            linear=linear,
            attributes=(literals, tuple((key, _exact(value)) for key, value in sorted(call.attributes.items()))),
        )

    return bind


def _exact(value: Value) -> Value:
    """A constant that equals no other: code that is not known may tell 1 from 1.0, from True, and 0.0 from -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value).__name__, repr(value)) if isinstance(value, bool | float) else value


def _own(op: str) -> str:
    return op.partition(").")[2] or op
