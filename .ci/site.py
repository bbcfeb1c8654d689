"""The pages of the documentation site that are not in docs/: the start page and the pages of all rules."""

from __future__ import annotations

import posixpath
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tvlint import __version__
from tvlint.home import page as address
from tvlint.rule import Rule, labelled
from tvlint.rulebook.pages import explanation_of, load_rules

WIDTH = 96
"""Letters that a line of a block shows on a page."""
ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the start page and the pages of the rules."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=_moved(readme, "")))
    rules = load_rules()
    files.append(File.generated(config, "rules/index.md", content="\n".join(_index(list(rules.values())))))
    for rule in rules.values():
        files.append(File.generated(config, f"rules/{rule.topic}/{rule.name}.md", content=_page(rule)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Show blocks by their language alone, and lead links to files that are not on the site to the project."""
    own = page.file.src_uri
    text = _moved(markdown, posixpath.join("docs", posixpath.dirname(own))) if (ROOT / "docs" / own).is_file() else markdown
    return labelled(text)


def _moved(text: str, folder: str) -> str:
    """Return the text of a page in a folder of the project, its links as the site has them."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        anchor = match[2] or ""
        if not (ROOT / target).exists():
            return match[0]
        if target.startswith("docs/") and target.endswith(".md"):
            return posixpath.relpath(target.removeprefix("docs/"), folder.removeprefix("docs").strip("/") or ".") + anchor
        return address(target, __version__) + anchor

    return _LINK.sub(link, text)


def _index(rules: list[Rule]) -> Iterator[str]:
    yield f"# The {len(rules)} rules\n"
    yield "`tvlint rules WORD...` searches them, `tvlint explain RULE` shows a page.\n"
    for topic in sorted({rule.topic for rule in rules}):
        yield f"\n## {topic}\n\n| rule | severity | |\n|---|---|---|"
        for rule in rules:
            if rule.topic == topic:
                yield f"| [{rule.name}]({rule.topic}/{rule.name}.md) | {rule.severity.value} | {_cell(rule.summary)} |"


def _page(rule: Rule) -> str:
    head = f"# {rule.name}\n\n*{rule.severity.value}, {rule.kind.value} rule:* {rule.summary}\n\n"
    parts = [head + explanation_of(rule).strip()]
    if rule.require:
        lines = (f"when: {rule.when or 'always'}", f"require: {rule.require}")
        condition = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False) for line in lines)
        parts.append(f"## Condition\n\n```text\n{condition}\n```")
    if rule.sources:
        parts.append("## Sources\n\n" + "\n".join(f"- `{source}`" for source in rule.sources))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
