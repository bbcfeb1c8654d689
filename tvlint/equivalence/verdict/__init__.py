"""Pair two plans, compare what was derived of both, and give the verdict."""
