"""Quickly defined dataclasses are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvlint.ir import values


class _Point:
    """A point."""

    x: int
    y: tuple[int, ...] = ()
    notes: dict[str, int] = values.field(default_factory=dict)

    @property
    def sum(self) -> int:
        return self.x + sum(self.y)


class _Same:
    """A point."""

    x: int
    y: tuple[int, ...] = ()
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


class _Bare:
    """Nothing at all."""


Quick: Any = values.dataclass(frozen=True, slots=True)(_Point)
Standard: Any = dataclasses.dataclass(frozen=True, slots=True)(_Same)
Open: Any = values.dataclass(slots=True)(_Point)
Single: Any = values.dataclass(frozen=True, slots=True, eq=False)(_Point)
Bare: Any = values.dataclass(frozen=True, slots=True)(_Bare)
_Point = Quick  # type: ignore[misc]  # what pickle finds by the name

points = st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2).map(tuple))


@given(points, points)
def test_values_compare_hash_and_read_as_those_of_the_standard_library(one: Any, other: Any) -> None:
    own, same = [Quick(*each) for each in (one, other)], [Standard(*each) for each in (one, other)]
    assert (own[0] == own[1]) == (same[0] == same[1]) == (one == other)
    assert repr(own[0]) == repr(same[0]).replace("_Same", "_Point")
    assert own[0].sum == one[0] + sum(one[1])


def test_a_value_equals_no_value_of_another_class() -> None:
    assert Quick(1) != Standard(1)
    assert Quick(1) != (1, (), {})
    assert Single(1) != Single(1)
    assert Bare() == Bare()


def test_frozen_values_have_the_hash_of_their_fields() -> None:
    assert len({values.replace(each, notes=()) for each in (Quick(1), Quick(1), Quick(2))}) == 2
    assert Open.__hash__ is None


@pytest.mark.parametrize("change", [lambda own: setattr(own, "x", 2), lambda own: delattr(own, "x")])
def test_frozen_values_stay(change: Any) -> None:
    own = Quick(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        change(own)
    assert own.x == 1


def test_defaults_are_made_for_each_value() -> None:
    one, other = Open(1), Open(2)
    one.notes["a"] = 1
    one.x = 5
    assert (one.x, one.notes, other.notes) == (5, {"a": 1}, {})


def test_what_is_missing_or_unknown_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Quick()
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        values.replace(Quick(1), z=1)


@pytest.mark.parametrize("same", [copy.copy, copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_values_are_copied_and_pickled(same: Any) -> None:
    assert same(Quick(1, (2,), {"a": 3})) == Quick(1, (2,), {"a": 3})


def test_the_standard_library_takes_them_for_its_own() -> None:
    own = Quick(1, (2,))
    assert dataclasses.is_dataclass(own)
    assert values.is_dataclass(own)
    assert values.is_dataclass(Standard)
    assert not values.is_dataclass(1)
    assert dataclasses.replace(own, x=3) == values.replace(own, x=3) == Quick(3, (2,))
    names = [[each.name for each in found] for found in (values.fields(own), dataclasses.fields(Quick))]
    assert names == [["x", "y", "notes"]] * 2
    assert dataclasses.asdict(own) == dataclasses.asdict(Standard(1, (2,)))
    match own:
        case Quick(x, (y,), {}):
            assert (x, y) == (1, 2)


def test_a_field_without_a_default_never_follows_one_with_a_default() -> None:
    class Wrong:
        first: int = 1
        second: int

    for decorator in (values.dataclass, dataclasses.dataclass):
        with pytest.raises(TypeError):
            decorator(frozen=True, slots=True)(Wrong)


def test_classes_with_as_many_fields_keep_their_own_names_and_defaults() -> None:
    class One:
        set_: int
        other: list[int] = values.field(default_factory=list)

    class Two:
        _0: int
        name: str = "x"

    one, two = (values.dataclass(frozen=True, slots=True)(cls) for cls in (One, Two))
    assert (one(set_=1).set_, one(1).other, two(_0=2)._0, two(2).name) == (1, [], 2, "x")
    assert one(1).other is not one(1).other
