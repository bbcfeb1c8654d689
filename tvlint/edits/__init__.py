"""Edits of texts: which spans of a file a change of its settings replaces, and the text after them."""
