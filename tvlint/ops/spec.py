"""The form in which an operator's meaning is stated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from tvlint.ir.operators import Compute, Literal, Value
from tvlint.ops.field import Array, Field, Rows
from tvlint.ops.keywords import is_refused
from tvlint.plurals import counted

Shape: TypeAlias = tuple[int, ...]
Names: TypeAlias = tuple[str, ...]

ONE = "1"
"""The name of a dimension of size 1 that stands for nothing; every other name is an index of the operator."""


class UnsupportedError(Exception):
    """The table does not say what this use of an operator means; the message says why."""


class MisfitError(UnsupportedError):
    """No framework runs the operator on such operands; `expected` says what would fit."""

    def __init__(self, said: str, expected: str) -> None:
        super().__init__(f"{said}: {expected}")
        self.expected = expected


class DtypeError(MisfitError):
    """As MisfitError, for operands that do not fit by their types of numbers."""


class Family(Enum):
    """The way in which the values of an operator come about."""

    INDEXED = "indexed"
    """Every output element depends on the operand elements that the annotation's shared names select."""
    IDENTITY = "identity"
    """Every output is the operand."""
    RESHAPE = "reshape"
    """The operand's elements in the same order under another shape."""
    MERGE = "merge"
    """Attention over some of the keys and over others, each with its log-sum-exps, put together."""
    INERT = "inert"
    """A call that changes nothing that another operator reads, and gives nothing that is part of the model."""


class Trait(Enum):
    """A property of an operator that analyses ask for instead of its name."""

    __hash__ = object.__hash__

    ACTIVATION = "activation"
    """A non-linear function of every element of one tensor."""
    APART = "apart"
    """Takes a tensor apart along a dimension: its results are the parts."""
    ATTENTION = "attention"
    """Attends with queries, keys and values, its first three operands, to the keys that it is given."""
    BOUNDED = "bounded"
    """Every element of one tensor, or the end of a range of numbers that it lies beyond."""
    BROADCAST = "broadcast"
    """The operand's elements, repeated along dimensions of size 1."""
    CHOICE = "choice"
    """Picks elements along a dimension by comparing all of them."""
    CLASS_LOSS = "class-loss"
    """A loss of rows of scores, one score for each class, and the indices of the right classes."""
    COMMUNICATING_ATTENTION = "communicating-attention"
    """Attends to the keys of all ranks of a group, which it exchanges itself; its result lies like its queries."""
    COMPARISON = "comparison"
    """True or false for every element."""
    CONTRACTION = "contraction"
    """A sum of products over a dimension of its operands: what a training step spends its time on."""
    CONVERSION = "conversion"
    """The operand in another number format."""
    CONVOLUTION = "convolution"
    """Every position from those around it, by a kernel that is its second operand."""
    DEQUANTISATION = "dequantisation"
    """The numbers that codes of few bits, its first operand, stand for, by a scale that is its second."""
    DETACHED = "detached"
    """The operand, without its gradient."""
    DIFFERENCE = "difference"
    """Subtracts its second operand from its first."""
    EXPERTS = "experts"
    """Applies the experts of a mixture to the tokens that each of them got."""
    EXPONENTIAL = "exponential"
    """A power of e, of every element."""
    FILLED = "filled"
    """One number throughout, the first of its attributes."""
    HOMOGENEOUS = "homogeneous"
    """Gives so many times its result for so many times its operand, where that is not negative."""
    JOIN = "join"
    """Puts tensors together along a dimension, old or new."""
    LIKE = "like"
    """Of the shape and the dtype of the operand, which does not enter otherwise."""
    LOG_SUM_EXP_MERGE = "log-sum-exp-merge"
    """Puts results of attention over different keys together by their log-sum-exps."""
    MASKING = "masking"
    """One value or another for every element, by flags."""
    MASKED_LOOKUP = "masked-lookup"
    """Looks up the scores of targets in a shard of the classes; zero where another rank has them."""
    MIRROR = "mirror"
    """Turns dimensions round that it needs whole: the element at `i` comes to `n - 1 - i`."""
    MOVES = "moves"
    """Gives elements of its first operand, or zeros in their place, and computes nothing."""
    LOGICAL_AND = "logical-and"
    """True where both operands are."""
    LOGICAL_NOT = "logical-not"
    """True where the operand is false."""
    LOGICAL_OR = "logical-or"
    """True where one of both operands is."""
    NEGATION = "negation"
    """Every element with the other sign."""
    NO_FLAGS = "no-flags"
    """Takes numbers, and not flags alone."""
    NO_TWO_FLAGS = "no-two-flags"
    """Takes flags beside a number, and not two tensors of flags."""
    NONLINEAR = "nonlinear"
    """Not linear in its first operand, whatever its attributes are."""
    NORM = "norm"
    """The root of a sum of powers of magnitudes; which power is the first of its attributes."""
    NORMALISATION = "normalisation"
    """Divides by a statistic of the elements that it normalises."""
    ORDER = "order"
    """Gives the places of the elements of a dimension in the order of the elements: each place once."""
    PADDING = "padding"
    """The operand among values that stand around it."""
    ONE_TYPE = "one-type"
    """Takes numbers of one type."""
    OPTIMIZER = "optimizer"
    """Takes a weight, its gradient and its states one step further, element by element; gives what it overwrites."""
    PICK = "pick"
    """Gives what is at an index of a dimension; the index is the last operand."""
    PEAK = "peak"
    """The greatest element, or the greatest magnitude."""
    POSITIONS = "positions"
    """Counts: the numbers from a start by a step, along one dimension."""
    POSITIONAL = "positional"
    """Its attributes count positions of a dimension."""
    PRODUCT = "product"
    """Linear in each operand while the others are fixed, without an addend."""
    QUANTISATION = "quantisation"
    """Codes of few bits of its first operand, by a scale that is its second."""
    RANGES = "ranges"
    """Takes ranges of dimensions, which `ops.slicing.ranges_taken` tells."""
    REAL = "real"
    """Takes real numbers only."""
    REAL_AMONG = "real-among"
    """Takes numbers of which one at least is real."""
    RECURRENCE = "recurrence"
    """A state that is carried along the sequence, which is a dimension between the batch and the features."""
    REDUCTION = "reduction"
    """One number for every row."""
    RESTRICTED = "restricted"
    """Has no value for some numbers: those below zero, or zero."""
    RISING = "rising"
    """A function of every element of one tensor that grows with it."""
    SCALE = "scale"
    """Makes the scale of a quantisation from the greatest magnitude."""
    SCALING = "scaling"
    """Multiplies or divides element by element."""
    SCAN = "scan"
    """Every element depends on others of a dimension, such as all those before it."""
    SELECTION = "selection"
    """Takes single positions of a dimension, which its results do not have."""
    SOFTMAX = "softmax"
    """Powers of the elements of a row against their sum."""
    STATISTICS = "statistics"
    """Takes numbers and parameters of one type, or parameters of `float32` beside numbers of half precision."""
    SUM = "sum"
    """Adds or subtracts element by element."""
    TOKEN_COMBINE = "token-combine"
    """Puts the results of experts back into the order of their tokens."""
    TOKEN_DISPATCH = "token-dispatch"
    """Puts tokens into the order of their experts."""
    TRANSPOSE = "transpose"
    """Exchanges dimensions."""
    WIDE = "wide"
    """Takes indices of 64 bits only."""
    TRIANGLE = "triangle"
    """Keeps the elements below a diagonal, or above it; its attributes say which, and where the diagonal is."""
    VIEW = "view"
    """The operand's elements, each once, in a shape or an order of their own; computes nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an operator: the shape of each tensor operand or the literal in its place, attributes, output shapes."""

    op: str
    inputs: tuple[Shape | Literal, ...]
    attributes: Mapping[str, Value]
    outputs: tuple[Shape, ...] = ()

    @property
    def shapes(self) -> list[Shape]:
        """Return the shapes of the operands that are tensors, in order."""
        return [operand for operand in self.inputs if not isinstance(operand, Literal)]

    def shape(self, position: int) -> Shape:
        """Return the shape of operand `position`; raises UnsupportedError when it is missing or a literal."""
        if position >= len(self.inputs):
            raise UnsupportedError(f"`{self.op}` has no operand {position}")
        operand = self.inputs[position]
        if isinstance(operand, Literal):
            raise UnsupportedError(f"operand {position} of `{self.op}` is a constant")
        return operand

    def with_arguments(self, *names: str) -> Call:
        """Return the call with literals after its tensors as the attributes `names`, in order, where they are not given by
        name.

        Raises UnsupportedError when more literals follow than there are names, or a tensor follows a literal.
        """
        count = next((i for i, operand in enumerate(self.inputs) if isinstance(operand, Literal)), len(self.inputs))
        literals = [operand.value for operand in self.inputs[count:] if isinstance(operand, Literal)]
        if len(literals) != len(self.inputs) - count or len(literals) > len(names):
            raise UnsupportedError(f"`{self.op}` with {counted(len(self.inputs), 'operand')}")
        given = dict(zip(names, literals, strict=False))
        if given.keys() & self.attributes.keys():
            raise UnsupportedError(f"`{self.op}` has `{min(given.keys() & self.attributes.keys())}` twice")
        return Call(self.op, self.inputs[:count], {**self.attributes, **given}, self.outputs)

    def expect(self, least: int, most: int | None = None) -> None:
        """Raise UnsupportedError unless all operands are tensors and there are as many as the table gives a meaning to."""
        if any(isinstance(operand, Literal) for operand in self.inputs):
            raise UnsupportedError(f"`{self.op}` of a constant")
        if not least <= len(self.inputs) <= (least if most is None else most):
            raise UnsupportedError(f"`{self.op}` of {counted(len(self.inputs), 'operand')}")

    def flag(self, name: str, default: bool = False) -> bool:
        """Return the switch `name` of the call, or `default`; raises MisfitError for a value that is neither True nor False."""
        value = self.attributes.get(name, default)
        if not isinstance(value, bool):
            raise MisfitError(f"`{self.op}` with `{name}` {value}", "it has to be True or False")
        return value

    def reject_unknown(self, *known: str) -> None:
        """Raise UnsupportedError for an attribute that the table gives no meaning to, MisfitError where torch refuses it."""
        for name in self.attributes:
            if name not in known:
                if name.startswith("_") and self.op.startswith("torch.") and not self.op.startswith("torch.nn.functional."):
                    raise MisfitError(f"`{self.op}` with the keyword `{name}`", "no such function of torch takes one with `_`")
                if is_refused(self.op, name):
                    raise MisfitError(f"`{self.op}` with the keyword `{name}`", "the function takes no argument of that name")
                raise UnsupportedError(f"`{self.op}` has the unknown keyword `{name}`")


def call_of(operator: Compute, shape_of: Callable[[str], Shape | None], outputs: tuple[Shape, ...] = ()) -> Call | None:
    """Return the call of an operator on tensors of such shapes; None where that of an operand is not known."""
    given = [operand if isinstance(operand, Literal) else shape_of(operand) for operand in operator.inputs]
    inputs = tuple([operand for operand in given if operand is not None])
    return Call(operator.op, inputs, operator.attributes, outputs) if len(inputs) == len(given) else None


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random numbers that an operator draws, one from [0, 1) for every index of `names`.

    They belong to the elements of the operands `of`. `linear` is as in `Bound`, while the numbers are fixed.
    """

    names: Names
    of: tuple[int, ...]
    linear: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """The annotation of one use of an operator, in named dimensions.

    `operands` and `outputs` name the dimensions of each tensor (tensor operands only, in order). A name in `reduced` is
    summed over; a name in `averaged` is summed over and divided by its size; a name in `whole` must not be split. `linear`
    lists the sets of operands (tensor positions) in each of which the operator is linear while the others are fixed: two
    singletons for a product, one pair for a sum. `attributes` is all that determines the value besides the operands, free of
    sizes that depend on how the plan splits. `commutative` allows the first two operands to be exchanged. `shape_only`
    operands give their shape, not their value. `zero_gradient` operands get no gradient. `scalar` outputs of shape (1,) or
    () stand for one number.
    """

    operands: tuple[Names, ...]
    outputs: tuple[Names, ...]
    reduced: frozenset[str] = frozenset()
    averaged: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    linear: tuple[frozenset[int], ...] = ()
    attributes: tuple[Value, ...] = ()
    commutative: bool = False
    shape_only: frozenset[int] = frozenset()
    zero_gradient: frozenset[int] = frozenset()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Names whose bounds the call states itself (`start`, `stop` of an embedding); they must agree with the box."""
    counts: Mapping[str, str] = field(default_factory=dict)
    """Names whose size the call states itself, with the attribute that does (`groups` of channels that stand alone)."""
    row_wise: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Outputs that depend on some operands only: output position -> operand positions. Absent: all of them."""
    indices: Mapping[int, str] = field(default_factory=dict)
    """Operands that hold indices along a name instead of numbers: operand position -> name."""
    no_index: int | None = None
    """What stands among indices for none, so that a loss leaves its row out."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of names that only outputs have, where the call determines them; otherwise they are what the outputs declare."""
    assumption: str = ""
    """What is taken on trust about this use, for the verdict to list."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """Names of `whole` that this use may split all the same, and what the results on the parts then are.

    `maps`: side by side the result, as the attributes say where each part lies. `max`: their greatest is the result. `merge`:
    their merge by log-sum-exp is.
    """
    runs: Mapping[str, int] = field(default_factory=dict)
    """Names of `whole` of which a part may all the same give a part of a result, where it is so many indices or a multiple."""
    masked: tuple[str, str] | None = None
    """Two names (rows, columns) of which elements of the second after that of the first contribute nothing."""
    draws: Drawn | None = None
    """What the operator draws at random; its semantics takes the numbers as one more operand, the last."""

    def sizes_of(self, op: str, shapes: Sequence[Shape]) -> dict[str, int]:
        """Return the size of every name, for operands of `shapes`; raises MisfitError where a name has two."""
        sizes = {ONE: 1, **self.sizes}
        for position, (names, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            for dim, (name, size) in enumerate(zip(names, shape, strict=True)):
                known = sizes.setdefault(name, size)
                if known != size:
                    said = f"`{op}` of shapes {', '.join(map(str, shapes))}"
                    raise MisfitError(said, f"dimension {dim} of operand {position} is {size} long, and has to be {known}")
        return sizes

    def given_draws(self) -> Bound:
        """Return the annotation with what is drawn among the operands, as their last; itself where nothing is."""
        if self.draws is None:
            return self
        return replace(self, operands=(*self.operands, self.draws.names), linear=self.draws.linear)


DRAWS = "dropout draws by the logical index of an element, not by rank; the n-th draw for a value is the n-th on every rank"
"""What is taken on trust where an operator draws random numbers."""


Evaluate: TypeAlias = Callable[[Bound, Sequence[Array], Field], tuple[Array, ...]]
"""The outputs of an operator from its tensor operands, over any field; what the bound does not say does not enter."""


Formula: TypeAlias = Callable[[Field, Rows, Sequence[Any], tuple[Value, ...]], Any]
"""The one result of an operator, of an element or a row of each operand, and the attributes that its bound has.

It computes with arrays and with terms of a proof alike. It raises UnsupportedError for another number of operands.
"""


Steps: TypeAlias = tuple[tuple[str, tuple[int | Literal, ...]], ...]
"""Operators in sequence, each with the positions of its tensor operands; PREVIOUS is the result of the one before."""

PREVIOUS = -1


@dataclass(frozen=True, slots=True)
class OpSpec:
    """The meaning of an operator. `signatures` are the functions that frameworks emit for it."""

    name: str
    signatures: tuple[str, ...]
    bind: Callable[[Call], Bound]
    family: Family = Family.INDEXED
    assumption: str = ""
    """What is taken on trust about it, for operators that a model's author registered."""
    steps: Callable[[Call], Steps] | None = None
    """For uses that are other operators in sequence: each entry names one and its operands; empty where the use is not."""
    of_all: Callable[[Call, Call], Call] | None = None
    """The call on whole operands, where one on a rank's parts of them goes by their sizes (how many groups these are, which
    dimensions are one long): (of parts, whole)."""
    evaluate: Evaluate | None = None
    """What it computes; None for operators that a model's author registered, and for reshapes, which compute nothing."""
    formula: Formula | None = None
    """For what works on elements or rows alone: what it makes of them, from which `evaluate` follows."""
    may_draw: bool = False
    """Whether some uses draw random numbers."""
    range_attributes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The attributes that state the bounds of a name of `Bound.ranges`: name -> (start, stop)."""
    traits: frozenset[Trait] = frozenset()
    sequence: int | None = None
    """For attention: the dimension of positions among four; None where callers keep no one layout."""
    undone_by: frozenset[str] = frozenset()
    """Operators of which some use gives back its operand, or the part of a sum that was in it, by their names."""
    halves: tuple[int, str] | None = None
    """For the product of the two halves of a dimension: which of them a function is taken of first, and the function."""
    holds: frozenset[int] = frozenset()
    """For a comparison of two numbers: the signs of the first less the second for which it is true."""
    dimension: tuple[int, int | None] | None = None
    """Which of its constants names the dimension that it works along, without an attribute for it, and which it is without."""

    def bound(self, call: Call) -> Bound | None:
        """Return what a use of it means; None where the table gives that no meaning."""
        try:
            return self.bind(call)
        except UnsupportedError:
            return None


def having(traits: Iterable[Trait], *specs: OpSpec) -> tuple[OpSpec, ...]:
    """Return the operators with `traits` besides those that they have."""
    return tuple(replace(spec, traits=spec.traits.union(traits)) for spec in specs)


def named(annotation: str) -> tuple[tuple[Names, ...], tuple[Names, ...], frozenset[str], frozenset[str]]:
    """Operands, outputs, reduced and whole names of an annotation without `*` (`b k+, n k+ -> b n`)."""
    left, right = annotation.split("->")
    reduced, whole = set[str](), set[str]()

    def side(text: str) -> tuple[Names, ...]:
        tensors = []
        for tensor in text.split(","):
            names = []
            for token in tensor.split():
                name = token.rstrip("+^")
                if token.endswith("+"):
                    reduced.add(name)
                if token.endswith("^"):
                    whole.add(name)
                names.append(name)
            tensors.append(tuple(names))
        return tuple(tensors)

    return side(left), side(right), frozenset(reduced), frozenset(whole)


def stars(rank: int) -> Names:
    """Return names for `rank` leading dimensions."""
    return tuple(f"s{position}" for position in range(rank))
