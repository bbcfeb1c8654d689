"""`tvlint check` with `--fix`, `--diff` or `--add-ignores`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import unified_diff

from tvlint.checkout.opening import content
from tvlint.cli.arguments import fail
from tvlint.cli.session import colored, note
from tvlint.findings import Report
from tvlint.plurals import counted
from tvlint.reporters.escape.terminal import Line, Span, Style, terminal
from tvlint.run.judge.check import Rules
from tvlint.run.output.outputs import OutputError, rewrite, write_stdout
from tvlint.run.process.session import Session
from tvlint.run.repair.add_ignores import with_ignores
from tvlint.run.repair.fixes import LARGEST, Fixed, fixed

_STYLES = {"+": Style.PLAIN_GREEN, "-": Style.RED, "@": Style.CYAN}


def show(options: argparse.Namespace, report: Report, rules: Rules, session: Session) -> int:
    """Print what the fixes of the report's findings change, and return how many findings they repair."""
    found = fixed(report, rules, session, options.unsafe_fixes)
    write_stdout(terminal(_difference(found), colored(options.color)))
    name = "--unsafe-fixes" if options.unsafe_fixes else "--fix"
    note(f"`{name}` would repair {counted(found.count, 'finding') if found.count else 'nothing'}{_more(found, options)}")
    return found.count


def make(options: argparse.Namespace, report: Report, rules: Rules, session: Session) -> int:
    """Write the files with the fixes of the report's findings, and return how many these repair."""
    found = fixed(report, rules, session, options.unsafe_fixes)
    for path, data in found.contents.items():
        try:
            rewrite(path, data)
        except OutputError as error:
            fail(str(error), error.help)
    if found.count:
        note(f"repaired {counted(found.count, 'finding')} in {counted(len(found.contents), 'file')}")
    else:
        note(f"repaired nothing{_more(found, options)}")
    return found.count


def _more(found: Fixed, options: argparse.Namespace) -> str:
    if found.count or options.unsafe_fixes:
        return ""
    return ": no finding has a safe fix; `--unsafe-fixes` also applies fixes that a person has to review"


def _difference(found: Fixed) -> Iterator[str | Line]:
    for path, data in sorted(found.contents.items()):
        old, new = (text.decode("utf-8").splitlines() for text in (content(path, LARGEST), data))
        for line in unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""):
            yield Line((Span(line, _STYLES.get(line[:1])),))


def ignore(options: argparse.Namespace, report: Report, rules: Rules, session: Session) -> int:
    """Write comments that silence the report's findings, and return how many these silence."""
    found = with_ignores(report, rules, options.add_ignores, session)
    for path, data in found.contents.items():
        try:
            rewrite(path, data)
        except OutputError as error:
            fail(str(error), error.help)
    note(f"silenced {counted(found.count, 'finding')} by comments in {counted(len(found.contents), 'file')}")
    if found.left:
        note(f"no comment can silence {counted(len(found.left), 'finding')}: `ignore`, `per-file-ignores` or a baseline can")
    return found.count
