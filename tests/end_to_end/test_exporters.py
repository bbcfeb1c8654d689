"""The programming interface: the worked example runs, its plans are what the schema allows, and mistakes are named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from shared import ROOT

from tests.builders.schema_reference import reference
from tvlint import api
from tvlint.reporters import FORMATS

SCHEMA = json.loads((ROOT / "schemas" / "plan.schema.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "exporters.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The names that the page's blocks define; running them asserts what they assert."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python exporter\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "docs/exporters.md", "exec"), names)
    return names


def test_the_page_runs_and_shows_a_proof_and_a_refutation(example: dict[str, Any]) -> None:
    assert example["verdict"].outcome.value == "proved"
    [verdict] = example["report"].verdicts
    assert [reason.name for reason in verdict.reasons] == ["missing-allreduce"]
    assert (verdict.reasons[0].location.path, verdict.reasons[0].location.line) == ("model.py", 6)


def test_its_plans_are_what_the_schema_allows(example: dict[str, Any]) -> None:
    for name in ("reference", "parallel", "broken"):
        jsonschema.validate(example[name].document, SCHEMA, jsonschema.Draft202012Validator)
        assert api.read(example[name].text, example[name].name) == example[name]


@pytest.mark.parametrize("format", FORMATS)
def test_a_report_is_rendered_in_every_format(example: dict[str, Any], format: str) -> None:
    assert "missing-allreduce" in api.render(example["report"], format, plans=(example["broken"],))


def test_plans_need_no_file_and_leave_none(example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert example["mlp"]("alone", 1, 2).name == "alone"
    assert {finding.rule for finding in api.check(example["broken"]).findings} == {"partial-through-nonlinear"}
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_is_none_names_what_is_wrong() -> None:
    with pytest.raises(api.PlanError, match="segment") as caught:
        api.plan("p", {}, {}, [api.program([api.step("forward")])])
    assert caught.value.problems[0].location.path == "p.plan.json"
    with pytest.raises(ValueError, match="no format `pdf`"):
        api.render(api.check(), "pdf")


def test_two_plans_of_one_name_are_refused(example: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="two plans are named `single`"):
        api.prove(example["mlp"]("single", 1, 2), example["reference"])


def test_every_operator_of_the_schema_can_be_built() -> None:
    at = api.source("model.py", 3, "x = f(y)")
    built = [
        api.compute("torch.add", ["a", 2], ["b"], at=at, alpha=1.5),
        api.backward("forward", 0, ["db"], ["da", None]),
        api.collective("reduce-scatter", ["a"], ["b"], ("dp", "tp"), dim=0, handle="h"),
        api.collective("all-gather", ["a"], ["b"], (0, 1), dim=0),
        api.wait("h"),
        api.send("a", 3, tag=1),
        api.receive("a", ("pp", -1), handle="h"),
        api.reduce_gradients(["w"], "dp", divisor=2),
        api.update(["w"]),
    ]
    for each in built:
        jsonschema.validate(each, {"$ref": "#/$defs/operator", "$defs": SCHEMA["$defs"]}, jsonschema.Draft202012Validator)
    tensors = {"$ref": "#/$defs/tensor", "$defs": SCHEMA["$defs"]}
    for part in (api.weight([2], placements={"tp": api.REPLICATE}), api.input([2], "int64", {"dp": api.PARTIAL}, whole=[2])):
        jsonschema.validate(part, tensors, jsonschema.Draft202012Validator)


def test_the_reference_of_the_schema_is_made_from_it(request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs" / "plan-schema.md"
    if request.config.getoption("--update-golden"):
        page.write_text(reference(SCHEMA), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference(SCHEMA)
