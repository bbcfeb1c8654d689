"""Proofs as data, and a checker of them that shares no code with the prover."""
