"""Words of a report as Markdown on which nothing acts: not the renderer, not GitHub's mentions and links."""

from __future__ import annotations

import re

from tvlint.reporters.visible import visible


def code(text: str) -> str:
    """Text as code."""
    return f"<code>{entities(visible(text))}</code>"


def escaped(text: str) -> str:
    """`text` as plain words of a Markdown line, names in backticks as code; nothing in it formats, links or notifies."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return inert("`".join(parts))
    return "".join(code(part) if index % 2 else inert(part) for index, part in enumerate(parts))


def inert(text: str) -> str:
    """Entities stop Markdown, empty comments stop mentions, references and links that GitHub finds in rendered text."""
    text = entities(text)
    text = re.sub(r"(@|&#35;|(?i:\bGH-))(?=\w)", r"\1<!-- -->", text)
    return re.sub(r"(?i)\b(https?|ftp|www)(?=:|\.)", r"\1<!-- -->", text)


def entities(text: str) -> str:
    """`text` with the characters that mean something to Markdown or HTML as entities."""
    return re.sub(r"[&<>\\`*_{}\[\]#|~$]", lambda match: f"&#{ord(match[0])};", text)
