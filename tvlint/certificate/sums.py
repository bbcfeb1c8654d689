"""Sums of relations: what contributions add up to, over ranks, replicas and micro-batches, or within one rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod

from tvlint.certificate.equal import sum_told
from tvlint.certificate.form import Coefficient, Fold, Open, Part, Relation
from tvlint.certificate.tables import Rejected, Tables
from tvlint.ir.plan import Box

_MOST_RANGES = 1024
"""Ranges of one contribution that are put together; more than there are ranks in a group that splits one sum."""


def fold_of(own: Relation) -> Fold | None:
    """What the relation has seen, where it was put together in another way than by adding."""
    return next((part.fold for part in own.parts if part.fold is not None), None)


def folded(tables: Tables, term: int, box: Box, kind: Fold, seen: Iterable[tuple[tuple[int, int], ...]]) -> Relation:
    """What has seen the indices of all of `seen` and is otherwise like `kind`: complete where these are all that count."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(interval for each in seen for interval in each):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    own = kind._replace(seen=tuple(joined))
    if own.kind != "gradient" and own.seen == ((0, own.size),):
        return tables.relation(term, box)
    return tables.relation(term, box, 1, frozenset({Part(frozenset(), 1, frozenset(), own)}))


def parts_of(tables: Tables, own: Relation) -> tuple[Part, ...]:
    """The parts of a relation, also of a complete one: a sum of gradients is one part for each of its terms.

    Rejects what is put together in another way than by adding.
    """
    if fold_of(own) is not None:
        raise Rejected("a maximum or attention over some indices is used as if it were the whole, or a sum")
    if own.parts:
        return tuple(own.parts)
    flat = (own.term,) if tables.has_path("whole", own.term) else tables.flat(own.term)
    paths = frozenset(tables.path("whole", (), term, 0) for term in flat)
    return (Part(paths, own.coefficient, frozenset()),)


def total(tables: Tables, term: int, box: Box, parts: Iterable[Part]) -> Relation:
    """What parts that together have every contribution to `term` add up to: complete if all are, with one coefficient.

    Paths are told as one only where they are alike in everything, so that each is in one set of paths and no other: the sets
    of a relation always make up the term, also after operators took each of them further as one.
    """
    amounts: dict[int, dict[frozenset[Open], Coefficient]] = {}
    for part in parts:
        if part.fold is not None:
            raise Rejected("a maximum or attention over some indices is added")
        sums = frozenset(own for own in part.sums if not _complete(own))
        for path in part.paths:
            own = amounts.setdefault(path, {})
            own[sums] = own.get(sums, 0) + part.coefficient
    alike: dict[frozenset[tuple[frozenset[Open], Coefficient]], set[int]] = {}
    for path, own in amounts.items():
        left = {sums: coefficient for sums, coefficient in own.items() if coefficient != 0} or dict(list(own.items())[:1])
        entries = ((sums, _whole_number(coefficient)) for sums, coefficient in _joined(left).items())
        alike.setdefault(frozenset(entries), set()).add(path)
    if len(alike) == 1:
        (entry, *more) = next(iter(alike))
        if not more and not entry[0]:
            return tables.relation(term, box, entry[1])
    made = (Part(frozenset(paths), coefficient, sums) for entries, paths in alike.items() for sums, coefficient in entries)
    return tables.relation(term, box, 1, frozenset(made))


def _whole_number(number: Coefficient) -> Coefficient:
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


def _complete(own: Open) -> bool:
    return (own.low, own.high) == (0, own.size) and not own.one_replica and not own.one_micro_batch


def _joined(amounts: dict[frozenset[Open], Coefficient]) -> dict[frozenset[Open], Coefficient]:
    """The ranges of one contribution as one range, where they fill it without overlap, with one coefficient."""
    if not 2 <= len(amounts) <= _MOST_RANGES or len(set(amounts.values())) > 1:
        return amounts
    cells = [{own._replace(low=0, high=0): (own.low, own.high) for own in sums} for sums in amounts]
    dims = list(cells[0])
    if any(len(cell) != len(sums) or cell.keys() != cells[0].keys() for cell, sums in zip(cells, amounts, strict=True)):
        return amounts
    hull = {dim: (min(cell[dim][0] for cell in cells), max(cell[dim][1] for cell in cells)) for dim in dims}
    volumes = [prod(cell[dim][1] - cell[dim][0] for dim in dims) for cell in cells]
    if sum(volumes) != prod(high - low for low, high in hull.values()):
        return amounts
    for i, one in enumerate(cells):
        if any(all(one[dim][0] < other[dim][1] and other[dim][0] < one[dim][1] for dim in dims) for other in cells[:i]):
            return amounts
    joined = (dim._replace(low=low, high=high) for dim, (low, high) in hull.items())
    return {frozenset(own for own in joined if not _complete(own)): next(iter(amounts.values()))}


def scaled(tables: Tables, own: Relation, factor: Coefficient) -> Relation:
    """The relation times a number."""
    if factor == 1:
        return own
    if not own.parts:
        return tables.relation(own.term, own.box, _whole_number(own.coefficient * factor))
    return total(tables, own.term, own.box, [part._replace(coefficient=part.coefficient * factor) for part in own.parts])


def moved(tables: Tables, own: Relation, term: int, position: int, box: Box, factor: Coefficient = 1) -> Relation:
    """The relation after an operator with result `term` that is linear in operand `position`, which was `own`.

    With factor 1, for a maximum or attention over some indices, the operator must move elements and do nothing else.
    """
    if factor == 1 and fold_of(own) is not None:
        return tables.relation(term, box, own.coefficient, own.parts)
    if not own.parts:
        return tables.relation(term, box, _whole_number(own.coefficient * factor))
    return total(tables, term, box, carried(tables, own, term, position, factor, frozenset()))


def carried(tables: Tables, own: Relation, term: int, position: int, factor: Coefficient, sums: frozenset[Open]) -> list[Part]:
    """The parts of `own` after an operator that is linear in it."""
    return [
        Part(frozenset({tables.path("through", part.paths, term, position)}), part.coefficient * factor, part.sums | sums)
        for part in parts_of(tables, own)
    ]


def added(tables: Tables, relations: Sequence[Relation]) -> Relation:
    """The element-wise sum of local tensors: of parts of one value, or of gradients of one tensor.

    Rejects sums in which one contribution could be told in two ways.
    """
    found = _added(tables, relations)
    return found if found.parts else tables.relation(sum_told(tables, found.term), found.box, found.coefficient)


def _added(tables: Tables, relations: Sequence[Relation]) -> Relation:
    if len(relations) == 1:
        return relations[0]
    if any(own.box != relations[0].box for own in relations):
        raise Rejected("different slices are added")
    by_term: dict[int, list[Relation]] = {}
    for own in relations:
        by_term.setdefault(own.term, []).append(own)
    summands = [_same_value(tables, own) for own in by_term.values()]
    if len(summands) == 1:
        return summands[0]
    flat = [term for own in summands for term in tables.flat(own.term)]
    term, box = tables.sum_of(flat), relations[0].box
    repeated = len(set(flat)) != len(flat)
    if not repeated and all(not own.parts and own.coefficient == 1 for own in summands):
        return tables.relation(term, box)
    if repeated and any(own.parts for own in summands):
        raise Rejected("a partial sum is added to what it is a part of")
    if repeated:
        whole = [(frozenset(tables.path("whole", (), term, 0) for term in tables.flat(own.term)), own) for own in summands]
        return total(tables, term, box, (Part(paths, own.coefficient, frozenset()) for paths, own in whole))
    parts = [parts_of(tables, own) for own in summands]
    seen: set[int] = set()
    for each in parts:
        paths = {path for part in each for path in part.paths}
        if seen & paths:
            raise Rejected("a contribution is added in two ways")
        seen |= paths
    return total(tables, term, box, (part for each in parts for part in each))


def _same_value(tables: Tables, relations: Sequence[Relation]) -> Relation:
    """The sum of relations to one term, which must have the same contributions, or be complete."""
    ways: dict[frozenset[int], list[Part]] = {}
    for own in [own for own in relations if own.parts or own.coefficient != 0] or relations[:1]:
        parts = parts_of(tables, own)
        ways.setdefault(frozenset(path for part in parts for path in part.paths), []).extend(parts)
    term, box = relations[0].term, relations[0].box
    sums = [total(tables, term, box, parts) for parts in ways.values()]
    if len(sums) == 1:
        return sums[0]
    if any(own.parts for own in sums):
        raise Rejected("parts of one value are added that it could be told in two ways")
    return tables.relation(term, box, _whole_number(sum((own.coefficient for own in sums), start=Fraction(0))))


def over_slots(tables: Tables, own: Relation, count: int, flag: str) -> Relation:
    """The sum over all replicas (`one_replica`) or all micro-batches (`one_micro_batch`) of what was derived for one."""
    if count == 1:
        return own
    if tables.terms[own.term].slot >= 0:
        raise Rejected("the parts that replicas or micro-batches have of a batch are added to each other")
    parts = []
    for part in parts_of(tables, own):
        here = [entry for entry in part.sums if getattr(entry, flag)]
        if len(here) > 1:
            raise Rejected("a sum over the batch is taken in more than one way")
        factor = 1 if here else count
        sums = (part.sums - set(here)) | {entry._replace(**{flag: False}) for entry in here}
        parts.append(Part(part.paths, part.coefficient * factor, sums))
    return total(tables, own.term, own.box, parts)
