"""Analyse collectives and messages: groups, order, waits, hazards, deadlocks, exchanges."""
