"""Products of the halves of a dimension, of which a rank holds some pieces of each half.

`swiglu(x)` is `silu(x[:n]) * x[n:]`. The halves that a rank cuts out of its own tensor are pieces of those of the whole value
where each half is split on its own, and so is their product.
"""

from __future__ import annotations

from collections.abc import Callable

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Compute, Literal, Operand
from tvlint.ops.spec import Family, OpSpec


def of_halves(
    machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], evaluate: Callable[[Form, tuple[Value, ...]], Saved]
) -> Saved | None:
    """Return the product as the operators that it is, in the reference always, so that its halves are known.

    None where the operator is none, or the rank holds one piece.
    """
    if spec.halves is None or len(values) != 1 or not machine.world.terms.arithmetic:
        return None
    (value,), (gated, function) = values, spec.halves
    shape, ways = machine.world.local_shape(value), machine.world.values.pieces_of(value)
    bound = spec.bound(form.call([shape]))
    if bound is None:
        return None
    dim = next((at for at, name in enumerate(bound.operands[0]) if name in bound.whole), -1)
    if dim < 0 or (len(ways[dim]) < 2 and machine.world.terms.sealed >= 0):
        return None

    def run(op: str, given: tuple[Value | None, ...], *constants: int) -> Saved:
        operands: tuple[Operand, ...] = (*map(str, range(len(given))), *map(Literal, constants))
        known = tuple(each_value for each_value in given if each_value is not None)
        return evaluate(machine.cases.form(Compute(op, operands, ("",)), {}), known)

    half = shape[dim] // 2
    parts = [run("torch.narrow", (value,), dim, start, half) for start in (0, half)]
    gate = run(f"torch.{function}", (parts[gated].outputs[0],))
    made = run("torch.mul", (gate.outputs[0], parts[1 - gated].outputs[0]))
    steps = ((parts[0], (0,)), (parts[1], (0,)), (gate, (gated - 2,)), (made, (-1, -2 - gated)))
    return Saved(spec.name, bound, Family.INDEXED, values, made.outputs, steps)
