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
    engine: str,
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
        engine,
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


class _Writer:
    """The tables of one certificate, and which numbers of the prover's tables became which here."""

    def __init__(self, proof: Proof) -> None:
        self.proof = proof
        self.steps = {number: path for path, number in proof.terms.paths()}
        self.terms: dict[Term, int] = {}
        self.numbered: list[Term] = []
        self.term_of: dict[int, int] = {}
        self.paths: dict[Path, int] = {}
        self.paths_of: dict[int, tuple[int, ...]] = {}
        self.relations: dict[Relation, int] = {}
        self.relation_of: dict[int, int] = {}
        self.trails: dict[tuple[int, ...], int] = {}
        self._number_terms()

    def _number_terms(self) -> None:
        """Number what anything refers to, in the prover's order, so that what is sorted there is sorted here."""
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
        stack = list(tokens)
        while stack:
            path = self.steps[stack.pop()]
            wanted.add(path[1])
            if len(path) == 3:
                fresh = set(self._bases(path[0])) - tokens
                tokens |= fresh
                stack.extend(fresh)
        stack = list(wanted)
        while stack:
            fresh = {operand for operand in self.proof.terms.operands[stack.pop()] if operand not in wanted}
            wanted |= fresh
            stack.extend(fresh)
        for number in sorted(wanted):
            term = self._term(number)
            self.term_of[number] = self.terms.setdefault(term, len(self.terms))
            if len(self.terms) > len(self.numbered):
                self.numbered.append(term)

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

    def _path(self, token: int) -> int:
        """The number of one path, which is no joint one; paths before it get theirs first."""
        waiting = [token]
        while waiting:
            own = waiting[-1]
            step = self.steps[own]
            bases: tuple[int, ...] = ()
            if step[0] == "whole":
                path: Path = ("whole", (), self.term_of[step[1]], 0)
            elif step[0] == "from":
                path = ("part", (), self.term_of[step[1]], 0)
            else:
                bases = self._bases(step[0])
                missing = [base for base in bases if base not in self.paths_of]
                if missing:
                    waiting.extend(missing)
                    continue
                below = tuple(sorted(self.paths_of[base][0] for base in bases))
                path = ("through", below, self.term_of[step[1]], step[2])
            self.paths_of[own] = (self.paths.setdefault(path, len(self.paths)),)
            waiting.pop()
        return self.paths_of[token][0]

    def relation(self, value: Value) -> int:
        """The number of a relation."""
        known = self.relation_of.get(id(value))
        if known is None:
            parts = frozenset(
                Part(
                    frozenset(self._path(base) for base in self._bases(leaf.token)),
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
