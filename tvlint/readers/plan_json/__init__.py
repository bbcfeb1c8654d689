"""Read plan JSON."""
