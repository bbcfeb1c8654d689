"""Check what must hold for a derivation to be valid: order, waits, aliasing, micro-batch symmetry."""
