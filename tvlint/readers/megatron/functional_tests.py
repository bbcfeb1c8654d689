"""The recipes of Megatron's functional tests, which say what program takes the options of a test case."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from tvlint.checkout.opening import kept, names_ending
from tvlint.checkout.top import folder_around
from tvlint.ir.configuration import Setting
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.readers.megatron.gpus import GENERATIONS, oldest, one_generation
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
CASES = os.path.join("functional_tests", "test_cases")
RECIPES = (os.path.join("test_utils", "recipes"), os.path.join("functional_tests", "jet_recipes"))
"""Where recipes lie below `tests`, now in a folder for each platform, and in releases before 0.10."""
MODEL = Pattern(rb"^[ \t]+model:[ \t]*([\w.-]+)[ \t]*$", re.MULTILINE)
TEST_CASES = Pattern(rb"\btest_case:\s*\[([^\]]*)\]")
PROGRAM = Pattern(rb"TRAINING_SCRIPT_PATH=([\w./-]+\.py)(?=[\"'\s]|$)", re.MULTILINE)
OTHER = Pattern(rb"TRAINING_SCRIPT_PATH=")
NODES = Pattern(rb"^[ \t]+nodes:[ \t]*([0-9]{1,5})[ \t]*\r?$", re.MULTILINE)
GPUS = Pattern(rb"^[ \t]+gpus:[ \t]*([0-9]{1,5})[ \t]*\r?$", re.MULTILINE)
PER_NODE = Pattern(rb"\bGPUS_PER_NODE=(\{gpus\}|[0-9]{1,5}\b)?")
DEFAULT_PER_NODE = Pattern(rb"^GPUS_PER_NODE=\$\{GPUS_PER_NODE:-([0-9]{1,5})\}", re.MULTILINE)
PLATFORM = Pattern(rb"\bdgx_([a-z]*[0-9]+)\b")
RUNNER = b"run_ci_test.sh"
STARTS = os.path.join("functional_tests", "shell_test_utils", "_run_training.sh")
"""What starts the ranks of each node, as many as it says itself where the recipe does not."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The test cases of a recipe, each after its model (`gpt/gpt3_tp2`), and the one program that it starts, if it is one."""

    cases: frozenset[str]
    program: str
    ranks: int
    """How many ranks its test cases run on; 0 where it does not tell, or in several ways."""
    place: Location
    """Where it says how many nodes there are."""
    gpus: str
    """The generation of the GPUs of the platforms that it names; empty where it names none, or Blackwell beside another."""


def is_recipe(path: str) -> bool:
    """Return whether the file may be a recipe, or what starts the ranks: test cases depend on all of them, and name none."""
    full = os.path.abspath(path)
    return full.endswith(os.sep + STARTS) or any(f"{os.sep}{folder}{os.sep}" in full for folder in RECIPES)


def program_of_case(path: str) -> str:
    """Return the program that takes the options in the file of a test case; empty where no recipe tells, or two disagree."""
    programs = {recipe.program for recipe in _recipes_of(path)}
    return programs.pop() if len(programs) == 1 else ""


def is_run_by_shell(path: str) -> bool:
    """Return whether the file is a test case that Megatron's own script starts, with its values as words of a command."""
    tests = _tests_of(path)
    if program_of_case(path):
        return True
    starts = os.path.join(tests, STARTS)
    return bool(tests) and content_within(folder_around(path), starts, starts, LARGEST) is not None


def ranks_of_case(path: str) -> Setting | None:
    """Return how many ranks the test case runs on; None where no recipe tells, or two disagree."""
    recipes = _recipes_of(path)
    if len({recipe.ranks for recipe in recipes}) != 1 or not recipes[0].ranks:
        return None
    return Setting("world_size", recipes[0].ranks, "nodes", recipes[0].place, recipes[0].place)


def gpus_of_case(path: str) -> str:
    """Return the oldest generation of GPUs that the test case runs on; empty where no recipe names one."""
    return oldest({recipe.gpus for recipe in _recipes_of(path)})


def _recipes_of(path: str) -> list[Recipe]:
    """Return the recipes that list the test case in the file."""
    tests = _tests_of(path)
    case = "/".join(os.path.abspath(path).split(os.sep)[-3:-1])
    return [recipe for recipe in _recipes(tests, folder_around(path)) if case in recipe.cases] if tests else []


def _tests_of(path: str) -> str:
    """Return the folder `tests` around the file of a test case; empty for other files."""
    cases = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(path))))
    return cases.removesuffix(f"{os.sep}{CASES}") if cases.endswith(f"{os.sep}{CASES}") else ""


@kept
def _recipes(tests: str, checkout: str) -> tuple[Recipe, ...]:
    folders = [os.path.join(tests, name) for name in RECIPES]
    folders += [os.path.join(folder, name) for folder in folders for name in names_ending(folder, "") if "." not in name]
    endings = (".yaml", ".yml")
    files = [os.path.join(folder, name) for folder in folders for each in endings for name in names_ending(folder, each)]
    found = ((file, content_within(checkout, file, file, LARGEST)) for file in files)
    starts = content_within(checkout, os.path.join(tests, STARTS), os.path.join(tests, STARTS), LARGEST)
    default = DEFAULT_PER_NODE.search(starts[1]) if starts is not None else None
    per_node = int(default[1]) if default is not None else 0
    return tuple(_recipe(file, each[1], per_node) for file, each in found if each is not None)


def _recipe(path: str, data: bytes, per_node: int) -> Recipe:
    models = {name.decode() for name in MODEL.findall(data)}
    programs = set(PROGRAM.findall(data))
    is_one = len(programs) == 1 and len(PROGRAM.findall(data)) == len(OTHER.findall(data))
    cases = frozenset(f"{model}/{case}" for model in models for case in _listed(data))
    nodes = NODES.search(data)
    line = data.count(b"\n", 0, nodes.start()) + 1 if nodes is not None else 1
    gpus = one_generation(name for name in map(bytes.decode, PLATFORM.findall(data)) if name in GENERATIONS)
    program = programs.pop().decode() if is_one else ""
    return Recipe(cases, program, _ranks(data, per_node), Location(path, line), gpus)


def _ranks(data: bytes, per_node: int) -> int:
    """Return nodes times processes of each, which the recipe sets, or else whatever starts them; 0 where that is not one."""
    nodes, gpus, given = (set(each.findall(data)) for each in (NODES, GPUS, PER_NODE))
    if len(nodes) != 1 or len(gpus) != 1 or len(given) > 1 or RUNNER not in data:
        return 0
    per_task = given.pop() if given else b"%d" % per_node
    return int(nodes.pop()) * int(gpus.pop() if per_task == b"{gpus}" else per_task or 0)


def _listed(data: bytes) -> Iterator[str]:
    for names in TEST_CASES.findall(data):
        yield from (name.strip(b" \t\r\n\"'").decode(errors="replace") for name in names.split(b","))
