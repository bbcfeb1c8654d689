"""Relations through operators that are no product, sum or map of each element."""
