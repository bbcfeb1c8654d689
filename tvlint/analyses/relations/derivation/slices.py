"""Slices as parts of what they are taken from.

Where the reference takes no such slice, a slice of a value is the value on fewer indices: a rank may be given all of a mask
or of a table of positions and take the rows that its queries need. A slice of what was joined is one of the values joined. In
normal forms only, since a plan may also go on as the reference does with a slice that it writes in another way, and is then
wrong nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.terms.sums_of_products import is_joined
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ops.slicing import ranges_taken
from tvlint.ops.spec import Bound, Family, OpSpec, UnsupportedError


def sliced(machine: Machine, spec: OpSpec, form: Form, values: Sequence[Value], ordinary: Callable[[], Saved]) -> Saved:
    """Return what a slice makes: the slice that the reference takes too, which is what `ordinary` gives, or a part of its
    operand.
    """
    terms = machine.world.terms
    if not terms.normal or terms.sealed < 0:
        return ordinary()
    saved, mismatch = None, None
    try:
        saved = ordinary()
    except Mismatch as error:
        mismatch = error
    known = saved is not None and not any(value is None or terms.foreign(value.term) for value in saved.outputs)
    known = known or (saved is not None and is_joined(terms, values[0].term))
    parts = None if known else _parts(machine, spec, form, values[0])
    if parts is not None:
        bound, outputs = parts
        return Saved(spec.name, bound, Family.INDEXED, tuple(values), outputs)
    if saved is None:
        assert mismatch is not None
        raise mismatch
    return saved


def _parts(machine: Machine, spec: OpSpec, form: Form, value: Value) -> tuple[Bound, tuple[Value, ...]] | None:
    """The annotation of the call on the local tensor, and its results as boxes of the operand's term, where they are any."""
    world = machine.world
    shape, slot = world.local_shape(value), world.terms.slot[value.term]
    try:
        bound = spec.bind(replace(form.call([shape]), outputs=()))
    except UnsupportedError:
        return None
    taken = ranges_taken(bound, shape)
    if taken is None or len(taken) != len(form.outputs):
        return None
    if slot >= 0 and any(ranges[slot] != (0, shape[slot]) for ranges in taken):
        return None
    boxes = [
        tuple(own if dim == slot else (own[0] + start, own[0] + stop) for dim, (own, (start, stop)) in enumerate(pairs))
        for pairs in (tuple(zip(value.box, ranges, strict=True)) for ranges in taken)
    ]
    return bound, tuple(world.values.with_box(value, box) for box in boxes)
