"""The process that does the work of a run, its budget, and its children."""
