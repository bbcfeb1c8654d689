"""Parse and evaluate the language of rule pages."""
