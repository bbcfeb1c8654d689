"""Repairs of generated code, as edits of its lines in the files of all ranks that run the same."""
