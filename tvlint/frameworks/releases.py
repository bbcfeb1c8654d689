"""When releases of Megatron core came out."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

RELEASES: Final = (
    ("230101", "0.2"),
    ("240105", "0.4"),
    ("240226", "0.5"),
    ("240418", "0.6"),
    ("240530", "0.7"),
    ("240812", "0.8"),
    ("241024", "0.9"),
    ("250217", "0.10"),
    ("250314", "0.11"),
    ("250506", "0.12"),
    ("250725", "0.13"),
    ("251008", "0.14"),
    ("251205", "0.15"),
    ("260226", "0.16"),
    ("260414", "0.17"),
    ("260622", "0.18"),
    ("260819", "0.19"),
)
"""The day, as YYMMDD, and the release; oldest first."""

FRESH: Final = 183
"""So many days before the newest release, few launches run one."""
_BEFORE: Final = (*accumulate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30), initial=0),)
"""The days of a year before each month; to import what the standard library has for it takes a fiftieth of the time of a check.
"""


def is_fresh(release: str) -> bool:
    """Return whether a release is so young, or not even out, that a launch which does not name it hardly runs it."""
    days = {name: _day(text) for text, name in RELEASES}
    return release not in days or max(days.values()) - days[release] < FRESH


def _day(text: str) -> int:
    """Return the number of the day that a text gives as YYMMDD."""
    year, month, day = int(text[:2]), int(text[2:4]), int(text[4:])
    leap_days = (year + 3) // 4 + (month > 2 and year % 4 == 0)
    return 365 * year + leap_days + _BEFORE[month - 1] + day
