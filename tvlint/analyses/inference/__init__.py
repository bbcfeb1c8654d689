"""Complete a plan by what it leaves out: segments, types for each rank, shapes and gradients."""
