"""Names that generated code uses as what everybody knows under them, and that must not be given to other things."""

from __future__ import annotations

import ast

from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes

MODULES = frozenset({"torch", "nnscaler", "_operator", "builtins", "operator", "numpy", "math", "typing"})
_BUILT_IN = frozenset({"next", "slice", "float", "super", "staticmethod", "NotImplementedError"})
_STEPS = frozenset({"_train_step", "_infer_step"})
_OTHERS = {
    ("torch.utils", "checkpoint", "ckpt"),
    ("", "torch.utils.checkpoint", "ckpt"),
    ("", "numpy", "np"),
    *((module, name, name) for module in ("numpy", "math", "torch") for name in ("inf", "nan")),
}
"""Imports (from which module, what, as what) of names that stand for one thing each."""
_NAMED = frozenset(bound for _, _, bound in _OTHERS)
_FIRST = frozenset({"self", "model"})
_KNOWN = MODULES | _BUILT_IN | _NAMED
_ASSIGNED = _KNOWN | _FIRST | {"_train_step"}


def only_own_names(nodes: Nodes) -> None:
    """Raise ReadError where a file gives a name to something else than what generated code means by it."""
    classes = {node.name for node in nodes.source.tree.body if isinstance(node, ast.ClassDef)}
    for node in nodes.source.nodes:
        match node:
            case ast.Import(names=names):
                given = [("", one.name, one.asname) for one in names]
            case ast.ImportFrom(module=module, names=names):
                if names[0].name == "*" and module != "typing":
                    raise nodes.fail(node, "an import may give other things the names that generated code uses")
                given = [(module or "", one.name, one.asname or one.name) for one in names]
            case ast.Name() | ast.arg() | ast.FunctionDef() | ast.ClassDef():
                _bound(nodes, node)
                continue
            case _:
                continue
        for module, name, asname in given:
            bound = asname or name.partition(".")[0]
            taken = bound in _BUILT_IN | _STEPS | _NAMED | classes or (asname is not None and bound in MODULES | _FIRST)
            if taken and (module, name, bound) not in _OTHERS:
                raise nodes.fail(node, "an import gives another thing the name of a module that generated code uses")


def _bound(nodes: Nodes, node: ast.AST) -> None:
    """Raise ReadError where an assignment, a deletion, an argument or a definition takes such a name."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in _ASSIGNED:
            pass
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in _KNOWN:
            pass
        case _:
            return
    raise nodes.fail(node, f"`{name}` is another thing here than what generated code means by it")
