"""Reports as data and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders.reports import ALL
from tvlint.cache.address import address
from tvlint.cache.values import decode, encode, field_types
from tvlint.findings import Outcome, Problem, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.run.proof.pair import Pair

_LINES = st.none() | st.integers(1, 99)
_PLACES = st.builds(Location, st.text(max_size=9), _LINES, _LINES, text=st.text())
st.register_type_strategy(Location, _PLACES | st.builds(Location, st.text(max_size=9), origin=_PLACES))
st.register_type_strategy(float, st.floats(allow_nan=False))
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()

REPORTS = st.one_of(*(st.builds(Report, **{name: st.from_type(kind)}) for name, kind in field_types(Report).items()))
"""Reports with something of one kind: whatever field a report gets, it is among them."""


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_a_report_comes_back_as_it_was(report: Report) -> None:
    data = encode(report)
    assert decode(data, Report) == report
    assert data.isascii()


@pytest.mark.heavy
@given(REPORTS)
@settings(max_examples=150)
def test_every_value_of_a_report_comes_back_as_it_was(report: Report) -> None:
    assert decode(encode(report), Report) == report


@pytest.mark.parametrize("text", ["\ud800", "a\udc80b", "\x00\n\x7f\u2028", "\U0001f600", "日本"])
def test_any_text_comes_back(text: str) -> None:
    problem = Problem(text, Location(text, origin=Location(text)))
    assert decode(encode(problem), Problem) == problem


@pytest.mark.parametrize("value", [Fraction(1, 2), {"a": 1}, [1], {1}, b"x", object(), (1, [2]), int])
def test_what_is_no_value_of_a_report_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


@given(st.recursive(_PLAIN, st.lists, max_leaves=20))
@settings(max_examples=200)
def test_other_data_are_refused_in_one_of_three_ways(data: object) -> None:
    try:
        found = decode(json.dumps(data).encode(), Verdict)
    except (ValueError, TypeError, KeyError):
        return
    assert isinstance(found, Verdict)


# addresses


class _Kind(Enum):
    ONE = 1
    TWO = 2


@dataclass(frozen=True)
class _Asked:
    first: object
    second: object = None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, "1"), (1, True), (1, 1.0), (None, "None"), ((), ""), (("a", "b"), ("ab",)), (("a", ("b",)), (("a",), "b")),
        (_Asked(1), _Asked(2)), (_Asked(None, 1), _Asked(1)), (_Kind.ONE, _Kind.TWO), (_Kind.ONE, "ONE"),
        (frozenset("ab"), ("a", "b")), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (("list", 1), (1,)),
    ],
)  # fmt: skip
def test_different_questions_have_different_addresses(one: object, two: object) -> None:
    assert address("prove", "tvlint", one, ()) != address("prove", "tvlint", two, ())
    assert address("prove", "tvlint", one, ()) != address("check", "tvlint", one, ())
    assert address("prove", "tvlint", one, ()) != address("prove", "tvlint 2", one, ())


def test_the_order_of_sets_and_mappings_does_not_enter() -> None:
    names = [f"name {number}" for number in range(50)]
    one, two = frozenset(names), frozenset(reversed(names))
    assert address("prove", "tvlint", one, ()) == address("prove", "tvlint", two, ())
    assert address("prove", "", {"a": 1, "b": 2}, ()) == address("prove", "", {"b": 2, "a": 1}, ())


def test_every_field_of_a_pair_enters_its_address() -> None:
    pair = Pair("a.plan", "b.plan")
    others = {str: "other", int: 7, frozenset: frozenset({"an assumption"}), bool: None, type(None): 10.0, tuple: ("other",)}
    for field in fields(Pair):
        changed = replace(pair, **{field.name: others[type(getattr(pair, field.name))]})
        assert address("prove", "", pair, ()) != address("prove", "", changed, ()), field.name


def test_what_has_no_canonical_form_is_no_question() -> None:
    with pytest.raises(TypeError):
        address("prove", "", object(), ())


def test_enumerations_are_told_by_name() -> None:
    assert encode((Outcome.PROVED, Severity.ERROR)) == b'["PROVED","ERROR"]'
