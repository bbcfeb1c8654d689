"""Lower nnScaler plan pickles to plans."""
