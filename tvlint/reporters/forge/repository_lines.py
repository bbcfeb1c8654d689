"""The text of repository files that a report may show, each read once."""

from __future__ import annotations

from tvlint.findings import Report
from tvlint.reporters.context import Context
from tvlint.reporters.forge.anchor import repository
from tvlint.reporters.text.excerpt import source_text, split_lines


class RepositoryLines:
    """The text and the lines of repository files, each read once."""

    def __init__(self, report: Report, context: Context) -> None:
        self._report, self._context = report, context
        self._texts: dict[str, str | None] = {}
        self._lines: dict[str, tuple[str, ...]] = {}

    def text(self, path: str) -> str | None:
        """Return the text of a file; None where it may not be shown."""
        if path not in self._texts:
            self._texts[path] = source_text(str(repository(self._context) / path), self._report, self._context)
        return self._texts[path]

    def line(self, path: str, number: int) -> str:
        """Return one line; empty where there is none."""
        if path not in self._lines:
            text = self.text(path)
            self._lines[path] = () if text is None else split_lines(text)
        lines = self._lines[path]
        return lines[number - 1] if number <= len(lines) else ""
