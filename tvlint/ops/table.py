"""The operator table: every operator that tvlint knows, by what is emitted."""

from __future__ import annotations

from functools import cache

from tvlint.ops import attention, elementwise, joining, linear_algebra, reductions, registered, shaping, slicing
from tvlint.ops.spec import OpSpec

SPECS: tuple[OpSpec, ...] = (
    *linear_algebra.SPECS,
    *elementwise.SPECS,
    *reductions.SPECS,
    *shaping.SPECS,
    *slicing.SPECS,
    *joining.SPECS,
    *attention.SPECS,
    *registered.SPECS,
)

_BY_NAME = {key: spec for spec in SPECS for key in (spec.name, *spec.signatures)}
_BY_FUNCTION = {key.rsplit(".", 1)[-1]: spec for spec in reversed(SPECS) for key in spec.signatures}
_REGISTERED = {spec.name: spec for spec in registered.SPECS}


@cache
def spec_of(op: str) -> OpSpec | None:
    """The meaning of the function `op`, by signature or canonical name; None when the table does not have it.

    A name without a module (`layer_norm`) is the function of that name. Operators that a model's author registered are found
    by the last part of their path.
    """
    return _BY_NAME.get(op) or _REGISTERED.get(op.rsplit(".", 1)[-1]) or _BY_FUNCTION.get(op)
