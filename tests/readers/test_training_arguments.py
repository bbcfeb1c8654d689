"""YAML of the training arguments of transformers: slips of their names, and values that they do not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

CHOICES = "one of `linear`, ..."
FILE = """model_name_or_path: a/b
output_dir: saves
learning_rate: 1.0e-5
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
num_train_epochs: 3.0
lr_scheduler_type: cosine
bf16: true
"""
CLASSES = (
    "from dataclasses import dataclass\nfrom typing import Literal, Optional\n"
    "@dataclass\nclass FinetuningArguments:\n    stage: Literal['pt', 'sft'] = 'sft'\n    lora_rank: int = 8\n"
    "    cutoff_len: int = 2048\n    kt_num_threads: Optional[int] = None\n"
)


def helps(text: str, folder: Path) -> list[tuple[str, str]]:
    path = folder / "examples" / "train.yaml"
    path.parent.mkdir(parents=True)
    (folder / ".git").mkdir(exist_ok=True)
    path.write_text(text)
    document = read(str(path))
    return [] if document is None else [(each.rule, each.help) for each in document.findings]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", []),
        ("learning_rate", "learnign_rate", [("misspelled-option", "did you mean `learning_rate`?")]),
        ("output_dir", "dir_output", [("misspelled-option", "did you mean `output_dir`?")]),
        ("output_dir", "output-dir", [("misspelled-option", "did you mean `output_dir`?")]),
        ("output_dir", "my_own_folder", []),
        ("bf16: true", "bf16: true\nlearning_rates: 1", []),
        ("_size: 1", "_size: 1x", [("option-value-not-a-number", "write a number")]),
        ("_size: 1", "_size: 0", [("option-value-out-of-range", "use 1 or more")]),
        ("_size: 1", "_size: ${SIZE}", []),
        ("cosine", "cosiine", [("option-value-not-a-choice", CHOICES)]),
        ("bf16: true", "bf16: flse", [("option-value-not-a-choice", "did you mean `false`?")]),
        ("bf16: true", "bf16: true\nwarmup_ratio: 1.5", [("option-value-out-of-range", "use a number from 0 to 1")]),
        ("per_device_train_batch_size: 1\n", "", []),
        ("cosine", "[cosine]", []),
    ],
)
def test_training_arguments(old: str, new: str, found: list[tuple[str, str]], tmp_path: Path) -> None:
    said = helps(FILE.replace(old, new) if old else FILE, tmp_path)
    assert [(rule, CHOICES if help.startswith("one of `linear`") else help) for rule, help in said] == found


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("stage: sft", ""),
        ("stage: sfft", "option-value-not-a-choice"),
        ("stage: ray", ""),
        ("lora_ranks: 8", "misspelled-option"),
        ("kt_num_threads: 8x", "option-value-not-a-number"),
        ("cutoff_len: -1", "option-value-out-of-range"),
    ],
)
def test_the_classes_of_llama_factory_around_the_file_count_too(line: str, rule: str, tmp_path: Path) -> None:
    assert [each for each, _ in helps(f"{FILE}{line}\n", tmp_path / "elsewhere")] == (
        [rule] if rule == "option-value-out-of-range" else []
    )
    folder = tmp_path / "tree" / "src" / "llamafactory" / "hparams"
    folder.mkdir(parents=True)
    (folder / "parser.py").write_text("from .finetuning_args import FinetuningArguments\n")
    (folder / "finetuning_args.py").write_text(CLASSES)
    assert [each for each, _ in helps(f"{FILE}{line}\n", tmp_path / "tree")] == ([rule] if rule else [])
