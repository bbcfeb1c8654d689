"""XML of elements whose text and attributes are data."""

from __future__ import annotations

from xml.etree import ElementTree

from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal


def xml(root: ElementTree.Element) -> Escaped:
    """Return the document with the element `root`; its text keeps its lines, and nothing else that is not seen."""
    for element in root.iter():
        element.text = _shown(element.text)
        element.tail = _shown(element.tail)
        for name, value in element.attrib.items():
            element.set(name, _shown(value) or "")
    ElementTree.indent(root)
    return Escaped(f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n')


def _shown(text: str | None) -> str | None:
    return None if text is None else terminal(text.split("\n")).text[:-1]
