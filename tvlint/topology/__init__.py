"""Derive the topology of a configuration or plan: ranks, groups, layers, micro-batches, parameters, memory, bubble."""
