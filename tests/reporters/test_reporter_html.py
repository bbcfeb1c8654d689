"""`html`: one page that loads nothing, runs nothing, and draws what is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import reports
from tests.builders.html_page import Page
from tvlint.findings import Report
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.outline import Cell, Lane, Outline
from tvlint.ir.plan import Phase
from tvlint.reporters.escape.html import markup
from tvlint.reporters.html import report as html
from tvlint.reporters.html.plan_svg import MAXIMAL_CELLS, mesh_drawing, schedule_drawing
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.proofs import joined
from tvlint.run.proof.prove import prove_pair

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def written(report: Report, root: Path) -> str:
    reports.write_sources(root)
    return html.write(report, reports.context(root)).text


@pytest.mark.parametrize("name", reports.ALL)
def test_the_page_is_closed_loads_nothing_and_runs_nothing(name: str, tmp_path: Path) -> None:
    source = written(reports.ALL[name], tmp_path)
    page = Page(source)
    assert page.open == []
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form", "a", "base"}
    assert not {name for name in page.attributes if name.startswith("on")} | (page.attributes & {"src", "href"})
    assert "default-src 'none'" in source
    assert "url(" not in source


def test_linted_text_is_shown_as_it_stands(tmp_path: Path) -> None:
    assert "</script><img src=x onerror=alert(1)>" in Page(written(reports.HOSTILE, tmp_path)).text


def test_a_refuted_proof_shows_where_on_which_ranks_and_what_to_do(tmp_path: Path) -> None:
    source = written(Report(verdicts=(reports.REFUTED,), outlines=(reports.OUTLINE,)), tmp_path)
    text = Page(source).text
    for said in ("first wrong value", "x = x + self.mlp(x)", "return self.down(h)", "ranks 0,1", "all-reduce (sum)"):
        assert said in text
    assert source.count('class="wrong"') == 4


def test_the_mesh_has_every_rank_once() -> None:
    drawing = markup(mesh_drawing(Mesh((Axis("pp", 2), Axis("cp", 3), Axis("dp", 1), Axis("tp", 4))), {5, 23}))
    assert [int(number) for number in re.findall(r'middle">(\d+)<', drawing)] == list(range(24))
    assert re.findall(r'class="on"[^>]*>(\d+)<', drawing) == ["5", "23"]
    assert "A box is a rank; tp runs from left to right, cp from block to block." in drawing


def test_a_large_mesh_is_folded_and_says_so() -> None:
    drawing = markup(mesh_drawing(Mesh((Axis("pp", 16), Axis("dp", 64), Axis("tp", 8))), range(1, 8192, 8)))
    assert drawing.count("<rect") == 128
    assert drawing.count('class="wrong"') == 16
    assert "64 dp coordinates" in drawing


def test_a_schedule_is_drawn_as_it_can_run() -> None:
    drawing = markup(schedule_drawing(reports.OUTLINE))
    starts = [float(x) for x in re.findall(r'<rect(?: class="(?:forward|backward)")? x="([\d.]+)"', drawing)]
    first, second = starts[:5], starts[5:]
    unit = (first[1] - first[0]) / 2
    assert [(x - first[0]) / unit for x in first] == [0, 2, 8, 14, 18]
    assert [(x - first[0]) / unit for x in second] == [2, 4, 8, 10, 14]


def test_a_pipeline_stage_waits_for_all_that_the_one_before_it_computes() -> None:
    first, second = Cell(Phase.FORWARD, 0, 0), Cell(Phase.FORWARD, 1, 0)
    moves = replace(first, computes=False)
    lanes = (Lane((0,), (first, first, moves)), Lane((1,), (second,)))
    for some in (lanes, lanes[::-1]):
        drawing = markup(schedule_drawing(replace(reports.OUTLINE, lanes=some)))
        starts = dict(
            zip("abcd", sorted(float(x) for x in re.findall(r'<rect(?: class="\w*")? x="([\d.]+)"', drawing)), strict=True)
        )
        assert starts["c"] == starts["d"] == 2 * starts["b"] - starts["a"]


def test_a_schedule_that_cannot_run_is_drawn_all_the_same() -> None:
    forward, backward = Cell(Phase.FORWARD, 0, 0), Cell(Phase.FORWARD, 1, 0)
    lanes = (Lane((0,), (Cell(Phase.BACKWARD, 0, 0), forward)), Lane((1,), (backward, Cell(Phase.BACKWARD, 1, 0))))
    crossed = (Lane((0,), (lanes[1].cells[1], forward)), Lane((1,), (backward, lanes[0].cells[0])))
    for some in (lanes, crossed):
        assert markup(schedule_drawing(replace(reports.OUTLINE, lanes=some))).count("<rect") == 4


def test_a_long_schedule_is_cut_and_says_so() -> None:
    cells = tuple(Cell(Phase.FORWARD, 0, index) for index in range(MAXIMAL_CELLS + 5))
    drawing = markup(schedule_drawing(Outline("p", reports.MESH, 1, (Lane((0,), cells),))))
    assert drawing.count("<rect") == MAXIMAL_CELLS
    assert "The first 6,000 steps are drawn" in drawing


REFERENCE = """
weight w f32[4,4]
input x f32[2,4]
loss l
program
  y = linear(x, w)
  z = mul(y, 2.0)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  _, grad(w) = backward y (dy)
"""

PARALLEL = """
mesh tp=2
weight w f32[4,4]
input x f32[2,4]
loss l
program ranks 0
  y = linear(x, w)
  z = mul(y, 2.0)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  _, grad(w) = backward y (dy)
program ranks 1
  y = linear(x, w)
  z = mul(y, 3.0)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  _, grad(w) = backward y (dy)
"""


def test_what_a_proof_found_is_marked_in_the_schedule_on_the_ranks_concerned(tmp_path: Path) -> None:
    for name, text in {"parallel.plan": PARALLEL, "reference.plan": REFERENCE}.items():
        (tmp_path / name).write_text(text)
    report = prove_pair(Pair(str(tmp_path / "parallel.plan"), str(tmp_path / "reference.plan")))
    right, wrong = report.outlines[0].lanes
    assert {cell.judged for cell in right.cells} == {""}
    assert {(cell.phase, cell.judged) for cell in wrong.cells} == {(Phase.FORWARD, "refuted"), (Phase.BACKWARD, "")}
    assert {cell.judged for lane in report.outlines[1].lanes for cell in lane.cells} == {""}
    page = written(report, tmp_path)
    assert page.count('class="forward refuted"') == 1
    assert '<span class="key refuted"></span>refuted' in page
    unmarked = replace(report, outlines=tuple(replace(own, lanes=()) for own in report.outlines))
    assert joined(unmarked, report).outlines == report.outlines


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(written(reports.FULL, tmp_path), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=900,1200",
    ]
    command = [str(BROWSER), *options, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(set(content)) > 200
    assert len(content) > 20_000
