"""Rules on values and the operators that take them."""
