"""What a certificate holds, and the file it is kept in.

A file is one line, `tvlint certificate 1 sha256:<digest>`, and then, gzip-compressed, one JSON object, whose digest that is.
Nothing in it is believed: it names terms, relations and where they hold, and `tvlint.certificate.check` establishes each.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from tvlint.ir.plan import Box
from tvlint.readers.bounds import bounded_memory

VERSION = 1
LARGEST = 1 << 26
"""How many bytes a certificate may have when it is unpacked."""

_MEMORY = 1 << 31
"""By how many bytes the process may grow while a certificate is read."""

ABSENT = -1
"""In a trail: a gradient that is received and that nothing produces."""

Coefficient: TypeAlias = "int | Fraction"

_FIRST_LINE = re.compile(rb"tvlint certificate ([0-9]{1,4}) sha256:([0-9a-f]{64})\n")


class CertificateError(Exception):
    """The file is not a certificate, or not whole; the message says why."""


class Term(NamedTuple):
    """A logical value: an operator, with all that determines it, on terms; `slot` is the dimension of the batch, or -1."""

    head: tuple[Any, ...]
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    slot: int


class Open(NamedTuple):
    """A sum that is not complete: indices `low:high` of `size` of dimension `number` of the contraction that makes `origin`."""

    origin: int
    number: int
    low: int
    high: int
    size: int
    one_replica: bool
    one_micro_batch: bool


class Fold(NamedTuple):
    """What was put together in another way than by adding has seen the indices `seen` of those of a dimension that count.

    `max`: the greatest over them, of dimension `number`. `merge`: attention over these keys. `gradient`: what merging gives to
    the attention over these keys. `size` indices count; `seen` are intervals in order that neither overlap nor touch.
    """

    kind: str
    number: int
    seen: tuple[tuple[int, int], ...]
    size: int


class Part(NamedTuple):
    """A multiple of contributions to a term (by the paths that linear operators took them), as far as their sums went.

    With a fold it is all there is: the relation then has no other part, and no paths.
    """

    paths: frozenset[int]
    coefficient: Coefficient
    sums: frozenset[Open]
    fold: Fold | None = None


class Relation(NamedTuple):
    """A local tensor is `coefficient` times a box of a term; or, with parts, what they add up to."""

    term: int
    box: Box
    coefficient: Coefficient
    parts: frozenset[Part]


Path: TypeAlias = "tuple[str, tuple[int, ...], int, int]"
"""`whole`: the term; `part`: its own contraction; `through`: what the paths contribute, through operand `position`."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """The relations of one plan: for (rank, step), the trail of relations that its operators make, in order."""

    runs: dict[tuple[int, int], int]
    gradients: dict[tuple[int, str], int]
    """The final gradient of each weight on each rank, by the weight's name."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A proof as data."""

    files: tuple[tuple[str, str, str], ...]
    """Which plan (`parallel` or `reference`), file name and digest, of every file that was read."""
    variant: int
    """Which kind of replica of generated code the proof is of; 0: the first."""
    assume: tuple[str, ...]
    assumptions: tuple[str, ...]
    terms: tuple[Term, ...]
    paths: tuple[Path, ...]
    relations: tuple[Relation, ...]
    trails: tuple[tuple[int, ...], ...]
    reference: Derivation
    parallel: Derivation


def to_bytes(certificates: Sequence[Certificate]) -> bytes:
    """The file of a proof: one certificate for each kind of replica. What JSON has no word for does not verify."""
    text = _written(certificates)
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    body = packer.compress(text.encode()) + packer.flush()
    return f"tvlint certificate {VERSION} sha256:{hashlib.sha256(body).hexdigest()}\n".encode() + body


def _written(certificates: Sequence[Certificate]) -> str:
    plain = [
        {
            **{field.name: getattr(own, field.name) for field in fields(own)},
            "relations": [_relation_to_json(relation) for relation in own.relations],
            **{name: _derivation_to_json(getattr(own, name)) for name in ("reference", "parallel")},
        }
        for own in certificates
    ]
    return json.dumps(plain, separators=(",", ":"), default=str)


def _relation_to_json(own: Relation) -> list[Any]:
    folds = {part: [] if part.fold is None else [list(part.fold)] for part in own.parts}
    parts = [[sorted(part.paths), _ratio(part.coefficient), sorted(part.sums), *fold] for part, fold in folds.items()]
    return [own.term, [edge for bounds in own.box for edge in bounds], _ratio(own.coefficient), sorted(parts)]


def _ratio(number: Coefficient) -> list[int]:
    ratio = Fraction(number)
    return [ratio.numerator, ratio.denominator]


def _derivation_to_json(own: Derivation) -> dict[str, Any]:
    runs = [[rank, step, trail] for (rank, step), trail in sorted(own.runs.items())]
    return {"runs": runs, "gradients": [[rank, name, at] for (rank, name), at in sorted(own.gradients.items())]}


def from_bytes(data: bytes) -> tuple[Certificate, ...]:
    """The certificates in a file.

    Raises CertificateError for a file that is none, that was changed after it was written, or that is larger than any real one.
    """
    first = _FIRST_LINE.match(data)
    if first is None:
        raise CertificateError("the file does not start like a certificate")
    if int(first[1]) != VERSION:
        raise CertificateError(f"the certificate has version {int(first[1])}, and version {VERSION} is what is read here")
    body = data[first.end() :]
    if hashlib.sha256(body).hexdigest().encode() != first[2]:
        raise CertificateError("the certificate was changed after it was written: its content has another digest than it says")
    unpacker = zlib.decompressobj(31)
    try:
        text = unpacker.decompress(body, LARGEST)
    except zlib.error:
        raise CertificateError("the certificate cannot be unpacked") from None
    if unpacker.unconsumed_tail:
        raise CertificateError(f"the certificate has more than {LARGEST >> 20} MiB")
    if not unpacker.eof or unpacker.unused_data:
        raise CertificateError("the certificate is cut off, or something follows it")
    with bounded_memory(_MEMORY):
        try:
            return _certificates(text)
        except MemoryError:
            raise CertificateError("the certificate needs more memory than any real one") from None


def _certificates(text: bytes) -> tuple[Certificate, ...]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CertificateError("the certificate is not valid JSON") from None
    try:
        if not isinstance(found, list) or not found:
            raise CertificateError("the certificate is empty")
        made = tuple(_certificate(each) for each in found)
        if _written(made).encode() != text:
            raise CertificateError("the certificate is written in another way than certificates are")
        return made
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, AttributeError, RecursionError, OverflowError):
        raise CertificateError("the certificate has not the form of one") from None


_FIELDS = {field.name for field in fields(Certificate)}


def _certificate(found: Any) -> Certificate:
    if not isinstance(found, dict) or set(found) != _FIELDS:
        raise CertificateError("the certificate has not the fields of one")
    return Certificate(
        files=tuple((_text(plan), _text(name), _text(digest)) for plan, name, digest in found["files"]),
        variant=_number(found["variant"]),
        assume=tuple(map(_text, found["assume"])),
        assumptions=tuple(map(_text, found["assumptions"])),
        terms=tuple(_term(*term) for term in found["terms"]),
        paths=tuple((_text(kind), _numbers(base), _number(term), _number(at)) for kind, base, term, at in found["paths"]),
        relations=tuple(_relation(*relation) for relation in found["relations"]),
        trails=tuple(_numbers(trail) for trail in found["trails"]),
        reference=_derivation(**found["reference"]),
        parallel=_derivation(**found["parallel"]),
    )


def _term(head: Any, operands: Any, shape: Any, slot: Any) -> Term:
    frozen = _frozen(head, 16)
    if not isinstance(frozen, tuple) or not frozen:
        raise TypeError(frozen)
    return Term(frozen, _numbers(operands), _numbers(shape), _number(slot))


def _frozen(value: Any, depth: int) -> Any:
    if isinstance(value, list) and depth:
        return tuple(_frozen(entry, depth - 1) for entry in value)
    if isinstance(value, int | float | str | None):
        return value
    raise TypeError(value)


def _relation(term: Any, edges: Any, coefficient: Any, parts: Any) -> Relation:
    flat = _numbers(edges)
    box = tuple(zip(flat[::2], flat[1::2], strict=True))
    return Relation(_number(term), box, _fraction(*coefficient), frozenset(_part(*part) for part in parts))


def _part(paths: Any, coefficient: Any, sums: Any, fold: Any = None) -> Part:
    made = None if fold is None else _fold(*fold)
    return Part(frozenset(_numbers(paths)), _fraction(*coefficient), frozenset(_open(*each) for each in sums), made)


def _fold(kind: Any, number: Any, seen: Any, size: Any) -> Fold:
    intervals = tuple((_number(low), _number(high)) for low, high in seen)
    return Fold(_text(kind), _number(number), intervals, _number(size))


def _open(origin: Any, number: Any, low: Any, high: Any, size: Any, replica: Any, micro_batch: Any) -> Open:
    if not isinstance(replica, bool) or not isinstance(micro_batch, bool):
        raise TypeError(replica)
    numbers = (_number(origin), _number(number), _number(low), _number(high), _number(size))
    return Open(*numbers, replica, micro_batch)


def _fraction(above: Any, below: Any) -> Coefficient:
    ratio = Fraction(_number(above), _number(below))
    return ratio.numerator if ratio.denominator == 1 else ratio


def _derivation(runs: Any, gradients: Any) -> Derivation:
    ran = {(_number(rank), _number(step)): _number(trail) for rank, step, trail in runs}
    final = {(_number(rank), _text(name)): _number(at) for rank, name, at in gradients}
    return Derivation(ran, final)


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(values)
    return tuple(_number(value) for value in values)


def _number(value: Any) -> int:
    if type(value) is not int or not -1 << 62 < value < 1 << 62:
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
