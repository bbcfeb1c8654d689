"""Report to text, one file a format."""

FORMATS = {
    "text": "text.report",
    "concise": "text.concise",
    "json": "json.report",
    "sarif": "sarif.report",
    "junit": "forge.junit",
    "github": "forge.github",
    "gitlab": "forge.gitlab",
    "rdjson": "forge.rdjson",
    "markdown": "forge.markdown",
    "summary": "forge.summary",
    "html": "html.report",
}
"""The formats of `-o`, and the module of each, whose `write(report, context)` gives the text."""
