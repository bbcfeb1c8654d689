"""Patterns of mistakes in how local tensors lie, as the relations of one plan show it."""
