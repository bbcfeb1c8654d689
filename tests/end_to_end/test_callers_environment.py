"""No test sees what tvlint reads of its caller's environment: a run in CI, in a hook and at a desk are one run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from shared import ROOT

from tests.callers_environment import is_the_callers

OF_THE_TESTS = {"PATH", "PYTHONPATH", "TVLINT_CACHE_KEY", "OPENBLAS_NUM_THREADS"}
"""What the tests set for all, and what says nothing about what tvlint does: where programs and modules are found."""


def read_names() -> Iterator[str]:
    """Yield each name that the product looks up in an environment."""
    for file in (ROOT / "tvlint").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr="environ" | "environment")), args=[ast.Constant(name), *_]
                ):
                    yield name


def test_each_variable_that_tvlint_reads_is_hidden_from_tests() -> None:
    names = set(read_names())
    assert {"CI", "GITHUB_WORKSPACE", "NO_COLOR", "TERM"} <= names
    assert {name for name in names - OF_THE_TESTS if not is_the_callers(name)} == set()


def test_no_test_has_a_variable_of_its_caller() -> None:
    assert [name for name in os.environ if is_the_callers(name)] == []
