"""tvlint: static checks and equivalence proofs for distributed-training configurations and plans."""

__version__ = "0.1.0"
