"""nnScaler's partition constraints and saved autodist plans: what is recognised, and what is told of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from shared import SHARED, needs_shared

from tvlint.findings import Finding
from tvlint.ir.operators import Compute
from tvlint.readers.nnscaler.gencode.traced_graph import read_graph
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

CONSTRAINT = "- name: torch.matmul\n  parent_module: Attention\n  allowed_partition_dims:{dims}\n  replica_allowed: {replica}\n"


def plan(steps: object = None, mesh: object = None) -> dict[str, object]:
    """A saved plan of one pipeline stage on two devices."""
    operators = [[3, steps if steps is not None else [[[0, 0], 2]]]]
    stage = {"partition_descs": operators, "recompute_groups": [], "mesh_desc": mesh or [1, 2], "analysis": {}}
    desc = {"spmd_descs": [stage], "recompute_groups": [], "mesh_desc": [1, 2]}
    return {"desc": desc, "e2e_time": 1.0, "stage_mems": [], "stage_all_times": [], "stage_comp_times": []}


def rules(text: str) -> list[str]:
    """The rules that speak while the file is read."""
    document = read("file", text.encode())
    assert document is not None
    return [finding.rule for finding in document.findings]


@pytest.mark.parametrize(
    ("dims", "replica", "expected"),
    [
        ("\n  - 0,1\n  - '1,0'", "false", []),
        (" ['0,1']", "true", []),
        (" []", "true", []),
        (" []", "false", ["constraint-allows-nothing"]),
        ("\n  - 0", "true", ["constraints-unreadable"]),
        ("\n  - [0, 1]", "true", ["constraints-unreadable"]),
        ("\n  - 0,x", "true", ["constraints-unreadable"]),
        (" 0,1", "true", ["constraints-unreadable"]),
        ("", "true", ["constraints-unreadable"]),
    ],
)
def test_the_dimensions_of_a_constraint(dims: str, replica: str, expected: list[str]) -> None:
    assert rules(CONSTRAINT.format(dims=dims, replica=replica)) == expected


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (plan(), []),
        (plan([[[-1, -1], 2]]), []),
        (plan([[[0, 0], 2], [[1, 0], 2]], [2, 2]), []),
        (plan([[[0, 0], 4]]), ["saved-plan-split-mismatch"]),
        (plan([[[0, -1], 2]]), ["saved-plan-split-mismatch"]),
        (plan([]), ["saved-plan-unreadable"]),
        (plan([[[0, 0], "2"]]), ["saved-plan-unreadable"]),
        ({key: value for key, value in plan().items() if key != "stage_mems"}, ["saved-plan-unreadable"]),
    ],
)
def test_the_splits_of_a_saved_plan(saved: dict[str, object], expected: list[str]) -> None:
    assert rules(json.dumps(saved)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "allowed_partition_dims: []\nname: x\n",
        "- a\n- allowed_partition_dims: []\n",
        "- allowed_partition_dims: []\n",
        '{"spmd_descs": []}',
        '{"desc": {"spmd_descs": [1]}, "e2e_time": 1}',
        '{"desc": {"spmd_descs": []}, "e2e_time": 1',
    ],
)
def test_what_is_not_surely_one_is_passed_over(text: str) -> None:
    assert read("file", text.encode()) is None


@pytest.mark.parametrize(("name", "found"), [("plan.json", True), ("../plan.json", False), ("{}", False), ("link.json", False)])
def test_a_plan_is_read_only_from_the_folder_of_the_configuration(tmp_path: Path, name: str, found: bool) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    for place in (folder, tmp_path):
        (place / "plan.json").write_text(json.dumps(plan()), encoding="utf-8")
    os.symlink(tmp_path / "plan.json", folder / "link.json")
    given = name.format(tmp_path / "plan.json")
    path = folder / "train.yaml"
    path.write_text(
        "compute_config:\n  plan_ngpus: 4\n  use_end2end: true\n  pas_config:\n"
        f"    load_plan_path: {given}\nmicro_batch_size: 2\nmax_epochs: 1\n",
        encoding="utf-8",
    )
    document = read(str(path))
    assert document is not None
    (configuration,) = document.configurations
    findings = [each for each in evaluate(configuration, load_rules()) if isinstance(each, Finding)]
    assert [finding.rule for finding in findings] == (["saved-plan-for-other-gpus"] if found else [])
    assert ("saved_plan_devices" in configuration.settings) is found


@needs_shared
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({0: [[[0, 7], 2]]}, "has no dimension 7 in 2 parts"),
        ({0: [[[9, 0], 2]]}, "whose input 9 is no tensor"),
        ({0: [[[0, 0], 1000]]}, "has no dimension 0 in 1000 parts"),
        ({0: None}, "says nothing of 1 operator"),
        ({-1: [[[0, 0], 2]]}, "has no operator of that number"),
        ({-1: [[[-1, -1], 2]]}, ""),
    ],
)
def test_a_saved_plan_goes_with_the_traced_graph_beside_it(tmp_path: Path, change: dict[int, object], said: str) -> None:
    assert SHARED is not None
    graph = next((SHARED / "plans" / "gencode").glob("v08--mlp_dp_*zero2g")) / "graph.ckp"
    shutil.copyfile(graph, tmp_path / "graph.ckp")
    numbers = [int(one.label.split()[1]) for one in _operators(graph)]
    saved = plan()
    stage = saved["desc"]["spmd_descs"][0]  # type: ignore[index]
    whole: dict[int, object] = {number: [[[-1, -1], 2]] for number in numbers}
    whole.update({numbers[place] if place >= 0 else 4321: steps for place, steps in change.items()})
    stage["partition_descs"] = [[number, steps] for number, steps in whole.items() if steps is not None]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(saved), encoding="utf-8")
    document = read(str(path))
    assert document is not None
    found = [finding.message for finding in document.findings if "traced graph" in finding.message]
    assert len(found) == bool(said)
    assert all(said in message for message in found)
    (tmp_path / "graph.ckp").write_bytes(b"no graph")
    again = read(str(path))
    assert again is not None
    assert not any("traced graph" in finding.message for finding in again.findings)


LINEAR = "torch.nn.functional.linear"


@needs_shared
@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        (LINEAR, "0,0", ""),
        (LINEAR, "1,1", ""),
        (LINEAR, "2,1", ""),
        (LINEAR, "1,2", "its tensor 1 has shape"),
        (LINEAR, "5,0", "it has 2 inputs and 1 output"),
        ("torch.nn.functional.softmax", "0,3", "keeps dimension 3 of tensor 0 whole"),
        ("torch.nn.functional.softmax", "0,1", ""),
        ("model.llama3.model.apply_mask", "1,0", "keeps dimension 0 of tensor 1 whole"),
        ("model.llama3.model.apply_mask", "1,3", ""),
        ("torch.Tensor.view", "0,2", ""),
        ("torch.pow", "1,0", "its input 1 is no tensor"),
        ("torch.linear", "0,0", "has no operator `torch.linear`"),
    ],
)
def test_a_constraint_goes_with_the_traced_graph_beside_it(tmp_path: Path, name: str, allowed: str, expected: str) -> None:
    assert SHARED is not None
    graph = next((SHARED / "plans" / "gencode").glob("v08--llama3_dp_*")) / "graph.ckp"
    path = tmp_path / "constraints.yaml"
    text = CONSTRAINT.format(dims=f"\n  - '{allowed}'", replica="true").replace("torch.matmul", name)
    path.write_text(text, encoding="utf-8")
    assert [finding.message for finding in _findings(path) if not finding.message.endswith("has 2 dimensions")] == []
    shutil.copyfile(graph, tmp_path / "graph.ckp")
    found = _findings(path)
    assert len(found) == bool(expected)
    assert all(expected in finding.message for finding in found)
    (tmp_path / "graph.ckp").write_bytes(b"no graph")
    assert not any(finding.related for finding in _findings(path))


@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        ("linear", "0,0", ["constraint-of-no-operator"]),
        (LINEAR, "1,2", ["constraint-of-no-dimension"]),
        (LINEAR, "1,1", []),
        (LINEAR, "0,7", []),
        ("a.b", "9,9", []),
    ],
)
def test_what_no_model_has_is_told_without_a_graph(name: str, allowed: str, expected: list[str]) -> None:
    text = CONSTRAINT.format(dims=f"\n  - '{allowed}'", replica="true").replace("torch.matmul", name)
    assert rules(text) == expected


def _findings(path: Path) -> tuple[Finding, ...]:
    document = read(str(path))
    assert document is not None
    return document.findings


def _operators(graph: Path) -> list[Compute]:
    traced = read_graph(str(graph), graph.read_bytes())
    return [one for one in traced.segments["forward"].operators if isinstance(one, Compute) and one.label.startswith("cell ")]
