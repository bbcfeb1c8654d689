"""Values that every layer above reads; nothing here does any work."""
