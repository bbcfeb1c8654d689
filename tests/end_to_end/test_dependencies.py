"""Every declared dependency is imported by the package: one that is not is weight that users install for nothing."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.shared import ROOT

MODULES = {"pyyaml": "yaml", "z3-solver": "z3", "pre-commit": "pre_commit"}
RUN_TIME = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ndependencies = [")[2].partition("\n]")[0]
DECLARED = re.findall(r'^    "([A-Za-z0-9-]+)[^"]*",$', RUN_TIME, re.MULTILINE)


@cache
def imported_modules() -> frozenset[str]:
    """Return the top-level modules that some module of tvlint/ imports."""
    found = set()
    for path in (ROOT / "tvlint").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return frozenset(found)


def test_dependencies_are_declared() -> None:
    assert {"jsonschema", "networkx", "pyyaml", "z3-solver"} <= set(DECLARED)


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_dependency_is_imported(name: str) -> None:
    assert MODULES.get(name, name.replace("-", "_")) in imported_modules()
