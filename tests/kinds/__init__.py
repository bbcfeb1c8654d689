"""Kinds of parallel plans that users write, each with the reference that it trains like, and mistakes in it."""
