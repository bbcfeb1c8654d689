"""Repairs of plan text: each is checked again before it is offered, and leaves a plan without the mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared import ROOT

from tests.builders.page_examples import read_examples
from tvlint.cli import main
from tvlint.edits.apply import Text
from tvlint.edits.plan_text import REPAIRS, repairs
from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.rulebook.pages import load_rules

NO_EDIT_OF_A_LINE = ("norm-over-shards", "use-before-definition", "wrong-collective-group")
"""Rules whose pages show a mistake that takes more than a line to repair."""
EXAMPLES = [
    pytest.param(rule, example.text, id=f"{rule}:{example.line}")
    for rule in sorted(REPAIRS.keys() - set(NO_EDIT_OF_A_LINE))
    for example in read_examples(load_rules()[rule])
    if not example.valid and example.language == "plan"
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_the_repair_of_a_page_leaves_no_mistake(rule: str, text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.plan").write_text(text)
    assert main(["check", "a.plan", "-o", "sarif", "--fail-on", "note"]) == 1
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert {result["ruleId"] for result in results if "fixes" in result} == {rule}
    assert main(["check", "a.plan", "--fix", "--fail-on", "note"]) == 1
    assert (here / "a.plan").read_text() == text
    assert main(["check", "a.plan", "--fix", "--unsafe-fixes", "--fail-on", "note"]) == 0
    before, after = text.splitlines(), (here / "a.plan").read_text().splitlines()
    assert len([line for line in after if line not in before]) <= 3


def test_a_repaired_plan_is_proved(here: Path) -> None:
    for name in ("single.plan", "dp2-tp2-broken.plan"):
        (here / name).write_text((ROOT / "fixtures" / "tour" / name).read_text())
    prove = ["prove", "dp2-tp2-broken.plan", "--reference", "single.plan"]
    assert main(prove) == 1
    assert main(["check", "dp2-tp2-broken.plan", "--fix", "--unsafe-fixes"]) == 0
    assert main(prove) == 0
    added = [line.strip() for line in (here / "dp2-tp2-broken.plan").read_text().splitlines() if "y_partial" in line]
    assert added[1:] == ["y = all-reduce(y_partial) over tp", "da, grad(w2) = backward y_partial (dy)"]


def test_nothing_is_proposed_where_it_would_change_more() -> None:
    plan = "mesh tp=2\nprogram\n  y = linear(a, w)\n  z = add(y, x)\n"
    finding = Finding("missing-allreduce", Severity.ERROR, "a partial value", Location("a.plan", 3, 3), about=("y", "tp"))
    (fix,) = repairs(finding, Text(plan))
    assert Text(plan).edited(fix.edits) == plan.replace("y =", "y_partial =", 1).replace(
        "w)\n", "w)\n  y = all-reduce(y_partial) over tp\n"
    )
    assert list(repairs(finding, Text(plan.replace("mesh", "grid")))) == []
    two = Text(plan.replace("y = ", "q, y = "))
    (fix,) = repairs(finding, two)
    assert "  q, y_partial = linear(a, w)\n  y = all-reduce(y_partial) over tp\n" in two.edited(fix.edits)


@pytest.mark.parametrize("rule", REPAIRS)
def test_a_finding_of_less_names_than_a_repair_needs_has_none(rule: str) -> None:
    least, _ = REPAIRS[rule]
    names = tuple(f"n{number}" for number in range(least - 1))
    finding = Finding(rule, Severity.ERROR, "something is wrong", Location("a.plan", 3, 3), about=names)
    proposed = list(repairs(finding, Text("mesh tp=2\nprogram\n  y = linear(a, w)\n")))
    assert least == 0 or proposed == []


WRONG_AXIS = """mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] dp:S(0)
input dh f32[8,16] dp:S(0) tp:S(1)
program
  h = linear(x, w)
  _, g = backward h (dh)
  r = all-reduce(g) over {axis}
  sgd_step(w!, r)
"""
KEYS = """mesh cp=2
input q f32[2,4,8,8]
input k f32[2,4,8,8] cp:S(2, order={order})
input v f32[2,4,8,8] cp:S(2, order={order})
output o
program
  o = scaled_dot_product_attention(q, k, v, is_causal=True)
"""


def _helped(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (here / "a.plan").write_text(text)
    main(["check", "a.plan", "--no-cache"])
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  help: ")]


def test_help_says_which_of_several_edits_repairs_the_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _helped(WRONG_AXIS.format(axis="tp"), here, capsys) == ["help: run it over `dp`"]
    assert _helped(WRONG_AXIS.format(axis="dp"), here, capsys) == []


ULYSSES = """mesh cp=2
input q f32[2,4,8,8] cp:S(2)
input k f32[2,4,8,8] cp:S(2)
input v f32[2,4,8,8] cp:S(2)
output r f32[2,4,8,8] cp:S(2)
program
  qh = all-to-all(q, dim=1, concat-dim=2) over cp
  kh = all-to-all(k, dim=1, concat-dim=2) over cp
  o = scaled_dot_product_attention(qh, kh, v)
  r = all-to-all(o, dim=2, concat-dim=1) over cp
"""
EXPERTS = """mesh edp=2 ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[8,16,8] edp:S(1) ep:S(1)
program
  d = all-to-all(x, dim=0, concat-dim=1) over edp
  h = bmm(d, w)
  y = all-to-all(h, dim=1, concat-dim=0) over ep
"""


def test_help_names_the_exchange_that_is_wrong_and_not_its_victim(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inserted = "help: insert `v_exchanged = all-to-all(v, dim=1, concat-dim=2) over cp` and read that"
    assert _helped(ULYSSES, here, capsys) == [inserted]
    helped = _helped(EXPERTS.replace("f32[8,16", "f32[4,16"), here, capsys)
    assert helped[:1] == ["help: run `d = all-to-all(x, dim=0, concat-dim=1) over edp` over `ep`"]


def test_help_that_names_an_edit_is_left_out_where_the_edit_fails(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _helped(KEYS.format(order="[[0,1],[2,3]]"), here, capsys)[0].startswith("help: gather")
    text = KEYS.format(order="[[0,3],[1,2]]")
    assert not any("`" in line for line in _helped(text, here, capsys))
