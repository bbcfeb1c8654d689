"""Names of tensors that have another type on some ranks of a program: `x@tp=1` is what all programs call `x`."""

from __future__ import annotations


def shared_name(name: str) -> str:
    """Return the name by which all programs call a tensor."""
    return name.partition("@")[0]
