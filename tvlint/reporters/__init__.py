"""Report to text, one file a format."""

FORMATS = ("text", "concise", "json", "sarif", "junit", "github", "markdown", "html")
"""The formats of `-o`; each is the module of that name, whose `write(report, context)` gives the text."""
