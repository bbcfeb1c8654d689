"""Follow gradients from backward operators over reductions to updates."""
