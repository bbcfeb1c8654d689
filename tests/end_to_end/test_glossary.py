"""The words of the glossary are the words of the code: private ones only become fewer, and field words stand there."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.builders.modules import nodes
from tests.shared import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
COUNTED = ROOT / "tests" / "data" / "private-words.json"
"""How often each private word stands in names and strings of the code; `pytest --update-golden` writes lower numbers."""

PRIVATE = ("told", "trouble", "rescued", "misbound", "standstill", "witness", "wiring", "nobody", "mended", "untold", "walked")


@dataclass
class Words:
    """What the code says: private words in identifiers, docstrings and messages; names that say nothing; docstrings."""

    private: Counter[str] = field(default_factory=Counter)
    own: list[str] = field(default_factory=list)
    docstrings: list[tuple[str, str]] = field(default_factory=list)
    """Of functions that are no properties, with their places."""
    functions: list[tuple[str, str]] = field(default_factory=list)
    """Docstrings of all functions, with their places."""


@cache
def words_of_the_code() -> Words:
    """Return what the code says, from one look at every module."""
    found = Words()
    for path, node in nodes():
        texts: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            texts = [node.name]
        elif isinstance(node, ast.Name):
            texts = [node.id] if isinstance(node.ctx, ast.Store) else []
        elif isinstance(node, ast.arg):
            texts = [node.arg]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts = [node.value]
        for text in texts:
            found.private.update(word for word in re.split(r"[^a-z]+", text.lower()) if word in PRIVATE)
        if (isinstance(node, ast.arg) and node.arg == "own") or (isinstance(node, ast.Name) and node.id == "own"):
            found.own.append(f"{path}:{node.lineno}")
        if isinstance(node, ast.FunctionDef) and (said := ast.get_docstring(node)):
            place = f"{path}:{node.lineno}"
            found.functions.append((place, said))
            found.docstrings += [] if _is_property(node) else [(place, said)]
    return found


def test_private_words_only_become_fewer(request: pytest.FixtureRequest) -> None:
    known = json.loads(COUNTED.read_text(encoding="utf-8"))
    found = words_of_the_code().private
    if request.config.getoption("--update-golden"):
        fewer = {word: min(known.get(word, found[word]), found[word]) for word in PRIVATE}
        COUNTED.write_text(json.dumps(fewer, indent=1) + "\n", encoding="utf-8")
    more = {word: f"{found[word]} instead of {known[word]}" for word in PRIVATE if found[word] > known[word]}
    assert not more, f"use the word of docs/glossary.md: {more}"


def test_variables_have_the_names_of_things() -> None:
    """`own` says of nothing what it is: a tensor, an operator and a rank were all called so."""
    found = words_of_the_code().own
    assert not found, "name the variable after what it holds"


NOUNS = frozenset(["The", "A", "An", "All", "Both", "What", "Whether", "How", "Which", "Who", "When", "Where", "Why"])
"""Words that open a description of what a function returns, and no imperative."""


def test_docstrings_of_functions_are_imperatives() -> None:
    """A few state a fact or a rule of what is checked, as sentences do."""
    functions = words_of_the_code().docstrings
    others = [place for place, said in functions if said.split()[0] in NOUNS]
    assert len(others) * 33 < len(functions), f"begin with a verb (Return, Yield, Raise ...): {others}"


def test_no_docstring_of_a_function_opens_with_a_question_word() -> None:
    questions = re.compile(r"(What|Whether|How|Which|Who|When|Where|Why)\b")
    asked = [place for place, said in words_of_the_code().functions if questions.match(said)]
    assert asked == []


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("phrase", ["nobody wrote", "as they stand", "is passed over", "nothing here tells"])
def test_documents_and_pages_are_without_private_phrases(phrase: str) -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "rules").rglob("*.md")]
    assert [page.name for page in pages if phrase in page.read_text(encoding="utf-8")] == ["glossary.md"] * (
        phrase == "nobody wrote"
    )


def test_every_word_of_the_glossary_has_a_meaning() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \|([^|]*)\|$", GLOSSARY, re.MULTILINE)
    words = [word for word, meaning, _ in rows if word not in ("word", "---")]
    assert len(words) >= 60
    assert len(words) == len(set(words))
    assert all(meaning.strip() for word, meaning, _ in rows)


def test_messages_count_one_thing_as_one() -> None:
    """A number of operands, results or values may be one: `tvlint.plurals.counted` says it."""
    nouns = re.compile(r" (operands|results|inputs|outputs|values|gradients|arguments|dimensions)\b")
    found = [
        f"{path}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.JoinedStr)
        for part, after in itertools.pairwise(node.values)
        if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Call) and ast.unparse(part.value.func) == "len"
        if isinstance(after, ast.Constant) and nouns.match(after.value)
    ]
    assert found == []
