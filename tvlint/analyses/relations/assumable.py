"""The checks of a proof that a user may weaken, by name; known without loading the proof."""

from __future__ import annotations

DECLARED_PIECE_ORDER = "declared-piece-order"
"""Pieces are cut and joined in the order in which the plan declares the ranks of a group, not in rank order."""

ASSUMPTIONS = (DECLARED_PIECE_ORDER,)
"""What `assume` may name: checks that are weakened on request, and printed with the verdict."""
