"""A pair of plans with smaller sizes, which is right where the pair is."""
