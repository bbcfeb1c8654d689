"""The stage-wise equivalence proof."""
