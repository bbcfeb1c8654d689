"""Which framework a launch or a file of settings belongs to."""

from __future__ import annotations

import pytest

from tvlint.framework_defaults import KEPT
from tvlint.megatron_options import default
from tvlint.readers.megatron_frameworks import framework_of_script, framework_of_sections


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
