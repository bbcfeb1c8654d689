"""What a plan claims of the tensors that operators make, held against what they are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.given.trusted_inputs import pieces_held, pieces_placed, whole_shape
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.analyses.relations.transfer.context import Mismatch, of_one_plan
from tvlint.analyses.relations.transfer.index_maps import Pieces, joined_dimensions, length
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Collective, Communicate, Compute, Operator
from tvlint.ir.placement import Partial, Shard
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


def contradicted(machine: Machine, rank: RankState, operator: Operator, tensor: Tensor, value: Value) -> Value | None:
    """Note what a plan without a reference states of a tensor that is made and is not so; return what to go on with, if so.

    What is stated to be complete is taken for complete. Nothing is said of what is known as a value of another shape, such as
    what a rank took of another one.
    """
    if tensor.role is not Role.ACTIVATION:
        return None
    found, goes_on = _misplaced(machine, rank, operator, tensor, value), value
    cause: Hashable = (id(operator), found.message if found is not None else "")
    if found is None and tensor.region is not None:
        found = _unlike(machine, operator, tensor, value) if isinstance(operator, Compute) else None
        if found is None and _is_incomplete(tensor, value):
            text = "is a part of a sum, and the plan says that it is complete"
            found = of_one_plan("missing-allreduce", f"{{subject}}, which {name_of(operator)} gives on {{ranks}}, {text}")
            cause = tensor.logical or tensor.name
            goes_on = machine.world.values.clean(value.term, value.box)
    if found is None:
        return None
    wrong = Defect(
        found.name,
        True,
        found.message,
        rank.number,
        subject=tensor.name,
        cause=("claim", found.name, cause),
        unless=found.unless,
    )
    machine.derived.contradicted.append(at(operator, rank.segment.name if rank.segment else "", wrong))
    return goes_on


def _misplaced(machine: Machine, rank: RankState, operator: Operator, tensor: Tensor, value: Value) -> Mismatch | None:
    """Return what is wrong with the indices that a tensor is declared to hold; of stated regions only where they are cut."""
    terms, whole = machine.world.terms, whole_shape(tensor)
    term = terms.whole(value.term)
    stated = tensor.region is not None and isinstance(operator, Communicate) and operator.kind is Collective.CHUNK
    if not (stated or (tensor.region is None and tensor.placements is not None)):
        return None
    if not value.clean or not (whole == terms.shape[term] or (isinstance(operator, Compute) and not stated)):
        return None
    try:
        if tensor.region is None:
            claimed = pieces_placed(machine.plan, tensor, whole, rank.number)
        else:
            claimed = pieces_held(machine.plan, tensor, rank.number)
    except Mismatch:
        return None
    if whole != terms.shape[term]:
        return _viewed_otherwise(machine, operator, tensor, claimed, value)
    for dim, (said, held) in enumerate(zip(claimed, machine.world.values.pieces_of(value), strict=True)):
        if dim == terms.slot[term] or said == held:
            continue
        among = stated or any(isinstance(on, Shard) and on.dim % len(whole) == dim for on in (tensor.placements or {}).values())
        name = "pieces-not-in-rank-order" if among and length(said) == length(held) else "wrong-placement-claim"
        text = f"gives `{tensor.name}` on {{ranks}} indices {_listed(held)} of {whole[dim]} in dimension {dim}"
        return of_one_plan(name, f"{name_of(operator)} {text}, and the plan says {_listed(said)}")
    return None


def _viewed_otherwise(
    machine: Machine, operator: Operator, tensor: Tensor, claimed: Sequence[Pieces], value: Value
) -> Mismatch | None:
    """Return what is wrong with pieces of a tensor of as many elements in another shape, where these are others of them."""
    terms, whole = machine.world.terms, whole_shape(tensor)
    term = terms.whole(value.term)
    shape = terms.shape[term]
    if terms.slot[term] != -1 or prod(shape) != prod(whole) or not shape or not whole:
        return None
    held = joined_dimensions([*zip(machine.world.values.pieces_of(value), shape, strict=True)])
    said = joined_dimensions([*zip(claimed, whole, strict=True)])
    if held is None or said is None or held == said or length(held) != length(said):
        return None
    text = f"{name_of(operator)} gives `{tensor.name}` on {{ranks}} other elements than the plan says: a piece of a whole "
    unless = "the elements of each rank are stored in a row"
    return of_one_plan("wrong-placement-claim", f"{text}{list(shape)}, not of {list(whole)}", unless=unless)


def _unlike(machine: Machine, operator: Compute, tensor: Tensor, value: Value) -> Mismatch | None:
    """Return in what an operator differs from the one that makes a piece of the same value, where it makes another value."""
    if not tensor.logical or operator.source is None:
        return None
    known = machine.sources.setdefault((tensor.logical, operator.source), (value.term, operator))
    differs = difference(known[1], operator) if known[0] != value.term else ""
    if not differs:
        return None
    text = f"{name_of(operator)} gives `{tensor.name}` on {{ranks}} another value than `{known[1].outputs[0]}` elsewhere"
    return of_one_plan("divergent-replicas", f"{text}, which the plan says is the same: it is computed with {differs}")


def _is_incomplete(tensor: Tensor, value: Value) -> bool:
    """Return whether a part of a sum is declared to be all of it."""
    ranges = (entry for leaf in value.leaves for entry in leaf.pending)
    return tensor.part == (0, 1) and any((entry.low, entry.high) != (0, entry.size) for entry in ranges)


def _listed(pieces: Pieces) -> str:
    return ", ".join(f"{low}:{high}" for low, high in pieces)


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
