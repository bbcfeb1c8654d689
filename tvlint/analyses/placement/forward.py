"""Forward transfer function: operand placements to result placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.analyses.dataflow.attention import is_attention
from tvlint.analyses.dataflow.canonical_names import biased, usual
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.inference.per_rank_types import shared_name
from tvlint.analyses.placement.argmax_and_topk import choices
from tvlint.analyses.placement.axes import DATA_AXES, SEQUENCE_AXES, traded_axes
from tvlint.analyses.placement.binding import bind
from tvlint.analyses.placement.divergent_replicas import mates
from tvlint.analyses.placement.domain import On, Where
from tvlint.analyses.placement.piece_order import noted, reordered
from tvlint.analyses.placement.reshape import reshaped
from tvlint.analyses.placement.scans_and_convolutions import channelwise, scans
from tvlint.analyses.placement.state import UNKNOWN, Walk
from tvlint.analyses.placement.transfer import Form, Wrong, forms, on_axis
from tvlint.analyses.placement.unannotated import attended, over_shards
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import has_trait, is_nonlinear, row_of

_RENAMED = {
    "nonlinear": "partial-through-nonlinear",
    "contraction": "contraction-of-mismatched-shards",
    "mismatched": "mismatched-shards",
    "shuffled": "pieces-not-in-rank-order",
}

_WHOLE = {
    Trait.SOFTMAX: "softmax-over-shards",
    Trait.NORMALISATION: "norm-over-shards",
    Trait.CLASS_LOSS: "loss-over-shards",
}
"""Kinds of operators that need a dimension whole, and the defect where it is not."""

_CUTS = (Trait.RANGES, Trait.SELECTION)
"""Operators that take some indices of a tensor, which they state."""

_EXTREMES = (Partial("max"), Partial("min"))
"""What a rank compares with the reduced value to find out whether the extreme is its own."""


def compute(walk: Walk, operator: Compute) -> None:
    """Places the results of one operator."""
    operator = usual(operator)
    mates(walk, operator)
    noted(walk, operator)
    if operator.in_place and not is_step(operator):
        for position in operator.in_place:
            if 0 <= position < len(operator.inputs) and not isinstance(operator.inputs[position], Literal):
                walk.values[str(operator.inputs[position])] = UNKNOWN
    if not any(isinstance(operand, str) for operand in operator.inputs) or _cuts_otherwise(walk, operator):
        for name in operator.outputs:
            walk.store(name, {}, {})
        return
    product = biased(operator)
    if product is not None:
        compute(walk, product[0])
        return
    bound = bind(walk, operator)
    if bound is None or _over_shards(walk, operator):
        _unbound(walk, operator)
        return
    spec, annotation, names = bound
    if spec.family is Family.RESHAPE:
        _reshape(walk, operator, names[0])
        return
    results = list(forms(annotation, _rises(operator, spec.name)))
    known = reordered(walk, operator) if spec.name == "cat" else {}
    for position, name in enumerate(operator.outputs):
        if position < len(results):
            apply(walk, results[position], names, name, spec.name, known=known)
        else:
            walk.store(name, {}, {})


def _cuts_otherwise(walk: Walk, operator: Compute) -> bool:
    """Return whether programs take other indices of a tensor for values of the same name, so that each has its own."""
    if len(walk.plan.programs) < 2 or not has_trait(operator.op, *_CUTS) or not operator.outputs:
        return False
    ways = walk.facts.derived("ways to cut", lambda: _ways_to_cut(walk.plan))
    return len(ways.get(shared_name(operator.outputs[0]), ())) > 1


def _ways_to_cut(plan: Plan) -> dict[str, set[str]]:
    """Return, by the name that is given to it, how operators take indices of a tensor."""
    found: dict[str, set[str]] = {}
    for segment in plan.segments.values():
        for operator in segment.operators:
            if isinstance(operator, Compute) and operator.outputs and has_trait(operator.op, *_CUTS):
                constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
                way = f"{constants} {sorted(operator.attributes.items())}"
                found.setdefault(shared_name(operator.outputs[0]), set()).add(way)
    return found


def _rises(operator: Compute, name: str) -> bool:
    """Return whether the operator is a function of its first operand alone that grows with it."""
    if not operator.inputs or not isinstance(operator.inputs[0], str) or any(isinstance(i, str) for i in operator.inputs[1:]):
        return False
    factors = [operand.value for operand in operator.inputs[1:] if isinstance(operand, Literal)]
    positive = len(factors) == 1 and isinstance(factors[0], int | float) and factors[0] > 0
    return has_trait(name, Trait.RISING) or (name in ("mul", "div") and positive)


def _unbound(walk: Walk, operator: Compute) -> None:
    """An operator without annotation: its results are unknown; it may still be known not to take partial values."""
    first = operator.inputs[0] if operator.inputs else None
    if is_nonlinear(operator.op) and isinstance(first, str):
        for axis in walk.axes:
            if isinstance(walk.value(first).on.get(axis), Partial):
                walk.say("partial-through-nonlinear", first, axis, operator.op.rsplit(".", 1)[-1])
    wrong = {axis: (rule, name) for rule, name, axis in _over_shards(walk, operator)}
    for axis, (rule, name) in wrong.items():
        walk.say(rule, name, axis, operator.op.rsplit(".", 1)[-1], "values" if operator.inputs[2:3] == (name,) else "keys")
    given = [walk.value(name).on for name in operator.inputs if isinstance(name, str)]
    known = attended(operator, given, walk.axes) or channelwise(walk, operator)
    for position, name in enumerate(operator.outputs):
        walk.store(name, {} if position else dict(known), dict.fromkeys(known, walk.where))


def _over_shards(walk: Walk, operator: Compute) -> list[tuple[str, str, str]]:
    names = [name for name in operator.inputs if not isinstance(name, Literal)]
    ranks = [len(walk.shape(name) or ()) for name in names]
    found = [*scans(walk, operator), *choices(walk, operator)]
    for axis in walk.axes:
        rule, at = over_shards(operator, [walk.value(name).on.get(axis) for name in names], ranks, axis)
        if not rule and names and is_attention(operator) and axis in ("cp", "context") and axis not in walk.messaged:
            rule, at = _over_own_keys(walk, axis, names, ranks)
        if rule == "attention-over-local-keys" and (axis in walk.messaged or _may_be_heads(walk, operator, axis)):
            continue
        if rule:
            found.append((rule, names[at], axis))
    return found


def _may_be_heads(walk: Walk, operator: Compute, axis: str) -> bool:
    """Return whether what is split over the axis may be heads: just traded for the sequence, or given to a kernel of the
    flash family, whose layout those who name it seldom keep.
    """
    row = row_of(operator.op)
    if row is not None and row.sequence == -2:
        return False
    made = walk.producer.get(next((name for name in operator.inputs if isinstance(name, str)), ""))
    maker = walk.plan.segments[made[0]].operators[made[1]] if made is not None else None
    if isinstance(maker, Communicate) and maker.kind is Collective.ALL_TO_ALL and axis in (walk.axes_of(maker.group) or ()):
        return True
    trading = walk.facts.derived("axes that are traded or split by weights", lambda: traded_axes(walk.plan))
    return axis in trading or (axis not in SEQUENCE_AXES and (row is None or row.sequence is None))


def _over_own_keys(walk: Walk, axis: str, names: list[str], ranks: list[int]) -> tuple[str, int]:
    """Queries and keys split alike over an axis of the sequence, where nothing trades heads for sequence over it."""
    trading = walk.facts.derived("axes that are traded or split by weights", lambda: traded_axes(walk.plan))
    if axis in trading or len(names) < 3 or ranks[0] < 3:
        return "", 0
    placement, keys = walk.value(names[0]).on.get(axis), walk.value(names[1]).on.get(axis)
    alike = isinstance(placement, Shard) and placement == keys and 0 < placement.dim % ranks[0] < ranks[0] - 1
    return ("attention-over-local-keys", 1) if alike else ("", 0)


def _reshape(walk: Walk, operator: Compute, source: str) -> None:
    value, before = walk.value(source), walk.shape(source)
    for name in operator.outputs:
        shape = walk.shape(name)
        on = {axis: reshaped(value.on.get(axis), before, shape, walk.plan.mesh.axis_size(axis)) for axis in walk.axes}
        walk.store(name, on, dict(value.origin))


def apply(
    walk: Walk, form: Form, names: Sequence[str], output: str, operator: str, known: Mapping[str, On] | None = None
) -> None:
    """Places `output`, the result of `form` on the operands `names`; says what is wrong with them on every axis.

    On the axes of `known` it is known how the result lies.
    """
    known = known or {}
    values = [walk.value(name) if name else UNKNOWN for name in names[: len(form.operands)]]
    on: dict[str, On] = {}
    origin: dict[str, Where] = {}
    for axis in walk.axes:
        result = known[axis] if axis in known else on_axis(form, [value.on.get(axis) for value in values])
        if isinstance(result, Wrong):
            _wrong(walk, result, names, axis, operator)
            continue
        on[axis] = result
        if isinstance(result, Partial):
            partial = [value for value in values if isinstance(value.on.get(axis), Partial)]
            origins = [value.origin[axis] for value in partial if axis in value.origin]
            origin[axis] = origins[0] if origins else walk.where
    walk.store(output, on, origin)


def _wrong(walk: Walk, wrong: Wrong, names: Sequence[str], axis: str, operator: str) -> None:
    name = names[wrong.operand]
    other = names[wrong.other] if wrong.other >= 0 else ""
    rule = wrong.rule
    if rule == "mismatched" and axis in walk.messaged and _are_blocks(walk, axis, name, other):
        return
    if rule == "mismatched" and axis in DATA_AXES - SEQUENCE_AXES and _own_batches(walk, axis, operator, name, other):
        return
    if rule == "nonlinear" and has_trait(operator, Trait.COMPARISON) and walk.value(name).on.get(axis) in _EXTREMES:
        return
    if rule == "whole":
        rule = next((named for trait, named in _WHOLE.items() if has_trait(operator, trait)), "")
        if not rule:
            return
    walk.say(_RENAMED.get(rule, rule), name, axis, operator, other)


def _own_batches(walk: Walk, axis: str, operator: str, name: str, other: str) -> bool:
    """Return whether a product is of two shards of data: every rank computes on its own batch, wherever that dimension went."""
    if not operator.endswith(("matmul", "einsum")):
        return False
    weights = [
        operator
        for operator in (name, other)
        if (tensor := walk.plan.tensors.get(operator)) is not None and tensor.role in (Role.WEIGHT, Role.STATE)
    ]
    return not weights and _are_blocks(walk, axis, name, other)


def _are_blocks(walk: Walk, axis: str, name: str, other: str) -> bool:
    """Return whether both are shards of an axis along which shards travel: every rank then computes one block at a time."""
    return isinstance(walk.value(name).on.get(axis), Shard) and isinstance(walk.value(other).on.get(axis), Shard)
