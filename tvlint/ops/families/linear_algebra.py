"""Products: linear, matmul, embedding, einsum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import align, contract
from tvlint.ops.spec import ONE, PREVIOUS, Bound, Call, MisfitError, OpSpec, Steps, Trait, UnsupportedError, having, stars
from tvlint.plurals import counted


def _linear(call: Call) -> Bound:
    call.reject_unknown("bias")
    if call.attributes.get("bias") is not None or ("bias" in call.attributes and len(call.inputs) > 2):
        raise UnsupportedError("`linear` with a `bias` that is no tensor, or two")
    if len(call.inputs) == 3 and call.inputs[2] == Literal(None):
        call = replace(call, inputs=call.inputs[:2])
    operands, weight = call.shape(0), call.shape(1)
    if len(weight) > 2:
        raise MisfitError(f"`linear` of shapes {operands} and {weight}", "the weight has to have 2 dimensions")
    if not operands or len(weight) != 2:
        raise UnsupportedError(f"`linear` of shapes {operands} and {weight}")
    if operands[-1] != weight[1]:
        expected = f"the last dimension, {operands[-1]}, has to be that of the weight, {weight[1]}"
        raise MisfitError(f"`linear` of shapes {operands} and {weight}", expected)
    rows = stars(len(operands) - 1)
    names: tuple[tuple[str, ...], ...] = ((*rows, "k"), ("n", "k"))
    if len(call.inputs) == 2:
        return Bound(names, ((*rows, "n"),), frozenset({"k"}), linear=(frozenset({0}), frozenset({1})))
    if len(call.inputs) > 3:
        raise UnsupportedError(f"`linear` of {counted(len(call.inputs), 'operand')}")
    if len(bias := call.shape(2)) == 1 and bias[0] not in (1, weight[0]):
        expected = f"the bias has to be as long as the weight has rows, {weight[0]}"
        raise MisfitError(f"`linear` with a bias of shape {bias}", expected)
    if bias != weight[:1]:
        raise UnsupportedError(f"`linear` with a bias of shape {bias}")
    return Bound((*names, ("n",)), ((*rows, "n"),), whole=frozenset({"k"}))


def _biased(call: Call) -> Steps:
    biased = len(call.inputs) == 3 and call.inputs[2] != Literal(None)
    return (("linear", (0, 1)), ("add", (PREVIOUS, 2))) if biased else ()


def _product(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the contraction of the first two operands; a third is added to it."""
    product = replace(bound, operands=bound.operands[:2])
    (result,) = contract(product, operands[:2], field)
    return (result + operands[2] if len(operands) == 3 else result,)


_DIMENSIONS = {"mm": 2, "addmm": 2, "bmm": 3, "baddbmm": 3}
"""The products that take tensors of so many dimensions only, and broadcast none of them."""


def _matmul(call: Call) -> Bound:
    call.reject_unknown()
    call.expect(2)
    left, right = call.shape(0), call.shape(1)
    dims = _DIMENSIONS.get(call.op.rsplit(".", 1)[-1])
    said = f"`matmul` of shapes {left} and {right}"
    if dims is not None and not len(left) == len(right) == dims:
        raise MisfitError(said, f"both have to have {counted(dims, 'dimension')}")
    if len(left) < 2 or len(right) < 2:
        raise UnsupportedError(said)
    if left[-1] != right[-2]:
        expected = f"the last dimension of the first, {left[-1]}, has to be the second last of the other, {right[-2]}"
        raise MisfitError(said, expected)
    if dims is not None and left[:-2] != right[:-2]:
        raise MisfitError(said, "both have to have as many matrices")
    rank = max(len(left), len(right)) - 2
    batch = stars(rank)

    def batch_names(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[str, ...]:
        batch_dims = len(shape) - 2
        names = []
        for position in range(batch_dims):
            index = rank - batch_dims + position
            theirs = index - (rank - (len(other) - 2))
            size = other[theirs] if theirs >= 0 else 1
            names.append(ONE if shape[position] == 1 and size != 1 else batch[index])
        return tuple(names)

    return Bound(
        ((*batch_names(left, right), "m", "k"), (*batch_names(right, left), "k", "n")),
        ((*batch, "m", "n"),),
        frozenset({"k"}),
        linear=(frozenset({0}), frozenset({1})),
    )


def _outer(call: Call) -> Bound:
    call.reject_unknown()
    call.expect(2)
    if len(call.shape(0)) != 1 or len(call.shape(1)) != 1:
        raise UnsupportedError(f"`outer` of shapes {call.shape(0)} and {call.shape(1)}")
    return Bound((("m",), ("n",)), (("m", "n"),), linear=(frozenset({0}), frozenset({1})))


def _with_vector(call: Call) -> Bound:
    """`mv` and `dot`: a matrix or vector times a vector."""
    call.reject_unknown()
    call.expect(2)
    rows = ("m",) if call.op.rsplit(".", 1)[-1] == "mv" else ()
    if len(call.shape(0)) != len(rows) + 1 or len(call.shape(1)) != 1:
        raise UnsupportedError(f"`{call.op}` of shapes {call.shape(0)} and {call.shape(1)}")
    linear = (frozenset({0}), frozenset({1}))
    return Bound(((*rows, "k"), ("k",)), (rows,), frozenset({"k"}), linear=linear, commutative=not rows)


def _embedding(call: Call) -> Bound:
    """Without a stated range, indices count from the first row that the local table holds, so the range is that of all rows.

    The padding row, which gets no gradient, counts from that row too as `padding_idx`, and from that of the whole table as
    `padding_row`.
    """
    call.reject_unknown("padding_idx", "padding_row", "start", "stop", "scale_grad_by_freq", "sparse", "max_norm", "norm_type")
    call.expect(2)
    if call.attributes.get("max_norm") is not None or call.attributes.get("scale_grad_by_freq"):
        raise UnsupportedError("`embedding` with `max_norm` or `scale_grad_by_freq`")
    rows = stars(len(call.shape(0)))
    weight = call.shape(1)
    if len(weight) != 2:
        raise MisfitError(f"`embedding` with a weight of shape {weight}", "the weight has to have 2 dimensions")
    start, stop = call.attributes.get("start"), call.attributes.get("stop")
    stated = type(start) is int and type(stop) is int
    if not stated and (start is not None or stop is not None):
        raise UnsupportedError(f"`embedding` with `start` {start} and `stop` {stop}")
    held = (start, stop) if isinstance(start, int) and isinstance(stop, int) else (0, weight[0])
    return Bound(
        (rows, ("n", "e")),
        ((*rows, "e"),),
        frozenset({"n"}),
        linear=(frozenset({1}),),
        attributes=(_padding(call, held[0]),),
        zero_gradient=frozenset({0}),
        ranges={"n": held},
        indices={0: "n"},
    )


def _padding(call: Call, first: int) -> int | None:
    """Return the row of the whole table that gets no gradient, for a local one that begins at row `first`."""
    inner, outer = (call.attributes.get(name) for name in ("padding_idx", "padding_row"))
    given = inner if outer is None else outer
    if given is None:
        return None
    if type(given) is not int or given < 0 or (inner is not None and outer is not None):
        raise UnsupportedError(f"`embedding` with `padding_idx` {inner} and `padding_row` {outer}")
    return given if outer is not None else first + given


def _lookup(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the row of each index that the table holds, and zero for the others."""
    import numpy as np

    ids, table = operands
    start, stop = bound.ranges.get("n", (0, table.shape[0]))
    names = [*bound.operands[0], "e"]
    total = np.zeros((*ids.shape, table.shape[1]), dtype=table.dtype)
    for row in range(min(stop - start, table.shape[0])):
        here = align(field.equal(ids, start + row), bound.operands[0], names)
        total = total + field.where(here, align(table[row], ("e",), names), field.number(0))
    return (total,)


def _addmm(call: Call) -> Bound:
    """Operand 0 plus the product of the others; as one operator, its contraction is not additive."""
    call.reject_unknown("alpha", "beta")
    call.expect(3)
    factors = _factors(call)
    product = _matmul(replace(call, inputs=call.inputs[1:], attributes={}))
    added, (output,) = call.shape(0), product.outputs
    sizes = (*call.shape(1)[:-1], call.shape(2)[-1])
    if len(added) > len(output) or len(sizes) != len(output):
        raise UnsupportedError(f"`{call.op}` of shapes {call.shape(0)}, {call.shape(1)} and {call.shape(2)}")
    tail = zip(added, output[len(output) - len(added) :], sizes[len(sizes) - len(added) :], strict=True)
    names = tuple(ONE if size == 1 != wide else name for size, name, wide in tail)
    attributes = () if factors == (1, 1) else factors
    return Bound((names, *product.operands), (output,), whole=frozenset({"k"}), attributes=attributes)


def _factors(call: Call) -> tuple[int | float, int | float]:
    """Return what operand 0 and what the product is multiplied with."""
    beta, alpha = call.attributes.get("beta", 1), call.attributes.get("alpha", 1)
    if (
        isinstance(beta, bool)
        or isinstance(alpha, bool)
        or not isinstance(beta, int | float)
        or not isinstance(alpha, int | float)
    ):
        raise UnsupportedError(f"`{call.op}` with the factors {beta} and {alpha}")
    return beta, alpha


def _added_product(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    (result,) = contract(replace(bound, operands=bound.operands[1:]), operands[1:], field)
    added = align(operands[0], bound.operands[0], bound.outputs[0])
    beta, alpha = (number if isinstance(number, int | float) else 1 for number in bound.attributes or (1, 1))
    if alpha != 1:
        result = result * field.number(alpha)
    return (result if beta == 0 else result + (added if beta == 1 else added * field.number(beta)),)


def _added(call: Call) -> Steps:
    _addmm(call)
    beta, alpha = _factors(call)
    scaled: Steps = (("mul", (0, Literal(beta))),) if beta not in (0, 1) else ()
    product: Steps = (("matmul", (1, 2)), ("mul", (PREVIOUS, Literal(alpha)))) if alpha != 1 else (("matmul", (1, 2)),)
    steps = (*scaled, *product)
    return (*steps, ("add", (PREVIOUS, -len(steps) if scaled else 0))) if beta != 0 else steps


def _einsum(call: Call) -> Bound:
    if call.inputs and isinstance(call.inputs[0], Literal) and "equation" not in call.attributes:
        call = replace(call, inputs=call.inputs[1:], attributes={**call.attributes, "equation": call.inputs[0].value})
    call.reject_unknown("equation")
    call.expect(1, len(call.inputs))
    equation = call.attributes.get("equation")
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        raise UnsupportedError("`einsum` without an explicit equation")
    left, right = equation.replace(" ", "").split("->")
    operands = tuple(tuple(term) for term in left.split(","))
    ranks = [len(call.shape(i)) for i in range(len(call.inputs))]
    if len(operands) == len(ranks) and [len(term) for term in operands] != ranks:
        shapes = ", ".join(str(call.shape(i)) for i in range(len(call.inputs)))
        ranks_of = ", ".join(str(len(term)) for term in operands)
        raise MisfitError(f"`einsum` of the dimensions of {shapes}", f"the equation `{equation}` has {ranks_of} of them")
    if len(operands) != len(ranks) or any(len(set(term)) != len(term) for term in operands):
        raise UnsupportedError(f"`einsum` equation `{equation}`")
    output = tuple(right)
    every = {name for term in operands for name in term}
    if not set(output) <= every or len(set(output)) != len(output):
        raise UnsupportedError(f"`einsum` equation `{equation}`")
    longer = {
        n for term, shape in zip(operands, call.shapes, strict=True) for n, size in zip(term, shape, strict=True) if size != 1
    }
    for term, shape in zip(operands, call.shapes, strict=True):
        if any(size == 1 and name in longer for name, size in zip(term, shape, strict=True)):
            raise UnsupportedError(f"`einsum` equation `{equation}`, with a dimension that is 1 long in one operand only")
    return Bound(
        operands, (output,), frozenset(every - set(output)), linear=tuple(frozenset({i}) for i in range(len(operands)))
    )


SPECS = (
    *having(
        (Trait.CONTRACTION, Trait.PRODUCT),
        OpSpec("linear", ("torch.nn.functional.linear",), _linear, steps=_biased, evaluate=_product),
        OpSpec(
            "matmul",
            ("torch.matmul", "torch.Tensor.matmul", "operator.matmul", "torch.bmm", "torch.mm"),
            _matmul,
            evaluate=contract,
        ),
        OpSpec("mv", ("torch.mv", "torch.Tensor.mv", "torch.dot", "torch.Tensor.dot"), _with_vector, evaluate=contract),
        OpSpec(
            "einsum",
            ("torch.einsum", "torch.functional.einsum", "nnscaler.runtime.function.einsum"),
            _einsum,
            evaluate=contract,
        ),
    ),
    OpSpec(
        "embedding",
        ("nnscaler.runtime.function.embedding", "torch.nn.functional.embedding"),
        _embedding,
        evaluate=_lookup,
        range_attributes={"n": ("start", "stop")},
        traits=frozenset({Trait.PRODUCT}),
    ),
    OpSpec("outer", ("torch.outer", "torch.Tensor.outer"), _outer, evaluate=contract),
    OpSpec(
        "addmm",
        tuple(f"{module}.{name}" for name in ("addmm", "baddbmm") for module in ("torch", "torch.Tensor")),
        _addmm,
        steps=_added,
        evaluate=_added_product,
        traits=frozenset({Trait.CONTRACTION}),
    ),
)
