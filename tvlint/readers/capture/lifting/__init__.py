"""Values of one rank, and the operators of `aten` lifted to operators of the table."""
