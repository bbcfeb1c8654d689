"""Edits that are offered, each tried before."""
