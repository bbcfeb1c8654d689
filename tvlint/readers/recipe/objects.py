"""The objects that a Python recipe builds: attributes with plain values, followed by name, assignment by assignment."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from tvlint.ir.configuration import Setting, Unknown
from tvlint.ir.values import dataclass, field, replace
from tvlint.readers.sources.python_syntax import dotted

Path: TypeAlias = tuple[str, ...]
Attributes: TypeAlias = dict[Path, Setting]
LONGEST_PATH = 8
DEEPEST_CALL = 6
MOST_ATTRIBUTES = 5000
HARMLESS = frozenset(
    {"print", "len", "isinstance", "hasattr", "getattr", "repr", "str", "type", "id", "info", "debug", "warning"}
)
"""Functions that change nothing of what they are given."""
CONFIGURES = frozenset({"Config", "Partial"})
"""Calls that build what their first argument names."""
FACTORY: Mapping[str, Mapping[str, Path]] = {
    "trainer": {
        "tensor_parallelism": ("strategy", "tensor_model_parallel_size"),
        "pipeline_parallelism": ("strategy", "pipeline_model_parallel_size"),
        "virtual_pipeline_parallelism": ("strategy", "virtual_pipeline_model_parallel_size"),
        "context_parallelism": ("strategy", "context_parallel_size"),
        "sequence_parallelism": ("strategy", "sequence_parallel"),
        "expert_parallelism": ("strategy", "expert_model_parallel_size"),
        "num_nodes": ("num_nodes",),
        "num_gpus_per_node": ("devices",),
    },
    "pretrain_recipe": {"num_nodes": ("trainer", "num_nodes"), "num_gpus_per_node": ("trainer", "devices")},
    "finetune_recipe": {"num_nodes": ("trainer", "num_nodes"), "num_gpus_per_node": ("trainer", "devices")},
}
"""Recipe functions of NeMo: which attribute each of their arguments becomes."""


def chain(node: ast.expr) -> Path | None:
    """`a.b.c` as its names; None for anything else."""
    names = tuple(dotted(node).split("."))
    return names if names[0] and len(names) <= LONGEST_PATH + 1 else None


def called(node: ast.Call) -> str:
    """Return the last name of what is called; for `run.Config(X, ...)` that of X."""
    path = chain(node.func)
    if path is None:
        return ""
    if path[-1] in CONFIGURES and node.args and (built := chain(node.args[0])) is not None:
        return built[-1]
    return path[-1]


def builds(node: ast.expr) -> bool:
    """Return whether `node` is a call of a class, of `dict`, or of a recipe function that is known."""
    if not isinstance(node, ast.Call):
        return False
    name = called(node)
    return name[:1].isupper() or name in FACTORY or (name == "dict" and not node.args)


@dataclass(slots=True)
class Objects:
    """The objects that one scope's names stand for; `setting` makes a setting of an attribute, its place and its value."""

    setting: Callable[[str, ast.expr | ast.keyword, ast.expr], Setting]
    roots: dict[str, Attributes] = field(default_factory=dict)
    aliases: dict[str, tuple[str, Path]] = field(default_factory=dict)
    """Names that stand for a part of another root."""
    unnamed: int = 0

    def find(self, path: Path) -> tuple[str, Path] | None:
        """Return the root and the attributes below it that the names of `path` lead to."""
        name, *rest = path
        if name in self.aliases:
            root, within = self.aliases[name]
            return root, (*within, *rest)
        return (name, tuple(rest)) if name in self.roots else None

    def begin(self, name: str, attributes: Attributes) -> None:
        """`name` now stands for another object."""
        self.forget(name)
        self.roots[name] = attributes

    def forget(self, name: str) -> None:
        """`name` no longer stands for what it did; the object goes on where others know it."""
        self.aliases.pop(name, None)
        if name in self.roots:
            kept = f"{name} (before line {self.unnamed})"
            self.unnamed += 1
            self.roots[kept] = self.roots.pop(name)
            self.aliases.update({alias: (kept, to[1]) for alias, to in self.aliases.items() if to[0] == name})

    def assign(self, root: str, path: Path, setting: Setting) -> None:
        """The attribute at `path` gets a value; what was known below it is gone."""
        attributes = self.roots[root]
        self.clear(root, path)
        if len(attributes) < MOST_ATTRIBUTES:
            attributes[path] = setting

    def clear(self, root: str, path: Path) -> None:
        """Nothing is known any more of the attribute at `path` and those below it."""
        attributes = self.roots[root]
        for known in [known for known in attributes if known[: len(path)] == path]:
            del attributes[known]
        for alias in [alias for alias, to in self.aliases.items() if to[0] == root and to[1][: len(path)] == path and path]:
            del self.aliases[alias]

    def doubt(self, root: str, path: Path, reason: str) -> None:
        """The attributes at and below `path` may have been changed."""
        attributes = self.roots[root]
        for known, setting in attributes.items():
            if known[: len(path)] == path:
                attributes[known] = replace(setting, value=Unknown(reason))

    def embed(self, name: str, root: str, path: Path) -> None:
        """The object that `name` stands for becomes the attribute at `path` of `root`."""
        attributes = self.roots.pop(name)
        for known, setting in attributes.items():
            self.roots[root][path + known] = setting
        for alias, to in list(self.aliases.items()):
            if to[0] == name:
                self.aliases[alias] = (root, (*path, *to[1]))
        self.aliases[name] = (root, path)

    def build(self, call: ast.Call) -> tuple[Attributes, list[tuple[str, Path]]]:
        """Return the attributes that a call gives its object, and the names whose objects it takes as parts."""
        attributes: Attributes = {}
        parts: list[tuple[str, Path]] = []
        for path, place, node in _arguments(call, (), 0):
            if isinstance(node, ast.Name) and node.id in self.roots:
                parts.append((node.id, path))
            elif len(attributes) < MOST_ATTRIBUTES:
                attributes[path] = self.setting(path[-1], place, node)
        return attributes, parts


def _arguments(call: ast.Call, above: Path, depth: int) -> Iterator[tuple[Path, ast.keyword, ast.expr]]:
    names: Mapping[str, Path] | None = FACTORY.get(called(call))
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if isinstance(keyword.value, ast.Call) and builds(keyword.value) and depth < DEEPEST_CALL:
            yield from _arguments(keyword.value, (*above, keyword.arg), depth + 1)
        elif names is None:
            yield (*above, keyword.arg), keyword, keyword.value
        elif keyword.arg in names:
            yield above + names[keyword.arg], keyword, keyword.value
