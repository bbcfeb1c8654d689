"""Execute a plan abstractly on all ranks: relations of every local tensor, forward and backward."""
