"""The one way out: each format takes text as data and escapes all of it; only what they make, `Escaped`, can be written."""
