"""What is found in a file, and its topology."""
