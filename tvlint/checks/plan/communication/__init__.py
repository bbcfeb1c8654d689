"""Rules on collectives, messages, waits and their order."""
