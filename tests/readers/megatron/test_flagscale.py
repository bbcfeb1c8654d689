"""Training files of FlagScale, whose sections make one command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

TRAIN = """\
system:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  use_distributed_optimizer: true
  precision:
    bf16: true
    fp16: false
  checkpoint:
    no_save_optim: true
model:
  num_layers: 4
  hidden_size: 512
  num_attention_heads: 8
  seq_length: 1024
  max_position_embeddings: 1024
  position_embedding_type: rope
  micro_batch_size: 4
  global_batch_size: 32
  train_iters: 10
  seed: 42
  optimizer:
    lr_scheduler:
      lr: 2.0e-5
      lr_decay_style: cosine
data:
  data_path: /data/pile
  tokenizer:
    tokenizer_type: AquilaTokenizerFS
    vocab_size: xxx
"""
EXPERIMENT = """\
defaults:
  - _self_
  - train: small
experiment:
  exp_name: small
  task: {type: train, backend: megatron}
  runner:
    nnodes: 1
    nproc_per_node: 8
"""


def training_file(folder: Path, text: str = TRAIN) -> tuple[Configuration, set[str]]:
    """Write a training file, and return its configuration and the rules of its findings."""
    path = folder / "conf/train/small.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    document = read(str(path))
    assert document is not None
    (found,) = document.configurations
    findings = [*document.findings, *(each for each in evaluate(found, load_rules()) if isinstance(each, Finding))]
    return found, {each.rule for each in findings if each.severity.value != "note"}


def test_the_sections_are_one_command_line(tmp_path: Path) -> None:
    found, rules = training_file(tmp_path)
    assert found.framework == "flagscale"
    assert found.complete
    values = {name: setting.value for name, setting in found.settings.items()}
    assert values["num_layers"] == 4
    assert values["lr_decay_style"] == "cosine"
    assert values["bf16"] is True
    assert values["fp16"] is False
    assert values["no_save_optim"] is True
    assert isinstance(values["vocab_size"], Unknown)
    assert not rules


def test_an_option_of_a_later_section_counts(tmp_path: Path) -> None:
    found, _ = training_file(tmp_path, TRAIN.replace("data:\n", "data:\n  seed: 7\n"))
    assert found.settings["seed"].value == 7
    assert [setting.value for setting in found.overridden] == [42]


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("num_attention_heads: 8", "num_attention_heads: 6", "heads-not-divisible-by-tp"),
        ("num_layers: 4", "num_layers: 5", "layers-not-divisible-by-pp"),
        ("fp16: false", "fp16: true", "fp16-and-bf16"),
        ("lr_decay_style: cosine", "lr_decay_style: cosin", "option-value-not-a-choice"),
        ("num_layers: 4", "num_layers: four", "option-value-not-a-number"),
        ("num_layers: 4", "num_layer: 4", "required-setting-missing"),
        ("train_iters: 10", "train_iters: 10\n  train_samples: 640", "iterations-and-samples-mixed"),
    ],
)
def test_what_megatron_refuses_is_found(tmp_path: Path, old: str, new: str, rule: str) -> None:
    assert old in TRAIN
    assert rule in training_file(tmp_path, TRAIN.replace(old, new))[1]


def test_meshes_of_several_devices_are_not_judged_by_the_sizes_beside_them(tmp_path: Path) -> None:
    meshes = "  hetero:\n    enable_hetero: true\n    hetero_process_meshes: [1, 1, 1, 2, 1]\nmodel:\n"
    text = TRAIN.replace("model:\n", meshes).replace("num_layers: 4", "num_layers: 5")
    path = tmp_path / "small.yaml"
    path.write_text(text)
    document = read(str(path))
    assert document is not None
    assert {each.framework for each in document.configurations} <= {"megatron-core"}


@pytest.mark.parametrize(("hosts", "ranks"), [("", 8), ("    hostfile: hosts\n", None)])
def test_an_experiment_says_how_many_ranks_its_training_file_has(tmp_path: Path, hosts: str, ranks: int | None) -> None:
    training_file(tmp_path)
    (tmp_path / ".git").mkdir()
    path = tmp_path / "conf/train.yaml"
    path.write_text(EXPERIMENT + hosts)
    document = read(str(path))
    assert document is not None
    (found,) = document.configurations
    assert found.framework == "flagscale"
    assert found.settings["world_size"].value == ranks if ranks else "world_size" not in found.settings


def test_other_programs_have_sections_of_these_names(tmp_path: Path) -> None:
    sizes = "  tensor_model_parallel_size: 1\n  pipeline_model_parallel_size: 1\n"
    text = f"system:\n{sizes}model:\n  resume: false\ndata:\n  seed: 1\n"
    path = tmp_path / "small.yaml"
    path.write_text(text)
    document = read(str(path))
    assert document is not None
    assert {each.framework for each in document.configurations} == {"megatron-core"}
