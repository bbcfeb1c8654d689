"""Analyse pipeline schedules: coverage, order, messages, memory, timing, family."""
