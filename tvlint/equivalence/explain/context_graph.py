"""The graph around a defect: the operators that lead to it, and the pieces that each kind of rank holds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.gradients.roots import named_after
from tvlint.analyses.relations.defect import Defect, everywhere
from tvlint.analyses.relations.derivation.given.trusted_inputs import region, whole_shape
from tvlint.analyses.relations.derivation.localisation.localise import name_of, scope_of
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.findings import Piece, Scene, SceneStep
from tvlint.ir.operators import Operator
from tvlint.ir.plan import Plan, Role

_STEPS_BEFORE = 3
_MOST_STEPS = 12
_MOST_SCENES = 4
_MOST_MATES = 16


def scenes(plan: Plan, terms: Terms, derived: Derived, defects: Sequence[Defect]) -> tuple[Scene, ...]:
    """The scene of the defects of one reason, once for each kind of rank; none for what stands at no operator."""
    first = next((defect for defect in defects if defect.place is not None and defect.segment in plan.segments), None)
    if first is None:
        return ()
    alike: dict[Hashable, tuple[tuple[SceneStep, ...], list[int]]] = {}
    for rank in sorted({rank for defect in defects for rank in _mates(plan, defect)}):
        place = next((defect.place for defect in defects if defect.rank == rank and defect.place is not None), first.place)
        segment = next((defect.segment for defect in defects if defect.rank == rank and defect.segment), first.segment)
        steps = _steps(plan, terms, derived, rank, segment, place) if place is not None else ()
        if steps:
            alike.setdefault(_nameless(steps), (steps, []))[1].append(rank)
    return tuple(Scene(everywhere(plan, ranks), steps) for steps, ranks in list(alike.values())[:_MOST_SCENES])


def _nameless(steps: tuple[SceneStep, ...]) -> Hashable:
    """Return what is drawn without the names of tensors, which differ from rank to rank in some formats."""
    return tuple(
        (step.operator, *((piece.of, piece.whole, piece.box, piece.lacks) for piece in (*step.reads, *step.gives)))
        for step in steps
    )


def _mates(plan: Plan, defect: Defect) -> tuple[int, ...]:
    """Return the rank of the defect and those that run the same operator with it."""
    mates = next((program.ranks for program in plan.programs if defect.rank in program.ranks), ())
    return (*mates[:_MOST_MATES], *((defect.rank,) if defect.rank in mates[_MOST_MATES:] else ()))


def _steps(plan: Plan, terms: Terms, derived: Derived, rank: int, segment: str, place: Operator) -> tuple[SceneStep, ...]:
    """Return the operator, the nearest ones before it in its segment that made what it reads, and all that made what lacks in
    it.
    """
    local = derived.locals.get((rank, segment))
    if local is None:
        return ()

    made_here = {name for operator in plan.segments[segment].operators for name in writes(operator)}

    def piece(name: str) -> Piece | None:
        environment = derived.environments.get(rank, {})
        value = local.get(name) or environment.get(name)
        if value is None:
            known = name in local or name in environment or name in made_here
            return _declared(plan, rank, name, known)
        return _piece(terms, name, value)

    def lacking(names: Iterable[str]) -> set[str]:
        return {name for name in names if (found := piece(name)) is not None and found.lacks}

    chain: list[Operator] = [place]
    wanted = set(reads(place))
    wrong = lacking(wanted)
    reached = False
    for operator in reversed(plan.segments[segment].operators):
        made = set(writes(operator))
        if operator is place:
            reached = True
        elif reached and (made & wrong or (len(chain) <= _STEPS_BEFORE and made & wanted)) and len(chain) < _MOST_STEPS:
            chain.append(operator)
            wanted.update(reads(operator))
            wrong |= lacking(reads(operator)) if made & wrong else set()
    if not reached:
        return ()
    return tuple(
        SceneStep(
            name_of(operator).replace("`", ""),
            tuple(found for name in reads(operator) if (found := piece(name)) is not None),
            tuple(found for name in writes(operator) if (found := piece(name)) is not None),
            operator is place,
            operator.source,
        )
        for operator in reversed(chain)
    )


def _piece(terms: Terms, name: str, value: Value) -> Piece:
    parts = [_summed(pending) for leaf in value.leaves for pending in sorted(leaf.pending)]
    lacks = f"partial sum {parts[0]}" if parts else "" if value.coefficient == 1 else f"{value.coefficient} times"
    if value.leaves and not parts:
        lacks = "some addends counted more often than others"
    head = terms.keys[value.term]
    of = str(head[1]) if head[0] == "weight" else str(head[0])
    return Piece(name, of, terms.shape[value.term], value.box, lacks)


def _summed(pending: Pending) -> str:
    """Return the range that a partial sum goes over."""
    if (pending.low, pending.high) == (0, pending.size):
        return scope_of(pending)
    return f"over {pending.low}:{pending.high} of {pending.size}"


def _declared(plan: Plan, rank: int, name: str, derived: bool) -> Piece | None:
    """Return what a weight, buffer or input is declared to hold; of anything else, that it is not known or where it is from."""
    tensor = plan.tensors.get(name)
    if tensor is None or tensor.role not in (Role.WEIGHT, Role.BUFFER, Role.INPUT):
        shape = () if tensor is None else tensor.shape
        starts = named_after(name) in {*plan.losses, *plan.outputs}
        lacks = "not known" if derived else "backward starts here" if starts else "nothing makes it"
        return Piece(name, "", shape, (), lacks)
    try:
        return Piece(name, tensor.logical or name, whole_shape(tensor), region(plan, tensor, rank))
    except Mismatch:
        return None
