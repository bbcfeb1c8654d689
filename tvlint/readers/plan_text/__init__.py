"""Read plan text."""
