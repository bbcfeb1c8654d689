"""`docs/reports.md` shows what the reporters write."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from tests.builders import reports
from tvlint.findings import Report
from tvlint.reporters import FORMATS
from tvlint.reporters.text import report as text

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_the_example_is_what_is_written(tmp_path: Path) -> None:
    reports.write_sources(tmp_path)
    written = text.write(Report(reports.FULL.findings[:1]), reports.context(tmp_path)).text
    (example,) = re.findall(r"```\n(.*?)\n```", PAGE, re.DOTALL)
    assert written.startswith(f"{example}\n\n")


def test_every_format_is_listed_and_is_a_module() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == tuple(FORMATS)
    assert all(callable(import_module(f"tvlint.reporters.{module}").write) for module in FORMATS.values())
