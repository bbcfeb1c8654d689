"""Operators that a project declares in its configuration: annotated, not interpreted.

A declared operator carries its declaration in its name, `declared(b l^ h -> b l^ h|0).model.my_norm`, so that whoever looks
it up in the operator table finds what was declared, and nothing else decides what a plan means. The declaration is an
assumption, which every verdict that uses it lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import TypeAlias

from tvlint.ir.operators import Literal, Value
from tvlint.ops.spec import DRAWS, ONE, Bound, Call, Drawn, Family, Names, OpSpec, Shape, UnsupportedError
from tvlint.plurals import counted

PREFIX = "declared("
_FACTOR = re.compile(r"(?:[A-Za-z_]\w*|[1-9]\d{0,8})[+^]?", re.ASCII)
_TOKEN = re.compile(r"\([^()]*\)|[^\s()]+|[()]")
STAR = "*"
_ANY = "?"
_RANDOM = "random"
_MOST_DIMENSIONS = 64

Sizes: TypeAlias = tuple[Names, ...]
"""The dimensions of a tensor, each as what its size is the product of: names and numbers; one of both but in brackets."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One `[[operator]]`: the function's name, with or without its module, and what it means.

    `annotation` names the dimensions of its tensors as nnScaler does (`b l^ h, h -> b l^ h`). `linear` are sets of operands,
    by position among the tensors, in each of which it is linear. `random` says that it draws random numbers. `same_as` is an
    operator of the table instead.
    """

    name: str
    annotation: str = ""
    linear: tuple[tuple[int, ...], ...] = ()
    same_as: str = ""
    random: bool = False


class AnnotationError(Exception):
    """The annotation does not say what the operator table needs; the message says why."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation, taken apart: the dimensions of operands and results; None for one that is `?`, which is never split.

    `reduced` are the names that are summed over, `whole` those that are never split. A name is marked wherever it stands.
    """

    operands: tuple[Sizes | None, ...]
    outputs: tuple[Sizes | None, ...]
    reduced: frozenset[str]
    whole: frozenset[str]


def parse(text: str) -> Annotation:
    """Return the parts of an annotation. Raises AnnotationError."""
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise AnnotationError("an annotation has one `->` between operands and results")
    marks: dict[str, set[str]] = {}
    operands, outputs = (tuple(_tensor(part, marks) for part in side.split(",")) for side in (left, right))
    made, given = _names_of(outputs), _names_of(operands)
    for name in sorted(made - given):
        raise AnnotationError(f"the dimension `{name}` of a result is in no operand, so its size is not known")
    for name in sorted(given - made):
        if not marks[name]:
            raise AnnotationError(
                f"the dimension `{name}` is in no result: mark it `{name}+` if it is summed over, else `{name}^`"
            )
    reduced = frozenset(name for name, names in marks.items() if names == {"+"})
    if reduced & made:
        raise AnnotationError(f"the dimension `{min(reduced & made)}` is summed over and is in a result")
    whole = frozenset(name for name, names in marks.items() if "^" in names)
    for tensor in (*operands, *outputs):
        names = [name for names in tensor or () for name in names if not name.isdecimal()]
        twice = next((name for name in names if names.count(name) > 1 and name not in whole), None)
        if twice is not None:
            raise AnnotationError(f"the dimension `{twice}` stands twice in a tensor: mark it `{twice}^`, and it is not split")
    return Annotation(operands, outputs, reduced, whole)


def _names_of(tensors: Sequence[Sizes | None]) -> set[str]:
    """Return the names in tensors; numbers are none."""
    return {name for tensor in tensors for names in tensor or () for name in names if not name.isdecimal()}


def _tensor(text: str, marks: dict[str, set[str]]) -> Sizes | None:
    """Return the dimensions of one tensor, and note how their names are marked."""
    tokens = _TOKEN.findall(text)
    if [token.rstrip("^") for token in tokens] == [_ANY]:
        return None
    found: list[Names] = []
    for token in tokens:
        parts = token[1:-1].split() if token.startswith("(") and token.endswith(")") else [token]
        if not parts or (len(parts) > 1 and STAR in "".join(parts)) or not all(map(_is_factor, parts)):
            help = "in brackets stand names and numbers" if token.startswith("(") else "a dimension is a name, a number or `*`"
            raise AnnotationError(f"`{token[:40]}` is not understood; {help}, with `+` or `^` after it")
        for part in parts:
            name = part.rstrip("+^")
            marks.setdefault(name, set()).update(part[len(name) :])
        found.append(tuple(part.rstrip("+^") for part in parts))
    if not found or len(found) > _MOST_DIMENSIONS:
        raise AnnotationError("a tensor without dimensions" if not found else f"a tensor of {counted(len(found), 'dimension')}")
    if found.count((STAR,)) > 1:
        raise AnnotationError("`*` stands for any number of dimensions, and once in a tensor")
    return tuple(found)


def _is_factor(part: str) -> bool:
    return _FACTOR.fullmatch(part) is not None or part.rstrip("+^") == STAR


def without_brackets(annotation: Annotation) -> str:
    """Return the annotation of the same function on tensors in which each name in brackets is a dimension of its own."""

    def sizes_text(tensor: Sizes | None) -> str:
        if tensor is None:
            return _ANY
        return " ".join(name + _mark(name, annotation) for name in chain(*tensor))

    return f"{', '.join(map(sizes_text, annotation.operands))} -> {', '.join(map(sizes_text, annotation.outputs))}"


def _mark(name: str, annotation: Annotation) -> str:
    return "+" if name in annotation.reduced else "^" if name in annotation.whole else ""


def declared_name(op: str, declared: Declared) -> str:
    """Return the name of the function `op` that carries its declaration."""
    linear = ";".join(",".join(map(str, positions)) for positions in declared.linear)
    drawn = f"|{_RANDOM}" if declared.random else ""
    said = f"={declared.same_as}" if declared.same_as else f"{declared.annotation}|{linear}{drawn}"
    return f"{PREFIX}{said}).{op}"


def redeclared(op: str, annotation: str) -> str:
    """Return the name of a declared operator with another annotation."""
    said, name = apart(op)
    _, *rest = said.split("|")
    return f"{PREFIX}{'|'.join((annotation, *rest))}).{name}"


def spec_of_declared(op: str, known: Callable[[str], OpSpec | None]) -> OpSpec | None:
    """Return the meaning that the name of a declared operator carries; `known` is the operator table."""
    said, name = apart(op)
    if not name or op == said:
        return None
    if said.startswith("="):
        spec = known(said[1:])
        return None if spec is None else _same(spec, name, said[1:])
    annotation, linear, random = (*said.split("|"), "", "")[:3]
    try:
        parsed = parse(annotation)
        sets = tuple(frozenset(map(int, part.split(","))) for part in linear.split(";") if part)
    except (AnnotationError, ValueError):
        return None
    assumption = f"`{name}` is the function its declaration describes: {annotation.strip()}{_stated_in(sets)}"
    if random:
        assumption = f"{assumption}, with random numbers; {DRAWS}"
    return OpSpec(name, (op,), _binding(parsed, sets, bool(random)), assumption=assumption, may_draw=bool(random))


def apart(op: str) -> tuple[str, str]:
    """Return what the name of a declared operator says, and the function that it is about; nothing for other names."""
    said, closed, name = op.removeprefix(PREFIX).partition(").") if op.startswith(PREFIX) else ("", "", "")
    while closed and said.count("(") > said.count(")"):
        more, closed, name = name.partition(").")
        said = f"{said}).{more}"
    return (said, name) if closed else ("", "")


def with_plain_names(text: str) -> str:
    """Return a message in which declared operators between backticks have the names that the code calls them by."""
    if PREFIX not in text:
        return text
    return "`".join(apart(part)[1] or part for part in text.split("`"))


def _stated_in(linear: Sequence[frozenset[int]]) -> str:
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


def _binding(annotation: Annotation, linear: tuple[frozenset[int], ...], random: bool) -> Callable[[Call], Bound]:
    unsplit = annotation.whole | _joined(annotation)

    def bind(call: Call) -> Bound:
        given = operands_of(annotation, call)
        stars = _stars(given, call)
        operands, outputs, sizes = [], [], dict[str, int]()
        whole = {name for name in annotation.whole | unsplit if name != STAR}
        for position, (tensor, shape) in enumerate(given):
            names = _dimensions(tensor, stars, f"{position}", len(shape))
            whole.update(name for name, given_size in names if given_size is None or _is_whole(given_size, annotation, unsplit))
            for (name, _), size in zip(names, shape, strict=True):
                if name == ONE and size != 1:
                    raise UnsupportedError(f"operand {position} of `{_own(call.op)}` has shape {shape}, and 1 is declared")
                same = sizes.setdefault(name.partition("~")[0], size)
                if sizes.setdefault(name, size) != size or ("~" in name and same != size):
                    raise UnsupportedError(f"`{_own(call.op)}` has `{name}` of {size} and of {same}")
            operands.append(tuple(name for name, _ in names))
        known = solved(annotation, given, call)
        for position, tensor in enumerate(annotation.outputs):
            if tensor is None:
                raise UnsupportedError(f"a result of `{_own(call.op)}` is `?`: its size does not follow from its operands")
            names = _dimensions(tensor, stars, f"o{position}", len(tensor) - 1 + len(stars))
            whole.update(name for name, given_size in names if given_size is None or _is_whole(given_size, annotation, unsplit))
            for name, given_size in names:
                if given_size is not None and given_size != (ONE,) and name not in sizes:
                    sizes[name] = size_of(given_size, known, call)
            outputs.append(tuple(name for name, _ in names))
        made = {name for names in outputs for name in names if name != ONE}
        literals = tuple((i, _exact(operand.value)) for i, operand in enumerate(call.inputs) if isinstance(operand, Literal))
        pairs = zip((given_size for given_size, _ in given), operands, strict=True)
        reduced = frozenset(name for tensor, names in pairs for name in _reduced(tensor, names, annotation))
        numbers = Drawn(operands[0], (0,), linear) if random and operands else None
        return Bound(
            tuple(operands),
            tuple(outputs),
            reduced - whole,
            whole=frozenset(whole) | (frozenset(stars) if STAR in annotation.whole else frozenset()),
            linear=() if random else linear,
            attributes=(literals, tuple((key, _exact(value)) for key, value in sorted(call.attributes.items()))),
            sizes={name: sizes[name] for name in made - {name for names in operands for name in names} if name in sizes},
            draws=numbers,
        )

    return bind


def operands_of(annotation: Annotation, call: Call) -> list[tuple[Sizes | None, Shape]]:
    """Return the dimensions of each tensor of a call, with its shape; a constant may stand where an annotation has `?`.

    Raises UnsupportedError.
    """
    places = list(call.inputs)
    if len(places) != len(annotation.operands):
        places = [place for place in places if not isinstance(place, Literal)]
    if len(places) != len(annotation.operands):
        said = f"`{_own(call.op)}` is used with {counted(len(places), 'tensor')} and declared with {len(annotation.operands)}"
        raise UnsupportedError(said)
    found: list[tuple[Sizes | None, Shape]] = []
    for position, (tensor, sizes) in enumerate(zip(annotation.operands, places, strict=True)):
        if isinstance(sizes, Literal):
            if tensor is not None:
                raise UnsupportedError(f"operand {position} of `{_own(call.op)}` is a constant, and a tensor is declared")
            continue
        found.append((tensor, sizes))
    return found


def _stars(given: Sequence[tuple[Sizes | None, Shape]], call: Call) -> Names:
    """Return the names of the dimensions that `*` stands for; raises UnsupportedError where shapes do not fit."""
    count: int | None = None
    for position, (tensor, shape) in enumerate(given):
        if tensor is None:
            continue
        starred = (STAR,) in tensor
        extra = len(shape) - len(tensor) + starred
        if extra < 0 or (not starred and extra) or (starred and count not in (None, extra)):
            declared = " ".join("(" + " ".join(names) + ")" if len(names) > 1 else names[0] for names in tensor)
            said = f"operand {position} of `{_own(call.op)}` has shape {shape}, which is not the declared `{declared}`"
            raise UnsupportedError(said)
        count = extra if starred else count
    return tuple(f"*{number}" for number in range(count or 0))


def _dimensions(tensor: Sizes | None, stars: Names, place: str, rank: int) -> list[tuple[str, Names | None]]:
    """Return a name for each dimension of a tensor, and what it is declared as; None for one that is never split.

    A dimension that stands twice, or is a number, has a name of its own.
    """
    if tensor is None:
        return [(f"?{place}.{number}", None) for number in range(rank)]
    found: list[tuple[str, Names | None]] = []
    for names in tensor:
        if names == (STAR,):
            found += [(star, names) for star in stars]
            continue
        name = names[0] if len(names) == 1 else f"({' '.join(names)})"
        if name != ONE and all(part.isdecimal() for part in names):
            name = f"{name}#{place}.{len(found)}"
        times = sum(key.partition("~")[0] == name for key, _ in found)
        found.append((f"{name}~{times}" if times and name != ONE else name, names))
    return found


def _is_whole(names: Names, annotation: Annotation, unsplit: frozenset[str]) -> bool:
    """Return whether a dimension may not be split: a number, or one with a name in it that may not be."""
    if names in ((STAR,), (ONE,)):
        return False
    return all(part.isdecimal() for part in names) or any(part in unsplit or part.isdecimal() for part in names)


def _reduced(tensor: Sizes | None, names: Names, annotation: Annotation) -> Iterator[str]:
    """Yield the names of dimensions of a tensor that are summed over."""
    if tensor is None or (STAR,) in tensor:
        yield from (name for name in names if name in annotation.reduced)
        return
    for mark, name in zip(tensor, names, strict=True):
        if all(part in annotation.reduced for part in mark):
            yield name


def _joined(annotation: Annotation) -> frozenset[str]:
    """Return the names in brackets that a split would not follow: those that are marked unlike, or stand elsewhere."""
    tensors = [tensor for tensor in (*annotation.operands, *annotation.outputs) if tensor is not None]
    dims = {names for tensor in tensors for names in tensor}
    found: set[str] = set()
    for dim in dims:
        names = [name for name in dim if not name.isdecimal()]
        marks = {_mark(name, annotation) for name in names} | ({"^"} if len(names) < len(dim) else set())
        if len(dim) > 1 and (len(marks) > 1 or any(name in other for name in names for other in dims - {dim})):
            found.update(names)
    return frozenset(found)


def solved(annotation: Annotation, given: Sequence[tuple[Sizes | None, Shape]], call: Call) -> dict[str, int]:
    """Return the sizes of the names of an annotation, as far as the shapes of tensors and constants of those names say them.

    Raises UnsupportedError where they do not fit.
    """
    known: dict[str, int] = {}
    brackets: list[tuple[Names, int]] = []
    for tensor, shape in given:
        if tensor is None or (STAR,) in tensor:
            head = tensor.index((STAR,)) if tensor is not None else 0
            ends = [] if tensor is None else [*zip(tensor[:head], shape, strict=False)]
            ends += [] if tensor is None else [*zip(reversed(tensor[head + 1 :]), reversed(shape), strict=False)]
        else:
            ends = [*zip(tensor, shape, strict=True)]
        for term, size in ends:
            if len(term) > 1:
                brackets.append((term, size))
            elif term[0].isdecimal() and int(term[0]) != size:
                raise UnsupportedError(f"`{_own(call.op)}` has a dimension of {size}, which is not the declared `{term[0]}`")
            elif not term[0].isdecimal():
                known.setdefault(term[0], size)
    names = {name for names, _ in brackets for name in names} | _names_of(annotation.outputs)
    for name, value in call.attributes.items():
        if name in names and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            known.setdefault(name, value)
    for _ in brackets:
        for term, size in brackets:
            declared_size = prod(int(name) if name.isdecimal() else known.get(name, 1) for name in term)
            open_ = [name for name in term if not name.isdecimal() and name not in known]
            if size % declared_size or (not open_ and size != declared_size):
                text = " ".join(term)
                raise UnsupportedError(f"`{_own(call.op)}` has a dimension of {size}, which is not the declared `({text})`")
            if len(set(open_)) == 1 and len(open_) == 1:
                known[open_[0]] = size // declared_size
    return known


def size_of(names: Names, known: Mapping[str, int], call: Call) -> int:
    """Return the size of a dimension of a result. Raises UnsupportedError where it does not follow."""
    unknown = next((name for name in names if not name.isdecimal() and name not in known), None)
    if unknown is not None:
        raise UnsupportedError(f"the size of `{unknown}` in a result of `{_own(call.op)}` does not follow from its operands")
    return prod(int(name) if name.isdecimal() else known[name] for name in names)


def _exact(value: Value) -> Value:
    """Return a constant that equals no other: code that is not known may tell 1 from 1.0, from True, and 0.0 from -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return (type(value).__name__, repr(value)) if isinstance(value, bool | float) else value


def _own(op: str) -> str:
    return apart(op)[1] or op
