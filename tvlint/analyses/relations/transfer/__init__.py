"""Relations of local tensors to terms, and how one operator or collective transfers them."""
