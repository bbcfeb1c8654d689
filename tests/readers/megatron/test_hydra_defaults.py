"""Configurations composed of several files: Hydra's `defaults:` and NeMo-RL's parent files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, SettingValue, Unknown
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

ENGINE = "tensor_model_parallel_size: 8\nsequence_parallel: true\nnum_attention_heads: 12\n"


def write(folder: Path, files: dict[str, str]) -> None:
    """The files, in their folders."""
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def composed(folder: Path, files: dict[str, str], name: str = "main.yaml") -> dict[str, Configuration]:
    """The configurations of one of the files, by section."""
    write(folder, files)
    document = read(str(folder / name))
    assert document is not None
    return {each.section: each for each in document.configurations}


def values(configuration: Configuration) -> dict[str, SettingValue | Unknown]:
    """The values of the settings."""
    return {name: setting.value for name, setting in configuration.settings.items()}


def test_a_finding_stands_in_the_file_itself_and_what_another_sets_is_related(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "main.yaml": "defaults:\n- engine@actor.engine: big\n- _self_\nactor:\n  engine:\n"
            "    tensor_model_parallel_size: 5\n    sequence_parallel: true\n",
            "engine/big.yaml": ENGINE,
        },
    )["actor.engine"]
    (finding,) = [
        each for each in evaluate(found, load_rules()) if isinstance(each, Finding) and each.rule == "heads-not-divisible-by-tp"
    ]
    assert finding.location.path.endswith("main.yaml")
    assert finding.location.line == 6
    assert [(place.location.path.rpartition("/")[2], place.location.line) for place in finding.related] == [("big.yaml", 3)]


def test_an_empty_file_adds_nothing(tmp_path: Path) -> None:
    main = "defaults: [p0]\na:\n  tensor_model_parallel_size: 4\n  sequence_parallel: true\n"
    assert values(composed(tmp_path, {"main.yaml": main, "p0.yaml": ""})["a"])["tensor_model_parallel_size"] == 4


def test_what_is_composed_of_others_is_nested_at_its_packages(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "main.yaml": "defaults:\n  - actor@worker.actor: fast\n  - _self_\nworker:\n  actor:\n    x: 1\n    megatron:\n"
            "      context_parallel_size: 2\n      sequence_parallel: false\n",
            "actor/fast.yaml": "defaults:\n  - ../engine@megatron: big\n  - base\n  - _self_\n"
            "megatron:\n  num_attention_heads: 16\n",
            "actor/base.yaml": "megatron:\n  num_attention_heads: 4\n  num_layers: 3\n",
            "engine/big.yaml": ENGINE,
        },
    )["worker.actor.megatron"]
    assert values(found) == {
        "tensor_model_parallel_size": 8,
        "sequence_parallel": False,
        "num_attention_heads": 16,
        "num_layers": 3,
        "context_parallel_size": 2,
    }


OWN = "a:\n  tensor_model_parallel_size: 2\n  context_parallel_size: 2\n"


@pytest.mark.parametrize(
    ("defaults", "tensor", "context"),
    [
        ("[b, _self_]", 2, 2),
        ("[_self_, b]", 4, 2),
        ("[b]", None, 2),
        ("[missing, _self_]", 2, 2),
        ("[_self_, missing]", None, None),
        ("[missing]", None, None),
        ("[_self_, {optional missing: x}]", 2, 2),
        ("[_self_, {missing@other: x}]", 2, 2),
        ("[_self_, {missing@a: x}]", None, None),
        ("[_self_, {missing: null}]", 2, 2),
        ("[_self_, {override hydra/launcher: x}]", 2, 2),
        ("[_self_, g]", 4, 2),
        ("parent.yaml", 2, 2),
        ("[parent.yaml, b.yaml]", 2, 2),
    ],
)
def test_the_later_one_wins_and_what_may_win_is_unknown(
    tmp_path: Path, defaults: str, tensor: int | None, context: int | None
) -> None:
    other = "a:\n  tensor_model_parallel_size: 4\n"
    found = composed(
        tmp_path,
        {
            "main.yaml": f"defaults: {defaults}\n{OWN}",
            "b.yaml": other,
            "parent.yaml": other,
            "g.yaml": "# @package a\ntensor_model_parallel_size: 4\n",
        },
    )["a"]
    for name, expected in (("tensor_model_parallel_size", tensor), ("context_parallel_size", context)):
        value = found.settings[name].value
        assert isinstance(value, Unknown) if expected is None else value == expected


def test_a_mapping_that_overrides_replaces_the_inherited_one(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "main.yaml": "defaults: parent.yaml\n" + OWN + "  _override_: true\n",
            "parent.yaml": "a:\n  num_layers: 3\n",
        },
    )["a"]
    assert set(found.settings) == {"tensor_model_parallel_size", "context_parallel_size"}


def test_an_interpolation_reaches_what_another_file_sets(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "main.yaml": "defaults: [sizes, _self_]\na:\n  tensor_model_parallel_size: ${size.tp}\n"
            "  context_parallel_size: 1\n",
            "sizes.yaml": "size:\n  tp: 16\n",
        },
    )["a"]
    assert found.settings["tensor_model_parallel_size"].value == 16
    assert found.settings["tensor_model_parallel_size"].location.path.endswith("sizes.yaml")


@pytest.mark.parametrize("name", ["../outside.yaml", "/etc/passwd.yaml", "link.yaml", "fifo.yaml", "folder.yaml", "large.yaml"])
def test_nothing_outside_the_project_is_opened(tmp_path: Path, name: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    other = "a:\n  num_layers: 3\n"
    write(project, {"main.yaml": f"defaults: {name}\n{OWN}", "large.yaml": other + "#" * (2 << 20)})
    (tmp_path / "outside.yaml").write_text(other, encoding="utf-8")
    os.symlink(tmp_path / "outside.yaml", project / "link.yaml")
    os.mkfifo(project / "fifo.yaml")
    (project / "folder.yaml").mkdir()
    document = read(str(project / "main.yaml"))
    assert document is not None
    assert [set(each.settings) for each in document.configurations] == [{"tensor_model_parallel_size", "context_parallel_size"}]


@pytest.mark.parametrize(
    "defaults",
    [
        "main.yaml",
        "[main, _self_]",
        "[other, _self_]",
        "[{override a: b}, _self_]",
        "[{a: '${b}'}, _self_]",
        "{a: b}",
        "[[a], _self_]",
        "[{a: b, c: d}, _self_]",
        "[" + ", ".join(f"{{g{number}@a: x}}" for number in range(100)) + "]",
    ],
)
def test_circles_and_forms_that_are_not_followed_leave_the_file_alone(tmp_path: Path, defaults: str) -> None:
    found = composed(
        tmp_path, {"main.yaml": f"defaults: {defaults}\n{OWN}", "other.yaml": "defaults: [main]\nb: 1\n", "b.yaml": "x: 1\n"}
    )
    assert set(found["a"].settings) == {"tensor_model_parallel_size", "context_parallel_size"}


def test_many_levels_of_parents_end(tmp_path: Path) -> None:
    files = {f"p{number}.yaml": f"defaults: [p{number + 1}, p{number + 1}, _self_]\nx: 1\n" for number in range(40)}
    assert values(composed(tmp_path, {**files, "main.yaml": f"defaults: [p0, _self_]\n{OWN}"})["a"]) == {
        "tensor_model_parallel_size": 2,
        "context_parallel_size": 2,
    }


BOMB = "b0: &b0 {x: 1}\n" + "".join(
    f"b{level}: &b{level} {{{', '.join(f'k{key}: *b{level - 1}' for key in range(10))}}}\n" for level in range(1, 12)
)


@pytest.mark.parametrize("defaults", ["[_self_, missing]", "[bomb, missing, _self_]", "[bomb, bomb, _self_]", "[bomb]"])
def test_aliases_of_aliases_end(tmp_path: Path, defaults: str) -> None:
    write(tmp_path, {"main.yaml": f"defaults: {defaults}\n{OWN}{BOMB}", "bomb.yaml": BOMB})
    document = read(str(tmp_path / "main.yaml"))
    assert document is not None
    assert "tensor_model_parallel_size" in document.configurations[0].settings


def test_the_parents_of_primus_come_before_the_file_itself(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "llama.yaml": "extends:\n- base.yaml\n- sizes.yaml\nsequence_parallel: true\nnum_attention_heads: 12\n",
            "base.yaml": "extends: language.yaml\nnum_attention_heads: 8\ncontext_parallel_size: 9\n",
            "language.yaml": "tensor_model_parallel_size: 2\nsequence_parallel: false\nnum_layers: 4\n",
            "sizes.yaml": "context_parallel_size: 2\n",
        },
        "llama.yaml",
    )[""]
    assert found.framework == "primus"
    assert values(found) == {
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
        "num_layers": 4,
        "num_attention_heads": 12,
        "context_parallel_size": 2,
    }
    assert found.settings["tensor_model_parallel_size"].location.path.endswith("language.yaml")


def test_a_file_with_parents_of_both_kinds_stands_alone(tmp_path: Path) -> None:
    found = composed(
        tmp_path,
        {
            "main.yaml": f"extends: engine.yaml\ndefaults: engine.yaml\n{ENGINE.replace('12', '16')}",
            "engine.yaml": f"num_layers: 4\n{ENGINE}",
        },
    )[""]
    assert values(found)["num_attention_heads"] == 16
    assert "num_layers" not in values(found)


GROUPS = {
    "base.yaml": "defaults:\n- model: small\n- engine@model.engine: small\n- _self_\n",
    "model/small.yaml": "num_layers: 24\ntensor_model_parallel_size: 2\ncontext_parallel_size: 2\n",
    "model/big.yaml": "num_layers: 48\ntensor_model_parallel_size: 4\ncontext_parallel_size: 2\n",
    "engine/small.yaml": "tensor_model_parallel_size: 8\npipeline_model_parallel_size: 1\n",
    "engine/big.yaml": "tensor_model_parallel_size: 16\npipeline_model_parallel_size: 1\n",
}


@pytest.mark.parametrize(
    ("override", "layers", "tensor"),
    [
        ("{}", 24, 8),
        ("override model: big", 48, 8),
        ("override /model: big", 48, 8),
        ("override engine@model.engine: big", 24, 16),
        ("override model: null", None, 8),
        ("override hydra/job_logging: none", 24, 8),
    ],
)
def test_an_override_chooses_what_another_file_takes_of_a_group(
    tmp_path: Path, override: str, layers: int | None, tensor: int
) -> None:
    line = "" if override == "{}" else f"- {override}\n"
    found = composed(tmp_path, {**GROUPS, "main.yaml": f"defaults:\n- base\n{line}- _self_\n"})
    assert found["model.engine"].settings["tensor_model_parallel_size"].value == tensor
    assert (found["model"].settings["num_layers"].value if "model" in found else None) == layers


def test_the_outermost_override_wins(tmp_path: Path) -> None:
    middle = "defaults:\n- base\n- override model: big\n- _self_\n"
    files = {**GROUPS, "middle.yaml": middle, "main.yaml": "defaults:\n- middle\n- override model: small\n- _self_\n"}
    assert composed(tmp_path, files)["model"].settings["num_layers"].value == 24
    assert composed(tmp_path, files, "middle.yaml")["model"].settings["num_layers"].value == 48


@pytest.mark.parametrize(
    "line", ["override engine: big", "override /optim: big", "override model@other: big", "ovveride model: big"]
)
def test_an_override_of_what_nobody_takes_leaves_the_file_alone(tmp_path: Path, line: str) -> None:
    write(tmp_path, {**GROUPS, "main.yaml": f"defaults:\n- base\n- {line}\n- _self_\n{OWN}"})
    document = read(str(tmp_path / "main.yaml"))
    assert document is not None
    assert [each.section for each in document.configurations] == ["a"]


def test_a_group_may_stand_where_its_file_stands_or_below_its_own_name(tmp_path: Path) -> None:
    files = {**GROUPS, "main.yaml": "defaults:\n- /model: small\n- engine@_here_: big\n"}
    found = composed(tmp_path, files)
    assert found["model"].settings["tensor_model_parallel_size"].value == 2
    assert found[""].settings["tensor_model_parallel_size"].value == 16
