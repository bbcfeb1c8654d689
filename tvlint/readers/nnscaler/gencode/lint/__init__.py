"""Find defects of generated code that no plan shows."""
