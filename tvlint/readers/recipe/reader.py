"""Python recipes of NeMo and Megatron-Bridge: what a function assigns and passes literally. Parsed, never imported."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping

from tvlint.frameworks.core_defaults import CANONICAL
from tvlint.frameworks.megatron import option_of
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.languages import is_test
from tvlint.readers.recipe.keywords import misspelled_keywords
from tvlint.readers.recipe.objects import Attributes, Path
from tvlint.readers.recipe.scopes import FUNCTIONS, Visible, bindings_of, constants_of, follow, parameters_of
from tvlint.readers.sources.python_syntax import Source, parse
from tvlint.readers.sources.rank_counts import product_of_counts

FORMAT = "python-recipe"
LARGEST = 1 << 20
MOST_FUNCTIONS = 2000
BRIDGE = re.compile(rb"^[ \t]*(?:from|import)[ \t]+megatron\.bridge\b", re.MULTILINE)
NEMO = re.compile(rb"^[ \t]*(?:from|import)[ \t]+nemo(?:_run)?\b", re.MULTILINE)
SETS = re.compile(
    rb"\b(?:(?:tensor|pipeline|expert)_model_parallel_size|context_parallel_size|expert_tensor_parallel_size|sequence_parallel"
    rb"|(?:tensor|pipeline|context|sequence|expert)_parallelism)[ \t]*="
)
PARALLEL = frozenset(
    {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "sequence_parallel",
    }
)
MODEL: frozenset[Path] = frozenset({(), ("model",), ("model", "config"), ("config",), ("strategy",), ("trainer", "strategy")})
"""Where a recipe keeps the settings of the network and its parallelism."""
TRAINING: frozenset[Path] = frozenset({("train",), ("data",)})
BATCH = frozenset({"micro_batch_size", "global_batch_size", "train_iters"})
OTHER = re.compile(r"(?:self|cls|args|mock\w*|\w*_?state|\w*_args)\b")
"""Names of objects that are no recipes although they have such attributes."""
TRAINERS: tuple[Path, ...] = ((), ("trainer",))


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is Python that imports NeMo or Megatron-Bridge and sets parallel sizes, and is no test."""
    is_recipe = any(name in data and line.search(data) for name, line in ((b"megatron.bridge", BRIDGE), (b"nemo", NEMO)))
    return is_recipe and SETS.search(data) is not None and not is_test(path, data)


def read(path: str, data: bytes) -> Document | None:
    """Return a configuration for each object that a function builds; None where none has parallel sizes, or texts hold code."""
    refuse_larger(path, data, LARGEST, "recipe")
    try:
        source = parse(path, data.removeprefix(b"\xef\xbb\xbf"))
    except ReadError:
        if path.endswith(".py"):
            raise
        return None
    framework = "megatron-bridge" if BRIDGE.search(data) else "nemo"
    found = tuple(_configurations(source, framework))
    slips = tuple(misspelled_keywords(source)) if found else ()
    return Document(path, FORMAT, configurations=found, findings=slips) if found else None


def _configurations(source: Source, framework: str) -> Iterator[Configuration]:
    telling = [number for number, line in enumerate(source.lines, 1) if SETS.search(line.encode())]
    bound = bindings_of(source.tree.body)
    constants = constants_of(source.tree.body, bound)
    yield from _of_scope(source, "", follow(source, source.tree.body, constants, {}), framework)
    for name, function, is_method in _functions(source):
        first = bisect_left(telling, function.lineno)
        if first == len(telling) or telling[first] > (function.end_lineno or function.lineno):
            continue
        inner = bindings_of(function.body)
        arguments = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        constants_of_function = constants_of(function.body, inner)
        visible = Visible(
            {name: each for name, each in constants_of_function.items() if name not in arguments},
            constants,
            {*inner, *arguments},
        )
        parameters = {} if is_method else parameters_of(function, inner)
        yield from _of_scope(source, name, follow(source, function.body, visible, parameters), framework)


def _functions(source: Source) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield every function with its qualified name, and whether a class holds it."""
    pending: list[tuple[str, ast.AST, bool]] = [("", source.tree, False)]
    count = 0
    while pending:
        above, node, in_class = pending.pop()
        if isinstance(node, FUNCTIONS):
            count += 1
            if count > MOST_FUNCTIONS:
                message = f"the recipe holds more than the {MOST_FUNCTIONS} functions that are followed"
                raise ReadError(message, Location(source.path, node.lineno))
            yield above, node, in_class
        children: list[tuple[str, ast.AST, bool]] = []
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                name = f"{above}.{child.name}" if above else child.name
                children.append((name, child, isinstance(node, ast.ClassDef)))
            elif isinstance(child, ast.stmt):
                children.append((above, child, in_class))
        pending.extend(reversed(children))


def _of_scope(source: Source, scope: str, roots: Mapping[str, Attributes], framework: str) -> Iterator[Configuration]:
    judged = {root: value for root, value in roots.items() if not OTHER.match(root)}
    configured = [(root, settings) for root, value in judged.items() if (settings := _settings(value)) is not None]
    for root, settings in configured:
        shown = root.partition(" (")[0]
        section = scope if len(configured) == 1 and scope else f"{scope}.{shown}" if scope else shown
        first = min(settings.values(), key=lambda each: each.name_location.line or 0)
        yield Configuration(source.path, FORMAT, framework, settings, {}, section, False, first.name_location)


def _settings(attributes: Attributes) -> dict[str, Setting] | None:
    """Return the settings among the attributes of an object; None where it has no parallel sizes."""
    found: dict[str, Setting] = {}
    parallel = False
    for path, setting in attributes.items():
        above, name = path[:-1], path[-1]
        if above not in MODEL and not (above in TRAINING and name in BATCH):
            continue
        if option_of(name) is None and name not in PARALLEL and name not in CANONICAL:
            continue
        parallel |= name in PARALLEL
        canonical = CANONICAL.get(name, name)
        _add(found, Setting(canonical, setting.value, ".".join(path), setting.location, setting.name_location))
    if not parallel or len(found) < 2:
        return None
    world_size = _world_size(attributes)
    if world_size is not None:
        found["world_size"] = world_size
    return found


def _add(found: dict[str, Setting], setting: Setting) -> None:
    other = found.get(setting.name)
    if other is not None and (other.value != setting.value or type(other.value) is not type(setting.value)):
        unknown = Unknown(f"`{other.written}` and `{setting.written}` disagree")
        setting = Setting(setting.name, unknown, setting.written, setting.location, setting.name_location)
    found[setting.name] = setting


def _world_size(attributes: Attributes) -> Setting | None:
    """Return the ranks of the trainer that the object is or has, where it says both how many nodes and how many devices."""
    for above in TRAINERS:
        nodes, devices = attributes.get((*above, "num_nodes")), attributes.get((*above, "devices"))
        if nodes is None or devices is None:
            continue
        total = product_of_counts((nodes.value, devices.value))
        return Setting("world_size", total, "world size", nodes.location, nodes.name_location) if total else None
    return None
