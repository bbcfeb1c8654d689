"""Rules on gradients, reductions and updates."""
