"""Evaluate shell scripts statically, with positions and unknowns."""
