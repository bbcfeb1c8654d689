"""Parse generated rank files: containers, methods, names, train steps."""
