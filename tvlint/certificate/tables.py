"""What a certificate names, by content: an operator that is checked looks up its term, and finds it or does not."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from tvlint.certificate.form import Certificate, Coefficient, Part, Path, Relation, Term
from tvlint.ir.plan import Box

SUM = ("sum of gradients",)
VIEW = ("view",)
VIEW_GRADIENT = ("view gradient",)
SHARE = "attention part gradient"
"""Gradients that merging gives to attention over some keys: of its result (0) and of its log-sum-exp (1)."""

_FOLDS = ("max", "merge", "gradient")


class Rejected(Exception):
    """The certificate does not hold, or says what the checker cannot check; the message says what."""


class Tables:
    """The terms, paths and relations of a certificate, and those that the checker adds on its way.

    A number that is looked up stands for its content and nothing else; a certificate that names one content twice is rejected.
    """

    def __init__(self, certificate: Certificate) -> None:
        self.terms: list[Term] = list(certificate.terms)
        self.paths: list[Path] = list(certificate.paths)
        self._term_of = {term: number for number, term in enumerate(self.terms)}
        self._path_of = {path: number for number, path in enumerate(self.paths)}
        self._relations = {relation: relation for relation in certificate.relations}
        self.relations = certificate.relations
        lists = (self._term_of, self.terms), (self._path_of, self.paths), (self._relations, self.relations)
        if any(len(found) != len(given) for found, given in lists):
            raise Rejected("the certificate names one thing twice")
        self._named = len(self.terms)
        self.assumptions: set[str] = set()
        """What terms that were taken for others rest on."""
        self._used_terms: set[int] = set()
        self._used_paths: set[int] = set()
        self._used_relations: set[int] = set()
        for number, term in enumerate(self.terms):
            if any(not 0 <= operand < number for operand in term.operands):
                raise Rejected(f"term {number} is made of terms that do not come before it")
            if not -1 <= term.slot < len(term.shape) or any(size < 1 for size in term.shape):
                raise Rejected(f"term {number} has no possible shape")
            if term.head == SUM and any(self.terms[operand].head == SUM for operand in term.operands):
                raise Rejected(f"term {number} is a sum of sums")
        for number, (_, bases, at, _) in enumerate(self.paths):
            if not 0 <= at < len(self.terms) or any(not 0 <= base < number for base in bases):
                raise Rejected(f"path {number} goes through what does not come before it")
        for number, relation in enumerate(self.relations):
            self._check_relation(number, relation)

    def _check_relation(self, number: int, own: Relation) -> None:
        shape = self.terms[own.term].shape if 0 <= own.term < len(self.terms) else None
        if shape is None or len(shape) != len(own.box):
            raise Rejected(f"relation {number} is of no term of its shape")
        if any(not 0 <= low < high <= size for (low, high), size in zip(own.box, shape, strict=True)):
            raise Rejected(f"relation {number} is of indices that its term does not have")
        if any(not 0 <= path < len(self.paths) for part in own.parts for path in part.paths):
            raise Rejected(f"relation {number} has a path that is not there")
        if any(not 0 <= entry.origin < len(self.terms) for part in own.parts for entry in part.sums):
            raise Rejected(f"relation {number} has a sum that is not there")
        for part in own.parts:
            if part.fold is not None and (len(own.parts) > 1 or not _is_fold(part) or own.coefficient != 1):
                raise Rejected(f"relation {number} has seen indices that are not there")

    def names(self, head: tuple[Any, ...], operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> bool:
        """Whether the certificate itself speaks of the term."""
        return self._term_of.get(Term(head, operands, shape, slot), self._named) < self._named

    def term(self, head: tuple[Any, ...], operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> int:
        """The number of the term with this content."""
        content = Term(head, operands, shape, slot)
        number = self._term_of.setdefault(content, len(self.terms))
        if number == len(self.terms):
            self.terms.append(content)
        self._used_terms.add(number)
        return number

    def path(self, kind: str, bases: Iterable[int], term: int, position: int) -> int:
        """The number of the path with this content."""
        content = (kind, tuple(sorted(bases)), term, position)
        number = self._path_of.setdefault(content, len(self.paths))
        if number == len(self.paths):
            self.paths.append(content)
        self._used_paths.add(number)
        return number

    def has_path(self, kind: str, term: int) -> bool:
        """Whether the certificate speaks of the path."""
        return (kind, (), term, 0) in self._path_of

    def relation(self, term: int, box: Box, coefficient: Coefficient = 1, parts: frozenset[Part] = frozenset()) -> Relation:
        """The one relation with this content: identity is equality."""
        content = Relation(term, box, coefficient, parts)
        return self._relations.setdefault(content, content)

    def claimed(self, number: int) -> Relation:
        """Relation `number` of the certificate."""
        if not 0 <= number < len(self.relations):
            raise Rejected(f"the certificate has no relation {number}")
        self._used_relations.add(number)
        return self.relations[number]

    def unused(self) -> str:
        """What the certificate says and nothing needed; empty where there is no such thing."""
        named = (("term", self._used_terms), ("path", self._used_paths), ("relation", self._used_relations))
        counts = {"term": len(self._term_of), "path": len(self._path_of), "relation": len(self.relations)}
        for what, used in named:
            if len(used) != counts[what]:
                return f"a {what} that nothing in the plans has"
        return ""

    def flat(self, term: int) -> tuple[int, ...]:
        """The terms that a sum of gradients adds; of any other term, itself."""
        own = self.terms[term]
        return own.operands if own.head == SUM else (term,)

    def sum_of(self, terms: Iterable[int]) -> int:
        """The sum of distinct terms that are no sums themselves."""
        flat = tuple(sorted(set(terms)))
        if len(flat) == 1:
            return flat[0]
        first = self.terms[flat[0]]
        if any((self.terms[term].shape, self.terms[term].slot) != (first.shape, first.slot) for term in flat):
            raise Rejected("gradients of different shapes are added")
        return self.term(SUM, flat, first.shape, first.slot)


def _is_fold(own: Part) -> bool:
    """Whether what the part says it has seen can be, and is all that it says."""
    if own.fold is None or own.paths or own.sums or own.fold.kind not in _FOLDS or own.fold.number < 0:
        return False
    edges = [edge for interval in own.fold.seen for edge in interval]
    return all(one < other for one, other in pairwise(edges)) and all(0 <= edge <= own.fold.size for edge in edges)
