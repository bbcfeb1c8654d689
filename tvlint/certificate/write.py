"""From a proof to its certificate: the relations of the prover, renumbered, with what they refer to and nothing else."""

from __future__ import annotations

from typing import Any

from tvlint.certificate.form import ABSENT, Certificate, Derivation, Fold, Open, Part, Path, Relation, Term
from tvlint.certificate.tables import SUM, VIEW, VIEW_GRADIENT
from tvlint.proof.machine import Derived
from tvlint.proof.prove import Proof
from tvlint.proof.relation import Value
from tvlint.proof.terms import GRADIENT_SUM


def certificate(
    proof: Proof,
    *,
    files: tuple[tuple[str, str, str], ...],
    variant: int,
    assume: frozenset[str],
    assumptions: tuple[str, ...],
) -> Certificate:
    """The proof as data."""
    writer = _Writer(proof)
    reference = writer.derivation(proof.reference, {})
    final = {key: value for key, value in proof.held.items() if isinstance(value, Value)}
    parallel = writer.derivation(proof.parallel, final)
    return Certificate(
        files,
        variant,
        tuple(sorted(assume)),
        assumptions,
        tuple(writer.terms),
        tuple(writer.paths),
        tuple(writer.relations),
        tuple(writer.trails),
        reference,
        parallel,
    )


_KINDS = {"whole": "whole", "from": "part"}
"""What the prover calls the ways in which a path begins."""


class _Writer:
    """The tables of one certificate, and which numbers of the prover's tables became which here."""

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self.steps = {number: path for path, number in proof.terms.paths()}
        self.terms: dict[Term, int] = {}
        self.numbered: list[Term] = []
        self.term_of: dict[int, int] = {}
        self.paths: dict[Path, int] = {}
        self.path_of: dict[int, int] = {}
        self.relations: dict[Relation, int] = {}
        self.relation_of: dict[int, int] = {}
        self.trails: dict[tuple[int, ...], int] = {}
        self._number_terms()

    def _number_terms(self) -> None:
        """Number what anything refers to, in the prover's order, in which all stands before what is made of it."""
        wanted: set[int] = set()
        tokens: set[int] = set()
        derived = (self.proof.reference, self.proof.parallel)
        listed = (value for own in derived for trail in own.trails.values() for value in trail)
        values = {id(value): value for value in listed if isinstance(value, Value)}
        values.update((id(value), value) for value in self.proof.held.values() if isinstance(value, Value))
        for value in values.values():
            wanted.add(value.term)
            for leaf in value.leaves:
                wanted.update(entry.origin for entry in leaf.pending)
                tokens.update(self._bases(leaf.token))
        for token in sorted(self.steps, reverse=True):
            if token in tokens:
                wanted.add(self.steps[token][1])
                tokens.update(self._before(token))
        for number in range(len(self.proof.terms.operands) - 1, -1, -1):
            if number in wanted:
                wanted.update(self.proof.terms.operands[number])
        for number in sorted(wanted):
            term = self._term(number)
            self.term_of[number] = self.terms.setdefault(term, len(self.terms))
            if len(self.terms) > len(self.numbered):
                self.numbered.append(term)
        for token in sorted(tokens):
            kind, (_, term, *position) = _KINDS.get(self.steps[token][0], "through"), self.steps[token]
            bases = tuple(sorted(self.path_of[base] for base in self._before(token)))
            path: Path = (kind, bases, self.term_of[term], position[0] if position else 0)
            self.path_of[token] = self.paths.setdefault(path, len(self.paths))

    def _before(self, token: int) -> tuple[int, ...]:
        """The paths that one path goes on from."""
        path = self.steps[token]
        return self._bases(path[0]) if len(path) == 3 else ()

    def _bases(self, token: int) -> tuple[int, ...]:
        """The paths that a joint one stands for."""
        path = self.steps[token]
        return tuple(sorted(path)) if isinstance(path, frozenset) else (token,)

    def _term(self, number: int) -> Term:
        terms = self.proof.terms
        head, operands = terms.keys[number], tuple(self.term_of[operand] for operand in terms.operands[number])
        if head[0] == GRADIENT_SUM:
            listed = self.numbered
            sums = {operand: listed[operand].operands for operand in operands if listed[operand].head == SUM}
            flat = (own for operand in operands for own in sums.get(operand, (operand,)))
            return Term(SUM, tuple(sorted(set(flat))), terms.shape[number], terms.slot[number])
        if head[0] in ("view", "view gradient"):
            head = VIEW if head[0] == "view" else VIEW_GRADIENT
        return Term(head, operands, terms.shape[number], terms.slot[number])

    def relation(self, value: Value) -> int:
        """The number of a relation."""
        known = self.relation_of.get(id(value))
        if known is None:
            parts = frozenset(
                Part(
                    frozenset(self.path_of[base] for base in self._bases(leaf.token)),
                    leaf.coefficient,
                    frozenset(Open(self.term_of[entry.origin], *entry[1:]) for entry in leaf.pending),
                )
                for leaf in value.leaves
            )
            own = Relation(self.term_of[value.term], value.box, value.coefficient, parts)
            if value.fold is not None:
                kind, number, covered, size = value.fold
                seen = Fold(kind, number if kind == "max" else 0, covered, size)
                own = own._replace(coefficient=1, parts=frozenset({Part(frozenset(), value.coefficient, frozenset(), seen)}))
            known = self.relation_of[id(value)] = self.relations.setdefault(own, len(self.relations))
        return known

    def derivation(self, derived: Derived, final: dict[tuple[int, str], Value]) -> Derivation:
        """The trails of one plan, each once."""
        runs = {}
        for key, trail in sorted(derived.trails.items()):
            numbers = tuple(map(self._entry, trail))
            runs[key] = self.trails.setdefault(numbers, len(self.trails))
        return Derivation(runs, {key: self.relation(value) for key, value in sorted(final.items())})

    def _entry(self, value: Any) -> int:
        return self.relation(value) if isinstance(value, Value) else ABSENT
