"""Names of operators of `aten` that the follower of storages reads by itself; all others are read by equations."""

from __future__ import annotations

from typing import get_args

from tvlint.readers.capture.tapes.windows import Move

COPIES = frozenset({"clone", "contiguous", "lift_fresh", "lift_fresh_copy", "alias", "detach", "view", "_unsafe_view"})
"""Operators that give what they are given."""

UNWRITTEN = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators whose results hold nothing yet."""

IN_PIECES = frozenset({"mul", "div", "add", "sub", "neg"})
"""Operators that work on each piece of a flat buffer by itself, with one number's help or with the same piece of another."""

FOREACH = "_foreach_"
"""What the name of an operator on lists of tensors begins with."""

UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"
"""The operator by which a scaler of losses multiplies gradients by the inverse of the scale, and looks for infinite numbers."""

MOVES = frozenset(kind.__name__.lower() for kind in get_args(Move))
"""The moves by which a window is read from another one, as operators."""
