"""Def-use of operators, runs of segments and representative ranks: what other analyses read."""
