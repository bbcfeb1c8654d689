"""Findings that are not reported: by comments, baselines and the project file."""
