"""The fingerprint of a finding about a long number: found by fuzzing, where it took a pattern for ever."""

from __future__ import annotations

from tvlint.findings import Finding, Severity
from tvlint.identity import fingerprint
from tvlint.ir.location import Location


def test_a_long_number_in_a_message_is_read_once() -> None:
    messages = (f"`{'1' * 5000}…` has a number above 999,999", f"`{'1_' * 1000}…` is no action")
    made = [fingerprint(Finding("schedule-unreadable-action", Severity.ERROR, each, Location("a.csv"))) for each in messages]
    assert made[0] != made[1]
