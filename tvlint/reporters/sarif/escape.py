"""Words of a report as SARIF messages, in which brackets are links and numbers in braces placeholders."""

from __future__ import annotations

import re

from tvlint.reporters.escape.visible import visible


def message_text(text: str) -> str:
    """`text` as a SARIF message: no links, no placeholders."""
    text = re.sub(r"\[(?=[^\]]*\]\()", r"\\[", visible(text))
    return re.sub(r"\{(\d+)\}", r"{{\1}}", text)


def link_text(text: str) -> str:
    """`text` as the words of a link."""
    return re.sub(r"\{(\d+)\}", r"{{\1}}", re.sub(r"[\[\]\\()]", "", visible(text))) or "here"
