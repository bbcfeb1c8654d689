"""No module outside the operator table lists operators by name: what kind of function one is, its traits say."""

from __future__ import annotations

import ast
import json
import re
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
    assert [found for path in modules for found in operator_lists(path)] == []


def test_a_list_of_operators_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    text = '_SCALING = ("mul", "div", "truediv")\n_WORDS = ("red", "green", "blue")\n_REDUCTIONS = ("sum", "max", "min")\n'
    text += '_TIMES = {"mul": 1, "div": 2, "add": 3}\n'
    module.write_text(text)
    assert operator_lists(module) == ["module.py: mul, div, truediv", "module.py: mul, div, add"]


OF_OTHER_THINGS = re.compile(r"reduce|kind|reduction|dtype|\bway\b|\bhow\b|word\b|parts|granularity|FUNCTION|method")
"""What says of a comparison that it is not with the name of an operator: of a reduction, a type, a function of one number."""

COMPARED = ROOT / "tests" / "data" / "compared-operators.json"
"""How often a module compares with the name of an operator; `pytest --update-golden` writes lower numbers."""


def compared_names(path: Path) -> list[str]:
    """Return the names of operators that a module compares something with, one by one or in a `match`, or lists in pairs."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        constants: list[ast.expr] = []
        if isinstance(node, ast.Compare) and not OF_OTHER_THINGS.search(ast.unparse(node)):
            constants = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            constants = [node.value]
        elif isinstance(node, ast.Set | ast.Tuple | ast.List) and len(node.elts) == 2:
            pair = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            constants = [node] if len([word for word in pair if spec_of(word) is not None]) == 2 else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".startswith", ".endswith")):
            constants = [] if OF_OTHER_THINGS.search(ast.unparse(node)) else node.args
        every = [each for constant in constants for each in getattr(constant, "elts", [constant])]
        words = [each.value for each in every if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        found += [word for word in words if word not in REDUCTIONS and spec_of(word) is not None]
    return found


def test_modules_compare_less_and_less_with_names_of_operators(request: pytest.FixtureRequest) -> None:
    """Readers are left out, whose formats spell operators."""
    paths = [path for path in MODULES if path.relative_to(ROOT / "tvlint").parts[0] not in ("readers", "edits")]
    counted = {path.relative_to(ROOT / "tvlint").as_posix(): len(compared_names(path)) for path in paths}
    found = {name: count for name, count in counted.items() if count}
    known = json.loads(COMPARED.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        fewer = {name: min(count, known[name]) for name, count in found.items() if name in known}
        COMPARED.write_text(json.dumps(fewer, indent=1) + "\n", encoding="utf-8")
    more = {name: f"{count} instead of {known.get(name, 0)}" for name, count in found.items() if count > known.get(name, 0)}
    assert not more, f"ask the operator table for a trait: {more}"


def test_a_comparison_with_a_name_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    text = 'def f(op, kind):\n    return op == "mul" or op in ("div", "red") or kind == "max" or op.endswith("sub")\n'
    module.write_text(text)
    assert sorted(compared_names(module)) == ["div", "mul", "sub"]
    module.write_text('_SCALING = ("mul", "div")\n')
    assert compared_names(module) == ["mul", "div"]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("greater", "gt"), ("greater_equal", "ge"), ("less", "lt"), ("less_equal", "le"), ("not_equal", "ne"), ("divide", "div")],
)
def test_an_alias_of_torch_is_the_function_that_it_stands_for(alias: str, name: str) -> None:
    """As the documentation of torch says of each."""
    for module in ("torch", "torch.Tensor", "aten"):
        assert canonical_name(f"{module}.{alias}") == canonical_name(f"torch.{name}") != ""
    assert canonical_name(f"elsewhere.{alias}") == ""
