"""Pairs of plans, captures and launches that a project wants proved."""
