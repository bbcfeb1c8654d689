"""The recipes of Megatron's functional tests, which say what program takes the options of a test case."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tvlint.checkout.opening import is_folder, kept, names_in
from tvlint.checkout.top import folder_around
from tvlint.ir.values import dataclass
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
CASES = os.path.join("functional_tests", "test_cases")
RECIPES = (os.path.join("test_utils", "recipes"), os.path.join("functional_tests", "jet_recipes"))
"""Where recipes lie below `tests`, now in a folder for each platform, and in releases before 0.10."""
MODEL = re.compile(rb"^[ \t]+model:[ \t]*([\w.-]+)[ \t]*$", re.MULTILINE)
TEST_CASES = re.compile(rb"\btest_case:\s*\[([^\]]*)\]")
PROGRAM = re.compile(rb"TRAINING_SCRIPT_PATH=([\w./-]+\.py)(?=[\"'\s]|$)", re.MULTILINE)
OTHER = re.compile(rb"TRAINING_SCRIPT_PATH=")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The test cases of a recipe, each after its model (`gpt/gpt3_tp2`), and the one program that it starts, if it is one."""

    cases: frozenset[str]
    program: str


def program_of_case(path: str) -> str:
    """Return the program that takes the options in the file of a test case; empty where no recipe tells, or two disagree."""
    folder = os.path.dirname(os.path.abspath(path))
    group = os.path.dirname(folder)
    cases = os.path.dirname(group)
    if not cases.endswith(f"{os.sep}{CASES}"):
        return ""
    tests = cases.removesuffix(f"{os.sep}{CASES}")
    case = f"{os.path.basename(group)}/{os.path.basename(folder)}"
    programs = {recipe.program for recipe in _recipes(tests, folder_around(path)) if case in recipe.cases}
    return programs.pop() if len(programs) == 1 else ""


@kept
def _recipes(tests: str, checkout: str) -> tuple[Recipe, ...]:
    folders = [os.path.join(tests, name) for name in RECIPES]
    folders += [os.path.join(folder, name) for folder in folders for name in _names(folder) if "." not in name]
    files = [os.path.join(folder, name) for folder in folders for name in _names(folder) if name.endswith((".yaml", ".yml"))]
    found = (content_within(checkout, file, file, LARGEST) for file in files)
    return tuple(_recipe(each[1]) for each in found if each is not None)


def _names(folder: str) -> tuple[str, ...]:
    try:
        return names_in(folder) if is_folder(folder) else ()
    except OSError:
        return ()


def _recipe(data: bytes) -> Recipe:
    models = {name.decode() for name in MODEL.findall(data)}
    programs = set(PROGRAM.findall(data))
    is_one = len(programs) == 1 and len(PROGRAM.findall(data)) == len(OTHER.findall(data))
    cases = frozenset(f"{model}/{case}" for model in models for case in _listed(data))
    return Recipe(cases, programs.pop().decode() if is_one else "")


def _listed(data: bytes) -> Iterator[str]:
    for names in TEST_CASES.findall(data):
        yield from (name.strip(b" \t\r\n\"'").decode(errors="replace") for name in names.split(b","))
