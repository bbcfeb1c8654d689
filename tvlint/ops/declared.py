"""Operators that a project declares in its configuration: annotated, not interpreted.

A declared operator carries its declaration in its name, `declared(b l^ h -> b l^ h|0).model.my_norm`, so that whoever looks
it up in the operator table finds what was declared, and nothing else decides what a plan means. The declaration is an
assumption, which every verdict that uses it lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tvlint.ir.operators import Literal, Value
from tvlint.ops.spec import ONE, Bound, Call, Family, Names, OpSpec, Shape, UnsupportedError

PREFIX = "declared("
_NAME = re.compile(r"(?:[A-Za-z_]\w*|1|\*)(?:[+^]?)", re.ASCII)
_FACTOR = re.compile(r"[A-Za-z_]\w*[+^]?|[1-9]\d{0,8}", re.ASCII)
_TOKEN = re.compile(r"\([^()]*\)|\S+")
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
    """An annotation, taken apart: the dimensions of operands and results, `*` for any number of leading ones.

    A dimension that is several in brackets has the name `(h d)`, and `factors` has what its size is the product of.
    """

    operands: tuple[Names, ...]
    outputs: tuple[Names, ...]
    reduced: frozenset[str]
    whole: frozenset[str]
    factors: Mapping[str, Names] = field(default_factory=dict)


def parse(text: str) -> Annotation:
    """The parts of an annotation. Raises AnnotationError."""
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise AnnotationError("an annotation has one `->` between operands and results")
    reduced, whole, factors = set[str](), set[str](), dict[str, Names]()
    sides = [tuple(_tensor(part, reduced, whole, factors) for part in side.split(",")) for side in (left, right)]
    operands, outputs = sides
    _brackets_apart({name for side in sides for names in side for name in names}, whole, factors)
    made = {name for names in outputs for name in names}
    given = {name for names in operands for name in names}
    single = given | {factor for name in given for factor in factors.get(name, ())}
    for name in sorted(made - {ONE} - single - {name for name, own in factors.items() if _names_in(own) <= single}):
        raise AnnotationError(f"the dimension `{name}` of a result is in no operand, so its size is not known")
    for names in operands:
        for name in names:
            if name not in made and name not in reduced | whole | {ONE}:
                raise AnnotationError(
                    f"the dimension `{name}` is in no result: mark it `{name}+` if it is summed over, else `{name}^`"
                )
    if reduced & made:
        raise AnnotationError(f"the dimension `{min(reduced & made)}` is summed over and is in a result")
    return Annotation(operands, outputs, frozenset(reduced), frozenset(whole), factors)


def _names_in(factors: Names) -> set[str]:
    return {factor for factor in factors if not factor.isdecimal()}


def _brackets_apart(names: set[str], whole: set[str], factors: Mapping[str, Names]) -> None:
    """Raises AnnotationError where a dimension stands in brackets and elsewhere too, and may be split."""
    for bracket, own in factors.items():
        for factor in sorted(_names_in(own)):
            places = {name for name in names if name == factor or factor in factors.get(name, ())}
            if len(places) > 1 and not places <= whole:
                raise AnnotationError(
                    f"`{factor}` stands in `{bracket}` and elsewhere, where tvlint cannot follow a split: mark it `{factor}^`"
                )


def _bracket(text: str, reduced: set[str], whole: set[str], factors: dict[str, Names]) -> str:
    """The name of a dimension that is several in one, as in `(h d)`."""
    parts = text[1:-1].split()
    if not parts or not all(_FACTOR.fullmatch(part) for part in parts):
        raise AnnotationError(f"`{text[:40]}` is not understood; in brackets stand dimensions and numbers")
    marks = {"^" if part.isdecimal() else part[len(part.rstrip("+^")) :] for part in parts}
    if len(marks) != 1:
        raise AnnotationError(
            f"the dimensions in `{text[:40]}` are marked differently, where tvlint cannot follow a split: mark all of them, "
            "or none; a number counts as marked `^`"
        )
    own = tuple(part.rstrip("+^") for part in parts)
    name = f"({' '.join(own)})"
    factors[name] = own
    reduced.update({name} if marks == {"+"} else ())
    whole.update({name} if marks == {"^"} else ())
    return name


def _tensor(text: str, reduced: set[str], whole: set[str], factors: dict[str, Names]) -> Names:
    names = []
    for token in _TOKEN.findall(text):
        if token.startswith("(") and token.endswith(")"):
            names.append(_bracket(token, reduced, whole, factors))
            continue
        if not _NAME.fullmatch(token):
            raise AnnotationError(
                f"`{token[:40]}` is not understood; a dimension is a name, `*` or `1`, with `+` or `^` after it"
            )
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
    said = f"`{name}` computes what `{other}` does, as the configuration says"
    if spec.family is Family.INERT:
        return replace(spec, assumption=f"`{name}` changes nothing that the model uses, as the configuration says")

    def bind(call: Call) -> Bound:
        bound = spec.bind(replace(call, op=other))
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

        sizes = _sizes(annotation, shapes, call)
        literals = tuple((i, _exact(operand.value)) for i, operand in enumerate(call.inputs) if isinstance(operand, Literal))
        return Bound(
            tuple(map(full, annotation.operands)),
            tuple(map(full, annotation.outputs)),
            all_of(annotation.reduced),
            whole=all_of(annotation.whole),
            linear=linear,
            attributes=(literals, tuple((key, _exact(value)) for key, value in sorted(call.attributes.items()))),
            sizes=sizes,
        )

    return bind


def _sizes(annotation: Annotation, shapes: Sequence[Shape], call: Call) -> dict[str, int]:
    """The sizes of dimensions that only results have: those that stand in brackets elsewhere, or whose parts do."""
    if not annotation.factors:
        return {}
    known: dict[str, int] = {}
    for names, shape in zip(annotation.operands, shapes, strict=True):
        known.update((name, size) for name, size in zip(reversed(names), reversed(shape), strict=False) if name != _STAR)
    for name, own in annotation.factors.items():
        size = known.get(name)
        told = prod(int(factor) if factor.isdecimal() else known.get(factor, 1) for factor in own)
        open_ = [factor for factor in own if not factor.isdecimal() and factor not in known]
        if size is not None and (size % told or (not open_ and size != told)):
            raise UnsupportedError(f"`{_own(call.op)}` has a dimension of {size}, which is not the declared `{name}`")
        if size is not None and len(open_) == 1:
            known[open_[0]] = size // told
        elif size is None and not open_:
            known[name] = told
    made = {name for names in annotation.outputs for name in names if name not in (_STAR, ONE)}
    unknown = sorted(made - known.keys())
    if unknown:
        raise UnsupportedError(f"the size of `{unknown[0]}` in a result of `{_own(call.op)}` does not follow from its operands")
    return {name: known[name] for name in made - {name for names in annotation.operands for name in names}}


def _exact(value: Value) -> Value:
    """A constant that equals no other: code that is not known may tell 1 from 1.0, from True, and 0.0 from -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value).__name__, repr(value)) if isinstance(value, bool | float) else value


def _own(op: str) -> str:
    return op.partition(").")[2] or op
