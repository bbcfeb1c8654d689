"""The parser that a program makes, fills and asks: by itself, and in the functions of the checkout that it is handed to."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import TypeGuard

from tvlint.checkout.opening import kept
from tvlint.checkout.top import folder_around
from tvlint.frameworks.megatron import Option
from tvlint.frameworks.transformers import PARSER as OF_TRANSFORMERS
from tvlint.frameworks.transformers import options as usual
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.megatron.dataclass_options import OF_OTHER_VERSIONS, options_of_class
from tvlint.readers.megatron.definitions import Definition, definition, imported, source_at
from tvlint.readers.megatron.parser_source import ADDS_OF_DEEPSPEED, LARGEST, OF_DEEPSPEED, ParserSource
from tvlint.readers.sources.python_syntax import dotted, parsing_once, text_of
from tvlint.readers.sources.sibling_files import content_within

DECLARES, DECLARES_FOR_DEEPSPEED = "add_argument", ADDS_OF_DEEPSPEED.decode().rstrip("(")
GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
MAKERS = ("ArgumentParser", "HfArgumentParser", "TrlParser")
ASKS = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config"})
PASSES_OVER = "return_remaining_strings"
"""With which the parser of transformers takes no notice of other options: a slip is as if it were not given."""
HARMLESS = frozenset(
    {
        *("set_defaults", "print_help", "format_help", "print_usage", "error", "exit"),
        *("parse_json_file", "parse_yaml_file", "parse_dict"),
    }
)
"""What else a program calls of its parser, which adds no option and looks at no command line."""
PLAIN = frozenset({"description", "prog", "usage", "epilog", "formatter_class", "allow_abbrev", "add_help"})
"""What a parser is made with that changes nothing of its options but for `allow_abbrev`."""
OF_EVERY = frozenset({"-h", "--help"})
CHANGES_WORDS = Pattern(
    rb"sys\.argv(?:\[[^\]\n]*\])?\s*\+?=(?!=)|\bdel\s+sys\.argv|sys\.argv\.\w+\(|=\s*sys\.argv\s*(?:\n|$|#)"
)
"""How a program changes its own command line, or gives it another name."""
MOST_SCOPES = 60
"""So many functions are followed."""
DEEPEST = 3
"""So many functions stand between a program and the one that asks the parser."""


class MoreOptionsError(Exception):
    """The parser is used in a way that may add any option."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A function, or a whole file, and the names in it that are bound to the parser from outside."""

    path: str
    node: ast.FunctionDef | ast.Module
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Frame:
    """A scope that is read: the names of its parsers, and by their places the values that they are bound to."""

    path: str
    names: frozenset[str]
    modules: Collection[str]
    """What is imported."""
    loops: Mapping[str, list[str]]
    kept: frozenset[int]
    returned: frozenset[int]
    checkout: str


@dataclass(slots=True)
class Taken:
    """What has been found of the options by now, and the scopes that were read."""

    flags: set[str] = field(default_factory=set)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stated: dict[str, Option] = field(default_factory=dict)
    takes_words: bool = False
    abbreviates: bool = True
    closed: bool = True
    of_all_versions: bool = True
    """Whether no option is left out but of a version that is not known."""
    scopes: set[tuple[str, int, frozenset[str]]] = field(default_factory=set)


def local_parser(program: str, script: str) -> ParserSource | None:
    """Return what the program at a path takes; None where its parser is used in any way that may add more."""
    return _parser_of(program, folder_around(script))


@kept
def _parser_of(program: str, checkout: str) -> ParserSource | None:
    taken = Taken(set(OF_EVERY))
    with parsing_once():
        try:
            starts = _asking(program, checkout)
            if len(starts) != 1:
                return None
            _walk(starts[0], checkout, taken)
        except (MoreOptionsError, RecursionError):
            return None
    if taken.flags == OF_EVERY:
        return None
    naming = {flag: taken.files.get(flag, (program,)) for flag in taken.flags}
    flags = frozenset(taken.flags)
    return ParserSource(
        program,
        flags,
        taken.closed,
        taken.takes_words,
        taken.abbreviates,
        naming,
        checkout,
        stated=taken.stated,
        is_packaged=taken.of_all_versions,
    )


def _asking(program: str, checkout: str) -> list[Scope]:
    """Return the program, or the functions that it calls, nearest first, which ask a parser for the command line."""
    source = source_at(program, checkout)
    waiting = [Scope(program, source.tree, frozenset())] if source is not None else []
    seen: set[tuple[str, int]] = set()
    for _ in range(DEEPEST + 1):
        found = [scope for scope in waiting if any(_asks(call, _modules(scope, checkout)) for call in _calls(scope.node))]
        if found or not waiting:
            return found
        following: list[Scope] = []
        for scope in waiting:
            for name in dict.fromkeys(dotted(call.func) for call in _calls(scope.node)):
                called = definition(name, scope.path, checkout) if name and len(seen) < MOST_SCOPES else ""
                if isinstance(called, Definition) and (called.path, called.node.lineno) not in seen:
                    seen.add((called.path, called.node.lineno))
                    following += _function(called)
        waiting = following
    return []


def _modules(scope: Scope, checkout: str) -> Collection[str]:
    source = source_at(scope.path, checkout)
    return imported(source) if source is not None else ()


def _asks(call: ast.Call, modules: Collection[str]) -> bool:
    """Return whether a call asks a parser: it is no function of that name, of the file or of a module."""
    is_method = isinstance(call.func, ast.Attribute) and dotted(call.func.value).partition(".")[0] not in modules
    return is_method and _called(call) in ASKS


def _function(found: Definition) -> list[Scope]:
    return [Scope(found.path, found.node, frozenset())] if isinstance(found.node, ast.FunctionDef) else []


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _walk(scope: Scope, checkout: str, taken: Taken) -> None:
    """Take the options that a scope adds to its parser, and those of the functions that it hands it to."""
    key = (scope.path, getattr(scope.node, "lineno", 0), scope.names)
    if key in taken.scopes:
        return
    taken.scopes.add(key)
    content = content_within(checkout, scope.path, scope.path, LARGEST)
    if len(taken.scopes) > MOST_SCOPES or content is None or CHANGES_WORDS.search(content[1]):
        raise MoreOptionsError
    nodes = tuple(ast.walk(scope.node))
    bound, modules = _bound(nodes), _modules(scope, checkout)
    made = frozenset(name for name, values in bound.items() if any(map(_makes, values)))
    names = scope.names | made | _receivers(nodes).difference(modules)
    values = [value for name in names for value in bound.get(name, ())]
    if not all(name in bound or name in scope.names for name in names) or not all(
        isinstance(each, ast.Call) for each in values
    ):
        raise MoreOptionsError
    returned = {id(node.value) for node in nodes if isinstance(node, ast.Return)}
    frame = Frame(scope.path, names, modules, _loops(nodes), frozenset(map(id, values)), frozenset(returned), checkout)
    understood = set(returned)
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        understood.update(map(id, _parsers_in(call, names)))
        _take(call, frame, taken)
    if any(_is_one_of(node, names) and isinstance(node.ctx, ast.Load) and id(node) not in understood for node in nodes):
        raise MoreOptionsError


def _bound(nodes: tuple[ast.AST, ...]) -> Mapping[str, list[ast.expr]]:
    """Return what each name is bound to; itself where that is no assignment to the name alone."""
    found: dict[str, list[ast.expr]] = {}
    alone: set[int] = set()
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                found.setdefault(target.id, []).append(node.value)
                alone.add(id(target))
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in alone:
            found.setdefault(node.id, []).append(node)
    return found


def _receivers(nodes: tuple[ast.AST, ...]) -> frozenset[str]:
    """Return the names that options are added to, or that are asked for the command line."""
    methods = (node for node in nodes if isinstance(node, ast.Attribute) and node.attr in (DECLARES, *GROUPS, *ASKS))
    return frozenset(node.value.id for node in methods if isinstance(node.value, ast.Name))


def _makes(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _called(value) in (*MAKERS, *GROUPS, DECLARES_FOR_DEEPSPEED)


def _handed(call: ast.Call, names: frozenset[str]) -> list[ast.expr]:
    """Return the parsers among the arguments of a call."""
    given = (*call.args, *(each.value for each in call.keywords))
    return [each for each in given if isinstance(each, ast.Name) and each.id in names]


def _parsers_in(call: ast.Call, names: frozenset[str]) -> Iterator[ast.expr]:
    """Yield the places where a call names a parser: what it is a method of, and its arguments."""
    yield from _handed(call, names)
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in names:
        yield call.func.value


def _loops(nodes: tuple[ast.AST, ...]) -> Mapping[str, list[str]]:
    """Return the texts that each variable of a loop over texts runs through."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple | ast.List):
            found.setdefault(node.target.id, []).extend(map(text_of, node.iter.elts))
    return found


def _take(call: ast.Call, frame: Frame, taken: Taken) -> None:
    """Take what one call adds to the parser."""
    called = _called(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = receiver is not None and _is_one_of(receiver, frame.names)
    is_elsewhere = receiver is None or dotted(receiver).partition(".")[0] in frame.modules
    if called in MAKERS:
        if id(call) not in frame.kept | frame.returned:
            raise MoreOptionsError
        _made(call, frame, taken)
    elif called == DECLARES_FOR_DEEPSPEED:
        taken.flags |= OF_DEEPSPEED
    elif called == DECLARES and is_method:
        _declared(call, frame, taken)
    elif called in ASKS and is_method:
        passes_over = called != "parse_args" and [each.arg for each in call.keywords] == [PASSES_OVER]
        if called == "parse_known_args" or call.args or (call.keywords and not passes_over):
            raise MoreOptionsError
        if passes_over:
            taken.closed, taken.takes_words = False, True
    elif (called in (DECLARES, *ASKS) and not is_elsewhere) or (is_method and called not in (*HARMLESS, *GROUPS)):
        raise MoreOptionsError
    elif not is_method and (id(call) in frame.kept or _handed(call, frame.names)):
        _follow(call, frame, taken)


def _made(call: ast.Call, frame: Frame, taken: Taken) -> None:
    """Take what a parser is made with: of transformers, the fields of classes."""
    full = definition(dotted(call.func), frame.path, frame.checkout)
    if full == "argparse.ArgumentParser" and not call.args and all(each.arg in PLAIN for each in call.keywords):
        taken.abbreviates = taken.abbreviates and not any(each.arg == "allow_abbrev" for each in call.keywords)
        return
    if full not in OF_TRANSFORMERS or len(call.args) != 1 or not all(each.arg in PLAIN for each in call.keywords):
        raise MoreOptionsError
    classes = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    found = [option for each in classes for option in options_of_class(dotted(each), frame.path, frame.checkout)]
    if None in found:
        taken.closed, taken.of_all_versions = False, False
        taken.stated = {f"--{name}": option for name, option in usual().items()} | taken.stated
    for option in (each for each in found if each is not None):
        if option is OF_OTHER_VERSIONS:
            taken.closed = False
        taken.flags.update(option.flags)
        taken.stated.update(dict.fromkeys(option.flags, option))


def _declared(call: ast.Call, frame: Frame, taken: Taken) -> None:
    words = [word for each in call.args for word in _texts(each, frame.loops)]
    if not words or not all(words) or any(each.arg is None for each in call.keywords):
        raise MoreOptionsError
    shown = ast.unparse(call)
    flags = [word for word in words if word.startswith("-")]
    flags += [f"--no-{word[2:]}" for word in words if "BooleanOptionalAction" in shown]
    taken.flags.update(flags)
    for flag in flags:
        taken.files[flag] = tuple(dict.fromkeys((*taken.files.get(flag, ()), frame.path)))
    taken.takes_words = taken.takes_words or not words[0].startswith("-") or "REMAINDER" in shown


def _texts(node: ast.expr, loops: Mapping[str, list[str]]) -> list[str]:
    """Return what a text may be, with the variable of a loop over texts in it; an empty one where that is not known."""
    if not isinstance(node, ast.JoinedStr):
        return [text_of(node)]
    found = [""]
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            texts = loops.get(part.value.id, [""]) if isinstance(part.value, ast.Name) else [""]
            if not all(texts):
                return [""]
        else:
            texts = [text_of(part)]
        found = [f"{begin}{text}" for begin in found for text in texts]
    return found


def _follow(call: ast.Call, frame: Frame, taken: Taken) -> None:
    """Walk the function that a call hands the parser to, or that returns one."""
    found = definition(dotted(call.func), frame.path, frame.checkout)
    if not isinstance(found, Definition) or not isinstance(found.node, ast.FunctionDef) or found.node.decorator_list:
        raise MoreOptionsError
    parameters = [each.arg for each in (*found.node.args.posonlyargs, *found.node.args.args)]
    given = {name for name, each in zip(parameters, call.args, strict=False) if _is_one_of(each, frame.names)}
    given |= {str(each.arg) for each in call.keywords if _is_one_of(each.value, frame.names)}
    is_spread = any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords)
    if is_spread or len(given) != len(_handed(call, frame.names)):
        raise MoreOptionsError
    for node in ast.walk(found.node) if id(call) in frame.kept else ():
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id not in parameters:
            given.add(node.value.id)
        elif isinstance(node, ast.Return) and not _is_one_of_made(node.value, given):
            raise MoreOptionsError
    _walk(Scope(found.path, found.node, frozenset(given)), frame.checkout, taken)


def _is_one_of_made(value: ast.expr | None, names: Collection[str]) -> bool:
    """Return whether what a function returns is one of the parsers, or one that it makes."""
    return value is not None and (_is_one_of(value, names) or (isinstance(value, ast.Call) and _called(value) in MAKERS))


def _is_one_of(node: ast.AST, names: Collection[str]) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id in names
