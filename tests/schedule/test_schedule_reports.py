"""`tvlint schedule`: what it says, draws and returns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from tests.schedules import families
from tests.schedules.findings import facts_of, findings_of
from tests.schedules.lowering import lowered, text
from tvlint.analyses.schedule.summary import summary
from tvlint.cli import main
from tvlint.data import data_path
from tvlint.reporters.html import schedule as schedule_html
from tvlint.reporters.json import schedule as schedule_json
from tvlint.reporters.text import schedule as schedule_text

PLAIN = """\
schedule.csv: 1F1B; 2 ranks, 2 pipeline stages, 2 micro-batches
  placement            pipeline stage s on rank s
  bubble               33.3% of 9 units; each rank idles 3
  peak activations     2, 1 micro-batches, rank by rank
  units                F = I = W = 1, B = 2 of one chunk; messages take no time

rank 0 F0 F1 ·  ·  B0─── ·  B1───
rank 1 ·  F0 B0─── F1 B1───
"""


def test_the_text_says_what_the_schedule_is_and_draws_it() -> None:
    assert schedule_text.write(summary(facts_of(families.one_f_one_b(2, 2))), 80, False).text == PLAIN


def test_a_long_timeline_is_cut_where_the_terminal_ends() -> None:
    written = schedule_text.write(summary(facts_of(families.zbv(4, 16))), 60, False).text
    lines = written.splitlines()[6:-1]
    assert len(lines) == 4
    assert max(map(len, lines)) <= 60
    assert "units; `-o html:FILE` draws all" in written


def test_colours_go_around_steps_only() -> None:
    drawn = summary(facts_of(families.zb_h1(2, 4)))
    plain = schedule_text.write(drawn, 200, False).text
    colored = schedule_text.write(drawn, 200, True).text
    assert "\033" not in plain
    assert re.sub(r"\033\[[0-9]*m", "", colored).split() == plain.split()


@pytest.mark.parametrize("rows", [families.dual_pipe_v(2, 6), [["0F0", "0B0"], ["1B0", "1F0"]], [["0F0", "1F0"], [""]]])
def test_the_json_follows_its_schema(rows: families.Rows) -> None:
    schema = json.loads((data_path("schemas") / "schedule.schema.json").read_text(encoding="utf-8"))
    content = json.loads(schedule_json.write(summary(facts_of(rows)), (), Path()).text)
    jsonschema.validate(content, schema, jsonschema.Draft202012Validator)


def test_ranks_that_wait_for_ever_have_no_timeline() -> None:
    drawn = summary(facts_of([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]))
    assert drawn.timing is None
    assert "no timeline" in schedule_text.write(drawn, 80, False).text
    assert "no timeline" in schedule_html.write(drawn, (), "1").text
    assert json.loads(schedule_json.write(drawn, (), Path()).text)["bubble"] is None


def test_the_page_draws_every_step_and_loads_nothing() -> None:
    rows = families.interleaved(4, 2, 8, 4)
    page = schedule_html.write(summary(facts_of(rows)), (), "1").text
    assert page.count("<title>") == 1 + sum(map(len, rows))
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|img|link|iframe|a)\b|url\(|\son\w+=", page)


def test_what_comes_from_the_file_is_escaped_and_marked_where_it_is_wrong() -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F9", "1B1", "<script>alert(1)</script>"]]
    found = findings_of(rows)
    page = schedule_html.write(summary(facts_of(rows)), found, "1").text
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert " lead" in page


def test_the_command_writes_all_formats_and_exits_as_the_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, other = (tmp_path / name for name in ("good.csv", "bad.csv", "other.csv"))
    good.write_text(text(lowered(families.zb_h1(2, 4))))
    bad.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n")
    other.write_text("a,b\n1,2\n")
    page = tmp_path / "page.html"
    assert main(["schedule", str(good), "-o", "json", "-o", f"html:{page}"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "ZB-H1"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["schedule", str(good), "--activation-budget", "1"]) == 1
    assert "ZB-H1" in capsys.readouterr().out
    assert main(["schedule", str(bad)]) == 1
    assert "1 error in 1 file" in capsys.readouterr().err
    assert main(["schedule", str(other)]) == 2
    assert main(["schedule", str(tmp_path / "none.csv")]) == 2


def test_a_schedule_with_an_unreadable_cell_is_not_judged_further(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0F0,oops,0B0\n1F0,1B0\n")
    assert main(["check", str(path), "-o", "json", "--show-unknown"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in report["findings"]] == ["schedule-unreadable-action"]
    assert "schedule-missing-forward" in str(report)
