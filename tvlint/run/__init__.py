"""Wiring: which files, what is asked of them, where the answer goes; knows no format and no rule."""
