"""Settings as typed values, and derivations that stop at the first one that is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from tvlint.ir.configuration import SettingValue, Unknown

Lookup: TypeAlias = Callable[[str], "SettingValue | Unknown"]
T = TypeVar("T")
LARGEST = 10**12
"""No size of a real model or cluster is above; arithmetic on larger ones would only be a way to waste time."""


class Undecided(Exception):
    """A derivation needs something that is not known."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.reason)
        self.unknown = unknown


def attempt(function: Callable[[], T]) -> T | Unknown:
    """Return what `function` derives; where it needs what is not known, or settings contradict each other, why there is
    nothing.
    """
    try:
        return function()
    except Undecided as error:
        return error.unknown
    except (ValueError, ArithmeticError) as error:
        return Unknown(str(error))


def need(value: T | Unknown) -> T:
    """Return the value; raises `Undecided` where there is none."""
    if isinstance(value, Unknown):
        raise Undecided(value)
    return value


def divide(number: int, parts: int, what: str = "") -> int:
    """Return the whole quotient; raises `ValueError` where there is a rest."""
    if parts <= 0 or number % parts:
        raise ValueError(f"{what} {number:,} is not a multiple of {parts:,}".strip())
    return number // parts


class Settings:
    """Typed access to settings and derived names; every method raises `Undecided` for what is not known or not of its type."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup

    def count(self, name: str, least: int = 0) -> int:
        """Return an integer that must be there."""
        value = self.optional(name, least)
        if value is None:
            raise Undecided(Unknown(f"`{name}` is not given"))
        return value

    def optional(self, name: str, least: int = 0) -> int | None:
        """Return an integer, or None where the setting has none."""
        value = need(self.lookup(name))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise Undecided(Unknown(f"`{name}` is {str(value)[:40]}, not a number of at least {least}"))
        return value

    def number(self, name: str) -> float:
        """Return an integer or a float that must be there."""
        value = need(self.lookup(name))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Undecided(Unknown(f"`{name}` is {str(value)[:40]}, not a number"))
        return value

    def flag(self, name: str) -> bool:
        """True or false; a switch that has no value is off."""
        value = need(self.lookup(name))
        if value is None or isinstance(value, bool):
            return bool(value)
        raise Undecided(Unknown(f"`{name}` is {str(value)[:40]}, neither true nor false"))

    def text(self, name: str, otherwise: str = "") -> str:
        """Return a text; `otherwise` where the setting has none."""
        value = need(self.lookup(name))
        return otherwise if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty where the setting has none."""
        value = need(self.lookup(name))
        if value is None:
            return ()
        return tuple(str(item) for item in value) if isinstance(value, tuple) else tuple(str(value).split())

    def any_of(self, *names: str) -> str | None:
        """Return the first of the switches that is on."""
        return next((name for name in names if self.flag(name)), None)
