"""Readers of nnScaler's files: plan pickles, generated code, trainer settings."""
