"""What may be written: only what an escape made, and only where outputs are written."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unicodedata import bidirectional, category
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tvlint
from tvlint.reporters.escape import markdown as blocks
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.html import html, tag
from tvlint.reporters.escape.terminal import Line, Span, Style, terminal
from tvlint.reporters.escape.xml import xml

ROOM = Path(tvlint.__file__).parent
PIECES = ("::", "##[", "##", "[", "\n", "\r", "\x1b[2J", "\u202e", "\ud800", "\u00a0", "\u3164", " ", "<b>", '"', "`")
HOSTILE = st.lists(
    st.sampled_from(
        ["::", "##[", "##", "[", "\n", "\r", "\x1b[2J", "\u202e", "\ud800", "\u00a0", "\u3164", " ", "<b>", '"', "`"]
    )
    | st.text(max_size=3),
    max_size=6,
).map("".join)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in ROOM.rglob("*.py"):
        yield path.relative_to(ROOM).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def names_of(node: ast.expr) -> str:
    return ast.unparse(node)


def test_only_the_escapes_make_what_is_written() -> None:
    makers = {
        path
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and names_of(node.func).rpartition(".")[2] == "Escaped"
    }
    assert makers
    assert {path for path in makers if not path.startswith("reporters/escape/")} == set()


@pytest.mark.heavy
def test_only_the_writer_of_outputs_writes_to_streams() -> None:
    writing = set()
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and names_of(node.func) in ("print", "sys.stdout.write", "sys.stderr.write"):
                said = "".join(map(ast.unparse, node.args))
                writing |= {path} - ({path} if said == "f'tvlint {__version__}'" else set())
            if isinstance(node, ast.Attribute) and names_of(node) in ("sys.stdout.buffer", "sys.stderr.buffer"):
                writing.add(path)
            if isinstance(node, ast.Assign) and names_of(node.value) in ("sys.stdout", "sys.stderr"):
                writing.add(path)
    assert writing == {"run/output/outputs.py"}


@pytest.mark.heavy
def test_a_writer_given_plain_text_does_not_pass_the_type_checker(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from tvlint.reporters.escape.html import tag\n"
        "from tvlint.reporters.text.report import write\n"
        "from tvlint.run.output.outputs import write_file, write_stdout\n"
        "name = 'x'\n"
        "write_stdout(name)\n"
        "write_stdout(f'{name}')\n"
        "write_file('x', name)\n"
        "tag('script')\n"
        "text: str = write\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(wrong)], cwd=ROOM.parent, capture_output=True, text=True, check=False
    )
    assert [line.split(":")[1] for line in found.stdout.splitlines() if ": error:" in line] == ["5", "6", "7", "8", "9"]


@given(st.lists(HOSTILE, min_size=1, max_size=4), st.booleans(), HOSTILE)
def test_a_line_stays_one_line_that_commands_nothing(parts: list[str], color: bool, address: str) -> None:
    links = (f"https://a.example/{address}", address)
    spans = (Span(part, Style.RED if index % 2 else None, links[index % 2]) for index, part in enumerate(parts))
    shown = terminal([Line(tuple(spans))], color).text
    shown = re.sub(r"\x1b]8;;(?:https://[\w./-]+)?\x1b\\", "", shown, flags=re.ASCII) if color else shown
    assert shown.endswith("\n")
    assert "\n" not in shown[:-1]
    for sequence in ("\x1b[1;31m", "\x1b[0m") if color else ():
        shown = shown.replace(sequence, "")
    assert not {category(character) for character in shown[:-1]} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {bidirectional(character) for character in shown[:-1]} & {
        "LRE",
        "RLE",
        "LRO",
        "RLO",
        "PDF",
        "LRI",
        "RLI",
        "FSI",
        "PDI",
    }
    if not color:
        assert "##[" not in shown
        assert not shown.lstrip().startswith("::")
        assert terminal(shown[:-1].split("\n")).text == shown


@given(HOSTILE, HOSTILE)
def test_markup_is_ours(text: str, other: str) -> None:
    page = html(tag("p", text, tag("b", other, kind=other), text)).text
    assert page.count("<") == 5
    assert "##[" not in page
    assert not [line for line in page.split("\n") if line.lstrip().startswith("::")]
    root = ElementTree.Element("a", {"b": text})
    root.text = other
    read = ElementTree.fromstring(xml(root).text)
    assert read.tag == "a"
    assert list(read) == []


@given(HOSTILE)
def test_a_style_sheet_ends_where_it_ends(text: str) -> None:
    assert html(tag("style", text)).text.count("<") == 3


@given(HOSTILE)
def test_data_is_read_back_and_commands_nothing(text: str) -> None:
    written = data({text: [text]}).text
    assert json.loads(written) == {text: [text]}
    assert "##[" not in written
    assert written.isascii()


@given(HOSTILE)
def test_markdown_has_no_character_that_formats(text: str) -> None:
    paragraph = blocks.markdown(blocks.Paragraph((text,))).text
    for mark in ("<code>", "</code>", "<!-- -->"):
        paragraph = paragraph.replace(mark, "")
    assert not set("<>\\`*_{}[]|~$") & set(paragraph)
    assert not paragraph.startswith(("- ", "+ ", "=", "    "))


def test_an_element_has_no_attribute_that_could_run_or_load() -> None:
    for name in ("style", "href", "src", "onclick"):
        with pytest.raises(ValueError, match="no attribute"):
            tag("p", **{name: "x"})  # type: ignore[arg-type]
