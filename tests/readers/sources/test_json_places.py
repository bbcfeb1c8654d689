"""What is said of a plan in JSON stands at the line of its operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tvlint.cli import main
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as plan_json

PLAN = """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
output y
program
  p = linear(x, w)
  y = relu(p)
"""


def test_a_finding_has_the_line_of_its_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_text.read("plan.plan", PLAN).plan
    assert plan is not None
    document = json.loads(plan_json.write(plan))
    for segment in document["segments"].values():
        for operator in segment["operators"]:
            operator.pop("source", None)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document, indent=1))
    assert main(["check", str(path), "-o", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["pointer"].endswith("/operators/1")
    following = path.read_text().splitlines()[finding["line"] - 1 :]
    assert '"relu"' in next(line for line in following if '"op"' in line)
