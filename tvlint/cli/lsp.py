"""`tvlint lsp`: the language server, which speaks the Language Server Protocol over the standard streams."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.edits.apply import Text
from tvlint.findings import Finding, Fix, Problem, Report, Severity
from tvlint.home import page_of
from tvlint.ir.location import Location
from tvlint.reporters.escape.visible import visible
from tvlint.rulebook.pages import load_rules
from tvlint.run.output.exit_code import CLEAN
from tvlint.run.repair.editor import Buffers, Hover, diagnose, fixes_in, hover, text_of, within_budget

PAUSE = 0.15
"""Seconds without a change after which a text is judged."""


def run(options: argparse.Namespace) -> int:
    """Serve one editor until it says that it is done."""
    try:
        from pygls.lsp.server import LanguageServer
    except ImportError:
        fail("the package `pygls` is not installed", "`pip install 'tvlint[lsp]'`")
    server = LanguageServer("tvlint", __version__)
    _Editor(server, options.budget).serve()
    with open(os.dup(0), "rb") as incoming, open(os.dup(1), "wb") as outgoing:
        server.start_io(incoming, outgoing)
    return CLEAN


class _Editor:
    """The texts that one editor has open, and what was found in them."""

    def __init__(self, server: Any, limits: Mapping[str, float]) -> None:
        from lsprotocol import types

        self.server, self.types, self.limits = server, types, limits
        self.rules = load_rules()
        self.waiting: Any = None

    def serve(self) -> None:
        """Answer the requests and events of the editor."""
        types, feature = self.types, self.server.feature
        for event in (types.TEXT_DOCUMENT_DID_OPEN, types.TEXT_DOCUMENT_DID_SAVE):
            feature(event)(lambda params: self._judge_now())
        feature(types.TEXT_DOCUMENT_DID_CHANGE)(lambda params: self._judge_soon())
        feature(types.TEXT_DOCUMENT_DID_CLOSE)(lambda params: self._forget(params))
        feature(types.TEXT_DOCUMENT_HOVER)(lambda params: self._hover(params))
        kinds = [types.CodeActionKind.QuickFix]
        feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))(
            lambda params: self._actions(params)
        )

    def _judge_soon(self) -> None:
        import asyncio

        if self.waiting is not None:
            self.waiting.cancel()
        self.waiting = asyncio.get_running_loop().call_later(PAUSE, self._judge_now)

    def _judge_now(self) -> None:
        """Judge every text that is open: one may name another, and its mistake may stand there."""
        buffers = self._buffers()
        reports = {path: self._report(path, buffers) for path in buffers.texts}
        for document in list(self.server.workspace.text_documents.values()):
            if document.path not in reports:
                continue
            text = Text(document.source)
            found = [self._diagnostic(finding, text, buffers) for finding in _shown(document.path, reports)]
            found += [self._problem(problem, text) for problem in _problems(document.path, reports)]
            parameters = self.types.PublishDiagnosticsParams(document.uri, found, document.version)
            self.server.text_document_publish_diagnostics(parameters)

    def _report(self, path: str, buffers: Buffers) -> Report:
        found = within_budget(path, lambda: diagnose(path, buffers, self.rules), buffers, self.limits)
        return Report(problems=(found,)) if isinstance(found, Problem) else found

    def _forget(self, params: Any) -> None:
        uri = params.text_document.uri
        self.server.text_document_publish_diagnostics(self.types.PublishDiagnosticsParams(uri, []))

    def _hover(self, params: Any) -> Any:
        path, line, column = self._place(params.text_document.uri, params.position)
        buffers = self._buffers()
        if path not in buffers.texts:
            return None
        found = within_budget(path, lambda: hover(path, line, column, buffers, self.rules), buffers, self.limits)
        if found is None:
            return None
        if isinstance(found, Problem):
            found = Hover("", (found.message,))
        return self.types.Hover(self.types.MarkupContent(self.types.MarkupKind.Markdown, _markdown(found)))

    def _actions(self, params: Any) -> list[Any]:
        uri = params.text_document.uri
        path, first, _ = self._place(uri, params.range.start)
        last = params.range.end.line + 1
        buffers = self._buffers()
        if path not in buffers.texts:
            return []
        found = within_budget(path, lambda: fixes_in(path, first, last, buffers, self.rules), buffers, self.limits)
        if isinstance(found, Problem):
            reason = visible(found.message)
            return [self.types.CodeAction(reason, disabled=self.types.CodeActionDisabled(reason))]
        return [self._action(fix, finding, buffers) for finding, offered in found for fix in offered]

    def _action(self, fix: Fix, finding: Finding, buffers: Buffers) -> Any:
        from pygls.uris import from_fs_path

        changes: dict[str, list[Any]] = {}
        for edit in fix.edits:
            text = text_of(edit.location.path, buffers)
            if text is not None:
                uri = self._uri(edit.location.path) or from_fs_path(edit.location.path)
                changes.setdefault(uri, []).append(self.types.TextEdit(self._range(edit.location, text), edit.text))
        this_text = text_of(finding.location.path, buffers)
        return self.types.CodeAction(
            title=visible(fix.message),
            kind=self.types.CodeActionKind.QuickFix,
            is_preferred=fix.is_safe or None,
            edit=self.types.WorkspaceEdit(changes=changes),
            diagnostics=[self._diagnostic(finding, this_text, buffers)] if this_text is not None else None,
        )

    def _diagnostic(self, finding: Finding, text: Text, buffers: Buffers) -> Any:
        rule = self.rules.get(finding.rule)
        help = f"\nhelp: {finding.help}" if finding.help else ""
        related = []
        for other in finding.related:
            there = text_of(other.location.path, buffers)
            if there is not None and other.location.line is not None:
                place = self.types.Location(self._address(other.location.path), self._range(other.location, there))
                related.append(self.types.DiagnosticRelatedInformation(place, visible(other.message)))
        page = page_of(rule, __version__) if rule is not None else ""
        return self.types.Diagnostic(
            range=self._range(finding.location, text),
            message="\n".join(visible(line) for line in f"{finding.message}{help}".split("\n")),
            severity=self._severity(finding.severity),
            code=finding.rule,
            code_description=self.types.CodeDescription(page) if page else None,
            source="tvlint",
            related_information=related or None,
        )

    def _problem(self, problem: Problem, text: Text) -> Any:
        help = f"\nhelp: {problem.help}" if problem.help else ""
        message = "\n".join(visible(line) for line in f"{problem.message}{help}".split("\n"))
        severity = self.types.DiagnosticSeverity.Error
        return self.types.Diagnostic(self._range(problem.location, text), message, severity, source="tvlint")

    def _severity(self, severity: Severity) -> Any:
        known = self.types.DiagnosticSeverity
        return {Severity.ERROR: known.Error, Severity.WARNING: known.Warning, Severity.NOTE: known.Information}[severity]

    def _range(self, location: Location, text: Text) -> Any:
        """Return the span in lines from 0 and units of UTF-16, as the protocol counts; whole lines without columns."""
        lines = text.text.split("\n")
        first = min(location.line or 1, len(lines))
        last = min(location.end_line or first, len(lines))
        start = (first, location.column or 1)
        whole = location.column is None or location.end_column is None
        end = (last, len(lines[last - 1]) + 1 if whole else location.end_column or 1)
        places = [self.types.Position(line - 1, _units(lines[line - 1], column)) for line, column in (start, end)]
        return self.types.Range(*places)

    def _place(self, uri: str, position: Any) -> tuple[str, int, int]:
        """Return the path, line and column; no path where the text is not open, of which no file is read instead."""
        document = self.server.workspace.text_documents.get(uri)
        if document is None:
            return "", 1, 1
        line = (document.source.split("\n")[position.line : position.line + 1] or [""])[0]
        before = line.encode("utf-16-le", "surrogatepass")[: 2 * position.character].decode("utf-16-le", "replace")
        return document.path, position.line + 1, len(before) + 1

    def _buffers(self) -> Buffers:
        """Return the texts that are open; what has an address that is no path of a file is not judged."""
        documents = self.server.workspace.text_documents.values()
        return Buffers(
            {document.path: document.source for document in documents if document.path and "\0" not in document.path}
        )

    def _uri(self, path: str) -> str | None:
        documents = self.server.workspace.text_documents.values()
        return next((document.uri for document in documents if document.path == path), None)

    def _address(self, path: str) -> str:
        from pygls.uris import from_fs_path

        return self._uri(path) or from_fs_path(path) or path


def _shown(path: str, reports: Mapping[str, Report]) -> Iterator[Finding]:
    """Yield the findings that stand in the text at `path`, and its own that stand in no text that is open."""
    every = dict.fromkeys(finding for report in reports.values() for finding in report.findings)
    yield from (finding for finding in every if finding.location.path == path)
    for finding in reports[path].findings:
        if finding.location.path not in reports:
            places = (other.location for other in finding.related if other.location.path == path)
            yield replace(finding, location=next(places, Location(path, 1)))


def _problems(path: str, reports: Mapping[str, Report]) -> Iterator[Problem]:
    """Yield the problems of the text at `path`; those of files that are not open stand at its beginning."""
    for problem in reports[path].problems:
        other = problem.location.path
        if _same(other, path):
            yield problem
        elif not any(_same(other, opened) for opened in reports):
            yield replace(problem, message=f"{other}: {problem.message}", location=Location(path, 1))


def _units(line: str, column: int) -> int:
    return len(line[: column - 1].encode("utf-16-le", "surrogatepass")) // 2


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _markdown(found: Hover) -> str:
    """Return our page, and the lines in a block that nothing in them can end."""
    return "\n\n".join(part for part in (found.page, "\n".join(_block(found.lines))) if part)


def _block(lines: tuple[str, ...]) -> Iterator[str]:
    if lines:
        yield "```text"
        yield from (visible(line).replace("```", "'''") for line in lines)
        yield "```"
