"""Expansion of the words of a script: quotes, variables, defaults, arrays and arithmetic, each with its place."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.shell.arithmetic import evaluate_arithmetic
from tvlint.readers.shell.quotes import ansi_string, literal, unescaped
from tvlint.readers.shell.state import DEEPEST, State, directory_of
from tvlint.readers.shell.values import (
    Array,
    Gap,
    Hole,
    Item,
    Piece,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    from_outside,
    known_text,
    source_of,
    weight,
)
from tvlint.readers.shell.variables import variable, variable_of, whole_array
from tvlint.readers.shell.words import join, split

if TYPE_CHECKING:
    from tree_sitter import Node

Part: TypeAlias = "tuple[Piece, bool]"

LETTERS = Pattern(rb"(?:[\w\[\]*+,.:/=-]|\$\w+|\$\{\w+\})+")
READ = Pattern(rb"\$\{?(\w+)\}?")
MOST_JOINED = 8
"""Of more parts that the grammar leaves of one word (`[0]*$`, `A+[1]`), the word is not put together."""
FILES = Pattern(r"[*?\[]")
"""What may stand for any number of files, where no quotes are around it."""
OWN_DIRECTORY = Pattern(r"(\$\{?0\}?|BASH_SOURCE)")
OWN_DIRECTORY_WORDS = Pattern(
    r"""\b(cd|pwd|dirname|readlink|realpath|BASH_SOURCE|dev|null|f|P|e|m)\b|[\s$`"'(){}\[\]&;\-./<>0-9]"""
)

MOST_COUNTED = 4096
"""More numbers than these are no option values."""


def expand_words(state: State, node: Node) -> list[Item]:
    """Return the words that one argument of a command becomes."""
    alone = whole_array(state, node)
    if alone is not None:
        return list(alone)
    parts = expand(state, node, quoted=False)
    state.spend(1 + weight(piece for piece, _ in parts))
    return split(parts)


def expand_value(state: State, node: Node) -> Value:
    """Return what an assignment of `node` stores."""
    if node.type != "array":
        return Scalar(expand_text(state, node))
    items: list[Item] = []
    elements = [child for child in node.named_children if child.type != "comment"]
    for child, previous in zip(elements, (None, *elements), strict=False):
        if child.type == "variable_assignment" or child.type == "ERROR":
            items.append(Gap("the array is not a plain list", state.span(child)))
        else:
            add_words(state, child, previous, items)
    return Array(tuple(items))


def add_words(state: State, node: Node, previous: Node | None, items: list[Item]) -> None:
    """Add the words of `node` to `items`; where no blank parts it from `previous`, both are one word."""
    if previous is None or previous.end_byte != node.start_byte or not items:
        items.extend(expand_words(state, node))
        return
    first, count = node, 1
    while (before := first.prev_named_sibling) is not None and before.end_byte == first.start_byte and count < MOST_JOINED:
        first, count = before, count + 1
    joined = split(_with_variables(state, first.start_byte, node.end_byte)) if count < MOST_JOINED else []
    items[-1] = joined[0] if len(joined) == 1 else Word((Hole("not understood", state.span(node)),))


def _with_variables(state: State, start: int, end: int) -> list[Part]:
    """Return the parts of a text that is nothing but letters and variables; nothing for any other one."""
    data = state.source.data
    if LETTERS.fullmatch(data, start, end) is None:
        return []
    parts: list[Part] = []
    for match in READ.finditer(data, start, end):
        parts.append((literal(state, start, match.start()), False))
        parts += [(piece, True) for piece in variable(state, match[1].decode(), state.span_of(*match.span()))]
        start = match.end()
    return [*parts, (literal(state, start, end), False)]


def expand_text(state: State, node: Node) -> tuple[Piece, ...]:
    """Return the text of `node` where nothing is split into words."""
    pieces = tuple(piece for piece, _ in expand(state, node, quoted=True))
    state.spend(1 + weight(pieces))
    return pieces


def expand(state: State, node: Node, quoted: bool) -> list[Part]:
    """Return the parts of `node`; a part is marked True where blanks in it separate words."""
    kind = node.type
    if state.depth > DEEPEST:
        return [(Hole("nested too deeply", state.span(node)), not quoted)]
    if kind in ("word", "number", "extglob_pattern", "test_operator", "regex", "variable_name"):
        if node.child_count == 0:
            return unescaped(state, node.start_byte, node.end_byte, "\\", anything=True)
        return [(Hole("not understood", state.span(node)), not quoted)]
    if kind == "raw_string":
        return [(literal(state, node.start_byte + 1, node.end_byte - 1), False)]
    if kind == "ansi_c_string":
        return [(ansi_string(state, node), False)]
    state.depth += 1
    try:
        return _expand_nested(state, node, quoted)
    finally:
        state.depth -= 1


def _expand_nested(state: State, node: Node, quoted: bool) -> list[Part]:
    kind = node.type
    if kind in ("string", "translated_string"):
        return _string(state, node)
    if kind in ("concatenation", "command_name"):
        return [part for child in node.children for part in expand(state, child, quoted)]
    if kind == "simple_expansion":
        name = state.text(node)[1:]
        return [(piece, not quoted) for piece in variable(state, name, state.span(node))]
    if kind == "expansion":
        return _braces(state, node, quoted)
    if kind == "arithmetic_expansion":
        return [(piece, not quoted) for piece in _arithmetic(state, node)]
    if kind == "command_substitution":
        return [(piece, not quoted) for piece in _substitution(state, node)]
    if kind == "process_substitution":
        return [(Hole("depends on a command's output", state.span(node)), False)]
    if node.child_count == 0 and not node.is_named:
        return unescaped(state, node.start_byte, node.end_byte, "\\", anything=True)
    return [(Hole("not understood", state.span(node)), not quoted)]


def _string(state: State, node: Node) -> list[Part]:
    parts: list[Part] = []
    place = node.start_byte + 1
    end = node.end_byte - 1 if state.source.data[node.end_byte - 1 : node.end_byte] == b'"' else node.end_byte
    for child in node.children:
        if child.type in ("string_content", '"') or child.start_byte < place:
            continue
        if child.child_count == 0 and not child.is_named:
            continue
        if state.start(child) > place:
            parts.extend(unescaped(state, place, state.start(child), '$`"\\', anything=False))
        parts.extend((piece, False) for piece, _ in expand(state, child, quoted=True))
        place = child.end_byte
    if place < end:
        parts.extend(unescaped(state, place, end, '$`"\\', anything=False))
    return parts or [(Text("", state.span(node)), False)]


def _braces(state: State, node: Node, quoted: bool) -> list[Part]:
    children = node.children
    named = next((child for child in children if child.type in ("variable_name", "special_variable_name", "subscript")), None)
    span = state.span(node)
    if named is None or children[1].start_byte != named.start_byte:
        return [(_length(state, node, span), not quoted)]
    name, present = variable_of(state, named)
    at = children.index(named) + 1
    operator = children[at].type if at < len(children) else "}"
    if operator == "}":
        found = present if present is not None else variable(state, name, span)
        return [(piece, not quoted) for piece in found]
    if operator in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
        return _defaulted(state, children[at:], (name, present), operator, quoted, span)
    if present is None:
        present = variable(state, name, span)
    return [(_altered(state, node, present, span), not quoted)]


def _length(state: State, node: Node, span: Span) -> Piece:
    """Return how many elements an array has, where each is known: `${#HOSTS[@]}`."""
    match = re.fullmatch(r"\$\{#([A-Za-z_]\w*)\[[@*]\]\}", state.text(node))
    value = state.variables.get(match[1]) if match is not None else None
    if not isinstance(value, Array):
        return Hole("not understood", span)
    state.spend(len(value.items) // 64)
    pieces = [piece for item in value.items for piece in (item.pieces if isinstance(item, Word) else (Hole("", span),))]
    if any(not isinstance(piece, Text) or piece.outside or FILES.search(piece.text) for piece in pieces):
        return Hole("depends on how many elements an array has", span)
    return Text(str(len(value.items)), span, exact=False)


def _defaulted(
    state: State, rest: list[Node], found: tuple[str, tuple[Piece, ...] | None], operator: str, quoted: bool, span: Span
) -> list[Part]:
    name, present = found
    empty_counts = operator.startswith(":")
    if operator in (":?", "?"):
        pieces = present if present is not None else variable(state, name, span)
        return [(piece, not quoted) for piece in pieces]
    text = known_text(present) if present is not None else None
    if operator in (":+", "+"):
        if present is None or text is None:
            return [(Hole(f"depends on whether `{name}` is set", span), not quoted)]
        return _operand(state, rest, quoted) if text or not empty_counts else []
    if present is not None and (text is None or text or not empty_counts):
        return [(piece, not quoted) for piece in present]
    outside = present is None
    parts = [(_as_outside(piece) if outside else piece, splits) for piece, splits in _operand(state, rest, quoted)]
    if operator in (":=", "="):
        state.assign(name, Scalar(tuple(piece for piece, _ in parts)), span)
    return parts


def _as_outside(piece: Piece) -> Piece:
    return Text(piece.text, piece.span, piece.exact, True) if isinstance(piece, Text) else piece


def _operand(state: State, rest: list[Node], quoted: bool) -> list[Part]:
    parts: list[Part] = []
    place = rest[0].end_byte
    for child in rest[1:]:
        if child.start_byte > place:
            parts.append((literal(state, place, child.start_byte), not quoted))
        if child.type == "}":
            break
        unquoted = child.type in ("word", "number", "concatenation", "regex", "extglob_pattern")
        parts.extend((piece, (splits or unquoted) and not quoted) for piece, splits in expand(state, child, quoted))
        place = child.end_byte
    return parts


def _altered(state: State, node: Node, present: tuple[Piece, ...], span: Span) -> Piece:
    """Return what a substring or replacement of a variable gives: only the two forms that paths use are followed."""
    text = known_text(present)
    if text is None:
        return next(piece for piece in present if not isinstance(piece, Text))
    operation = state.text(node)
    if re.search(r"[\w\]]%/\*\}$", operation):
        return Text(text.rpartition("/")[0] or text, span, exact=False)
    if re.search(r"[\w\]]##\*/\}$", operation):
        return Text(text.rpartition("/")[2], span, exact=False)
    return Hole("depends on a substring or replacement", span)


def _arithmetic(state: State, node: Node) -> tuple[Piece, ...]:
    span = state.span(node)
    inner = [child for child in node.named_children if child.type != "comment"]
    if len(inner) != 1:
        return (Hole("depends on arithmetic that is not understood", span),)
    result, outside = evaluate_arithmetic(state, inner[0], lambda each: expand_text(state, each))
    if isinstance(result, str):
        return (Hole(result, span),)
    return (Text(str(result), span, False, outside),)


def _substitution(state: State, node: Node) -> tuple[Piece, ...]:
    span = state.span(node)
    text = state.text(node)
    if len(text) < 300 and OWN_DIRECTORY.search(text) and "dirname" in text and not OWN_DIRECTORY_WORDS.sub("", text):
        climbs = len(re.findall(r"(?<!\.)\.\.(?!\.)", text)) + text.count("dirname") - 1
        return (Text(directory_of(state.source) + "/.." * climbs, span, exact=False),)
    if text.startswith("$((") and text.endswith("))"):
        return _misread_arithmetic(state, text, span)
    inner = node.named_children
    if len(inner) == 1 and inner[0].type == "redirected_statement" and text.lstrip("$( \t\n").startswith("cat <<"):
        from tvlint.readers.shell.heredocs import heredoc_text

        written = heredoc_text(state, inner[0], expand_text)
        if written is not None:
            return written
    echoed = re.fullmatch(r"\$\(\s*(?:echo|expr)\s+([^|;&`]*)\)", text, re.DOTALL)
    if echoed and "$(" not in echoed[1] and len(node.named_children) == 1 and node.named_children[0].type == "command":
        return _echo(state, node.named_children[0], text.lstrip("$( \t\n").startswith("expr"), span)
    if re.fullmatch(r"\$\(\s*seq\s[^|;&]*\)", text, re.DOTALL) and len(inner) == 1 and inner[0].type == "command":
        return _sequence(state, inner[0], span)
    return (Hole("depends on a command's output", span),)


def _sequence(state: State, command: Node, span: Span) -> tuple[Piece, ...]:
    """Return the numbers that `seq` counts, a line each."""
    items = [item for child in command.children_by_field_name("argument") for item in expand_words(state, child)]
    texts = [known_text(item.pieces) if isinstance(item, Word) else None for item in items]
    numbers = [int(text) for text in texts if text is not None and re.fullmatch(r"-?\d{1,9}", text)]
    if not 1 <= len(texts) <= 3 or len(numbers) < len(texts):
        return (Hole("depends on a command's output", span),)
    first, step = numbers[0] if len(numbers) > 1 else 1, numbers[1] if len(numbers) == 3 else 1
    counted = range(first, numbers[-1] + (1 if step > 0 else -1), step) if step else range(0)
    if not step or len(counted) > MOST_COUNTED:
        return (Hole("depends on a command's output", span),)
    state.spend(1 + len(counted))
    outside = any(from_outside(item.pieces) for item in items if isinstance(item, Word))
    return (Text("\n".join(map(str, counted)), span, False, outside),)


def _misread_arithmetic(state: State, text: str, span: Span) -> tuple[Piece, ...]:
    """Arithmetic that the grammar takes for a subshell, as it does inside `${X:-...}`; read again on its own."""
    state.spend(1 + len(text) // 16)
    inner = state.fork()
    inner.source = source_of(state.source.path, f"echo {text}".encode())
    nodes = deque([state.trace.syntax.tree(inner.source).root_node])
    while nodes and nodes[0].type != "arithmetic_expansion":
        nodes.extend(nodes.popleft().children)
    if not nodes:
        return (Hole("depends on a command's output", span),)
    pieces = _arithmetic(inner, nodes[0])
    return tuple(replace(piece, span=span) for piece in pieces)


def _echo(state: State, command: Node, computes: bool, span: Span) -> tuple[Piece, ...]:
    items: list[Item] = []
    for child in command.children_by_field_name("argument"):
        items.extend(expand_words(state, child))
    pieces = join(items)
    if not computes:
        return pieces
    text = known_text(pieces)
    match = re.fullmatch(r"(\d{1,12}) ([-+*/%]) (\d{1,12})", text or "")
    if match is None or (match[2] in "/%" and int(match[3]) == 0):
        return (Hole("depends on a command's output", span),)
    left, right = int(match[1]), int(match[3])
    results = {"+": left + right, "-": left - right, "*": left * right}
    result = results[match[2]] if match[2] in results else left // right if match[2] == "/" else left % right
    outside = any(isinstance(piece, Text) and piece.outside for piece in pieces)
    return (Text(str(result), span, False, outside),)
