"""What follows from a parallel configuration or plan: ranks, groups, layers, micro-batches, parameters, memory, bubble."""
