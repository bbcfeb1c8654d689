"""Read bytes of any format: positions, inert pickles, decompression, resource limits."""
