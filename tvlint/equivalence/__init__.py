"""Compare a parallel plan with its reference: pairing, side conditions, verdict, repair."""
