"""What a plan claims of the tensors that operators make, held against what they are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import prod

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.given.trusted_inputs import pieces_held, whole_shape
from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Operator
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Role, Tensor
from tvlint.ir.reductions import EXTREMES


def check_claims(machine: Machine, rank: RankState, operator: Operator, tensor: Tensor, value: Value) -> None:
    """Note what the plan claims of a tensor that is made and that it is not: a piece, a part, the value of another name."""
    text = _wrong_piece(machine, rank, tensor, value) or _wrong_part(tensor, value) or _wrong_value(machine, tensor, value)
    if text:
        segment = rank.segment.name if rank.segment else ""
        message = f"the plan claims that `{tensor.name}` on {{ranks}} {text}"
        wrong = Defect("wrong-placement-claim", False, message, rank.number)
        machine.derived.contradicted.append(at(operator, segment, wrong))


def _wrong_piece(machine: Machine, rank: RankState, tensor: Tensor, value: Value) -> str:
    """Return the claim that the tensor holds a box of the whole value that it does not, dimensions of the batch left out."""
    if tensor.region is None and tensor.placements is None:
        return ""
    kept = {axis: placement for axis, placement in (tensor.placements or {}).items() if not isinstance(placement, Partial)}
    try:
        claimed = pieces_held(machine.plan, replace(tensor, placements=kept, part=(0, 1)), rank.number)
    except Mismatch as mismatch:
        return f"lies as declared, and {mismatch.message}"
    terms, whole = machine.world.terms, whole_shape(tensor)
    own_term = terms.whole(value.term)
    shape, slot = terms.shape[own_term], terms.slot[own_term]
    if len(whole) != len(shape):
        return f"is a piece of shape {whole}, and it is one of shape {shape}"
    for dim, (pieces, held) in enumerate(zip(claimed, machine.world.values.pieces_of(value), strict=True)):
        if dim != slot and (whole[dim], pieces) != (shape[dim], held):
            said, is_so = (", ".join(f"{low}:{high}" for low, high in each) for each in (pieces, held))
            return f"holds {said} of {whole[dim]} in dimension {dim}, and it holds {is_so} of {shape[dim]}"
    return ""


def _wrong_part(tensor: Tensor, value: Value) -> str:
    """Return the claim that the tensor is a part of a sum, or all of it, that it is not.

    Only placements claim that a value is complete. In which order parts are numbered is free, how many there are is not. What
    lacks other micro-batches, or other replicas, may be claimed to be either, and so may zero. The mean and the extremes of
    equal values are that value.
    """
    kinds = {placement.reduce for placement in (tensor.placements or {}).values() if isinstance(placement, Partial)}
    claimed = tensor.part != (0, 1) or bool(kinds)
    kind = "sum" if value.fold is None else value.fold.kind
    ranges = (entry for leaf in value.leaves for entry in leaf.pending)
    partial = value.fold is not None or any((entry.low, entry.high) != (0, entry.size) for entry in ranges)
    if partial and tensor.placements is not None and not claimed:
        return f"is complete, and it is a part of a {kind}"
    of_equals = bool(kinds) and kinds <= {"avg", *EXTREMES}
    if claimed and not of_equals and not partial and not value.leaves and value.coefficient != 0:
        return "is a part, and it is complete"
    if partial and kinds - {"avg"} not in (set(), {kind}):
        return f"is a part of a {' and '.join(sorted(kinds))}, and it is one of a {kind}"
    addends = prod(Fraction(entry.size, entry.high - entry.low) for leaf in value.leaves for entry in leaf.pending)
    if tensor.part != (0, 1) and partial and len(value.leaves) == 1 and addends != tensor.part[1]:
        return f"is one of {tensor.part[1]} addends, and it is one of {addends}" if addends.denominator == 1 else ""
    return ""


def _wrong_value(machine: Machine, tensor: Tensor, value: Value) -> str:
    """Return the claim that the tensor is a piece of the same value as another one that it is not."""
    if not tensor.logical or tensor.role is not Role.ACTIVATION:
        return ""
    term, name = machine.claimed.setdefault(tensor.logical, (value.term, tensor.name))
    return "" if term == value.term else f"is a piece of `{tensor.logical}`, as `{name}` is, and they are different values"
