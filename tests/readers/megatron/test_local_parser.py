"""Parsers of programs that other functions and files fill, and those made of data classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

SCRIPT = "torchrun --nproc_per_node 8 train.py OPTIONS\n"


def findings(folder: Path, given: str, script: str = SCRIPT, **files: str) -> list[str]:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    path = folder / "run.sh"
    path.write_text(script.replace("OPTIONS", given))
    document = read(str(path))
    return [] if document is None else [each.message for each in document.findings]


IN_A_FUNCTION = """
import argparse
from options import add_more
import shared.words as words
def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero_stage", type=int, default=2)
    return parser
def main():
    parser = get_parser()
    parser = add_more(parser)
    words.add_words(group=parser)
    args = parser.parse_args()
"""
OPTIONS = """
def add_more(parser):
    for prefix in ("actor", "critic"):
        parser.add_argument(f"--{prefix}.optim", choices=["adam", "muon"])
    group = parser.add_argument_group("batches")
    group.add_argument("--micro_batch_size", type=int, default=4)
    return parser
"""
WORDS = """
def add_words(group):
    group.add_argument("--share", type=float, default=0.5)
"""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--zero_stage 3 --actor.optim adam --critic.optim muon --micro_batch_size 1 --share 0.1", []),
        ("--actor.optim_ adam", ["`train.py` has no option `--actor.optim_`"]),
        ("--reward.optim adam", ["`train.py` has no option `--reward.optim`"]),
        ("--share half", ["`--share` takes a number, not `half`"]),
        ("--zero_stage 7", ["`--zero_stage` is 7"]),
        ("--micro_batch_size 0", ["`--micro_batch_size` is 0"]),
    ],
)
def test_functions_that_the_parser_is_handed_to_are_followed(options: str, found: list[str], tmp_path: Path) -> None:
    files = {"train": IN_A_FUNCTION, "options": OPTIONS, "shared__words": WORDS}
    assert findings(tmp_path, options, **files) == found


@pytest.mark.parametrize(
    "instead",
    [
        ("from options import add_more", "from elsewhere import add_more"),
        ("add_more(parser)", "add_more(*[parser])"),
        ("return parser\ndef main", "return parser if parser else None\ndef main"),
        ("words.add_words(group=parser)", "parsers = [parser]"),
        ("words.add_words(group=parser)", "words.nothing(group=parser)"),
        ("parser = get_parser()", "parser = get_parser() or None"),
        ("args = parser.parse_args()", "args, rest = parser.parse_known_args()"),
        ("def get_parser", "@decorated\ndef get_parser"),
    ],
)
def test_a_parser_that_leaves_the_checkout_is_not_judged(instead: tuple[str, str], tmp_path: Path) -> None:
    files = {"options": OPTIONS, "shared__words": WORDS}
    assert len(findings(tmp_path, "--cows 1", train=IN_A_FUNCTION, **files)) == 1
    assert instead[0] in IN_A_FUNCTION
    assert findings(tmp_path / "changed", "--cows 1", train=IN_A_FUNCTION.replace(*instead), **files) == []


def test_a_program_whose_function_in_another_file_asks_is_judged(tmp_path: Path) -> None:
    program = "from cli.main import run\nrun()\n"
    asked = (
        "import argparse\ndef run():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--seed')\n"
        "    parser.parse_args()\ndef other(parser):\n    parser.add_argument('--cows')\n"
    )
    assert findings(tmp_path, "--seed 1 --cows 2", train=program, cli__main=asked) == ["`train.py` has no option `--cows`"]


OF_CLASSES = """
import transformers
from dataclasses import dataclass, field
from typing import List, Literal, Optional
from shared import Shared
@dataclass
class Model(Shared):
    freeze_mlp: bool = field(default=False, metadata={"help": "whether"})
    kind: Literal["llm", "vlm"] = "llm"
    sizes: Optional[List[int]] = None
    max_seq_length: int | None = field(default=2048)
    train_data: str = field(default=None, metadata={"help": "files", "nargs": "+"})
@dataclass
class TrainingArguments(BASE):
    vision_lr: Optional[float] = None
def train():
    parser = transformers.HfArgumentParser((Model, TrainingArguments))
    parser.parse_args_into_dataclasses()
train()
"""
SHARED = "class Shared:\n    model_name: Optional[str] = None\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--freeze_mlp --kind vlm --sizes 1 2 --max_seq_length 8 --vision_lr 1e-4 --bf16 True --model-name a", []),
        ("--train_data a b", []),
        ("--no_freeze_mlp --learning_rate 1e-4 --lr_scheduler_type cosine --deepspeed a.json --num_train_epochs 0.5", []),
        ("--freze_mlp True", ["`train.py` has no option `--freze_mlp`"]),
        ("--gradient_accumulation_step 2 --learning_rat 1", []),
        ("--gradient_accumulation_stesp 2", ["`train.py` has no option `--gradient_accumulation_stesp`"]),
        ("--bf16 Tru", ["`--bf16` does not take `Tru`"]),
        ("--kind lllm", ["`--kind` does not take `lllm`"]),
        ("--sizes 1 two", ["`--sizes` takes an integer, not `two`"]),
        ("--lr_scheduler_type cosiine", ["`--lr_scheduler_type` does not take `cosiine`"]),
        ("--warmup_ratio 1.5", ["`--warmup_ratio` is 1.5"]),
        ("--per_device_train_batch_size 0", ["`--per_device_train_batch_size` is 0"]),
        ("--num_train_epochs -1", ["`--num_train_epochs` is -1.0"]),
        ("--num_train_epochs 0", []),
        ("--max_seq_length -8", ["`--max_seq_length` is -8"]),
        ("--train_device_per_batch_size 1", ["`train.py` has no option `--train_device_per_batch_size`"]),
    ],
)
def test_fields_of_data_classes_are_options(options: str, found: list[str], tmp_path: Path) -> None:
    program = OF_CLASSES.replace("BASE", "transformers.TrainingArguments")
    assert findings(tmp_path, options, train=program, shared=SHARED) == found


def test_options_of_another_version_are_left_alone_but_not_where_all_classes_are_there(tmp_path: Path) -> None:
    program = OF_CLASSES.replace("BASE", "transformers.TrainingArguments")
    assert findings(tmp_path, "--cows 1", train=program, shared=SHARED) == []
    assert findings(tmp_path / "all", "--cows 1", train=OF_CLASSES.replace("(BASE)", ""), shared=SHARED) == [
        "`train.py` has no option `--cows`"
    ]
    elsewhere = OF_CLASSES.replace("BASE", "elsewhere.Arguments")
    taken = "--cows 1 --report_to a b --bf16 --fsdp full_shard auto_wrap --warmup_ratio 0.1 --optim galore"
    assert findings(tmp_path / "other", taken, train=elsewhere, shared=SHARED) == []
    of_its_own = OF_CLASSES.replace("(BASE)", "").replace(
        "vision_lr: Optional[float] = None", "lr: float = HfArg(aliases='-l')"
    )
    assert findings(tmp_path / "own", "--cows 1", train=of_its_own, shared=SHARED) == []
    assert findings(tmp_path / "wrong", "--freze_mlp --warmup_ratio 2 --cows 1", train=elsewhere, shared=SHARED) == [
        "`train.py` has no option `--freze_mlp`",
        "`--warmup_ratio` is 2.0",
    ]


def test_a_parser_that_passes_over_other_options_has_slips_all_the_same(tmp_path: Path) -> None:
    passing = OF_CLASSES.replace("(BASE)", "").replace("dataclasses()", "dataclasses(return_remaining_strings=True)")
    said = findings(tmp_path, "--freze_mlp --cows 1 --max_seq_length 0", train=passing, shared=SHARED)
    assert said == ["`train.py` has no option `--freze_mlp`", "`--max_seq_length` is 0"]
    other = passing.replace("return_remaining_strings=True", "args=WORDS")
    assert findings(tmp_path / "other", "--freze_mlp", train=other, shared=SHARED) == []


def test_a_package_that_is_started_as_a_module_is_its_main_file(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__main__.py").write_text(OF_CLASSES.replace("(BASE)", "").replace("from shared", "from .shared"))
    said = findings(tmp_path, "--freze_mlp", "cmd='torchrun -m tools OPTIONS'\neval $cmd\n", tools__shared=SHARED)
    assert said == ["`__main__.py` has no option `--freze_mlp`"]


def test_a_number_that_the_program_itself_has_is_no_mistake(tmp_path: Path) -> None:
    program = OF_CLASSES.replace("(BASE)", "").replace("2048", "-1")
    assert findings(tmp_path, "--max_seq_length -1", train=program, shared=SHARED) == []


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("srun --container_image a.sqsh bash -c 'torchrun train.py --x 1'\n", ["`srun` has no option `--container_image`"]),
        ("srun --per-ntasks-node 8 python -u train.py --x 1\n", ["`srun` has no option `--per-ntasks-node`"]),
        ("srun --ntasks-per-node=8 --quotatype=a singularity exec --overlay a python train.py --x 1\n", []),
        ("srun --mpi=pmix torchrun --nproc_per_nod 8 --nnodes 2 train.py --x 1\n", []),
        ("srun --mpi=pmix torchrun --nproc_par_node 8 train.py --x 1\n", ["`torchrun` has no option `--nproc_par_node`"]),
    ],
)
def test_each_launcher_of_a_command_is_held_to_its_options(script: str, found: list[str], tmp_path: Path) -> None:
    assert findings(tmp_path, "", script) == found


def test_packages_below_src_and_folders_that_are_looked_for_are_followed(tmp_path: Path) -> None:
    (tmp_path / "src" / "shared").mkdir(parents=True)
    (tmp_path / "src" / "shared" / "__init__.py").write_text(SHARED)
    script = 'HERE="$( cd "$(dirname "$0")" && pwd )"\nrun="torchrun train.py OPTIONS"\neval $run\n'
    program = OF_CLASSES.replace("(BASE)", "")
    assert findings(tmp_path, "--model_nam a --cows 1", script, train=program) == ["`train.py` has no option `--cows`"]
    assert findings(tmp_path / "moved", "--cows 1", f"bash -c 'cd a; x'\n{script}", train=program, shared=SHARED) == []
