"""The tables of a proof, the indices that operands share, and what is said where an operator does not fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.relation import Value, Values
from tvlint.ir.location import Location
from tvlint.ops.spec import ONE, Names, Trait
from tvlint.ops.table import has_trait
from tvlint.plurals import counted


class Mismatch(Exception):
    """The operator does not do here what it does in the reference, or that cannot be decided.

    `operand` is the position of the operand that is at fault, where one is; `source` is the place to tell where that is not
    the operator. `unless` is what may make it right in a plan that has no reference. `compared` is what the
    reference has and what the plan has in its place, where that is shown.
    """

    def __init__(
        self,
        name: str,
        message: str,
        *,
        refutes: bool,
        operand: int | None = None,
        source: Location | None = None,
        unless: str = "",
        compared: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.refutes = refutes
        self.operand = operand
        self.source = source
        self.unless = unless
        self.compared = compared


def of_one_plan(name: str, message: str, operand: int | None = None, unless: str = "") -> Mismatch:
    """Return what is wrong with a plan whatever its reference is, and is of no pair."""
    return Mismatch(name, message, refutes=True, operand=operand, unless=unless)


@dataclass(slots=True)
class World:
    """The tables of a proof and the plan that is being read into them.

    `slots` is how many slots of the global batch one local tensor holds: one in the parallel plan, all of them in a reference
    that takes the batch as one micro-batch. One that takes it as several holds some in each, or one of `parts` equal parts of a
    slot; its first micro-batch has the first part and stands for each. `many_replicas` and `many_micro_batches` say what holds
    the rest.
    """

    terms: Terms
    values: Values
    slots: int
    many_replicas: bool
    many_micro_batches: bool
    parts: int = 1
    in_blocks: bool = False
    """Whether ranks are given ranges of a dimension that lie apart."""
    _local: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of local tensors by extent."""

    @property
    def alone(self) -> bool:
        """Say whether what is read has no reference."""
        return self.terms.alone

    def logical_shape(self, value: Value, total_slots: int) -> tuple[int, ...]:
        """Return the shape of the whole value, of which the local tensor holds pieces; in one replica where there is no
        reference.
        """
        whole = self.terms.whole(value.term)
        if self.alone:
            return self.terms.shape[whole]
        slot = self.terms.slot[whole]
        return tuple(size * (total_slots if i == slot else 1) for i, size in enumerate(self.terms.shape[whole]))

    def local_shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of the local tensor that `value` describes."""
        found = self._local.get(value.extent)
        if found is None:
            slot = self.terms.slot[value.term]
            found = tuple((high - low) * (self.slots if i == slot else 1) for i, (low, high) in enumerate(value.box))
            self._local[value.extent] = found
        return found


@dataclass(frozen=True, slots=True)
class Index:
    """One named dimension in one use of an operator."""

    low: int
    high: int
    size: int
    slotted: bool


def indices_of(
    world: World, operands: Sequence[tuple[Names, Value]], by_replica: bool = False, summed: Collection[str] = ()
) -> dict[str, Index]:
    """Return the box of every name, which all operands must agree on; a name that is `summed` makes another mistake.

    Where `by_replica`, each replica may pair its own part of the batch with that part alone.
    """
    found: dict[str, Index] = {}
    for position, (names, value) in enumerate(operands):
        shape, slot = world.terms.shape[value.term], world.terms.slot[value.term]
        if len(names) != len(shape):
            text = f"takes {counted(len(names), 'dimension')} of a tensor of {len(shape)}"
            raise Mismatch("mismatched-dimensions", text, refutes=False, operand=position)
        for dim, name in enumerate(names):
            low, high = value.box[dim]
            if name == ONE:
                if shape[dim] != 1 or dim == slot:
                    raise Mismatch("mismatched-dimensions", "broadcasts a dimension that is split", refutes=False)
                continue
            index = Index(low, high, shape[dim], dim == slot)
            known = found.setdefault(name, index)
            if known == index:
                continue
            if by_replica and known.slotted != index.slotted and replace(known, slotted=index.slotted) == index:
                found[name] = replace(index, slotted=False)
                continue
            if known.size == index.size and known.slotted == index.slotted:
                raise Mismatch(
                    "contraction-of-mismatched-shards" if name in summed else "mismatched-shards",
                    f"combines indices {known.low}:{known.high} of one operand with {low}:{high} of another in one dimension",
                    refutes=not any(is_zero(value) for _, value in operands),
                    operand=position,
                )
            raise Mismatch(
                "mismatched-dimensions",
                f"combines dimensions of {known.size} and {index.size} elements, or a batch dimension with another",
                refutes=False,
                operand=position,
            )
    return found


def is_zero(value: Value) -> bool:
    """Return whether the value is known to be zero, of whatever it is a part: no times its term, or attention to no keys."""
    return (value.coefficient == 0 and not value.leaves) or (value.fold is not None and not value.fold.covered)


def is_zeros(terms: Terms, value: Value) -> bool:
    """Return whether a value is a part of zeros, as what fills a bucket up: it adds nothing, however often it is added."""
    head = terms.keys[terms.whole(value.term)]
    return not value.leaves and has_trait(str(head[0]), Trait.FILLED) and number_of(head[2][0]) == 0


def canonical(tensors: Sequence[Names], sets: Sequence[frozenset[str]]) -> tuple[tuple[int, ...], ...]:
    """Return the names as numbers in order of appearance, so that the pattern does not depend on how names are chosen.

    After the tensors come the sets: which names are summed, averaged, and needed whole.
    """
    numbers = numbered(tensors)
    pattern = [tuple(numbers[name] for name in names) for names in tensors]
    pattern.extend(tuple(sorted(numbers[name] for name in names if name in numbers)) for names in sets)
    return tuple(pattern)


def numbered(tensors: Sequence[Names]) -> dict[str, int]:
    """Return the names in order of first appearance."""
    numbers: dict[str, int] = {ONE: -1}
    for names in tensors:
        for name in names:
            numbers.setdefault(name, len(numbers) - 1)
    return numbers
