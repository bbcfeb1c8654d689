"""No module outside the operator table lists operators by name: what kind of function one is, its traits say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.shared import ROOT
from tvlint.ops.table import canonical_name, spec_of

MODULES = [
    path
    for path in sorted((ROOT / "tvlint").rglob("*.py"))
    if "ops" not in path.relative_to(ROOT / "tvlint").parts and "capture" not in path.relative_to(ROOT / "tvlint").parts
]


REDUCTIONS = frozenset({"", "sum", "avg", "max", "min"})
"""How collectives reduce; torch has functions of the same names."""


DICTIONARIES = frozenset(
    {
        "analyses/relations/derivation/localisation/advice.py: to, tril, pad, masked-fill",
        "analyses/relations/terms/arithmetic.py: mul, div, add, sub, pow, sqrt, ...",
        "analyses/relations/terms/flags.py: eq, ne, gt, ge, lt, le",
        "analyses/relations/terms/flags.py: gt, ge, lt, le",
        "analyses/relations/terms/sums_of_products.py: exp, erf, tanh, sigmoid",
        "readers/nnscaler/trainer/constraints_against_graph.py: torch.nn.functional.linear, torch.nn.functional.embedding, "
        "nnscaler.runtime.function.embedding",
        "topology/optimizer.py: float32, bfloat16, float16, float, half",
    }
)
"""Dictionaries by names of operators that are left, most of them normal forms and the last one of types; the list only gets
shorter.
"""


def operator_lists(path: Path) -> list[str]:
    """Return the lists, and keys of dictionaries, of three strings or more of which most are functions that the table has."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            continue
        elements = node.keys if isinstance(node, ast.Dict) else node.elts
        words = [each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        known = 0 if REDUCTIONS.issuperset(words) else sum(spec_of(word) is not None for word in words)
        if len(words) == len(elements) and known >= max(3, 0.6 * len(words)):
            place = path.relative_to(ROOT / "tvlint").as_posix() if path.is_relative_to(ROOT) else path.name
            found.append(f"{place}: {', '.join(words[:6])}{', ...' if len(words) > 6 else ''}")
    return found


@pytest.mark.parametrize("room", sorted({path.relative_to(ROOT / "tvlint").parts[0] for path in MODULES}))
def test_no_module_lists_operators_by_name(room: str) -> None:
    modules = [path for path in MODULES if path.relative_to(ROOT / "tvlint").parts[0] == room]
    assert [found for path in modules for found in operator_lists(path) if found not in DICTIONARIES] == []


def test_dictionaries_that_are_gone_are_left_out() -> None:
    assert {found for path in MODULES for found in operator_lists(path)} == DICTIONARIES


def test_a_list_of_operators_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    text = '_SCALING = ("mul", "div", "truediv")\n_WORDS = ("red", "green", "blue")\n_REDUCTIONS = ("sum", "max", "min")\n'
    text += '_TIMES = {"mul": 1, "div": 2, "add": 3}\n'
    module.write_text(text)
    assert operator_lists(module) == ["module.py: mul, div, truediv", "module.py: mul, div, add"]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("greater", "gt"), ("greater_equal", "ge"), ("less", "lt"), ("less_equal", "le"), ("not_equal", "ne"), ("divide", "div")],
)
def test_an_alias_of_torch_is_the_function_that_it_stands_for(alias: str, name: str) -> None:
    """As the documentation of torch says of each."""
    for module in ("torch", "torch.Tensor", "aten"):
        assert canonical_name(f"{module}.{alias}") == canonical_name(f"torch.{name}") != ""
    assert canonical_name(f"elsewhere.{alias}") == ""
