"""ARCHITECTURE.md names every room, and no room that is not there."""

from __future__ import annotations

import re

import pytest

from tests.shared import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "tvlint"


def packages(room: str) -> list[str]:
    """Return the packages right below a folder of tvlint/."""
    return sorted(path.parent.name for path in (PACKAGE / room).glob("*/__init__.py"))


def test_every_room_has_its_row() -> None:
    table = TEXT[TEXT.index("## Where things are") : TEXT.index("Imports point one way")]
    assert sorted(set(re.findall(r"`tvlint/(\w+)/", table))) == packages(".")


@pytest.mark.parametrize("room", ["analyses", "analyses/relations", "equivalence", "run"])
def test_the_rooms_inside_a_room_are_named(room: str) -> None:
    assert [name for name in packages(room) if f"`{name}`" not in TEXT and f"`{room}/{name}`" not in TEXT] == []


DOCUMENTS = pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/writing-rules.md"])


@DOCUMENTS
def test_every_name_that_stands_in_a_file_by_a_document_stands_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`(?: or `\w+`)? in `((?:tvlint|tests)/[\w/]+\.py)`", text)
    missing = [(name, path) for name, path in named if not re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))]
    assert missing == []


@DOCUMENTS
def test_every_path_that_is_named_is_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tvlint|tests|rules|schemas|docs|benchmarks)/[\w/.]+)`", text))
    assert named
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_every_module_that_is_named_by_its_place_in_tvlint_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT))
    assert "run/output/outputs.py" in named
    assert sorted(path for path in named if not (ROOT / path).exists() and not (PACKAGE / path).exists()) == []


def test_the_figure_shows_rooms() -> None:
    (figure,) = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
    arrows = re.findall(r"^ +(.*-->.*)$", figure, re.MULTILINE)
    ends = {re.split(r"\W", end.strip())[0] for arrow in arrows for end in re.split(r"-->(?:\|[^|]*\|)?", arrow)}
    assert ends - {"files", "program", "out", "rules"} <= {*packages(".")}


def test_the_list_of_passes_of_a_proof_is_complete() -> None:
    room = PACKAGE / "equivalence" / "verdict"
    text = (room / "prove.py").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)\.(\w+)`", text.split('"""')[1])
    modules: dict[str, str] = {}
    for path in PACKAGE.glob("equivalence/**/*.py"):
        for name in (path.stem, path.parent.name):
            modules[name] = modules.get(name, "") + "\n" + path.read_text(encoding="utf-8")
    assert [name for module, name in listed if not re.search(rf"^(?:def )?{name}\b", modules[module], re.MULTILINE)] == []
    assert set(re.findall(r"from tvlint\.equivalence\.verdict\.(\w+) import", text)) <= {module for module, _ in listed}


def test_the_order_of_rooms_is_that_of_the_contract() -> None:
    [line] = re.findall(r"`(cli \| api > run > [^`]+)`", TEXT)
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    layers = contract[contract.index("Imports point one way") :]
    layers = re.findall(r'^    "([^"]+)",$', layers[: layers.index("\n]")], re.MULTILINE)
    assert [layer.replace("tvlint.", "") for layer in layers] == " ".join(line.split()).split(" > ")
