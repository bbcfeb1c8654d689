"""Read nnScaler's trainer settings, partition constraints and saved autodist plans."""
