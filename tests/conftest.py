"""Golden files: `pytest --update-golden` writes them anew; review the diff."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["TVLINT_CACHE_KEY"] = "off"
"""No test remembers what another has found, or leaves files in the tree; those of the cache bring a key of their own."""

GOLDEN = Path(__file__).parent / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("reports/full.txt", text)`: `text` is what the file under tests/data says."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        if not path.is_file():
            pytest.fail(f"{path} does not exist; `pytest --update-golden` writes it")
        assert text == path.read_bytes().decode("utf-8")

    return compare
