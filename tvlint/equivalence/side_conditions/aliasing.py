"""Names that runs give to values: none may make one value two, or two values one, unseen by a derivation of one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import of_kinds, writes
from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.relations.defect import Defect
from tvlint.ir.operators import Communicate, Compute, Receive
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step

_COMMUNICATION = frozenset({Communicate, Receive})

_GIVEN = (Role.WEIGHT, Role.BUFFER, Role.INPUT)
"""What lies where it is declared to lie."""

_Users: TypeAlias = "dict[tuple[int, str], list[tuple[int, str, str, bool]]]"


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a segment that matter for aliasing, by position among its inputs, or inputs and outputs.

    `given` are inputs that lie where they are declared to lie, `gradients` outputs that are gradients of weights, `passed`
    names that come in and go out without being computed, `replaced` those that come in and have something else put in.
    """

    given: tuple[int, ...]
    gradients: tuple[int, ...]
    passed: tuple[tuple[int, int], ...]
    replaced: tuple[int, ...]


class Renames:
    """The names that the runs of a plan give; what a segment has of them is found once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[str, _Names] = {}
        self._roles: dict[tuple[int, ...], dict[str, set[Role | None]]] = {}

    @cached_property
    def _owner(self) -> dict[str, str]:
        return accumulators(self._plan)

    @cached_property
    def _of_step(self) -> set[str]:
        """Return what is made by runs of no micro-batch alone."""
        batches: dict[str, set[bool]] = {}
        for step in self._plan.steps():
            batches.setdefault(step.segment, set()).add(step.micro_batch < 0)
        made: dict[bool, set[str]] = {True: set(), False: set()}
        for name, once in batches.items():
            for operator in self._plan.segments[name].operators:
                made[once == {True}].update(writes(operator))
        return made[True] - made[False]

    def _names(self, segment: Segment) -> _Names:
        if segment.name not in self._known:
            self._known[segment.name] = self._found(segment)
        return self._known[segment.name]

    def _found(self, segment: Segment) -> _Names:
        tensors = self._plan.tensors
        communicated = {name for _, operator in of_kinds(segment.operators, _COMMUNICATION) for name in writes(operator)}
        place = {name: at for at, name in enumerate(segment.outputs)}
        both = not place.keys().isdisjoint(segment.inputs)
        others = (operator for operator in segment.operators if type(operator) not in _COMMUNICATION) if both else ()
        computed = {name for operator in others for name in writes(operator)}
        return _Names(
            tuple(i for i, name in enumerate(segment.inputs) if name in tensors and tensors[name].role in _GIVEN),
            tuple(i for i, name in enumerate(segment.outputs) if name in self._owner),
            tuple((i, place[name]) for i, name in enumerate(segment.inputs) if name in place and name not in computed),
            tuple(i for i, name in enumerate(segment.inputs) if name in communicated and name not in self._owner),
        )

    def defects(self, program: Program) -> Iterator[Defect]:
        """Names by which a run has another value than its segment says, or its own share of one that others have."""
        reported: set[str] = set()
        many = self._plan.micro_batches > 1
        users: _Users = {}
        for number, step in enumerate(program.steps):
            segment = self._plan.segments[step.segment]
            if segment.name in reported:
                continue
            text = self._of_none(segment, step) if many and step.micro_batch < 0 else ""
            name = "outside-micro-batches" if text else "renamed-value"
            if not text and (step.inputs is not None or step.outputs is not None):
                text = self._renamed(program, segment, step)
            if not text and self._names(segment).replaced:
                users = users or self._users(program)
                text = self._replaced(program, number, users)
            if text:
                reported.add(segment.name)
                yield Defect(name, False, text, -1, segment.name, source=step.source)

    def _role(self, name: str) -> Role | None:
        tensor = self._plan.tensors.get(name)
        return None if tensor is None else tensor.role

    def _of_none(self, segment: Segment, step: Step) -> str:
        """Return a run of no micro-batch that has a value of one."""
        for name in (*segment.inputs, *segment.outputs, *(step.inputs or ()), *(step.outputs or ())):
            tensor = self._plan.tensors.get(name)
            lasts = tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE)
            if not lasts and name not in self._owner and name not in self._of_step and segment.phase is not Phase.DATA:
                return f"`{segment.name}` on {{ranks}} belongs to no micro-batch and has `{name}`, a value of one"
        return ""

    def _renamed(self, program: Program, segment: Segment, step: Step) -> str:
        inputs, outputs = step.outside(segment)
        names = self._names(segment)
        if len(inputs) != len(segment.inputs) or len(outputs) != len(segment.outputs):
            return ""
        for i in names.given:
            inner, outer = segment.inputs[i], inputs[i]
            if inner != outer and outer not in self._plan.tensors and not self._made_like(program, outer, inner):
                return f"`{outer}`, which nothing on {{ranks}} makes like it, stands for `{inner}`"
        for inner, outer in zip(segment.outputs, outputs, strict=True):
            if inner not in self._plan.tensors and self._role(outer) in _GIVEN:
                return f"`{inner}` on {{ranks}}, which is not declared, is given the name of `{outer}`, which is there before"
        for i, j in names.passed:
            if inputs[i] != outputs[j]:
                return f"`{segment.name}` on {{ranks}} gives `{inputs[i]}` another name, `{outputs[j]}`"
        for i in names.gradients:
            if self._owner.get(outputs[i]) != self._owner[segment.outputs[i]]:
                return f"`{outputs[i]}` on {{ranks}} stands for `{segment.outputs[i]}`, the gradient of another weight"
        if not self._owner.keys().isdisjoint(outputs):
            for inner, outer in zip(segment.outputs, outputs, strict=True):
                if outer in self._owner and inner not in self._owner:
                    return f"`{outer}` on {{ranks}}, the gradient of a weight, stands for `{inner}`, which is none"
        return ""

    def _made_like(self, program: Program, name: str, inner: str) -> bool:
        """Return whether runs give the name to what is declared to be of the role of `inner`, and to nothing else."""
        if program.ranks not in self._roles:
            roles: dict[str, set[Role | None]] = {}
            for step in program.steps:
                segment = self._plan.segments[step.segment]
                for output, outer in zip(segment.outputs, step.outside(segment)[1], strict=False):
                    roles.setdefault(outer, set()).add(self._role(output))
            self._roles[program.ranks] = roles
        return self._roles[program.ranks].get(name) == {self._role(inner)}

    def _replaced(self, program: Program, number: int, users: _Users) -> str:
        """Return a name by which communication overwrites what other runs know by another name, or read later."""
        step = program.steps[number]
        segment = self._plan.segments[step.segment]
        inputs, outputs = step.outside(segment)
        for i in self._names(segment).replaced:
            inner, outer = segment.inputs[i], inputs[i]
            for at, other, name, reads in users.get((step.micro_batch, outer), ()):
                if at > number and reads and outer not in outputs:
                    return f"`{outer}` on {{ranks}} is read after `{segment.name}` has put something else in it"
                if (
                    name != inner
                    and self._role(inner) is not Role.GRADIENT
                    and _computes_with(self._plan.segments[other], name)
                ):
                    return f"`{segment.name}` on {{ranks}} puts something else in `{outer}`, with which `{other}` computes"
        return ""

    def _users(self, program: Program) -> _Users:
        """Return by micro-batch and name, who has the value: the run, its segment, the name there, and whether it is read."""
        found: _Users = {}
        for number, step in enumerate(program.steps):
            segment = self._plan.segments[step.segment]
            inputs, outputs = step.outside(segment)
            for inside, outside, reads in ((segment.inputs, inputs, True), (segment.outputs, outputs, False)):
                for inner, outer in zip(inside, outside, strict=False):
                    found.setdefault((step.micro_batch, outer), []).append((number, segment.name, inner, reads))
        return found


def _computes_with(segment: Segment, name: str) -> bool:
    return any(isinstance(operator, Compute) and name in operator.inputs for operator in segment.operators)
