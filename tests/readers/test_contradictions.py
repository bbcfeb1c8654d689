"""Training arguments that transformers refuses beside one another, in YAML and on command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

BEGIN = {
    "model_name_or_path": "a/b",
    "output_dir": "saves",
    "learning_rate": "1.0e-5",
    "per_device_train_batch_size": "1",
    "gradient_accumulation_steps": "2",
    "num_train_epochs": "3.0",
    "lr_scheduler_type": "cosine",
}
BEST = {"load_best_model_at_end": "true"}
TRUE_AND_FALSE = [
    ({"bf16": "true"}, ""),
    ({"bf16": "true", "fp16": "false"}, ""),
    ({"bf16": "true", "fp16": "true"}, "keep one of the two"),
    ({"bf16_full_eval": "true", "fp16_full_eval": "true"}, "keep one of the two"),
    ({"bf16": "true", "fp16_full_eval": "true"}, ""),
    ({"eval_strategy": "epoch", "save_strategy": "steps"}, ""),
    ({**BEST, "save_strategy": "steps"}, ""),
    ({**BEST, "eval_strategy": "epoch", "save_strategy": "epoch"}, ""),
    ({**BEST, "eval_strategy": "epoch", "save_strategy": "steps"}, "save as often as you evaluate"),
    ({**BEST, "eval_strategy": "epoch", "save_strategy": "best"}, ""),
    ({**BEST, "eval_strategy": "epoch", "save_strategy": "$SAVE"}, ""),
    ({**BEST, "eval_strategy": "steps", "save_strategy": "steps", "eval_steps": "100", "save_steps": "300"}, ""),
    (
        {**BEST, "evaluation_strategy": "steps", "save_strategy": "steps", "eval_steps": "100", "save_steps": "250"},
        "save every 200 steps",
    ),
    ({**BEST, "eval_strategy": "epoch", "save_strategy": "epoch", "eval_steps": "100", "save_steps": "250"}, ""),
]


@pytest.mark.parametrize(("more", "help"), TRUE_AND_FALSE)
@pytest.mark.parametrize("is_yaml", [True, False])
def test_what_transformers_refuses_is_an_error(more: dict[str, str], help: str, is_yaml: bool, tmp_path: Path) -> None:
    given = {**BEGIN, **more}
    (tmp_path / ".git").mkdir()
    path = tmp_path / ("train.yaml" if is_yaml else "train.sh")
    words = " ".join(f"--{name} {value}" for name, value in given.items())
    path.write_text("".join(f"{name}: {value}\n" for name, value in given.items()) if is_yaml else f"swift sft {words}\n")
    document = read(str(path))
    found = [] if document is None else [(each.rule, each.help) for each in document.findings]
    assert found == ([("contradictory-arguments", help)] if help else [])
