"""What a plan states of gradients and of trained weights, held against what its derivation took them for."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.gradients.starts import is_same
from tvlint.analyses.relations.derivation.state import Machine
from tvlint.ir.operators import Communicate, Compute
from tvlint.ir.plan import Plan, Role


def contradicted(machine: Machine) -> Iterator[Defect]:
    """Yield what the plan states of gradients and weights and the derivation has found otherwise."""
    yield from _unpaired(machine)
    yield from _frozen(machine)


def _unpaired(machine: Machine) -> Iterator[Defect]:
    """Yield declared gradients that operators take or store as that of another value, or others than which a value has.

    nnScaler declares gradients of tensors that it has moved since, which have others.
    """
    plan, paired = machine.plan, {(gradient, of) for gradient, of in machine.paired if gradient and of}
    stated = [(tensor.gradient, tensor.name, tensor) for tensor in plan.tensors.values() if tensor.gradient]
    stated += [(tensor.name, tensor.gradient_of, tensor) for tensor in plan.tensors.values() if tensor.gradient_of]
    open_ = [entry for entry in stated if (entry[0], entry[1]) not in paired]
    if not open_:
        return
    exported = plan.format.startswith("nnscaler-")
    alike = SameValue(plan)
    known = {(alike.root(gradient), alike.root(of)) for gradient, of in paired}
    gradients = {gradient for gradient, _ in paired}
    owners = {of for _, of in paired}
    for gradient, of, tensor in open_:
        used = gradient in gradients or (of in owners and (not exported or gradient in plan.tensors))
        if used and (alike.root(gradient), alike.root(of)) not in known:
            text = f"the plan declares `{gradient}` as the gradient of `{of}`, and no operator takes or stores it as that"
            yield Defect("other-gradient-declared", False, text, plan.programs[0].ranks[0], source=tensor.source)


def _frozen(machine: Machine) -> Iterator[Defect]:
    """Yield weights that are declared to be frozen, or to have no gradient, and get one or are updated."""
    plan = machine.plan
    for state in machine.ranks.values():
        rank, gradients = state.number, machine.derived.gradients[state.number]
        for name in dict.fromkeys((*gradients, *state.stepped, *state.renewed)):
            tensor = plan.tensors[name]
            if tensor.role is not Role.WEIGHT:
                continue
            if not tensor.requires_grad:
                text = f"the weight `{name}` is declared to be frozen, and on {{ranks}} it is trained"
                yield Defect("frozen-weight-trained", False, text, rank, source=tensor.source)
            elif not tensor.gradient and name in gradients:
                text = f"the weight `{name}` is declared to have no gradient, and on {{ranks}} it gets one"
                yield Defect("other-gradient-declared", False, text, rank, source=tensor.source)


class SameValue:
    """Names that stand for one value, or for pieces or parts of one: what is communicated, and names that runs give."""

    def __init__(self, plan: Plan) -> None:
        self._root: dict[str, str] = {}
        for operator in plan.operators():
            if isinstance(operator, Communicate) or (isinstance(operator, Compute) and is_same(operator)):
                for name in operator.outputs:
                    self._join(name, next(iter(reads(operator)), name))
        for step in plan.steps():
            segment = plan.segments[step.segment]
            for names, outside in zip((segment.inputs, segment.outputs), step.outside(segment), strict=True):
                for inner, outer in zip(names, outside, strict=True):
                    self._join(inner, outer)

    def root(self, name: str) -> str:
        """Return the one name that stands for all that are alike."""
        found = name
        while (above := self._root.get(found, found)) != found:
            found = above
        while name != found:
            self._root[name], name = found, self._root.get(name, name)
        return found

    def _join(self, one: str, other: str) -> None:
        self._root[self.root(one)] = self.root(other)
