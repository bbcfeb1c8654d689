"""Runs of a pair of plans on numbers: what they show, and the edits that make them agree."""
