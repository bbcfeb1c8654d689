"""Options as the source of a program declares them: with their type, the words that each takes, and its choices."""

from __future__ import annotations

import ast

from tvlint.checkout.opening import kept
from tvlint.frameworks.megatron import Option
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.parser_source import LARGEST, ParserSource
from tvlint.readers.sources.python_syntax import parse, text_of
from tvlint.readers.sources.sibling_files import content_within

DECLARES = "add_argument"
KINDS = {"store": "store", "store_true": "true", "store_false": "false", "store_const": "true"}
TYPES = {"int": "int", "float": "float", "str": "str"}
ALIASES = "arg_names"
"""What fields that are made options are called otherwise, beside what else is passed to the parser."""


def declared(parser: ParserSource, flag: str) -> Option | None:
    """Return the option as all modules of the parser that declare it do; None where none does, or one in another way."""
    return parser.stated.get(flag) or _declared(flag, parser.naming.get(flag, ()), parser.checkout)


def is_declared(parser: ParserSource, flag: str) -> bool:
    """Return whether a module that names the flag hands it to a call, as a parser gets it: not in a list, as a command does."""
    return any(name == flag for path in parser.naming.get(flag, ()) for name, _ in _declarations(path, parser.checkout))


@kept
def _declared(flag: str, modules: tuple[str, ...], checkout: str) -> Option | None:
    found = {option for path in modules for name, option in _declarations(path, checkout) if name == flag}
    return found.pop() if len(found) == 1 else None


@kept
def _declarations(path: str, checkout: str) -> tuple[tuple[str, Option | None], ...]:
    """Return the flags that the calls of one file declare, each with its option; None where that is not written out."""
    content = content_within(checkout, path, path, LARGEST)
    try:
        is_read = content is not None and (DECLARES.encode() in content[1] or ALIASES.encode() in content[1])
        nodes = parse(path, content[1]).nodes if content is not None and is_read else ()
    except ReadError:
        return ()
    found: list[tuple[str, Option | None]] = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if called.endswith(DECLARES):
                whole = called == DECLARES and all(keyword.arg for keyword in node.keywords)
                keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
                found += ((name, _option(name, keywords) if whole else None) for name in _texts(node.args))
            else:
                found += ((name, None) for name in _texts(node.args) if not name.startswith("--"))
        elif isinstance(node, ast.Dict):
            keywords = {text_of(key): value for key, value in zip(node.keys, node.values, strict=True) if key is not None}
            aliases = keywords.get(ALIASES)
            if isinstance(aliases, ast.List | ast.Tuple):
                read_option = _option if "action" in keywords else lambda _name, _keywords: None
                found += ((name, read_option(name, keywords)) for name in _texts(aliases.elts))
    return tuple(found)


def _option(flag: str, keywords: dict[str, ast.expr]) -> Option | None:
    action = text_of(keywords["action"]) if "action" in keywords else "store"
    nargs = keywords.get("nargs", ast.Constant(None))
    if action not in KINDS or not isinstance(nargs, ast.Constant) or not isinstance(nargs.value, int | str | None):
        return None
    type_ = keywords.get("type")
    known = "str" if type_ is None else TYPES.get(type_.id, "other") if isinstance(type_, ast.Name) else "other"
    arity = "*" if nargs.value == "?" else nargs.value
    choices, default = _choices(keywords.get("choices")), number_of(keywords.get("default"))
    return Option(flag[2:].replace("-", "_"), (flag,), KINDS[action], known, arity, choices, default)


def number_of(node: ast.expr | None) -> int | float | None:
    """Return the number that an expression is, of any sign; None for every other one."""
    value = -1 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else getattr(node, "value", None)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _choices(node: ast.expr | None) -> tuple[str | int | float, ...]:
    """Return the choices; empty where there are none, or one is not written out."""
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return ()
    found = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str | int | float)]
    return tuple(found) if len(found) == len(node.elts) else ()


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [text for text in map(text_of, nodes) if text.startswith("-")]
