"""Mixture of experts with a capacity: the choice of experts, tokens sent to their places, and results brought back.

Tokens stand in groups, and each group has `capacity` places at every expert: a choice of a token gets the first free place of
its expert, in the order of tokens and then of choices, and is dropped where none is left. So groups may be split over ranks and
experts exchanged between them, and nothing else of it may be split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from tvlint.ops.families.slicing import dimension, whole_number
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, MisfitError, OpSpec, Trait, UnsupportedError, having, stars

SAME_ORDER = "a sort that need not be `stable` puts equal elements into one order wherever it sorts the same ones"
"""What is taken on trust where equal elements are sorted: torch leaves their order open."""

ANY_ORDER = "a `topk` that need not be `sorted` puts the greatest into one order wherever it takes them of the same elements"
"""What is taken on trust of the greatest elements in any order: torch leaves that order open."""


def _top(call: Call) -> Bound:
    """Return the `k` greatest of the last dimension and their places, greatest first, or in an order of its own."""
    call = call.with_arguments("k", "dim", "largest", "sorted")
    call.reject_unknown("k", "dim", "largest", "sorted")
    call.expect(1)
    shape, k = call.shape(0), whole_number(call, "k", call.attributes.get("k"))
    names = stars(len(shape) - 1)
    if not shape or dimension(call, "dim", len(shape), -1) != len(names) or k < 1:
        raise UnsupportedError(f"`{call.op}` of {k} of shape {shape}")
    if k > shape[-1]:
        raise MisfitError(f"`{call.op}` of {k} of shape {shape}", f"there are {shape[-1]} to choose from")
    if not call.flag("largest", True):
        raise UnsupportedError(f"`{call.op}` that is not of the greatest")
    falls = call.flag("sorted", True)
    attributes, trust = ((k,), "") if falls else ((k, "any order"), ANY_ORDER)
    made = ((*names, "k"),) * 2
    return Bound(((*names, "e"),), made, whole=frozenset({"e", "k"}), attributes=attributes, sizes={"k": k}, assumption=trust)


def _greatest(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return by an exchange of neighbours, as often as there are places to fill; of equal ones the first."""
    import numpy as np

    x, k = operands[0], bound.attributes[0]
    count = x.shape[-1]
    values = [x[..., i] for i in range(count)]
    places = [np.full(x.shape[:-1], i, dtype=int) for i in range(count)]
    for filled in range(k if isinstance(k, int) else 0):
        for i in range(count - 1, filled, -1):
            less = field.less(values[i - 1], values[i])
            for row in (values, places):
                row[i - 1], row[i] = field.where(less, row[i], row[i - 1]), field.where(less, row[i - 1], row[i])
    return tuple(np.stack(row[: k if isinstance(k, int) else 0], axis=-1) for row in (values, places))


def _order(call: Call) -> Bound:
    """Return the places of the elements of a dimension in rising order, or falling with `descending`."""
    call = call.with_arguments("dim", "descending", "stable")
    call.reject_unknown("dim", "descending", "stable")
    call.expect(1)
    names = stars(len(call.shape(0)))
    sorted_ = names[dimension(call, "dim", len(names), -1)]
    falls = call.flag("descending")
    trust = "" if call.flag("stable") else SAME_ORDER
    cut = frozenset({sorted_})
    return Bound((names,), (names,), whole=cut, attributes=(falls,), zero_gradient=frozenset({0}), assumption=trust)


def _sorted_places(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return by counting the elements that come before each; of equal ones the first comes first."""
    import numpy as np

    (axis,) = (i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    rows, (falls,) = list(np.moveaxis(operands[0], axis, 0)), bound.attributes
    zero, one = field.number(0), field.number(1)
    found = [np.zeros(rows[0].shape, dtype=int) + zero] * len(rows)
    for i, row in enumerate(rows):
        place = np.zeros(row.shape, dtype=int) + zero
        for j, other in enumerate(rows):
            low, high = (row, other) if (j < i) != falls else (other, row)
            is_less = field.less(low, high)
            place = place + (zero if j == i else field.where(is_less, zero, one) if j < i else field.where(is_less, one, zero))
        found = [field.where(field.equal(place, number), field.number(i), places) for number, places in enumerate(found)]
    return (np.moveaxis(np.stack(found), 0, axis),)


def _bind_sort(call: Call) -> Bound:
    """Return the elements in order, and the places where they were."""
    bound = _order(call)
    return replace(bound, outputs=bound.outputs * 2, zero_gradient=frozenset())


def _sorted(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    (places,) = _sorted_places(bound, operands, field)
    (axis,) = (i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    rows, orders = np.moveaxis(operands[0], axis, 0), np.moveaxis(places, axis, 0)
    found = np.stack(
        [
            reduce(lambda kept, pair: field.where(field.equal(order, pair[0]), pair[1], kept), enumerate(rows), rows[0])
            for order in orders
        ]
    )
    return np.moveaxis(found, 0, axis), places


def _dispatch(call: Call) -> Bound:
    """Tokens and the experts that they chose: what stands in the places of every expert, zero in places that stay free."""
    call.reject_unknown("experts", "capacity")
    call.expect(2)
    tokens, chosen = call.shape(0), call.shape(1)
    if len(tokens) < 2 or chosen[:-1] != tokens[:-1]:
        raise UnsupportedError(f"`{call.op}` of shapes {tokens} and {chosen}")
    sizes = {
        name: whole_number(call, each_name, call.attributes.get(each_name))
        for name, each_name in (("e", "experts"), ("c", "capacity"))
    }
    if min(sizes.values()) < 1:
        raise UnsupportedError(f"`{call.op}` with {sizes['e']} experts of capacity {sizes['c']}")
    groups = stars(len(tokens) - 2)
    return Bound(
        ((*groups, "t", "h"), (*groups, "t", "k")),
        ((*groups, "e", "c", "h"),),
        whole=frozenset({"t", "k", "e", "c"}),
        linear=(frozenset({0}),),
        attributes=(sizes["e"], sizes["c"]),
        zero_gradient=frozenset({1}),
        indices={1: "e"},
        sizes=sizes,
    )


def _places(chosen: Array, field: Field) -> list[tuple[int, int, Array, Array]]:
    """For every choice of a token: the token, the choice, its expert, and how many choices before it are of that expert."""
    import numpy as np

    found: list[tuple[int, int, Array, Array]] = []
    for t in range(chosen.shape[-2]):
        for k in range(chosen.shape[-1]):
            expert = chosen[..., t, k]
            place = np.zeros(expert.shape, dtype=int) + field.number(0)
            for _, _, other, _ in found:
                place = place + field.where(field.equal(other, expert), field.number(1), field.number(0))
            found.append((t, k, expert, place))
    return found


def _here(value: Array, expert: Array, place: Array, e: int, c: int, field: Field) -> Array:
    """`value`, a row for every group, where the choice has place `c` of expert `e`, and zero elsewhere."""
    zero = field.number(0)
    inside = field.where(field.equal(place, c)[..., None], value, zero)
    return field.where(field.equal(expert, e)[..., None], inside, zero)


def _send(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    tokens, chosen = operands
    experts, capacity = (n if isinstance(n, int) else 0 for n in bound.attributes)
    places = _places(chosen, field)
    rows = [
        [
            reduce(lambda a, b: a + b, [_here(tokens[..., t, :], expert, place, e, c, field) for t, _, expert, place in places])
            for c in range(capacity)
        ]
        for e in range(experts)
    ]
    return (np.stack([np.stack(row, axis=-2) for row in rows], axis=-3),)


def _combine(call: Call) -> Bound:
    """Return what stands in the places of experts, the choices and their weights: for every token the weighted sum of its
    choices.
    """
    call.reject_unknown()
    call.expect(3)
    places, chosen, weights = (call.shape(i) for i in range(3))
    if len(chosen) < 2 or weights != chosen or len(places) != len(chosen) + 1 or places[:-3] != chosen[:-2]:
        raise UnsupportedError(f"`{call.op}` of shapes {places}, {chosen} and {weights}")
    groups = stars(len(chosen) - 2)
    return Bound(
        ((*groups, "e", "c", "h"), (*groups, "t", "k"), (*groups, "t", "k")),
        ((*groups, "t", "h"),),
        whole=frozenset({"t", "k", "e", "c"}),
        linear=(frozenset({0}), frozenset({2})),
        zero_gradient=frozenset({1}),
        indices={1: "e"},
    )


def _bring(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    held, chosen, weights = operands
    experts, capacity = held.shape[-3:-1]
    rows: list[list[Array]] = [[] for _ in range(chosen.shape[-2])]
    for t, k, expert, place in _places(chosen, field):
        for e in range(experts):
            for c in range(capacity):
                value = held[..., e, c, :] * weights[..., t, k][..., None]
                rows[t].append(_here(value, expert, place, e, c, field))
    return (np.stack([reduce(lambda a, b: a + b, row) for row in rows], axis=-2),)


SPECS = (
    *having(
        (Trait.CHOICE, Trait.NONLINEAR),
        *having(
            (Trait.NO_FLAGS,),
            OpSpec("topk", ("torch.topk", "torch.Tensor.topk"), _top, evaluate=_greatest, dimension=(1, -1)),
        ),
        *having(
            (Trait.ORDER,),
            OpSpec("argsort", ("torch.argsort", "torch.Tensor.argsort"), _order, evaluate=_sorted_places, dimension=(0, -1)),
        ),
        OpSpec("sort", ("torch.sort", "torch.Tensor.sort"), _bind_sort, evaluate=_sorted, dimension=(0, -1)),
    ),
    *having((Trait.TOKEN_DISPATCH,), OpSpec("moe-dispatch", ("moe_dispatch",), _dispatch, evaluate=_send)),
    *having((Trait.TOKEN_COMBINE,), OpSpec("moe-combine", ("moe_combine",), _combine, evaluate=_bring)),
)
