"""Write one report in every format that was asked for."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from tvlint.checkout.top import top_of
from tvlint.findings import Report
from tvlint.ir.values import fields, is_dataclass, replace
from tvlint.reporters import FORMATS
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.run.output.json_places import with_lines
from tvlint.run.output.outputs import Output

_FOR_PEOPLE = ("text", "concise")
"""Formats whose paths are read where tvlint runs; the others are read where the repository starts."""


def rendered(report: Report, outputs: tuple[Output, ...], context: Context) -> dict[Output, Escaped]:
    """Return the report as each output has it: in colour on a terminal only, with the paths that its readers know."""
    here = Path.cwd()
    root = Path(top_of(here) or here)
    report = with_lines(report)

    def written(output: Output) -> Escaped:
        people = output.format in _FOR_PEOPLE or root == here
        this_context = replace(context, root=here if people else root, color=context.color and not output.path)
        return render(report if people else _seen_from(root, report), output.format, this_context)

    return {output: written(output) for output in outputs}


def render(report: Report, format: str, context: Context) -> Escaped:
    """Return the report in one format."""
    read = frozenset((*report.checked, *(problem.location.path for problem in report.problems)))
    written: Escaped = import_module(f"tvlint.reporters.{FORMATS[format]}").write(report, replace(context, read=read))
    return written


def _seen_from(root: Path, report: Report) -> Report:
    """Return the report with every path that exists from here written as it is from `root`."""
    moved: dict[str, str] = {}

    def path(text: str) -> str:
        if text not in moved:
            real = os.path.abspath(text)
            moved[text] = os.path.relpath(real, root) if not os.path.isabs(text) and os.path.exists(real) else text
        return moved[text]

    def value(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(value(part) for part in item)
        if not is_dataclass(item) or isinstance(item, type):
            return item
        changes = {}
        for field in fields(item):
            old = getattr(item, field.name)
            new = (
                path(old)
                if field.name in ("path", "reference", "parallel", "found_in") and isinstance(old, str)
                else value(old)
            )
            if new is not old:
                changes[field.name] = new
        return replace(item, **changes) if changes else item

    seen: Report = value(replace(report, checked=tuple(path(checked) for checked in report.checked)))
    return seen
