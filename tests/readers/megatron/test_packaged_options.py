"""Options of programs that a package installs: of all its versions, so that a slip of one alone is surely wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

SWIFT = "NPROC_PER_NODE=8 \\\nswift sft \\\n    --model a/b --train_type lora --per_device_train_batch_size 4"
FACTORY = "llamafactory-cli train --stage sft --finetuning_type lora --lora_target all --num_train_epochs 3"


def findings(folder: Path, script: str) -> list[tuple[str, str]]:
    (folder / ".git").mkdir(exist_ok=True)
    path = folder / "run.sh"
    path.write_text(script)
    document = read(str(path))
    return [] if document is None else [(each.rule, each.help) for each in document.findings]


@pytest.mark.parametrize(
    ("script", "old", "new", "found"),
    [
        (SWIFT, "", "", []),
        (SWIFT, "--train_type", "--train-type", []),
        (SWIFT, "--train_type", "--training_type", [("misspelled-option", "did you mean `--train_type`?")]),
        (SWIFT, "train_batch", "training_batch", [("misspelled-option", "did you mean `--per_device_train_batch_size`?")]),
        (SWIFT, "_size 4", "_size four", [("option-value-not-a-number", "write an integer")]),
        (SWIFT, "_size 4", "_size '<size>'", []),
        (SWIFT, "_size 4", "_size 4 --option_of_a_later_version 1", []),
        (SWIFT, "--train_type", "--train_typ", []),  # a beginning is taken for the name
        (SWIFT, "swift sft", "cd ../ms-swift && torchrun --nproc_per_node 8 swift/cli/sft.py", []),
        (
            SWIFT,
            "swift sft",
            "cd x; swift sft --dataset_nam_proc 4",
            [("misspelled-option", "did you mean `--dataset_num_proc`?")],
        ),
        (SWIFT, "swift sft", "swift_of_mine sft --training_type 1", []),
        (FACTORY, "", "", []),
        (FACTORY, "--lora_target", "--lora_targets", [("misspelled-option", "did you mean `--lora_target`?")]),
        (FACTORY, "--num_train_epochs", "--num_epochs", [("misspelled-option", "did you mean `--num_train_epochs`?")]),
        (FACTORY, "--stage sft", "--stage $1", []),
        (FACTORY, "llamafactory-cli train", "deepspeed ~/LLaMA-Factory/src/train_bash.py", []),
        (FACTORY, "llamafactory-cli train", "deepspeed src/train_bash.py --lora_targets q", []),
    ],
)
def test_options_of_a_package_are_those_of_all_its_versions(
    script: str, old: str, new: str, found: list[tuple[str, str]], tmp_path: Path
) -> None:
    assert findings(tmp_path, (script.replace(old, new) if old else script) + "\n") == found


def test_choices_are_those_that_all_versions_state(tmp_path: Path) -> None:
    ((rule, help),) = findings(tmp_path, f"{FACTORY} --lr_scheduler_type cosin\n")
    assert rule == "option-value-not-a-choice"
    assert help.startswith("one of `linear`, `cosine`")


def test_overrides_are_held_to_the_configuration_of_any_program_of_hydra(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ppo.yaml").write_text("actor:\n  sp_size: 1\n  kl:\n    coef: 0\n")
    (tmp_path / "train.py").write_text("import hydra\n@hydra.main(config_path='conf', config_name='ppo')\ndef main(c): ...\n")
    start = "torchrun --nproc_per_node=4 train.py actor.kl.coef=0"
    assert findings(tmp_path, f"{start} actor.sp_size=2\n") == []
    assert findings(tmp_path, f"{start} actor.spsize=2\n") == [("unknown-override", "did you mean `actor.sp_size`?")]
    assert findings(tmp_path, f"cd $WORK\n{start} actor.spsize=2\n") == []
