"""Which framework a launch or a file of settings belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.cli import main
from tvlint.findings import Finding, Severity
from tvlint.frameworks.defaults import KEPT
from tvlint.frameworks.kin import FRAMEWORKS, KNOWN
from tvlint.frameworks.megatron import default, names
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.readers.megatron.detect_framework import framework_of_sections
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.judge import is_applicable
from tvlint.rulebook.pages import load_rules

PROGRAMS = {
    "pretrain_gpt.py": "from megatron.training import pretrain\n",
    "ds/pretrain_gpt.py": "import deepspeed\nfrom megatron.training import pretrain\n",
    "tools/train.py": "import torch\nfrom slime.ray import placement_group\n",
    "own.py": "import torch\nfrom megatron.core import parallel_state\n",
}


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("torchrun pretrain_gpt.py", "megatron-lm"),
        ("torchrun ds/pretrain_gpt.py", "megatron-deepspeed"),
        ("ray job submit -- python3 tools/train.py", "slime"),
        ("python own.py", "megatron-lm"),
        ("python gone.py --data-path /data/deepspeed/nemo/mindspeed", "megatron-lm"),
        ("python gone.py # primus", "megatron-lm"),
        ("python -m nemo.collections.llm.train", "nemo"),
        ("python /opt/MindSpeed-LLM/pretrain_gpt.py", "mindspeed"),
        ("python $HOME/Megatron-DeepSpeed/pretrain_gpt.py", "megatron-deepspeed"),
        ("python $REPOSITORY/pretrain_gpt.py", "megatron-lm"),
        ("deepspeed gone.py", "megatron-deepspeed"),
        ("torchrun gone.py --zero-stage 1", "megatron-deepspeed"),
        ("python gone.py --actor-num-nodes 2", "slime"),
        ("torchrun gone.py --use-mc2", "mindspeed"),
        ("torchrun gone.py --spec mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec", "mindspeed"),
        ("ASCEND_RT_VISIBLE_DEVICES=0 torchrun gone.py", "mindspeed"),
        ("torchrun gone.py --layerwise-disaggregated-training", "mindspeed-disaggregated"),
        ("torchrun gone.py --unaligned_linear --use-mc2", "mindspeed-unaligned"),
        ("NPROC_PER_NODE=8 megatron rlhf --external_plugins a.py", "ms-swift"),
    ],
)
def test_the_framework_is_that_of_the_program_that_runs(tmp_path: Path, command: str, framework: str) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command, _, comment = command.partition(" #")
    script = tmp_path / "scripts" / "run.sh"
    script.parent.mkdir()
    script.write_text(f"#{comment}\n{command} --tensor-model-parallel-size 3\n")
    document = read(str(script))
    assert document is not None
    assert [each.framework for each in document.configurations] == [framework]


@pytest.mark.parametrize(
    ("folder", "framework"), [("nemo", "nemo"), ("src/megatron/bridge", "megatron-bridge"), ("docs", "megatron-lm")]
)
def test_a_program_that_is_not_there_is_of_the_repository_around_it(tmp_path: Path, folder: str, framework: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts" / "verl").mkdir(parents=True)
    script = tmp_path / "scripts" / "deep" / "run.sh"
    script.parent.mkdir(parents=True)
    script.write_text("torchrun train.py --tensor-model-parallel-size 3 --num-layers 2\n")
    document = read(str(script))
    assert document is not None
    assert document.configurations[0].framework == framework


def test_what_holds_for_megatron_core_holds_for_what_runs_it_but_for_what_that_replaces() -> None:
    rules = load_rules()

    def holds(rule: str, framework: str, *settings: str) -> bool:
        given = {name: Setting(name, 1, name, Location("a"), Location("a")) for name in settings}
        return is_applicable(rules[rule], Configuration("a", "", framework, given))

    assert holds("heads-not-divisible-by-tp", "megatron-deepspeed")
    assert holds("balancing-lists-differ", "verl")
    assert not holds("async-save-ignored", "verl")
    assert not holds("layers-not-divisible-by-pp", "megatron-deepspeed")
    # neither option is in its parser
    assert not holds("aux-loss-without-coefficient", "megatron-deepspeed")
    assert not holds("experts-of-default-width", "megatron-deepspeed")
    assert holds("layers-not-divisible-by-pp", "mindspeed")
    assert holds("shared-experts-with-bias", "mindspeed")
    assert not holds("moe-bias-with-expert-tensor-parallel", "mindspeed")
    assert not holds("layers-not-divisible-by-pp", "mindspeed", "num_layer_list")
    assert not holds("full-recompute-without-method", "megatron-lm", "custom_pipeline_recompute_layers")
    assert holds("full-recompute-without-method", "megatron-lm", "recompute_granularity")


def test_the_table_of_frameworks_names_rules_and_settings_that_exist() -> None:
    rules = load_rules()
    for framework in FRAMEWORKS.values():
        named = {*framework.replaces, *(rule for own in framework.replaces_with.values() for rule in own)}
        assert named <= rules.keys()
        assert set(framework.runs) <= FRAMEWORKS.keys()
        assert framework.defaults <= set(names())


@pytest.mark.parametrize("framework", sorted(KNOWN))
def test_the_project_file_and_the_list_of_rules_know_each_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], framework: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tvlint.toml").write_text(f'framework = "{framework}"\n')
    assert main(["config", "verify"]) == 0
    capsys.readouterr()
    assert main(["rules", "--framework", framework]) == 0
    listed = capsys.readouterr().out
    assert ("\nbatch-size-below-one  " in listed) == (framework in FRAMEWORKS)


@pytest.mark.parametrize("framework", [name for name, row in FRAMEWORKS.items() if row.folders])
def test_a_program_in_a_folder_of_a_framework_is_of_that_framework(tmp_path: Path, framework: str) -> None:
    for folder in FRAMEWORKS[framework].folders:
        script = tmp_path / f"{folder}.sh"
        script.write_text(f"python /opt/{folder}/gone.py --tensor-model-parallel-size 3 --num-layers 4\n")
        document = read(str(script))
        assert document is not None
        assert document.configurations[0].framework == framework


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        ({"actor_rollout_ref", "data"}, "verl"),
        ({"trainer", "exp_manager", "model"}, "nemo"),
        ({"trainer", "inference", "tensor_model_parallel_size"}, "nemo"),
        ({"extends"}, "primus"),
        ({"policy", "cluster"}, "megatron-core"),
    ],
)
def test_the_framework_of_sections(keys: set[str], framework: str) -> None:
    assert framework_of_sections(keys) == framework


@pytest.mark.parametrize("framework", ["primus"])
def test_the_defaults_of_what_extends_the_parser_of_megatron_are_those_of_the_parser(framework: str) -> None:
    assert KEPT[framework]
    assert all(default(name) == value for name, value in KEPT[framework].items())


SWIFT = "NPROC_PER_NODE={ranks} \\\nmegatron sft {more} --pipeline_model_parallel_size 3 --sequence_parallel true\n"


def swift(ranks: str = "8", more: str = "") -> tuple[Configuration, set[str]]:
    document = read("sft.sh", SWIFT.format(ranks=ranks, more=more).encode())
    assert document is not None
    (found,) = document.configurations
    assert found.framework == "ms-swift"
    assert not found.complete
    return found, {each.rule for each in evaluate(found, load_rules()) if isinstance(each, Finding)}


def test_ms_swift_runs_as_many_processes_as_its_environment_says() -> None:
    assert swift()[0].settings["world_size"].value == 8
    assert swift("8 NNODES=2")[0].settings["world_size"].value == 16
    assert isinstance(swift("$N")[0].settings["world_size"].value, Unknown)
    assert isinstance(swift("8 NNODES=$M")[0].settings["world_size"].value, Unknown)


def test_what_a_command_of_ms_swift_leaves_out_has_the_default_that_it_keeps() -> None:
    assert "world-size-not-divisible" in swift()[1]
    assert "world-size-not-divisible" not in swift("6")[1]


@pytest.mark.parametrize("more", ["train.yaml", "$@", "$CONFIG", "${ARGS[@]}"])
def test_a_command_of_ms_swift_that_takes_settings_from_elsewhere_has_no_defaults(more: str) -> None:
    found, rules = swift(more=more)
    assert not found.command_complete
    assert "world-size-not-divisible" not in rules


@pytest.mark.parametrize(("method", "is_wrong"), [("--recompute-method uniform", False), ("", True)])
def test_the_parser_of_megatron_deepspeed_recomputes_one_layer_at_a_time_unless_told(method: str, is_wrong: bool) -> None:
    given = f"--num-layers 8 --tensor-model-parallel-size 2 --recompute-granularity full {method}"
    launch = f"deepspeed pretrain_gpt.py --deepspeed {given}\n"
    document = read("train.sh", launch.encode())
    assert document is not None
    (found,) = document.configurations
    assert found.framework == "megatron-deepspeed"
    rules = {each.rule for each in evaluate(found, load_rules()) if isinstance(each, Finding)}
    assert ("full-recompute-without-method" in rules) is is_wrong


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--save c --save-interval 0", set()),
        ("--save c", {"save-without-interval"}),
        ("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4", {"sizes-above-world-size"}),
        ("--tensor-model-parallel-size 8", {"sizes-above-world-size"}),
        ("--tensor-model-parallel-size 8 --num-attention-heads 6", {"sizes-above-world-size", "heads-not-divisible-by-tp"}),
        ("--tensor-model-parallel-size 3", {"ranks-not-divisible-by-cut-sizes"}),
        ("--tensor-model-parallel-size 1 --hidden-size 0", {"model-size-below-one"}),
        ("--tensor-model-parallel-size 1 --num-layers -1 --task_list lambada", set()),
    ],
)
def test_megatron_deepspeed_judges_sizes_in_its_own_way(given: str, expected: set[str]) -> None:
    sizes = "--num-layers 24 --hidden-size 3072 --num-attention-heads 12 --seq-length 64 --max-position-embeddings 64"
    launch = f"deepspeed --num_gpus 4 pretrain_gpt.py --deepspeed {sizes} --micro-batch-size 1 {given}\n"
    document = read("train.sh", launch.encode())
    assert document is not None
    (found,) = document.configurations
    results = [*evaluate(found, load_rules())]
    assert {each.rule for each in results if isinstance(each, Finding) and each.severity is not Severity.NOTE} == expected
