"""The reader of schedule CSV: its grammar, places, bounds, and what it does with anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedules.findings import CHECKS, findings_of
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.summary import summary
from tvlint.ir.schedule import ActionKind, Schedule
from tvlint.readers import schedule_csv
from tvlint.readers.document import ReadError
from tvlint.readers.read import read
from tvlint.readers.recognise_schedule import recognise
from tvlint.reporters.html import schedule as schedule_html
from tvlint.reporters.json import schedule as schedule_json
from tvlint.reporters.text import schedule as schedule_text

CELLS = ["0F0", "1F0", "0B1", "1I0", "1W0", "0SEND_F0", "1RECV_F0", "0UNSHARD", "0RESHARD", "0REDUCE_GRAD", "",
         "0WAIT_SEND_F0", "(0F1;0B0)OVERLAP_F_B", "7F3", "0F999999", "0BW0", "x", "0F0x", "0F", "9999999F0"]  # fmt: skip


def schedule_of(text: str) -> Schedule:
    schedule = schedule_csv.read("a.csv", text).schedule
    assert schedule is not None
    return schedule


def spelled(text: str) -> list[list[str]]:
    return [[str(action) for action in row.actions] for row in schedule_of(text).ranks]


def test_every_action_of_the_dialect_is_read_and_written_back() -> None:
    cells = [f"12{kind.value}{'' if kind in schedule_csv.WITHOUT_MICRO_BATCH else 34}" for kind in ActionKind]
    cells = [cell for cell in cells if "OVERLAP" not in cell] + ["(0F7;7B3)OVERLAP_F_B"]
    text = ",".join(cells) + "\n"
    assert spelled(text) == [cells]
    assert schedule_csv.read("a.csv", text).findings == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_ranks_and_blank_cells_idle_slots(end: str) -> None:
    assert spelled(end.join(["0F0,,0B0", ',"1F0", 1B0 '])) == [["0F0", "0B0"], ["1F0", "1B0"]]
    assert len(schedule_of(end.join(["0F0,0B0", "", "1F0,1B0", ""])).ranks) == 3


def test_a_cell_stands_where_it_stands() -> None:
    place = schedule_of("0F0,0F1\n,, 1F0 ,1F1").ranks[1].actions[0].location
    assert (place.line, place.column, place.end_column) == (2, 4, 7)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0F0x", "`0F0x` has `x` after the action `0F0`"),
        ("0F0 0B0", "`0F0 0B0` has ` 0B0` after the action `0F0`"),
        ("0F", "`0F` names no micro-batch, which `F` needs"),
        ("0UNSHARD3", "`0UNSHARD3` names a micro-batch, but `UNSHARD` is about all of them"),
        ("F0", "`F0` is no action"),
        ("0f0", "`0f0` is no action"),
        ("-1F0", "`-1F0` is no action"),
        ("٣F0", "`٣F0` is no action"),
        ("1234567F0", "`1234567F0` has a number above 999,999"),
        ("(0F0;0F1)OVERLAP_F_B", "`(0F0;0F1)OVERLAP_F_B` does not overlap one forward with one backward"),
        ("(0F0;0B1", "`(0F0;0B1` is no overlap of two actions"),
        ("x" * 90, f"`{'x' * 39}…` is no action"),
    ],
)
def test_what_is_no_action_is_said(cell: str, message: str) -> None:
    findings = schedule_csv.read("a.csv", f"0F0,{cell},0B0\n").findings
    assert [finding.message for finding in findings] == [message]
    assert (findings[0].location.line, findings[0].location.column) == (1, 5)
    assert findings[0].rule == "schedule-unreadable-action"


def test_old_letters_are_judged_as_what_they_meant() -> None:
    document = schedule_csv.read("a.csv", "0F0,0F1,0B0,0W0,0BW1\n")
    assert [finding.rule for finding in document.findings] == ["schedule-old-spelling"]
    assert spelled("0F0,0F1,0B0,0W0,0BW1\n") == [["0F0", "0F1", "0I0", "0W0", "0B1"]]


def test_old_letters_are_known_without_a_whole_backward() -> None:
    assert spelled("0F0,0F1,0B0,0W0,0B1,0W1\n") == [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"]]
    assert spelled("0F0,0F1,0B0,0W0,0B1\n") == [["0F0", "0F1", "0B0", "0W0", "0B1"]]
    assert spelled("0F0,0F1,0B0,0W0,0I1,0W1\n") == [["0F0", "0F1", "0B0", "0W0", "0I1", "0W1"]]


def test_a_schedule_with_communication_has_no_idle_slots() -> None:
    rules = [finding.rule for finding in schedule_csv.read("a.csv", "0F0,0SEND_F0,,\n1RECV_F0,1F0\n").findings]
    assert rules == ["schedule-unreadable-action"]


@pytest.mark.parametrize("text", ["0F0,0B0\n", ",,0F0,0B0", "(0F1;0B0)OVERLAP_F_B,0B1", "0F0,oops,0B0", "0BW0,0F0"])
def test_a_schedule_is_recognised_by_its_cells(text: str) -> None:
    document = read("a.txt", text.encode())
    assert document is not None
    assert document.format == "schedule-csv"


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n", "0F0\n", "rank,F,B\n0,1,2\n", "0f,1b,2c\n3d,4e,5f\n", "time,cell\n1,0F0\n2,0B0\n3,x\n", "0F,1F,2B,3B\n"],
)
def test_other_tables_are_left_alone(text: str) -> None:
    assert read("a.csv", text.encode()) is None


def test_too_large_a_table_is_refused() -> None:
    with pytest.raises(ReadError, match="cells"):
        schedule_csv.read("a.csv", "0F0," * (schedule_csv.MAXIMAL_CELLS + 1))
    with pytest.raises(ReadError, match="rows"):
        schedule_csv.read("a.csv", "0F0\n" * (schedule_csv.MAXIMAL_RANKS + 1))


def test_rows_in_which_nearly_everything_is_missing_do_not_square() -> None:
    findings = findings_of([[*(f"{i}F{i}" for i in range(4000)), "0B0"]])
    assert {finding.rule for finding in findings} >= {"schedule-missing-forward", "schedule-missing-backward"}
    assert len(findings) < 500
    assert len(findings_of([[f"{i}SEND_F{i}" for i in range(4000)], ["0F0", "0B0"]])) < 500


@settings(max_examples=150)
@given(st.lists(st.lists(st.sampled_from(CELLS), max_size=8), min_size=1, max_size=4))
def test_any_rows_are_judged_and_drawn(rows: list[list[str]]) -> None:
    document = schedule_csv.read("a.csv", "\n".join(",".join(row) for row in rows))
    assert document.schedule is not None
    facts = ScheduleFacts(document.schedule, 1)
    for check in CHECKS.values():
        for finding in check(facts):
            assert finding.message
            assert finding.location.path == "a.csv"
    drawn = summary(facts)
    assert schedule_text.write(drawn, 80, True).text
    assert schedule_json.write(drawn, document.findings, Path()).text
    assert schedule_html.write(drawn, document.findings, "1").text


@settings(max_examples=100)
@given(st.text())
def test_any_text_is_read_or_left_alone(text: str) -> None:
    assert recognise(text) in (True, False)
    assert schedule_csv.read("a.csv", text).format == "schedule-csv"
