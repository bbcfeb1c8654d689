"""Logical values as hash-consed terms, one table for both plans.

Two equal terms are the same operator with the same attributes applied to the same terms, hence the same value; the numbering
of tensors, the order of operators and everything else that differs between two traces does not enter. Operators are pure;
an operator that draws random numbers has no term.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

GRADIENT_SUM = "gradient-sum"
PIECES = "pieces"
"""Pieces of dimensions of a term, one after the other: which dimensions, and their pieces (`transfer/index_maps.py`)."""


RangeOfSum: TypeAlias = tuple[int, tuple[int, Fraction], int, int]
"""A term with a constant, and the range of its last dimension over which a sum adds it up."""

Widened: TypeAlias = tuple[int, tuple[int, Fraction], tuple[int, int, int]]
"""A term with a constant, and the range of a dimension, with its size, of which another term has the indices."""


class Telling(Enum):
    """How terms tell what is computed."""

    AS_WRITTEN = "operators as the plan has them"
    NORMAL = "the normal form of `tvlint/analyses/relations/terms/normal_form.py`"
    ARITHMETIC = "sums of products, as in `tvlint/analyses/relations/terms/arithmetic.py`, and that normal form for the rest"
    MULTIPLIED_OUT = "such sums, in which a sum of a few addends that is multiplied is multiplied out"


class Terms:
    """The table. A term is a small integer; what it stands for is looked up here.

    `shape` is the logical shape. `slot` is the dimension that data-parallel replicas and micro-batches cut into slots (-1:
    none): the term then stands for its value in one slot, any slot, and `shape` counts that slot's part only. `alone` says that
    there is no reference.
    """

    def __init__(self, telling: Telling = Telling.AS_WRITTEN, alone: bool = False) -> None:
        self.telling, self.alone = telling, alone
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.keys: list[tuple[Any, ...]] = []
        self.operands: list[tuple[int, ...]] = []
        self.shape: list[tuple[int, ...]] = []
        self.slot: list[int] = []
        self.sealed = -1
        """How many terms the reference has; -1 while it is being read."""
        self.accumulates = False
        """Whether the reference runs several micro-batches, and divides by their number what it multiplies gradients with."""
        self.auxiliary: set[int] = set()
        """Terms that belong to a value of the reference without being one, as the log-sum-exps of its attention do."""
        self.restricted: set[int] = set()
        """Terms that the reference does not compute, and that have no value for some numbers: see `require`."""
        self.may_be_whole: dict[int, bool] = {}
        """Whether nothing that terms are made of holds real numbers, by term."""
        self.signs: dict[int, int] = {}
        """The signs of the elements of sums of products, by term."""
        self.cuts: dict[int, set[tuple[int, int]]] = {}
        """Ranges that slices take of dimensions of a size, and that what is joined has in one."""
        self.views: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        """Shapes that the reference views as others."""
        self.slices: dict[tuple[int, int, int, int], tuple[Any, ...]] = {}
        """Slices of terms, by term, dimension and ends: expressions whose indices are the dimensions of the term."""
        self.splits: dict[tuple[int, tuple[Any, ...]], tuple[int, tuple[int, ...]]] = {}
        """Terms whose dimensions have several indices, by term and the sizes of these: the term, and at which of them it is."""
        self.joined: dict[tuple[int, tuple[Any, ...]], tuple[int, tuple[int, ...]]] = {}
        """Terms of which groups of dimensions are joined, by term and groups: the term, and which of both it has."""
        self.runs: dict[int, frozenset[tuple[int, ...]]] = {}
        """Dimensions in a row that are parts of one dimension of something that a term is made of, by term."""
        self.wider: dict[int, tuple[RangeOfSum, ...]] = {}
        """Sums over ranges of an index, by term: as what each index that is summed is one."""
        self.widened: dict[tuple[int, int], Widened | None] = {}
        """Of which longer terms others have a range, by term and dimension."""
        self.infinite: dict[bool, dict[int, bool]] = {}
        """Whether elements of a term may be infinite, by which operands of what is restricted count as zero (`sums.py`)."""
        self.finite: dict[int, bool] = {}
        """Whether nothing that a term is made of may be infinite, in a power of e neither (`sums.py`)."""
        self.nesting = 0
        """How deep what is computed now goes into what terms are made of (`expressions.py`)."""
        self.of_gradients: dict[int, bool] = {}
        """Whether terms are multiples of gradients and of sums of gradients alone, by term."""
        self.asks = True
        """Whether a new normal form asks something of its operands; not while it only says otherwise what is there already."""
        self.asked = 0
        """How often a normal form has asked something."""
        self.apart: set[tuple[int, tuple[Any, ...]]] = set()
        """Terms whose dimensions could not be joined: in groups of so many neighbouring ones each, or with each dimension in a
        place of such a group of them and of others.
        """
        self.joins: dict[int, list[tuple[int, int, int]]] = {}
        """What the reference joins terms to, by each of them: the term, the dimension, and where in it this one begins."""
        self.ranges: dict[int, tuple[int, int, tuple[int, int], tuple[int, int]]] = {}
        """Terms that are some of the indices of a dimension of another one, in their places, and zeros elsewhere: which, and at
        which indices that is not zero itself.
        """
        self.counted: dict[int, tuple[int, int, Any]] = {}
        """Positions that the reference counts, by their term: from where, in which steps, and as which type."""
        self.means: set[int] = set()
        """Sums that normal forms have in the place of means."""
        self.within: set[int] = set()
        """Factors that say at which place an index is, where the reference looks something up at it: it is one of them."""
        self.assumptions: set[str] = set()
        """What identities between terms take on trust."""
        self._tokens: dict[Any, int] = {}

    def copied(self) -> Terms:
        """Return a table of the same terms, with the same numbers, into which others can be written.

        What an attribute holds is plain: numbers, tuples of them, or collections of those, which are copied.
        """
        made = copy(self)
        vars(made).update((name, _copied(held)) for name, held in vars(self).items() if isinstance(held, Collection))
        return made

    @property
    def normal(self) -> bool:
        """Return whether terms are stated in a normal form."""
        return self.telling is not Telling.AS_WRITTEN

    @property
    def arithmetic(self) -> bool:
        """Return whether terms are written as sums of products."""
        return self.telling in (Telling.ARITHMETIC, Telling.MULTIPLIED_OUT)

    @property
    def multiplied_out(self) -> bool:
        """Return whether a sum that is multiplied is written addend by addend."""
        return self.telling is Telling.MULTIPLIED_OUT

    def term(self, head: tuple[Any, ...], operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> int:
        """Return the term of operator `head` on `operands`; the same arguments give the same term."""
        key = (head, operands, shape, slot)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.keys)
            self.keys.append(head)
            self.operands.append(operands)
            self.shape.append(shape)
            self.slot.append(slot)
        return found

    def find(self, head: tuple[Any, ...], operands: tuple[int, ...], shape: tuple[int, ...], slot: int) -> int | None:
        """Return the term, if it is there already."""
        return self._numbers.get((head, operands, shape, slot))

    def averages(self, term: int, number: int) -> bool:
        """Return whether the term's own operator is a mean over dimension `number`, which its key lists after what is summed,
        or the sum that stands for one.
        """
        if term in self.means:
            return True
        head = self.keys[term]
        pattern = head[-2] if len(head) > 3 else ()
        return isinstance(pattern, tuple) and len(pattern) > 3 and number in pattern[-2]

    def foreign(self, term: int) -> bool:
        """Return whether the reference does not compute the term."""
        term = self.whole(term)
        return 0 <= self.sealed <= term and term not in self.auxiliary

    def is_own(self, term: int) -> bool:
        """Return whether the term belongs to a plan that is judged, and not to its reference."""
        return self.alone or self.foreign(term)

    def whole(self, term: int) -> int:
        """Return the term that this one is pieces of, or itself."""
        return self.operands[term][0] if term >= 0 and self.keys[term][0] == PIECES else term

    @contextmanager
    def without_asking(self) -> Iterator[None]:
        """Let new normal forms ask nothing of their operands, since they only say otherwise what is there already."""
        asked, self.asks = self.asks, False
        try:
            yield
        finally:
            self.asks = asked

    def require(self, condition: str, term: int) -> None:
        """Note that a normal form has its value only where the elements of the term are as the condition says.

        What is the reference's condition as well takes nothing from it.
        """
        if not self.asks:
            return
        self.asked += 1
        required = self.term((condition,), (term,), self.shape[term], self.slot[term])
        if self.foreign(required):
            self.restricted.add(required)

    def token(self, path: Any) -> int:
        """Return a number for how a partial value came about; the same `path` gives the same number."""
        return self._tokens.setdefault(path, len(self._tokens))

    def gradient_sum(self, of: int, terms: Sequence[int]) -> int:
        """Return the sum of gradients of forward value `of`, flat and in any order."""
        flat: list[int] = []
        for term in terms:
            head = self.keys[term]
            flat.extend(self.operands[term] if head[0] == GRADIENT_SUM and head[1] == of else (term,))
        if len(flat) == 1:
            return flat[0]
        return self.term((GRADIENT_SUM, of), tuple(sorted(flat)), self.shape[flat[0]], self.slot[flat[0]])


def _copied(held: Any) -> Any:
    """Return a collection with copies of the collections that a table of them has."""
    if isinstance(held, dict) and isinstance(next(iter(held.values()), None), (dict, list, set)):
        return {key: copy(each) for key, each in held.items()}
    return copy(held)
