"""Lower the syntax of generated code to a plan."""
