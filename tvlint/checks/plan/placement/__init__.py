"""Rules on placements of tensors."""
