"""Rules on what a plan declares of its tensors."""
