"""Operands that no framework runs an operator on, as far as no mistake before them is the cause."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import traffic
from tvlint.analyses.communication.collective_order import disagreements
from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.inference.declared_shapes import called
from tvlint.analyses.inference.operand_fit import Misfit, operand_fit
from tvlint.analyses.inference.uneven_shards import remainders
from tvlint.analyses.relations.findings import is_wrong_in_relations
from tvlint.ir.operators import Communicate, Compute
from tvlint.ops.spec import DtypeError


@once_per_plan
def first_misfits(facts: Facts) -> tuple[Misfit, ...]:
    """Return the misfits that do not follow from one before, nor from what placement rules report."""
    return tuple(_first_misfits(facts))


def _first_misfits(facts: Facts) -> Iterator[Misfit]:
    misfits = {(misfit.segment, misfit.index): misfit for misfit in operand_fit(facts).misfits}
    if not misfits:
        return
    explained = set()
    for parted in disagreements(facts):
        explained |= {(call.site.segment, call.site.index) for call in (*parted.ours, *parted.theirs)}
    doubtful = {found.tensor.name for found in remainders(facts.plan)} | set(_changed_on_the_way(facts))
    for segment in facts.plan.segments.values():
        for index, operator in enumerate(segment.operators):
            where = (segment.name, index)
            wrong = where in explained or is_wrong_in_relations(facts, operator)
            follows = wrong or not doubtful.isdisjoint(uses(operator))
            if where in misfits and not follows:
                yield misfits[where]
            if where in misfits or follows:
                doubtful.update(writes(operator))


def _changed_on_the_way(facts: Facts) -> Iterator[str]:
    """Yield what is received with another shape or type than it is sent with, which is a mistake of the message."""
    tensors = facts.plan.tensors
    for sends, _ in traffic(facts).channels.values():
        for send in sends:
            if send.partner is None:
                continue
            (sent,), (received,) = uses(send.operator), writes(send.partner.operator)
            tensor, other = tensors.get(sent), tensors.get(received)
            if tensor is not None and other is not None and (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
                yield received


def in_words(facts: Facts, misfit: Misfit) -> str:
    """Return the operator with its tensor operands, the shapes or types that they have, and what would fit."""
    operator = facts.plan.segments[misfit.segment].operators[misfit.index]
    if not isinstance(operator, Compute | Communicate):
        return str(misfit.why)
    tensors = facts.plan.tensors
    _, *names = names_of(facts, misfit)
    if isinstance(misfit.why, DtypeError):
        said = [f"`{name}` of type {tensors[name].dtype}" for name in names]
    else:
        said = [f"`{name}` of shape {list(tensors[name].shape)}" for name in names]
    listed = ", ".join(said[:-1]) + " and " + said[-1] if len(said) > 1 else "".join(said)
    return f"`{called(operator)}` does not take {listed}: {misfit.why.expected}"


def names_of(facts: Facts, misfit: Misfit) -> tuple[str, ...]:
    """Return the operator in a word and its tensor operands."""
    operator = facts.plan.segments[misfit.segment].operators[misfit.index]
    if not isinstance(operator, Compute | Communicate):
        return ()
    return called(operator), *(name for name in dict.fromkeys(uses(operator)) if name in facts.plan.tensors)
