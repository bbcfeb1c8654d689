"""Which framework a launch or a file of settings belongs to."""

from __future__ import annotations

import pytest

from tvlint.findings import Finding
from tvlint.frameworks.defaults import KEPT
from tvlint.frameworks.megatron import default
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.megatron.detect_framework import framework_of_script, framework_of_sections
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules


@pytest.mark.parametrize(
    ("text", "flags", "framework"),
    [
        ("torchrun pretrain_gpt.py", (), "megatron-lm"),
        ("NPROC_PER_NODE=8 \\\nmegatron rlhf --external_plugins a.py", (), "ms-swift"),
        ("# megatron sft\ntorchrun pretrain_gpt.py", (), "megatron-lm"),
        ("python scripts/run.py # Megatron-Bridge", (), "megatron-bridge"),
        ("torchrun posttrain.py", ("--use-mc2",), "mindspeed"),
        (
            "torchrun p.py --layerwise-disaggregated-training",
            ("--layerwise-disaggregated-training",),
            "mindspeed-disaggregated",
        ),
        ("torchrun p.py --unaligned_linear", ("--unaligned_linear", "--use-mc2"), "mindspeed-unaligned"),
        ("deepspeed pretrain_gpt.py", (), "megatron-deepspeed"),
    ],
)
def test_the_framework_of_a_script(text: str, flags: tuple[str, ...], framework: str) -> None:
    assert framework_of_script(text, "", flags) == framework


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


@pytest.mark.parametrize("framework", ["mindspeed", "primus"])
def test_the_defaults_of_what_extends_the_parser_of_megatron_are_those_of_the_parser(framework: str) -> None:
    assert KEPT[framework]
    assert all(default(name) == value for name, value in KEPT[framework].items())


SWIFT = "NPROC_PER_NODE={ranks} \\\nmegatron sft {more} --tensor_model_parallel_size 3 --sequence_parallel true\n"


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
