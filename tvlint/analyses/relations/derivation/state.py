"""The state of a derivation: its tables, its ranks, and what was found."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from tvlint.analyses.dataflow.gradient_owners import Owners
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.given.trusted_inputs import Inputs
from tvlint.analyses.relations.derivation.nearest_reference_value import Nearest
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.groups import Groups
from tvlint.analyses.relations.transfer.memo import Cases
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, ReduceGradients
from tvlint.ir.plan import Box, Plan, Program, Segment
from tvlint.ops.spec import Bound, Call, Family

Shard: TypeAlias = tuple[int, int, bool]

Need: TypeAlias = tuple[str, str]
"""Why communication under way has to come: the kind of the reason, and the name of a handle or tensor."""

Slot: TypeAlias = "Value | None"
"""A derived relation; None is poison: something earlier went wrong and was reported."""


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """Values that a forward operator saves for its gradient."""

    op: str
    bound: Any
    family: Family
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    steps: tuple[tuple[Saved, tuple[int, ...]], ...] = ()
    """For an operator that is others in sequence: what each of them keeps, and its operands.

    An operand below zero is the result of the step that many before.
    """
    packed: Saved | None = None
    """For an operator that takes apart, or joins, pieces of each part of whole values: the same on all of them."""
    moved: Moved | None = None
    """For an operator that cuts or joins local tensors: where their elements are from."""
    uses: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What its case knows of its uses (`tvlint.analyses.relations.transfer.memo`)."""


@dataclass(frozen=True, slots=True)
class Moved:
    """How tensors stand side by side in one along `dim`: at which places, and as which indices of its whole term.

    Those are the indices of the whole term of the one that the whole term of the other is. What `drops` it is taken out of the
    dimension, one index each, and has it no more.
    """

    dim: int
    joins: bool
    places: tuple[tuple[int, int], ...]
    indices: tuple[tuple[int, int], ...]
    drops: bool = False


@dataclass(frozen=True, slots=True)
class Reducing:
    """A gradient reducer as one member runs it, with the gradients that the member has by then, by weight."""

    segment: str
    operator: ReduceGradients
    gradients: dict[str, Slot]


@dataclass(frozen=True, slots=True)
class Foreign:
    """An operator on values of the reference that the reference does not apply to them."""

    defect: Defect
    term: int
    nearest: int | None
    forward: tuple[str, ...]
    """The outputs of the forward operator that it is, or is the gradient of."""


_MOST_RANKS_APART = 64
"""So many ranks at most are noted one by one."""


def computed_on(plan: Plan, derived: Derived, rank: int) -> set[int]:
    """Return the terms that operators gave on a rank; of a plan of many ranks, on all of them."""
    return derived.computed.setdefault(rank if plan.mesh.size <= _MOST_RANKS_APART else -1, set())


@dataclass(frozen=True, slots=True)
class Root:
    """A value from which gradients start: its name, and what the rank holds of it."""

    of: str
    value: Value
    rank: int
    segment: str
    operator: Operator
    """What takes the gradient that starts."""
    start: Fraction = Fraction(1)
    """The number that the gradient starts with, for every element."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of unknown relation: those of one number are equal, others may differ.

    `of_replica` says that folded replicas may each have another one.
    """

    number: int
    of_replica: bool


@dataclass(frozen=True, slots=True)
class Stepped:
    """The `gradient` with which an operator steps a weight, or a copy of one, on a rank, its `name` and the weights of whose
    gradients it is made, where operators make it; `opaque` where no more is known of it than which value it is.
    """

    rank: int
    operator: Operator
    weight: str
    name: str
    gradient: Slot
    made_of: frozenset[str]
    opaque: Opaque | None


@dataclass(frozen=True, slots=True)
class Copied:
    """On a rank, an operator puts `taken` in the place of the weight or state `into`.

    `opaque` says which value it is, and `value` what is known of it.
    """

    rank: int
    operator: Compute
    segment: str
    into: str
    taken: str
    opaque: Opaque | None
    value: Slot


Held: TypeAlias = int | tuple[int, str]
"""The term of what a rank holds under a name; the rank and the name where that is not known."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """On a rank, a backward operator takes the gradient `name` as that of `of`, or gives it as such."""

    rank: int
    operator: Backward
    name: str
    of: str
    gradient: Held
    value: Held
    is_given: bool
    times: Coefficient = 1
    """How many times its term the gradient is, or its parts are; 0 where that is not one number."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """A collective that makes a multiple of a value, and the rule that says so."""

    operator: Communicate
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Joined:
    """An operator that adds `whole`, which ranks hold alike, to `part`, a part of a sum that they hold the other parts of."""

    operator: Operator
    whole: str
    term: int
    """What `whole` is."""
    part: str
    given: dict[int, Value] = field(default_factory=dict, compare=False)
    """What it makes, by rank."""


@dataclass(slots=True)
class Derived:
    """The result of a derivation. `finished` says that every rank ran to its end."""

    environments: dict[int, dict[str, Slot]] = field(default_factory=dict)
    carriers: dict[int, dict[int, tuple[str, Operator]]] = field(default_factory=dict)
    """By rank and term: which tensor first carried a partial sum of the term, and what made it; terms are numbered as they come
    up.
    """
    gradients: dict[int, dict[str, Slot]] = field(default_factory=dict)
    """By rank and weight, the gradient with which it is updated, else the last one."""
    renewed: dict[int, dict[str, Slot]] = field(default_factory=dict)
    """By rank, what operators have put in the place of weights and states."""
    stepped: dict[int, set[str]] = field(default_factory=dict)
    """By rank, the weights that an optimizer step has changed, in a way that the plan does not say."""
    reductions: list[Defect] = field(default_factory=list)
    """What went wrong as gradients were summed and reduced."""
    locals: dict[tuple[int, str], dict[str, Slot]] = field(default_factory=dict)
    """What every (rank, segment) held at the end; only while the derivation recovers, and of a plan that is derived alone."""
    used: set[tuple[int, str]] = field(default_factory=set)
    """Parameters that ranks use: (rank, tensor name)."""
    defects: list[Defect] = field(default_factory=list)
    fatal: bool = False
    """Whether a defect makes the plan not run, whatever the values are."""
    finished: bool = False
    stages: int = 0
    classes: int = 0
    foreign: list[Foreign] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    opaque: dict[int, dict[str, Opaque | None]] = field(default_factory=dict)
    """By rank, which values tensors of unknown relation are."""
    incomplete: set[tuple[int, int]] = field(default_factory=set)
    """The pending sums that operators took for complete, by the term and number of each."""
    steps: list[Stepped] = field(default_factory=list)
    """The gradients with which weights are stepped."""
    copies: list[Copied] = field(default_factory=list)
    """What operators put in the place of weights and states, of a plan that is derived alone."""
    pulled: list[Pulled] = field(default_factory=list)
    """What backward operators take and give, of a plan that is derived alone."""
    scaling: dict[tuple[int, Coefficient], list[Scaling]] = field(default_factory=dict)
    """The collectives that made a multiple of a value, by its term and the factor; of a plan that is derived alone."""
    joined: dict[int, Joined] = field(default_factory=dict)
    """The first operators that added what is whole to parts of a sum, by the term that they give; of a plan derived alone."""
    cut: dict[int, tuple[Operator, dict[int, tuple[Value, Value]]]] = field(default_factory=dict)
    """The operators, by identity, that make parts of sums of parts, with both on each rank; of a plan derived alone."""
    drawn: dict[int, dict[int, tuple[Compute, str, Box]]] = field(default_factory=dict)
    """The random numbers that operators draw, by their term: on each rank the operator, its segment and which of them it draws.
    """
    averaged: dict[int, Communicate] = field(default_factory=dict)
    """The collectives that averaged different numbers, by the term that they give; of a plan derived alone."""
    left: dict[tuple[int, int, int], Communicate] = field(default_factory=dict)
    """The last sums of some parts of a sum that left out others, by the term and number of the sum, and the rank."""
    recovered: set[int] = field(default_factory=set)
    """The terms that operators give as if their operands were complete, which are not; of a plan derived alone."""
    summed: dict[int, set[int]] = field(default_factory=dict)
    """By term of a value that is not complete, of which terms collectives completed a sum in it; of a plan derived alone."""
    contradicted: list[Defect] = field(default_factory=list)
    """What the plan states of tensors, gradients and weights, and is not so."""
    roots_open: bool = False
    """Whether more gradients may start than `roots` has: at values that are not known, or from inputs and other values."""
    given_starts: set[int] = field(default_factory=set)
    """The inputs and other values, none of them a gradient, from which gradients start."""
    computed: dict[int, set[int]] = field(default_factory=dict)
    """The terms that forward and gradient operators gave on each rank, before any recovery; together where there are many."""
    assumptions: set[str] = field(default_factory=set)
    changed: set[tuple[int, str]] = field(default_factory=set)
    """What calls of unknown effect may have changed: (rank, tensor name)."""
    uses: list[tuple[Call, Bound, tuple[Value, ...]]] = field(default_factory=list)
    """Every use of an operator that was derived: the call on whole operands, its annotation, and their relations."""
    unknown: dict[int, Operator] = field(default_factory=dict)
    """By identity, the operators of whose results not all are known on all ranks."""
    trails: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    """For every step that a rank ran (by its index), what its operators gave, in order; "absent" for a message of nothing."""


@dataclass(slots=True)
class RankState:
    """One rank of a derivation.

    `carriers` tells which tensor first carried the partial sum of a term, `consumers` which operator first read a tensor
    that is not complete; both only for messages. `trail` are the results of the segment that is run.
    """

    number: int
    environment: dict[str, Slot] = field(default_factory=dict)
    gradients: dict[str, Slot] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    """The name under which the rank makes the gradient of a weight."""
    saved: dict[tuple[str, ...], tuple[Compute, Saved]] = field(default_factory=dict)
    """What forward operators keep, by the names of their outputs."""
    readers: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    """Forward operators that have read a tensor, by the names of their outputs."""
    earlier: dict[int, Saved] = field(default_factory=dict)
    """What forward operators kept, by identity, whose outputs another operator of the same names has made anew since."""
    replaced: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """Operands that communication put something else in since a forward operator read them, by the names of its outputs."""
    local: dict[str, Slot] = field(default_factory=dict)
    unbound: dict[str, Location | None] = field(default_factory=dict)
    """The inputs of the segment that is run that have no value, and where it is run on them."""
    at_root: dict[str, int | None] = field(default_factory=dict)
    """The root of the collective that gave its result to another rank alone, by the name of the result."""
    segment: Segment | None = None
    trail: list[Any] = field(default_factory=list)
    carriers: dict[int, tuple[str, Operator]] = field(default_factory=dict)
    consumers: dict[str, tuple[str, Operator]] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    """The terms of forward values by name; they only decide which gradient sums are stated as one."""
    draws: dict[tuple[str, tuple[int, ...]], list[list[Box]]] = field(default_factory=dict)
    """What was drawn at random, by operator and the terms it was drawn for: the boxes of each draw, in order."""
    undefined: dict[str, str] = field(default_factory=dict)
    """Tensors of which it is not known what is in them, and why."""
    changed: set[str] = field(default_factory=set)
    """Weights, buffers and inputs that a call of unknown effect was given."""
    unknown: bool = False
    """Whether a call of unknown effect may have changed anything that the rank holds."""
    incomplete: dict[tuple[int, int], Operator] = field(default_factory=dict)
    """The first operators that took pending sums for complete, by the term and number of the sum."""
    zero: set[str] = field(default_factory=set)
    """Gradients that are zero, since none reaches what they are made from, by the names of the segment that is run."""
    zero_outside: set[str] = field(default_factory=set)
    """Those that segments gave, by the names outside."""
    inward: dict[str, str] = field(default_factory=dict)
    """The names outside of the segment that is run, by its own."""
    poisoned: set[tuple[str, ...]] = field(default_factory=set)
    """Forward operators (by the names of their outputs) that have no result because something before them went wrong."""
    owners: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The value that a gradient was stored as the gradient of, and its name, by the name of the gradient."""
    of_step: bool = True
    """Whether the segment that is run has the values of the whole step, and not those of one micro-batch."""
    summed: set[str] = field(default_factory=set)
    """Weights whose gradient is the sum over all micro-batches by now."""
    under_way: dict[int, tuple[Communicate | Receive, tuple[Any, int]]] = field(default_factory=dict)
    """Collectives and messages of the segment whose results the rank does not have yet, numbered as they were issued."""
    awaited: dict[Need, set[int]] = field(default_factory=dict)
    """Their numbers, by what needs them: the wait for a handle, the end of a batch, an operator that touches a tensor."""
    moved: bool = False
    """Whether the rank has run an operator since it last waited."""
    reducing: set[str] = field(default_factory=set)
    """Weights with a reducer that has not met all of its members yet."""
    scattered: dict[str, tuple[Shard, ...]] = field(default_factory=dict)
    """Of whose gradient reducers have left a shard, by weight: which of how many, and whether replicas have theirs."""
    made_of: dict[str, frozenset[str]] = field(default_factory=dict)
    """The weights out of whose gradients a tensor is made."""
    opaque: dict[str, Opaque | None] = field(default_factory=dict)
    """Which values tensors of unknown relation are, in a plan that is derived alone."""
    updated: dict[str, Slot | str] = field(default_factory=dict)
    """The gradients with which weights were updated; "absent" where there was none by then."""
    renewed: dict[str, Slot] = field(default_factory=dict)
    """What operators have put in the place of weights and states."""
    shares: dict[str, str] = field(default_factory=dict)
    """The tensor of which a view, a slice or a copy may be a part, so that what overwrites one may change the other."""
    parts: dict[str, set[str]] = field(default_factory=dict)
    """What `shares` has named a part of a tensor at some time."""
    stepped: set[str] = field(default_factory=set)
    """Weights that an optimizer step has changed, in a way that the plan does not say."""


@dataclass(slots=True)
class Uses:
    """Who reads what on the ranks of a program."""

    readers: dict[str, list[Operator]] = field(default_factory=dict)
    """The operators, gradients of others left out, that read each name."""
    differentiated: set[str] = field(default_factory=set)
    """Values that a gradient may reach whoever reads them."""
    parts: dict[str, set[str]] = field(default_factory=dict)
    """What each name is in another shape, or put together from by a collective."""
    behind: dict[str, set[str]] = field(default_factory=dict)
    """What names are put together from through all of `parts`, of those that were asked for."""


@dataclass(slots=True)
class Machine:
    """One derivation over one plan.

    `slots` is the slotted dimension of each input, `total_slots` their number, `losses` the values that the reference
    starts its gradients from (None while the reference itself is derived), `dtypes` the dtype of every term so far.

    With `nearest` the derivation recovers: where the plan computes what the reference does not, it goes on with what the
    reference has in its place, so that independent mistakes are all found. It does so with what operators want in a plan that
    is derived `alone`, without a reference.
    """

    world: World
    plan: Plan
    inputs: Inputs
    slots: tuple[int, ...]
    total_slots: int
    losses: frozenset[int] | None = None
    dtypes: dict[int, str] = field(default_factory=dict)
    nearest: Nearest | None = None
    assume: frozenset[str] = frozenset()
    alone: bool = False
    """Whether the plan has no reference, so that it is derived from what it declares, and beyond mistakes."""
    derived: Derived = field(default_factory=Derived)
    ranks: dict[int, RankState] = field(init=False)
    weight_of: dict[str, str] = field(default_factory=dict)
    addends: Mapping[str, str] = field(default_factory=dict)
    """Gradients of weights that are values of their own, which a plan that is derived alone adds up; by the weight."""
    forward_of: dict[str, list[str]] = field(default_factory=dict)
    """The tensors that a name is the gradient of."""
    shown: dict[str, str] = field(default_factory=dict)
    """What the plan returns, by the names that segments have for it where runs give it another."""
    gradient_names: set[str] = field(default_factory=set)
    names_made: frozenset[str] = frozenset()
    """All names that operators and runs give to something."""
    of_runs: frozenset[str] = frozenset()
    """Names that runs give to gradients that add up, and to what they make for later micro-batches: nothing follows them."""
    paired: set[tuple[str, str]] = field(default_factory=set)
    """What operators take and store as the gradient of what."""
    sources: dict[tuple[str, Location], tuple[int, Compute]] = field(default_factory=dict)
    """The term that an operator from a line of the model first made as a piece of a value, and that operator."""
    claimed: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The value that tensors are pieces of by their own claims, by its name: its term, and the first of them."""
    uses: dict[tuple[int, ...], Uses] = field(default_factory=dict)
    """Who reads what on the ranks of a program; filled where a gradient that nothing makes is read."""
    loaded: set[str] = field(default_factory=set)
    """Inputs that the plan loads in a segment of its own; others are there from the start."""
    last_position: int = -1
    """Where the plan ends to count positions; less than none before it is looked for."""
    expansions: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """What the reference expands, by what it makes them of; filled where the plan expands something else."""
    cases: Cases = field(default_factory=Cases)
    parameters: dict[tuple[str, int], Value] = field(default_factory=dict)
    results: dict[Any, Any] = field(default_factory=dict)
    waiting: dict[Any, dict[int, tuple[Communicate, Slot | str]]] = field(default_factory=dict)
    arrived: dict[Any, dict[int, Slot] | None] = field(default_factory=dict)
    turns: dict[tuple[int, Any], int] = field(default_factory=dict)
    parted: set[tuple[int, ...]] = field(default_factory=set)
    """The ranks of groups whose members have met in different collectives."""
    made: set[tuple[str, ...]] = field(default_factory=set)
    """The outputs of operators that the plan runs; filled where a gradient names another one."""
    mail: dict[Any, list[Slot | str]] = field(default_factory=dict)
    """What was sent on each channel, in order."""
    groups: Groups = field(init=False)
    programs: dict[int, Program] = field(init=False)
    """The program of each rank."""
    makers: dict[int, list[int]] = field(default_factory=dict)
    """The ranks that first carried the partial sum of a term, in order."""
    blamed: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    """Of how many of them a pending sum was reported, as a mistake or as a gap."""
    opaque: dict[Hashable, int] = field(default_factory=dict)
    """The numbers of values by what they are, of a plan that is derived alone."""
    given: dict[Any, dict[int, Opaque | None]] = field(default_factory=dict)
    """Which values members put into collectives that have not come together yet."""
    moved: dict[Any, dict[int, Opaque | None]] = field(default_factory=dict)
    """Which values of unknown relation collectives give their members."""
    posted: dict[Any, list[Opaque | None]] = field(default_factory=dict)
    """Which values were sent on each channel, in order."""
    wrong: set[int] = field(default_factory=set)
    """The operators, by identity, of the first `judged` defects that refute."""
    judged: int = 0
    micro_batches: int = 1
    owners: Owners | None = None
    """Whose gradients go on into a backward, and whose step a weight; of a plan that is derived alone, once it is asked for."""
    in_order: dict[tuple[int, int, str], Value] = field(default_factory=dict)
    """What operators, by identity, give under a name that puts the pieces of a gather into order; of a plan derived alone."""
    reducers: dict[Any, dict[int, Reducing]] = field(default_factory=dict)
    """Gradient reducers that have not met all of their members yet."""

    def __post_init__(self) -> None:
        self.groups = Groups(self.plan)
        self.programs = {rank: program for program in self.plan.programs for rank in program.ranks}
        self.ranks = {rank: RankState(rank) for rank in self.programs}


def leave_open(machine: Machine, rank: RankState, name: str) -> None:
    """Forget what was complete in `name`, which a collective with another root was given in place.

    A part of a sum stays one, whose use is reported as what it is.
    """
    for held in (rank.local, rank.environment):
        value = held.get(name)
        if value is not None and not value.leaves:
            held[name] = None
            rank.undefined[name] = "a collective with another root leaves no certain value in it on {ranks}"
    weight = machine.weight_of.get(name, "")
    value = rank.gradients.get(weight)
    if value is not None and not value.leaves:
        rank.gradients[weight] = None
