"""In what two operators differ that should compute alike."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.operators import Compute, Literal


def difference(first: Compute, second: Compute) -> str:
    """Return what one operator computes and the other does not, in words."""
    if first.op != second.op:
        return f"`{first.op}` and `{second.op}`"
    constants = [[operand.value for operand in operator.inputs if isinstance(operand, Literal)] for operator in (first, second)]
    if constants[0] != constants[1]:
        return f"{_words(constants[0])} and {_words(constants[1])}"
    for name in {**first.attributes, **second.attributes}:
        one, two = first.attributes.get(name), second.attributes.get(name)
        if one != two and not (isinstance(one, tuple) or isinstance(two, tuple)):
            return f"`{name}` {one} and {two}"
    return ""


def same_operator(one: Compute | None, other: Compute) -> bool:
    """Return whether two operators compute the same from the same operands."""
    return (
        one is not None
        and (one.op, one.inputs, one.outputs) == (other.op, other.inputs, other.outputs)
        and (dict(one.attributes) == dict(other.attributes))
    )


def _words(constants: Sequence[object]) -> str:
    return ", ".join(map(str, constants)) or "no constant"
