"""Patterns that are compiled when they are first used are those of the standard library."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from shared import ROOT

from tvlint.ir.patterns import Pattern


def test_a_pattern_does_what_a_compiled_one_does() -> None:
    late, compiled = Pattern(r"(?P<name>[a-z]+)=(\d*)", re.IGNORECASE), re.compile(r"(?P<name>[a-z]+)=(\d*)", re.IGNORECASE)
    for text in ("a=1 B=2", "c=", ""):
        assert late.findall(text) == compiled.findall(text)
        assert late.split(text) == compiled.split(text)
        assert late.sub(r"\2", text) == compiled.sub(r"\2", text)
        assert [match.span("name") for match in late.finditer(text)] == [
            match.span("name") for match in compiled.finditer(text)
        ]
        for name in ("match", "search", "fullmatch"):
            assert str(getattr(late, name)(text, 0)) == str(getattr(compiled, name)(text, 0))
    assert (late.pattern, late.flags) == (compiled.pattern, compiled.flags)
    with pytest.raises(AttributeError):
        late.nothing  # noqa: B018


def test_every_pattern_compiles() -> None:
    """A mistake in one would be found by whoever is the first to need it."""
    files = [path for path in (ROOT / "tvlint").rglob("*.py") if "Pattern(" in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files if path.stem != "patterns"]
    made = [each for name in names for each in vars(import_module(name)).values() if type(each).__name__ == "Pattern"]
    assert len(made) > 100
    for each in made:
        assert re.compile(each.pattern, each.flags) is not None
