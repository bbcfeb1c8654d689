"""Compare weights and states that plans with written-out optimizers leave.

A plan writes out how a weight is updated where an operator gives the weight anew: the step of an optimizer, a subtraction, a
gather of updated shards. Its gradient is then a value like any other; what the step leaves in the weight and in every state is
compared. Where the reference says `update` alone, a step of an optimizer of the operator table is what that stands for, by an
assumption that the verdict lists, if it takes the weight, exactly the reference's gradient, and states of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.given.trusted_inputs import region
from tvlint.analyses.relations.derivation.localisation.localise import partial_sum, scope_of
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.transfer.boxes import covers
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.equivalence.verdict.compare_gradients import Expected
from tvlint.ir.plan import Box, Plan, Role, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.plurals import counted

_LASTING = (Role.WEIGHT, Role.STATE)


def written_out(plan: Plan, derived: Derived) -> set[str]:
    """Return the full names of the weights that some rank writes anew."""
    found = (plan.tensors[name] for held in derived.renewed.values() for name in held)
    return {tensor.logical or tensor.name for tensor in found if tensor.role is Role.WEIGHT}


def compare_states(world: World, plan: Plan, derived: Derived, expected: Expected) -> tuple[list[Defect], frozenset[str]]:
    """Return what is wrong with what the plan leaves in weights and states, and what is assumed of the rest."""
    steps = _Steps(world, plan, derived)
    found = list(_differences(world, plan, derived, expected, steps))
    return found, frozenset(steps.assumptions)


def _differences(world: World, plan: Plan, derived: Derived, expected: Expected, steps: _Steps) -> Iterator[Defect]:
    pieces: dict[str, list[Box]] = {}
    names = written_out(plan, derived)
    kept: list[tuple[int, Tensor]] = []
    for rank, tensor in _held(plan, derived):
        name = tensor.logical or tensor.name
        right = expected.left.get(name)
        if right is None and name not in names:
            kept += [(rank, tensor)] if tensor.name in derived.renewed[rank] else []
            continue
        try:
            box = region(plan, tensor, rank)
        except Mismatch as mismatch:
            yield Defect(mismatch.name, False, f"on {{ranks}}, {mismatch.message}", rank)
            continue
        if right is not None and len(box) != len(whole := world.terms.shape[right.term]):
            text = f"`{name}` on {{ranks}} is held in {counted(len(box), 'dimension')}, and in {len(whole)} in the reference"
            yield Defect("unknown-state", False, text, rank)
            pieces.setdefault(name, [])
            continue
        pieces.setdefault(name, []).append(box)
        value = derived.renewed[rank].get(tensor.name, "kept")
        if value == "kept" and (rank, tensor.name) in derived.changed:
            text = f"`{name}` on {{ranks}} may be updated by a call of unknown effect"
            yield Defect("undecided-update", False, text, rank)
        elif right is None:
            yield from steps.judged(rank, name, box, value, expected.gradients.get(name))
        else:
            value = "updated" if value == "kept" and tensor.name in derived.stepped[rank] else value
            yield from _judged(plan, rank, name, box, value, right)
    for rank, tensor in kept:
        if (rank, tensor.name) not in steps.states:
            text = f"the state `{tensor.name}` on {{ranks}} has no counterpart in the reference, nor in a step of a weight"
            yield Defect("unknown-state", False, text, rank)
    for name, right in expected.left.items():
        if name not in pieces:
            text = f"the reference writes out how `{name}` is updated, and the parallel plan does not"
            yield Defect("other-update", False, text, plan.programs[0].ranks[0])
        elif pieces[name] and not covers(pieces[name], world.terms.shape[right.term]):
            text = f"no rank of the parallel plan holds all of `{name}`, piece by piece"
            yield Defect("uncovered-state", False, text, plan.programs[0].ranks[0])


def _held(plan: Plan, derived: Derived) -> list[tuple[int, Tensor]]:
    """Return the weights and states that each rank reads or writes anew."""
    seen = {(rank, name) for rank, name in derived.used if plan.has_role(name, *_LASTING)}
    seen |= {(rank, name) for rank, held in derived.renewed.items() for name in held}
    return [(rank, plan.tensors[name]) for rank, name in sorted(seen)]


def _judged(plan: Plan, rank: int, name: str, box: Box, value: Slot | str, right: Value) -> Iterator[Defect]:
    subject = f"`{name}` on {{ranks}}"
    if value == "updated":
        yield Defect("other-update", False, f"{subject} is updated in a way that the plan does not write out", rank)
    elif isinstance(value, str):
        yield Defect("not-updated-once", True, f"{subject} is never updated, and in the reference it is", rank)
    elif value is None:
        yield Defect("undecided-update", False, f"what updates {subject} depends on something that is undecided before", rank)
    elif value.box != box:
        yield Defect("update-of-another-slice", True, f"{subject} gets another slice than its own", rank)
    elif value.term != right.term or value.fold is not None:
        yield Defect("other-update", False, f"{subject} is not what the reference makes of it", rank)
    elif value.leaves:
        pending = sorted(entry for leaf in value.leaves for entry in leaf.pending)
        what = f"{partial_sum(plan, rank, pending[0])}, {scope_of(pending[0])}" if pending else "a sum of unequal addends"
        yield Defect("incomplete-update", True, f"{subject} gets {what}", rank)
    elif value.coefficient != right.coefficient:
        yield Defect("scaled-update", True, f"{subject} gets a multiple of what the reference makes of it", rank)


class _Steps:
    """The steps of optimizers that weights take where the reference says `update`, with the states that belong to them."""

    def __init__(self, world: World, plan: Plan, derived: Derived) -> None:
        self._world, self._plan, self._derived = world, plan, derived
        self._owner: dict[int, str] = {}
        self._made: dict[str, int] = {}
        self.states: set[tuple[int, str]] = set()
        self.assumptions: set[str] = set()

    def judged(self, rank: int, name: str, box: Box, value: Slot | str, gradient: Value | None) -> Iterator[Defect]:
        """Yield what keeps a weight from being what an optimizer makes of it and of the reference's gradient."""
        subject = f"`{name}` on {{ranks}}"
        if isinstance(value, str):
            yield Defect("not-updated-once", True, f"{subject} is not updated, and on other ranks it is", rank)
            return
        if value is not None and value.clean and value.box != box:
            yield Defect("update-of-another-slice", True, f"{subject} gets another slice than its own", rank)
            return
        lacks = self._lacks(rank, name, value, gradient)
        if lacks:
            text = f"{subject} is updated in a way that the reference does not write out: {lacks}"
            yield Defect("written-out-update", False, text, rank)

    def _lacks(self, rank: int, name: str, value: Slot, gradient: Value | None) -> str:
        terms = self._world.terms
        if value is None or gradient is None or not value.clean or not gradient.clean:
            return "it is not known what it gets"
        head, operands = terms.keys[value.term], terms.operands[value.term]
        if not has_trait(str(head[0]), Trait.OPTIMIZER) or head[1] != 0:
            return "it gets no weight of a step of an optimizer that is known"
        weight, given, *states = operands
        if terms.keys[weight][:2] != ("weight", name):
            return f"the step does not start from the weight: say `of {name}` of a state that is its copy"
        if given != gradient.term:
            return "the step takes another gradient than the reference's"
        for number, state in enumerate(states, 1):
            if not self._has_state(rank, name, (*head[:1], number, head[2]), given, state):
                return "a state of the step is none, or does not become what the step makes of it"
        if self._made.setdefault(name, value.term) != value.term:
            return "ranks take different steps"
        function = str(head[0]).replace("-", "_")
        self.assumptions.add(f"`{function}` is the optimizer that the reference's `update` stands for; its states start alike")
        return ""

    def _has_state(self, rank: int, name: str, head: tuple[object, ...], gradient: int, state: int) -> bool:
        """Return whether a state belongs to the weight alone, and whether each piece that the rank has of it takes the step."""
        terms = self._world.terms
        if terms.keys[state][0] != "state" or self._owner.setdefault(state, name) != name:
            return False
        for each_name, value in self._derived.renewed[rank].items():
            tensor = self._plan.tensors[each_name]
            if tensor.role is Role.STATE and (tensor.logical or each_name) == terms.keys[state][1]:
                if value is None or not value.clean or value.box != _box(self._plan, tensor, rank):
                    return False
                operands = terms.operands[value.term]
                if terms.keys[value.term][:3] != head or operands[-1] != state or gradient not in operands[:-1]:
                    return False
                self.states.add((rank, each_name))
        return True


def _box(plan: Plan, tensor: Tensor, rank: int) -> Box | None:
    try:
        return region(plan, tensor, rank)
    except Mismatch:
        return None
