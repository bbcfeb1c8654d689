"""The parser that a program makes, fills and asks by itself: no other module can add an option to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tvlint.checkout.opening import kept
from tvlint.checkout.top import folder_around
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.parser_source import ADDS_OF_DEEPSPEED, LARGEST, OF_DEEPSPEED, PARSES, ParserSource
from tvlint.readers.sources.python_syntax import parse, text_of
from tvlint.readers.sources.sibling_files import content_within

DECLARES, DECLARES_FOR_DEEPSPEED = "add_argument", ADDS_OF_DEEPSPEED.decode().rstrip("(")
GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
HARMLESS = frozenset({"parse_args", "set_defaults", "print_help", "format_help", "print_usage", "error", "exit"})
"""What else a program calls of its parser, which adds no option."""
PLAIN = frozenset({"description", "prog", "usage", "epilog", "formatter_class", "allow_abbrev", "add_help"})
"""What a parser is made with that changes nothing of its options but for `allow_abbrev`."""
OF_EVERY = frozenset({"-h", "--help"})


@kept
def local_parser(program: str, script: str) -> ParserSource | None:
    """Return what the program at a path takes; None where its parser is used in any way that may add more."""
    checkout = folder_around(script)
    content = content_within(checkout, program, program, LARGEST)
    if content is None or PARSES not in content[1] or b"parse_known_args" in content[1] or b"sys.argv" in content[1]:
        return None
    try:
        tree = parse(program, content[1]).nodes
    except ReadError:
        return None
    makes = [node for node in tree if isinstance(node, ast.Call) and _called(node) == "ArgumentParser"]
    if (
        len(makes) != 1
        or not _is_of_argparse(tree, makes[0])
        or makes[0].args
        or not all(each.arg in PLAIN for each in makes[0].keywords)
    ):
        return None
    names = _names(tree)
    uses = [node for node in tree if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names]
    calls = [*_calls_of(tree, names)]
    if not names or len(calls) != len(uses) or not any(_called(each) == "parse_args" for each in calls):
        return None
    flags: set[str] = set(OF_EVERY)
    takes_words = False
    for call in calls:
        called = _called(call)
        if called == DECLARES:
            words = [text_of(each) for each in call.args]
            if not words or not all(words) or any(each.arg is None for each in call.keywords):
                return None
            flags.update(word for word in words if word.startswith("-"))
            flags.update(f"--no-{word[2:]}" for word in words if "BooleanOptionalAction" in ast.unparse(call))
            takes_words = takes_words or not words[0].startswith("-") or "REMAINDER" in ast.unparse(call)
        elif called == DECLARES_FOR_DEEPSPEED:
            flags |= OF_DEEPSPEED
        elif called not in (*HARMLESS, *GROUPS) or (called == "parse_args" and (call.args or call.keywords)):
            return None
    abbreviates = not any(each.arg == "allow_abbrev" for each in makes[0].keywords)
    naming = dict.fromkeys(flags, (program,))
    return ParserSource(program, frozenset(flags), True, takes_words, abbreviates, naming, checkout)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _is_of_argparse(tree: tuple[ast.AST, ...], call: ast.Call) -> bool:
    """Return whether what is called is `argparse.ArgumentParser`, and not the class of that name of a package around it."""
    head, _, rest = ast.unparse(call.func).partition(".")
    origins = set[str]()
    for node in tree:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            origins.update(f"{module}{each.name}" for each in node.names if (each.asname or each.name) == head)
    return {f"{origin}.{rest}".rstrip(".") for origin in origins} == {"argparse.ArgumentParser"}


def _names(tree: tuple[ast.AST, ...]) -> frozenset[str]:
    """Return the names that the parser and its groups are bound to; none where one is bound to something else too."""
    found: set[str] = set()
    every: list[str] = []
    for node in tree:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        bound = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(node.value, ast.Call) and _called(node.value) in ("ArgumentParser", *GROUPS, DECLARES_FOR_DEEPSPEED):
            found.update(bound)
            if len(bound) != len(targets):
                return frozenset()
        else:
            every += bound
    return frozenset(found) if found.isdisjoint(every) else frozenset()


def _calls_of(tree: tuple[ast.AST, ...], names: frozenset[str]) -> Iterator[ast.Call]:
    """Yield each call of a method of these names, and of what DeepSpeed adds its options with."""
    for node in tree:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given = [*node.args, *(each.value for each in node.keywords)]
        of = node.func.value if not given or node.func.attr != DECLARES_FOR_DEEPSPEED else given[0]
        if isinstance(of, ast.Name) and of.id in names:
            yield node
