"""The content that buffers and inputs may be made for: masks, positions, orders and tables, which a right plan may use.

The content of buffers is part of the model (masks, tables of sines), and so may be that of inputs of whole numbers or flags
that are neither rows of a weight nor classes: a causal mask, positions in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.relations.derivation.given.trusted_inputs import Inputs
from tvlint.equivalence.verdict.numbers.whole_values import Contents, lengths_looked_up
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Role
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.field import Array
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

Held: TypeAlias = Mapping[tuple[str, str], str]
"""The kind of the numbers of tensors, by role and full name."""


def likely_contents(held: Held) -> Iterator[tuple[str, Contents]]:
    """Yield contents of tensors, all of one kind alike, with what they are called."""
    kinds = sorted(set(held.values()))
    for chosen in product(*(_CONTENTS[kind].items() for kind in kinds)):
        of_kind = {kind: content for kind, (_, content) in zip(kinds, chosen, strict=True)}
        yield " and ".join(name for name, _ in chosen), {key: of_kind[kind] for key, kind in held.items()}


def likely_masks(held: Held) -> Iterator[tuple[str, Contents]]:
    """Yield masks of one shape as the content of all tensors, with what they are called; a kind says alike what is hidden.

    Of each shape it is the narrowest that leaves two keys, which hides all that a wider one hides.
    """
    kinds = sorted(set(held.values()))
    for name, hidden in _HIDDEN.items():
        for chosen in product(*(_WAYS[kind].items() for kind in kinds)):
            ways = dict(zip(kinds, chosen, strict=True))
            said = ", ".join(f"{kind} {word}" for kind, (word, _) in ways.items())
            contents = {key: partial(_mask, hidden, ways[kind][1]) for key, kind in held.items()}
            yield f"masks hide {name} ({said})", contents


def _mask(hidden: Callable[[Array, Array], Array], way: Callable[[Array], Array], value: Array) -> Array:
    """Return a mask in the place of a value; of one dimension, one that hides the second half of a row."""
    columns = _in_order(value, -1)
    return way((hidden(_in_order(value, -2), columns) if value.ndim > 1 else columns >= value.size / 2) * 1.0)


def content_of(reference: Plan, inputs: Inputs) -> dict[tuple[str, str], str]:
    """Return what is read and may not be any data, by the kind of its numbers: buffers, and inputs that nothing looks up.

    Floating inputs are data. A tensor is named by its role and its full name, an input by its position.
    """
    read = names_read(reference, Role.INPUT) - _looked_up_inputs(reference)
    named = [
        (("input", str(number)), dtype)
        for number, (name, dtype) in enumerate(zip(inputs.names, inputs.dtypes, strict=True))
        if name in read and _kind_of(dtype) != "numbers"
    ]
    buffers = names_read(reference, Role.BUFFER)
    tensors = ((tensor.logical or tensor.name, tensor.dtype) for tensor in reference.tensors.values())
    named += [(("buffer", name), dtype) for name, dtype in tensors if name in buffers]
    return {key: _kind_of(dtype) for key, dtype in named}


def _kind_of(dtype: str) -> str:
    if dtype.rsplit(".", 1)[-1].startswith("bool"):
        return "flags"
    return "whole numbers" if holds_whole_numbers(dtype) else "numbers"


def _in_order(value: Array, dim: int) -> Array:
    """Return the indices along a dimension."""
    import numpy as np

    return np.asarray(np.indices(value.shape)[dim], dtype=float) if value.ndim else value


def _is_causal(value: Array) -> Array:
    """Return whether a column is not past its row; of one dimension, whether it is in the first half."""
    columns = _in_order(value, -1)
    return columns <= (_in_order(value, -2) if value.ndim > 1 else value.size // 2)


def _repeated(value: Array, pairs: bool) -> Array:
    """Return numbers of which the halves, or the two of each pair, are equal along the last dimension."""
    import numpy as np

    if not value.ndim or value.shape[-1] % 2:
        return value
    half = value[..., : value.shape[-1] // 2]
    return np.repeat(half, 2, axis=-1) if pairs else np.concatenate([half, half], axis=-1)


_CONTENTS: dict[str, dict[str, Callable[[Array], Array]]] = {
    "flags": {
        "flags are a causal mask": lambda value: _is_causal(value) * 1.0,
        "flags hide what is not causal": lambda value: 1.0 - _is_causal(value),
        "all flags are set": lambda value: 1.0 + 0 * value,
    },
    "whole numbers": {
        "whole numbers are positions in the last dimension": lambda value: _in_order(value, -1),
        "whole numbers are positions in the first dimension": lambda value: _in_order(value, 0),
        "whole numbers are a causal mask": lambda value: _is_causal(value) * 1.0,
        "whole numbers are one": lambda value: 1.0 + 0 * value,
    },
    "numbers": {
        "buffers hold any numbers": lambda value: value,
        "buffers hold equal halves": lambda value: _repeated(value, pairs=False),
        "buffers hold equal pairs": lambda value: _repeated(value, pairs=True),
        "buffers hold what is added for a causal mask": lambda value: 1e4 * (_is_causal(value) - 1.0),
        "buffers hold what is multiplied for a causal mask": lambda value: _is_causal(value) * 1.0,
        "buffers hold ones": lambda value: 1.0 + 0 * value,
    },
}
"""What masks, positions and tables hold in the models that are trained, of flags, of whole numbers and of other numbers."""

_HIDDEN: dict[str, Callable[[Array, Array], Array]] = {
    "later keys": lambda row, column: column > row,
    "all keys but the query's and the one before": lambda row, column: (column > row) | (column < row - 1),
    "later keys, and all but the first two": lambda row, column: (column > row) | (column > 1),
    "keys of other documents, two in each": lambda row, column: row // 2 != column // 2,
    "keys of other documents, three in each": lambda row, column: row // 3 != column // 3,
}
"""What masks hide, of rows of queries and columns of keys."""

_WAYS: dict[str, dict[str, Callable[[Array], Array]]] = {
    "flags": {"say what is hidden": lambda hidden: hidden, "say what is kept": lambda hidden: 1.0 - hidden},
    "whole numbers": {"say what is hidden": lambda hidden: hidden, "say what is kept": lambda hidden: 1.0 - hidden},
    "numbers": {"are added": lambda hidden: -1e4 * hidden, "are multiplied": lambda hidden: 1.0 - hidden},
}
"""The ways in which tensors say what is hidden, by the kind of their numbers."""


def names_read(plan: Plan, role: Role) -> set[str]:
    """Return the full names of the tensors of a role that operators read."""
    operators = plan.operators()
    tensors = (plan.tensors[name] for operator in operators for name in reads(operator) if name in plan.tensors)
    return {tensor.logical or tensor.name for tensor in tensors if tensor.role is role}


def _looked_up_inputs(plan: Plan) -> set[str]:
    """Return the full names of the inputs that are indices of rows of weights, classes of losses or choices of experts."""
    found: set[str] = set()
    computed = [*plan.operators_of(Compute)]
    for each_operator in reversed(computed):
        names = each_operator.tensor_operands
        if has_trait(each_operator.op, *_KEEP_ELEMENTS) and found.intersection(each_operator.outputs):
            found.update(names)
        tables = {name for name in names if plan.has_role(name, Role.WEIGHT)}
        if tables or has_trait(each_operator.op, *_LOOK_UP):
            found.update(lengths_looked_up(plan, each_operator))
    return {plan.tensors[name].logical or name for name in found if name in plan.tensors}


_KEEP_ELEMENTS = (Trait.VIEW, Trait.RANGES, Trait.CONVERSION, Trait.JOIN)

_LOOK_UP = (Trait.CLASS_LOSS, Trait.MASKED_LOOKUP, Trait.TOKEN_DISPATCH, Trait.TOKEN_COMBINE)
"""Operators that look up what their indices are made for, in whatever they look it up."""
