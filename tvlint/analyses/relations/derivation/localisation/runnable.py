"""Check that a call runs on the local tensors of a rank, whether or not its results are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tvlint.analyses.relations.derivation.state import Machine, RankState, Saved
from tvlint.analyses.relations.transfer.collectives import has_sizes_stated
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Collective, Communicate, Compute, Operator
from tvlint.ops.spec import ONE, Bound, Family, Shape, call_of
from tvlint.ops.table import spec_of

_ALIKE = (
    Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.ALL_GATHER,
    Collective.GATHER,
)  # fmt: skip
"""Collectives whose members give tensors of one shape, unless a gather states their sizes."""


def may_run(machine: Machine, rank: RankState, operator: Operator) -> bool:
    """Return whether the operands of an operator have shapes that it can be called with, as far as they are known."""
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    if spec is None or spec.family is not Family.INDEXED or not isinstance(operator, Compute):
        return True
    outputs = tuple(_shape(machine, rank, name) or () for name in operator.outputs)
    call = call_of(operator, partial(_shape, machine, rank), outputs)
    if call is None:
        return True
    bound = spec.bound(call)
    if bound is None:
        return False
    return _fit(bound, call.shapes)


def may_go_back(machine: Machine, saved: Saved, gradients: Mapping[int, Value]) -> bool:
    """Return whether the gradients that a gradient operator is given have the shapes of what they are the gradients of."""
    results = ((saved.outputs[position], given) for position, given in gradients.items() if position < len(saved.outputs))
    local = machine.world.local_shape
    return all(result is None or local(result) == local(given) for result, given in results)


def may_exchange(operator: Communicate, shapes: Sequence[Shape], members: int) -> bool:
    """Return whether a collective runs on what its members give, as far as they are known to give something."""
    if not shapes:
        return True
    rank = len(shapes[0])
    dims = [dim for dim in (operator.dim, operator.concat_dim) if dim is not None]
    if any(not -rank <= dim < rank for dim in dims) or any(len(shape) != rank for shape in shapes):
        return False
    if operator.dim is not None and not _fits_splits(operator, [shape[operator.dim] for shape in shapes], members):
        return False
    return operator.kind not in _ALIKE or has_sizes_stated(operator, shapes)


def _fits_splits(operator: Communicate, sizes: Sequence[int], members: int) -> bool:
    """Return whether the sizes that members have of the dimension are those that the collective states, or can be cut
    equally.
    """
    if operator.kind in (Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.SCATTER):
        return all(size == sum(operator.splits) if operator.splits else size % members == 0 for size in sizes)
    return True


def _fit(bound: Bound, shapes: Sequence[Shape]) -> bool:
    """Return whether every name has one size."""
    sizes = {ONE: 1}
    for names, shape in zip(bound.operands, shapes, strict=False):
        if len(names) != len(shape) or any(
            sizes.setdefault(name, size) != size for name, size in zip(names, shape, strict=True)
        ):
            return False
    return True


def _shape(machine: Machine, rank: RankState, name: str) -> Shape | None:
    """Return the shape of the tensor as it was derived, else as it is declared; None where neither is known."""
    value = rank.local.get(name) or rank.environment.get(name) or rank.gradients.get(machine.weight_of.get(name, ""))
    if value is not None:
        return machine.world.local_shape(value)
    tensor = machine.plan.tensors.get(name)
    return None if tensor is None else tensor.shape
