"""Explain a verdict: counterexample, context graph, repair."""
