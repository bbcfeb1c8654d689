"""Options that the parser of a launch does not have."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from benchmarks.fork_options import options_in
from tvlint.frameworks import megatron
from tvlint.ir.configuration import Unknown
from tvlint.readers.megatron.unknown_options import nearest
from tvlint.readers.read import read
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project

SIZES = (
    "--micro-batch-size 1 --lr 1e-4 --bf16 --train-iters 5 --num-layers 8 --hidden-size 64 --num-attention-heads 4"
    " --seq-length 64 --max-position-embeddings 64"
)
PARSER = """
import argparse
def add(parser):
    group = parser.add_argument_group("sizes")
    group.add_argument("--tensor-model-parallel-size", type=int)
    group.add_argument("--micro-batch-size", type=int)
    group.add_argument("--train_iters", type=int)
    return parser
def parse():
    return add(argparse.ArgumentParser(allow_abbrev=False)).parse_args()
"""


def findings(script: Path) -> list[tuple[str, str, str]]:
    document = read(str(script))
    assert document is not None
    return [(each.rule, each.message, each.help) for each in document.findings]


def checkout(folder: Path, parser: str = PARSER, program: str = "from megatron.arguments import parse\nparse()\n") -> Path:
    (folder / ".git").mkdir()
    (folder / "megatron").mkdir()
    (folder / "megatron" / "__init__.py").write_text("")
    (folder / "megatron" / "arguments.py").write_text(parser)
    (folder / "pretrain_gpt.py").write_text(program)
    (folder / "examples").mkdir()
    return folder / "examples" / "train.sh"


def test_the_source_of_the_program_decides_which_options_there_are(tmp_path: Path) -> None:
    script = checkout(tmp_path)
    script.write_text("python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --train-iters 5 --cows 1\n")
    assert findings(script) == [
        ("unknown-option", "`pretrain_gpt.py` has no option `--train-iters`", "did you mean `--train_iters`?"),
        ("unknown-option", "`pretrain_gpt.py` has no option `--cows`", "remove it, or have the program take it"),
    ]


@pytest.mark.parametrize("here", ["", "examples", "..", "elsewhere"])
@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_script_that_names_its_own_folder_is_judged_the_same_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, is_absolute: bool
) -> None:
    """What was there before a change is checked in another folder than what is there now: it must say the same."""
    script = checkout(tmp_path)
    (tmp_path / "examples" / "train.py").write_text("from megatron.arguments import parse\nparse()\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text("# takes --cows\n")
    options = "--tensor-model-parallel-size 2 --micro-batch-size 1 --cows 1"
    script.write_text(f'HERE=$(dirname "$0")\npython $HERE/train.py {options}\n')
    monkeypatch.chdir(tmp_path / here)
    named = script if is_absolute else Path(os.path.relpath(script))
    assert [message for _, message, _ in findings(named)] == ["`train.py` has no option `--cows`"]


@pytest.mark.parametrize("start", ["../pretrain_gpt.py", "$ROOT/pretrain_gpt.py", "examples/../pretrain_gpt.py"])
def test_the_program_is_found_from_the_folders_around_the_script(tmp_path: Path, start: str) -> None:
    script = checkout(tmp_path)
    script.write_text(f"python {start} --tensor-model-parallel-size 2 --micro-batch-size 1 --cows 1\n")
    assert [rule for rule, _, _ in findings(script)] == ["unknown-option"]


@pytest.mark.parametrize(
    "command",
    [
        'HOME_OF="<path/to/megatron>"\neval "python -u $HOME_OF/pretrain_gpt.py $OPTIONS"\n',
        'eval "python -u <path/to/megatron>/pretrain_gpt.py $OPTIONS > log.txt"\n',
        'eval "python -u pretrain_gpt.py $OPTIONS <in.txt >out.txt"\n',
    ],
)
def test_the_program_is_found_in_a_folder_that_is_still_to_be_filled_in(tmp_path: Path, command: str) -> None:
    script = checkout(tmp_path)
    script.write_text(f"OPTIONS='--tensor-model-parallel-size 2 --micro-batch-size 1 --train-iters 5'\n{command}")
    assert [help for _, _, help in findings(script)] == ["did you mean `--train_iters`?"]


@pytest.mark.parametrize(
    ("before", "is_of_this_tree"),
    [
        ("M=/work/$USER/Megatron-LM", False),
        ("M=/work/Megatron-LM", False),
        ("M=$HOME/Megatron-LM", False),
        ("M=$(cd $(dirname $0)/..; pwd)", True),
        ("M=`dirname $0`/..", True),
        ("M=$(dirname $(dirname $0))", True),
        ("M=$SOMEWHERE", True),
    ],
)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_program_of_another_tree_is_not_held_to_the_parser_of_this_one(
    before: str, is_of_this_tree: bool, depth: int, tmp_path: Path
) -> None:
    script = checkout(tmp_path).parent.parent.joinpath(*["examples", "a", "b"][:depth], "train.sh")
    script.parent.mkdir(parents=True, exist_ok=True)
    start = before.replace("..", "/".join([".."] * depth))
    start = start.replace("$(dirname $(", "$(dirname " * depth + "$(").replace("$0))", "$0)" + ")" * depth)
    options = "--tensor-model-parallel-size 2 --micro-batch-size 1 --cows 1"
    script.write_text(f"{start}\npython $M/pretrain_gpt.py {options}\n")
    assert [rule for rule, _, _ in findings(script)] == ["unknown-option"] * is_of_this_tree


@pytest.mark.parametrize(
    "program",
    [
        'from megatron.arguments import parse\nNAME = "x"\ndef more(p): p.add_argument(f"--{NAME}")\n',
        "from megatron.arguments import parse\nparse(ignore_unknown_args=True)\n",
        "from megatron.arguments import parse\nfrom mindspeed import megatron_adaptor\n",
        'from megatron.arguments import parse\ndef more(p): p.add_argument("--cows")\n',
    ],
)
def test_a_program_that_may_take_more_options_is_not_held_to_those_that_are_read(tmp_path: Path, program: str) -> None:
    script = checkout(tmp_path, program=program)
    script.write_text("python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --cows 1\n")
    assert findings(script) == []


def test_a_parser_that_takes_the_beginning_of_a_name_is_not_held_to_whole_names(tmp_path: Path) -> None:
    script = checkout(tmp_path, PARSER.replace("allow_abbrev=False", ""))
    script.write_text("python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch 1 --train-it 5\n")
    assert [message for _, message, _ in findings(script)] == ["`pretrain_gpt.py` has no option `--train-it`"]


@pytest.mark.parametrize(("abbreviates", "count"), [(False, 1), (True, 0)])
def test_lists_for_a_parser_that_takes_whole_names_hold_no_beginnings(tmp_path: Path, abbreviates: bool, count: int) -> None:
    names = [word for word in SIZES.split() if word.startswith("--")]
    added = "".join(f"    group.add_argument('{name}')\n" for name in (*names, "--eval-iters"))
    parser = PARSER.replace("    return", f"{added}    return", 1)
    script = checkout(tmp_path, parser.replace("allow_abbrev=False", "") if abbreviates else parser)
    own = script.parent / "model_config.yaml"
    pairs = [words.partition(" ") for words in SIZES.removeprefix("--").split(" --")]
    sizes = "".join(f"  --{name}: {value or 'true'}\n" for name, _, value in pairs)
    own.write_text(f"MODEL_ARGS:\n{sizes}  --eval-iter: 5\n")
    assert [rule for rule, _, _ in findings(own)] == ["misspelled-option"] * count


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (f"--tensor-parallel-size 2 {SIZES}", ["`--tensor-model-parallel-size`"]),
        (f"--pipeline-parallel-size 2 {SIZES}", ["`--pipeline-model-parallel-size`"]),
        (f"--context_parallel_size 2 {SIZES}", ["`--context-parallel-size`"]),
        (f"--clip-gradient 1.0 {SIZES}", ["`--clip-grad`"]),
        (f"--use-swiglu --globalbatch-size 8 {SIZES}", ["`--swiglu`", "`--global-batch-size`"]),
        (f"--clip-gradient 1.0 --clip-grad 1.0 {SIZES}", []),
        (f"--rollout-batch-size 2 --no-async-tensor-model-parallel-allreduce {SIZES}", []),
        (f"--tensor-model-parallel-size 2 --tensor-parallel-size 2 {SIZES}", []),
        (f"--clip-gard 1.0 --warmup-lr-iters 2 {SIZES}", ["`--clip-grad`", "`--lr-warmup-iters`"]),
        (f"--ffn-dim 64 --learning-rate 2 {SIZES}", ["`--ffn-hidden-size`"]),
        (f"--beta1-adam 0.9 --beta2-adam 0.9 {SIZES}", ["`--adam-beta1`", "`--adam-beta2`"]),
        (f"--tp-degree 2 --num-experts-per-tok 2 {SIZES}", ["`--tensor-model-parallel-size`", "`--moe-router-topk`"]),
        (f"--attn-dropout 0.0 --lr-warmup-steps 2 {SIZES}", ["`--attention-dropout`", "`--lr-warmup-iters`"]),
        (f"--min-lr1e-5 --seed1234 {SIZES}", ["`--min-lr`", "`--seed`"]),
        (f"--rotary-scale-factor 2 --max-steps 5 --gemm-backend a {SIZES}", []),
    ],
)
def test_other_names_of_sizes_are_told_where_no_source_is_there(options: str, found: list[str], tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"python pretrain_gpt.py {options}\n")
    assert [help.removeprefix("did you mean ").rstrip("?") for _, _, help in findings(script)] == found


@pytest.mark.parametrize(
    ("program", "found"), [("pretrain_vlm.py", ["`--lr`", "`--num-layers`"]), ("convert.py", ["`--num-layers`"])]
)
def test_other_names_than_those_of_sizes_are_told_of_programs_that_are_called_like_those_of_megatron(
    program: str, found: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    given = SIZES.replace("--num-layers", "--num-hidden-layers").replace("--lr", "--learning-rate")
    script.write_text(f"python {program} --tensor-model-parallel-size 2 {given}\n")
    assert sorted(help.removeprefix("did you mean ").rstrip("?") for _, _, help in findings(script)) == found


def test_a_program_with_mostly_options_of_its_own_may_name_all_as_it_likes(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    own = "--account a --partition b --time 1 --image c"
    script.write_text(f"python setup_experiment.py --tensor-parallel-size 2 --context_parallel_size 2 {own} {SIZES}\n")
    assert findings(script) == []


OPEN = "from mindspeed import megatron_adaptor\nfrom megatron.arguments import parse\n"


@pytest.mark.parametrize(
    ("launch", "found"),
    [
        ("python pretrain_mine.py --learning-rate 1 --clip-gard 5", ["`--lr`", "`--clip-grad`"]),
        ("python elsewhere.py --learning-rate 1 --clip-gard 5", ["`--clip-grad`"]),
        ("python -m examples.own --learning-rate 1 --router-topk 2 --cows 1", ["`--lr`", "`--moe-router-topk`"]),
        ("MODEL_ARGS='--learning-rate 1", ["`--lr`"]),
    ],
)
def test_without_all_of_the_source_the_parser_around_the_script_tells_what_is_nearly_one_of_its_options(
    launch: str, found: list[str], tmp_path: Path
) -> None:
    script = checkout(tmp_path, program=OPEN)
    (tmp_path / "examples" / "own.py").write_text(OPEN)
    end = "'" if "'" in launch else ""
    script.write_text(f"{launch} --tensor-model-parallel-size 2 --micro-batch-size 1{end}\n")
    assert [help for _, _, help in findings(script)] == [f"did you mean {name}?" for name in found]


@pytest.mark.parametrize("searched", ["", "import sys\nsys.path.append('../src')\n"])
def test_a_program_that_takes_its_parser_from_other_folders_may_have_what_other_frameworks_have(
    searched: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    (tmp_path / "pretrain_gpt2.py").write_text(f"{searched}from initialize import parse\nparse()\n")
    script.write_text(f"python pretrain_gpt2.py --train-batch-size 64 --clip-gard 1 {SIZES}\n")
    assert [help for _, _, help in findings(script)] == [
        f"did you mean {name}?" for name in (["`--clip-grad`"] if searched else ["`--global-batch-size`", "`--clip-grad`"])
    ]


def test_options_that_are_computed_may_be_called_like_any_field(tmp_path: Path) -> None:
    fields = "from dataclasses import fields\nclass Own:\n    gradient_checkpointing: bool = False\n    clip_gard: int = 1\n"
    added = 'def more(p):\n    for each in fields(Own):\n        p.add_argument(f"--{each.name}")\n'
    script = checkout(tmp_path, program=f"from megatron.arguments import parse\n{fields}{added}parse()\n")
    script.write_text(
        "python pretrain_gpt.py --gradient-checkpointing --clip_gard 1 --learning-rate 1 --tensor-model-parallel-size 2\n"
    )
    assert [help for _, _, help in findings(script)] == ["did you mean `--lr`?"]


def test_options_that_are_computed_are_no_other_spelling_of_one_that_the_source_names(tmp_path: Path) -> None:
    computed = 'def more(p, number_of_cows):\n    old(*number_of_cows)\n    p.add_argument(f"--{each.name}")\n'
    fields = "class Own:\n    number_of_cows: int = 1\n    herd_of_dogs: int = 1\n"
    named = 'p.add_argument("--number-of-cows")\n'
    script = checkout(tmp_path, program=f"from megatron.arguments import parse\n{fields}{computed}{named}parse()\n")
    script.write_text("python pretrain_gpt.py --micro-batch-size 1 --lr 1 --number_of_cows 2 --herd_of_dogs 1\n")
    assert [help for _, _, help in findings(script)] == ["did you mean `--number-of-cows`?"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--milk_of-cows 1", ["did you mean `--milk-of-cows`?"]),
        ("--milk-of--cows 1", ["did you mean `--milk-of-cows`?"]),
        ("--milk-of-cows 1", []),
        ("--milk_of-cows 1 --a 1 --b 1 --c 1", []),
    ],
)
def test_options_of_a_script_that_starts_nothing_are_spelled_as_the_parser_around_it_does(
    tmp_path: Path, options: str, found: list[str]
) -> None:
    others = re.findall(r"--[\w-]+", SIZES)
    added = "".join(f"    group.add_argument('{name}')\n" for name in ("--milk-of-cows", *others))
    script = checkout(tmp_path, PARSER.replace("    return", f"{added}    return", 1))
    (tmp_path / "megatron" / "training").mkdir()
    (tmp_path / "megatron" / "arguments.py").rename(tmp_path / "megatron" / "training" / "arguments.py")
    script.write_text(
        f"MODEL_ARGS=(\n  --tensor-model-parallel-size 2\n  {SIZES.replace('train-', 'train_')}\n  {options}\n)\n"
    )
    assert [help for _, _, help in findings(script)] == found


def test_an_option_with_both_switches_has_the_negated_one(tmp_path: Path) -> None:
    both = 'parser.add_argument("--own-graphs", action=argparse.BooleanOptionalAction)'
    script = checkout(tmp_path, PARSER.replace("    return parser", f"    {both}\n    return parser"))
    script.write_text("python pretrain_gpt.py --no-own-graphs --no-train_iters --tensor-model-parallel-size 2\n")
    assert [message for _, message, _ in findings(script)] == ["`pretrain_gpt.py` has no option `--no-train_iters`"]


MADE = """
class Shared:
    clip_grad: float = 1.0
class Sizes(Shared):
    weight_decay: float = 0.1
class Other:
    learning_rate: float = 0.1
class ArgumentGroupFactory:
    pass
"""


@pytest.mark.parametrize(
    ("made_of", "found"),
    [("Sizes", ["unknown-option"]), ("Other", ["unknown-option"] * 2), ("chosen", []), ("Sizes, Other", [])],
)
def test_options_that_are_made_of_a_class_are_called_like_its_fields(made_of: str, found: list[str], tmp_path: Path) -> None:
    made = "".join(f"ArgumentGroupFactory({name})\n" for name in made_of.split(", "))
    script = checkout(tmp_path, program=f"from megatron.arguments import parse\n{MADE}{made}parse()\n")
    script.write_text(
        "python pretrain_gpt.py --clip-grad 1 --weight-decay 1 --learning-rate 1 --tensor-model-parallel-size 2\n"
    )
    assert [rule for rule, _, _ in findings(script)] == found


RECIPE = """
spec:
  model: gpt
  script: |-
    ARGUMENTS=(
        "TRAINING_SCRIPT_PATH=PROGRAM"
        "TRAINING_PARAMS_PATH=./tests/functional_tests/test_cases/{model}/{test_case}/model_config.yaml"
    )
products:
  - test_case: [one, two]
"""


@pytest.mark.parametrize(
    ("case", "recipes", "found"),
    [
        ("gpt/two", {"h100/gpt.yaml": "pretrain_gpt.py"}, ["--exit-when-done", "--bf16"]),
        ("gpt/two", {"gpt.yaml": "./pretrain_gpt.py", "h100/gpt.yaml": "./pretrain_gpt.py"}, ["--exit-when-done", "--bf16"]),
        ("gpt/two", {"gpt.yaml": "other.py", "h100/gpt.yaml": "pretrain_gpt.py"}, []),
        ("gpt/three", {"gpt.yaml": "pretrain_gpt.py"}, []),
        ("bert/two", {"gpt.yaml": "pretrain_gpt.py"}, []),
        ("gpt/two", {}, []),
    ],
)
def test_a_test_case_is_held_to_the_program_of_its_recipe(
    case: str, recipes: dict[str, str], found: list[str], tmp_path: Path
) -> None:
    checkout(tmp_path, PARSER.replace("--train_iters", "--bf16"))
    for name, program in recipes.items():
        recipe = tmp_path / "tests" / "test_utils" / "recipes" / name
        recipe.parent.mkdir(parents=True, exist_ok=True)
        recipe.write_text(RECIPE.replace("PROGRAM", program))
    own = tmp_path / "tests" / "functional_tests" / "test_cases" / case / "model_config.yaml"
    own.parent.mkdir(parents=True)
    sizes = "  --tensor-model-parallel-size: 2\n  --micro-batch-size: 1\n"
    switches = "  --bf16: false\n"
    own.write_text(f"MODEL_ARGS:\n{sizes}{switches}")
    as_words = [message for rule, message, _ in findings(own) if rule == "value-after-complete-option"]
    own.write_text(f"MODEL_ARGS:\n{sizes}  --exit-when-done: true\n")
    unknown = [message for rule, message, _ in findings(own) if rule == "unknown-option"]
    assert unknown == [f"`pretrain_gpt.py` has no option `{name}`" for name in found[:1]]
    assert as_words == [f"`{name}` takes no value, and `false` stands after it" for name in found[1:]]


@pytest.mark.parametrize("name", ["recompute-method", "checkpoint-method"])
@pytest.mark.parametrize("more", ["", 'NAME = "x"\ndef more(p): p.add_argument(f"--{NAME}")\n'])
def test_an_option_is_suggested_by_its_later_name_that_the_source_has(name: str, more: str, tmp_path: Path) -> None:
    parser = PARSER.replace('"--train_iters", type=int', f'"--{name}"')
    script = checkout(tmp_path, parser, f"from megatron.arguments import parse\n{more}parse()\n")
    launch = "python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
    script.write_text(f"{launch}--activations-checkpoint-method uniform\n")
    assert findings(script) == [
        (
            "unknown-option",
            "`pretrain_gpt.py` has no option `--activations-checkpoint-method`",
            f"did you mean `--{name}`?",
        )
    ]
    script.write_text(f"{launch}--{name} uniform\n")
    assert findings(script) == []


def test_an_option_that_was_renamed_is_excused_where_the_parser_of_the_tree_is_from_before(tmp_path: Path) -> None:
    parser = PARSER.replace('"--train_iters", type=int', '"--activations-checkpoint-method"')
    script = checkout(tmp_path, parser)
    launch = "python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1"
    script.write_text(f"{launch} --activations-checkpoint-method uniform\n")
    assert findings(script) == []


def test_no_old_name_of_the_table_is_one_that_megatron_has_now_and_each_leads_to_an_end() -> None:
    table = json.loads(Path(megatron.__file__).with_suffix(".json").read_bytes())["renamed"]
    old = [name for names in table.values() for name in names]
    assert len(old) == len(set(old))
    assert not any(map(megatron.is_flag, old))
    assert all(len(commit) == 40 for commit in table)
    gone = {name for name in old if not megatron.is_option(megatron.later_names(name)[-1])}
    assert gone == {"--delay-param-gather", "--retro-workdir"}


def test_the_table_of_forks_names_the_source_of_each_option_once() -> None:
    forks = json.loads((Path(megatron.__file__).parent / "forks.json").read_bytes())["forks"]
    assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", each["source"]) for each in forks)
    assert all(re.fullmatch("[0-9a-f]{40}", each["commit"]) for each in forks)
    own = [name for each in forks for line in each["options"] for name in line.split()]
    assert len(own) == len(set(own))
    assert not [name for name in own if megatron.is_flag(f"--{name}")]


def test_an_option_of_a_fork_is_one_that_a_function_adds_to_the_parser_it_is_given() -> None:
    text = "def add(parser):\n    group = parser.add_argument_group('own')\n    group.add_argument('--cows', type=int)\n"
    assert [*options_in(text)] == ["cows"]
    assert [*options_in(text.replace("def add(parser)", "def main()"))] == []
    assert [*options_in(text.replace("--cows", "--micro-batch-size"))] == []


DECLARED = PARSER.replace(
    "    return parser\n",
    """    group.add_argument("--hidden-size", type=int)
    group.add_argument("--fp16", action="store_true")
    group.add_argument("--log-cows", action="store_true", help="(said) in 'the' log")
    group.add_argument("--cows", type=int, help="how many")
    group.add_argument("--milk", type=float)
    group.add_argument("--herd", choices=["large", "small"], default="small")
    group.add_argument("--names", nargs="+")
    group.add_argument("-b", "--barn")
    return parser
""",
)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--cows 1.5", ("option-value-not-a-number", "`--cows` takes an integer, not `1.5`")),
        ("--milk 1.5l", ("option-value-not-a-number", "`--milk` takes a number, not `1.5l`")),
        ("--herd smal", ("option-value-not-a-choice", "`--herd` does not take `smal`")),
        ("--log-cows True", ("value-after-complete-option", "`--log-cows` takes no value, and `True` stands after it")),
        ("--fp16 True", ("value-after-complete-option", "`--fp16` takes no value, and `True` stands after it")),
        ("--barn red green", ("value-after-complete-option", "`--barn` takes one value, and `green` stands after it")),
        ("--cows 3 --milk 2 --herd small --log-cows --fp16 --names ada bea --barn 5", None),
        ("--milk 1e-4 --cows $COWS --barn $BARN", None),
        ("--hidden-size 8 -b red", None),
        ("--barn 8 -p red", ("unknown-option", "`pretrain_gpt.py` has no option `-p`")),
    ],
)
def test_values_of_a_forks_own_options_are_held_to_how_its_source_declares_them(
    options: str, found: tuple[str, str] | None, tmp_path: Path
) -> None:
    script = checkout(tmp_path, DECLARED)
    script.write_text(f"python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {options}\n")
    assert [each[:2] for each in findings(script)] == ([found] if found else [])


@pytest.mark.parametrize(
    ("parser", "program"),
    [
        (DECLARED, "from megatron.arguments import parse\nparse(ignore_unknown_args=True)\n"),
        (DECLARED, 'from megatron.arguments import parse\ndef more(p): p.add_argument("herds")\n'),
        (DECLARED.replace('action="store_true"', "action=Switch"), "from megatron.arguments import parse\nparse()\n"),
        (DECLARED.replace('action="store_true"', "**OPTIONS"), "from megatron.arguments import parse\nparse()\n"),
        (DECLARED + 'def also(p): p.add_argument("--log-cows"), p.add_argument("--fp16")\n', "import megatron.arguments\n"),
    ],
)
def test_a_word_that_the_program_may_take_is_none_too_many(parser: str, program: str, tmp_path: Path) -> None:
    script = checkout(tmp_path, parser, program)
    script.write_text(
        "python pretrain_gpt.py --tensor-model-parallel-size 2 --log-cows True --fp16 True --micro-batch-size 1\n"
    )
    assert findings(script) == []


COMPUTED = 'from megatron.arguments import parse\ndef more(p): p.add_argument(f"--{parse}")\n'
CLOSED = "from megatron.arguments import parse\nparse()\n"
LOOKS_AHEAD = f"{COMPUTED}more(p).parse_known_args()\n"
MISTAKES = "--cows 1.5 --herd smal --number-of-cwos 1 --number_of_cows 2 --log-cows True"
OF_VALUES = ["`--cows` takes an integer, not `1.5`", "`--herd` does not take `smal`"]
OF_NAMES = [f"`pretrain_gpt.py` has no option `{each}`" for each in ("--number-of-cwos", "--number_of_cows")]
OF_WORDS = ["`--log-cows` takes no value, and `True` stands after it"]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (COMPUTED, [*OF_NAMES, *OF_VALUES, *OF_WORDS]),
        (LOOKS_AHEAD, [*OF_NAMES, *OF_VALUES]),
        (f"{LOOKS_AHEAD}parse_args(extra_args_provider=more)\n", [*OF_NAMES, *OF_VALUES, *OF_WORDS]),
        (f"{LOOKS_AHEAD}parse_args(extra_args_provider=more)\np.add_argument('words')\n", [*OF_NAMES, *OF_VALUES]),
        (f"import mindspeed\n{COMPUTED}", OF_NAMES),
    ],
)
def test_what_the_source_of_a_program_declares_holds_though_it_takes_more_than_is_read(
    program: str, found: list[str], tmp_path: Path
) -> None:
    more = '    group.add_argument("--number-of-cows", type=int)\n    return parser\n'
    script = checkout(tmp_path, DECLARED.replace("    return parser\n", more), program)
    script.write_text(f"python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {MISTAKES}\n")
    assert sorted(message for _, message, _ in findings(script)) == sorted(found)


STARTS = 'def start(words, program="PROGRAM"):\n    run(program, words)\n'


@pytest.mark.parametrize(
    ("program", "starts", "other", "found"),
    [
        (COMPUTED, STARTS.replace("PROGRAM", "pretrain_gpt.py"), "", ["option-value-not-a-number", "unknown-option"]),
        (CLOSED, STARTS.replace("PROGRAM", "pretrain_gpt.py"), "", ["option-value-not-a-number", "unknown-option"]),
        (COMPUTED, STARTS.replace("PROGRAM", "serve.py"), "", []),
        (COMPUTED, f'{STARTS.replace("PROGRAM", "pretrain_gpt.py")}OTHER = "serve.py"\n', "--milk", ["unknown-option"]),
    ],
)
def test_what_a_launcher_lists_is_held_to_all_programs_that_it_or_its_modules_name(
    program: str, starts: str, other: str, found: list[str], tmp_path: Path
) -> None:
    script = checkout(tmp_path, DECLARED, COMPUTED).with_name("launch.py")
    (tmp_path / "megatron" / "start.py").write_text(starts)
    own = ("--cows", "--log-cows", "--herd", "--number-of-cows", other) if other else ()
    added = "".join(f'p.add_argument("{flag}")\n' for flag in own)
    (tmp_path / "serve.py").write_text(added)
    (tmp_path / "pretrain_gpt.py").write_text(program)
    more = '    group.add_argument("--number-of-cows", type=int)\n    return parser\n'
    (tmp_path / "megatron" / "arguments.py").write_text(DECLARED.replace("    return parser\n", more))
    sizes = "--nproc_per_node 2 --tensor-model-parallel-size 2 --micro-batch-size 1"
    words = f"{sizes} --cows 1.5 --log-cows --milk 1 --number_of_cows 2 --herd small"
    script.write_text(f"from megatron.start import start\nimport os\nwords = '{words}'\nstart(words)\n")
    assert sorted(rule for rule, _, _ in findings(script)) == found


@pytest.mark.parametrize("option", ["--number-of-dogs 1", "--dp-of-the-cows 1", "--cows-1 2", "--bows 1"])
def test_an_option_that_differs_by_another_word_may_be_one_that_is_not_read(option: str, tmp_path: Path) -> None:
    flags = ("--pp-of-the-cows", "--cows-2", "--number-of-cows")
    more = "".join(f'    group.add_argument("{flag}", type=int)\n' for flag in flags)
    script = checkout(tmp_path, DECLARED.replace("    return parser\n", f"{more}    return parser\n"), COMPUTED)
    script.write_text(f"python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {option}\n")
    assert findings(script) == []


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ('--weights: "[1.0 0.697]"', []),
        ('--weights: "[1.0 two]"', ["`--weights` takes a number, not `two`"]),
        ('--herd: "smal"', ["`--herd` does not take `smal`"]),
        ('--barn: "[red green]"', ["`--barn` takes one value, and `green` stands after it"]),
    ],
)
def test_values_of_a_test_case_are_held_to_the_declaration_word_by_word(entry: str, found: list[str], tmp_path: Path) -> None:
    weights = '    group.add_argument("--weights", type=float, nargs="*")\n    return parser\n'
    checkout(tmp_path, DECLARED.replace("    return parser\n", weights))
    recipe = tmp_path / "tests" / "test_utils" / "recipes" / "gpt.yaml"
    own = tmp_path / "tests" / "functional_tests" / "test_cases" / "gpt" / "two" / "model_config.yaml"
    for path, text in (
        (recipe, RECIPE.replace("PROGRAM", "pretrain_gpt.py")),
        (own, f"MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --micro-batch-size: 1\n  {entry}\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert [message for _, message, _ in findings(own)] == found


@pytest.mark.parametrize(("call", "found"), [("", ["unknown-option"]), ("deepspeed.add_config_arguments(parser)\n", [])])
def test_options_of_deepspeed_are_those_of_a_program_that_adds_them(call: str, found: list[str], tmp_path: Path) -> None:
    script = checkout(tmp_path, program=f"from megatron.arguments import parse\n{call}parse()\n")
    script.write_text("deepspeed pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --deepspeed\n")
    assert [rule for rule, _, _ in findings(script)] == found


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("--global-bacth-size", "--global-batch-size"),
        ("--globalbatch_size", "--global-batch-size"),
        ("--gradreduceinbf16", "--grad-reduce-in-bf16"),
        ("--size-batch-global", "--global-batch-size"),
        ("--tensor-parallel-size", "--tensor-model-parallel-size"),
        ("--experimental-enable", "--enable-experimental"),
        ("--data", ""),
        ("--path", ""),
        ("--grad", ""),
        ("--recompute-activations-granularity", ""),
        ("--cows", ""),
    ],
)
def test_the_nearest_name_is_suggested_and_none_where_several_or_none_are_near(flag: str, near: str) -> None:
    known = (
        "--global-batch-size --grad-reduce-in-bf16 --clip-grad --grad-norm --tensor-model-parallel-size --enable-experimental "
        "--tensor-parallel-output --fim-data --data-path --valid-data --load-path --recompute-activations "
        "--recompute-granularity"
    )
    assert nearest(flag, known.split()) == near


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("pretrain_gpt.py -tp 2", ["-tp"]),
        ("pretrain_gpt.py --my-names a -tp 2 -x", ["-tp"]),
        ("pretrain_gpt.py --tensor-model-parallel-size 1 -tp 2", []),
        ("pretrain_gpt.py --min-lr -1 -7", []),
        ("convert.py -tp 2", []),
        ("-n 4 -tp 2", []),
    ],
)
def test_short_names_of_sizes_are_refused_of_programs_of_megatron_alone(options: str, found: list[str], tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc-per-node 8 {options} {SIZES}\n")
    assert [message for rule, message, _ in findings(script) if rule == "unknown-option"] == [
        f"Megatron has no option `{name}`" for name in found
    ]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("", ["-tp", "-n4"]),
        ('\n    group.add_argument("-n", "--names")', ["-tp"]),
        ('\n    open("-tp", "-n", 1)', []),
        ('\n    open(["lsof", "-t", "-n"])', ["-tp", "-n4"]),
    ],
)
def test_the_source_of_the_program_decides_which_short_options_there_are(more: str, found: list[str], tmp_path: Path) -> None:
    script = checkout(tmp_path, PARSER.replace("\n    return parser\n", f"{more}\n    return parser\n"))
    script.write_text("python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 -tp 2 -n4\n")
    assert [message for rule, message, _ in findings(script) if rule == "unknown-option"] == [
        f"`pretrain_gpt.py` has no option `{name}`" for name in found
    ]


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_beginning_of_a_name_is_no_option_of_a_parser_that_takes_whole_names(tmp_path: Path, is_exact: bool) -> None:
    parser = PARSER if is_exact else PARSER.replace("allow_abbrev=False", "")
    script = checkout(tmp_path, parser, f"from megatron.arguments import parse\n{LOOKS_AHEAD}")
    script.write_text(
        f"torchrun pretrain_gpt.py {SIZES.replace('--num-layers', '--num-layer')} --tensor-model-parallel-size 2\n"
    )
    script.with_name("train.sh").write_text(script.read_text().replace("pretrain_gpt.py", "train.py"))
    (tmp_path / "pretrain_gpt.py").rename(tmp_path / "train.py")
    assert ("did you mean `--num-layers`?" in {help for _, _, help in findings(script)}) == is_exact


@pytest.mark.parametrize(("program", "found"), [("pretrain_gpt.py", ["--num-layer"]), ("train.py", [])])
def test_the_beginning_of_a_name_is_no_option_of_megatron(program: str, found: list[str], tmp_path: Path) -> None:
    """Megatron's own programs take no abbreviations; a program with its options may."""
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc-per-node 8 {program} {SIZES.replace('--num-layers', '--num-layer')}\n")
    assert [message for rule, message, _ in findings(script) if rule == "misspelled-option"] == [
        f"Megatron has no option `{name}`" for name in found
    ]


@pytest.mark.parametrize(
    ("program", "declared", "found"),
    [
        ("pretrain_gpt.py", 'action="store_true"', ["true"]),
        ("${HERE}/../pretrain_gpt.py", 'action="store_true"', ["true"]),
        ("${HERE}/../convert.py", 'action="store_true"', []),
        ("pretrain_gpt.py", "type=bool", []),
    ],
)
def test_a_word_after_a_switch_is_refused_where_a_package_adds_options(
    program: str, declared: str, found: list[str], tmp_path: Path
) -> None:
    parser = PARSER.replace("import argparse", "import argparse\nimport deepspeed")
    parser = parser.replace("    return parser", f'    group.add_argument("--fp16", {declared})\n    return parser')
    parser = parser.replace("return add(", "return deepspeed.add_config_arguments(add(").replace("False))", "False)))")
    script = checkout(tmp_path, parser)
    script.write_text(f"deepspeed {program} --tensor-model-parallel-size 2 --micro-batch-size 1 --fp16 true --deepspeed\n")
    assert [message for rule, message, _ in findings(script) if rule == "value-after-complete-option"] == [
        f"`--fp16` takes no value, and `{word}` stands after it" for word in found
    ]


@pytest.mark.parametrize(("name", "is_refused"), [("BailingTokenizer", False), ("GPT2BPETokeniser", True)])
def test_a_tokenizer_of_a_fork_is_no_error_in_a_script_without_its_tree(tmp_path: Path, name: str, is_refused: bool) -> None:
    path = tmp_path / "train.sh"
    sizes = "--tensor-model-parallel-size 2 --num-layers 24 --hidden-size 1024 --num-attention-heads 16"
    path.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py {sizes} --tokenizer-type {name}\n")
    document = read(str(path))
    assert document is not None
    assert bool(document.findings) == is_refused


@pytest.mark.parametrize(
    ("launch", "value", "is_refused"),
    [
        ("deepspeed gone/Megatron-DeepSpeed/pretrain_gpt.py --zero-stage 1", "--normalization rmsnorm", False),
        ("deepspeed gone/Megatron-DeepSpeed/pretrain_gpt.py --zero-stage 1", "--lr-decay-style cosin", True),
        ("torchrun gone/Megatron-LM/pretrain_gpt.py", "--normalization rmsnorm", True),
    ],
)
def test_a_fork_of_an_old_version_may_spell_choices_in_other_case(
    tmp_path: Path, launch: str, value: str, is_refused: bool
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"{launch} --tensor-model-parallel-size 2 --micro-batch-size 1 {value}\n")
    assert [rule for rule, _, _ in findings(script)] == ["option-value-not-a-choice"] * is_refused


@pytest.mark.parametrize(("name", "is_refused"), [("PretrainedFromHF", False), ("GPT2BPETokeniser", True)])
def test_a_value_is_not_held_to_a_parser_that_the_program_may_not_have(tmp_path: Path, name: str, is_refused: bool) -> None:
    parser = PARSER.replace(
        "    return", "    group.add_argument('--tokenizer-type', choices=['GPT2BPETokenizer'])\n    return", 1
    )
    script = checkout(tmp_path, parser)
    script.write_text(
        f"torchrun inference.py --tensor-model-parallel-size 2 --micro-batch-size 1 --lora-r 8 --tokenizer-type {name}\n"
    )
    assert [rule for rule, _, _ in findings(script)] == ["option-value-not-a-choice"] * is_refused


def test_a_value_is_not_held_to_the_parser_of_this_tree_where_the_program_is_of_another(tmp_path: Path) -> None:
    script = checkout(
        tmp_path, PARSER.replace("    return", "    group.add_argument('--optimizer', choices=['adam'])\n    return", 1)
    )
    script.write_text(
        "torchrun /work/Megatron-LM/pretrain_gpt.py --micro-batch-size 1 --train_iters 5 --cows 8 --optimizer ademamix\n"
    )
    assert findings(script) == []


@pytest.mark.parametrize(("program", "is_refused"), [("pretrain_gpt.py", True), ("inference.py", False)])
def test_a_value_is_held_to_the_parser_of_the_program_in_a_tree_of_a_version(
    program: str, is_refused: bool, tmp_path: Path
) -> None:
    parser = PARSER.replace(
        "    return", "    group.add_argument('--tokenizer-type', choices=['GPT2BPETokenizer'])\n    return", 1
    )
    script = checkout(tmp_path, parser)
    (tmp_path / "megatron" / "core").mkdir()
    (tmp_path / "megatron" / "core" / "package_info.py").write_text("MAJOR = 0\nMINOR = 12\n")
    options = "--tensor-model-parallel-size 2 --micro-batch-size 1 --lora-r 8 --tokenizer-type PretrainedFromHF"
    script.write_text(f"torchrun {program} {options}\n")
    rules, path = load_rules(), str(script)
    report, _ = check(Candidates((path,), frozenset({path})), rules, rules, Project(tmp_path))
    assert ("option-value-not-a-choice" in {each.rule for each in report.findings}) == is_refused


@pytest.mark.parametrize(
    ("option", "is_refused"),
    [
        ("--distributed-backend ncl", True),
        ("--ckpt-format torh", True),
        ("--ckpt-format toch_dit", False),
        ("--position-embedding-type rpe", False),
        ("--position-embedding-type ropee", True),
        ("--position-embedding-type roep", True),
        ("--position-embedding-type mrope2", False),
    ],
)
def test_letters_that_are_doubled_or_not_are_a_slip_though_others_may_add_choices(
    option: str, is_refused: bool, tmp_path: Path
) -> None:
    changes = "args.choices.append('x')  # '--distributed-backend', '--ckpt-format', '--position-embedding-type'"
    program = f"from megatron.arguments import parse\nfrom mindspeed_llm import adaptor\n{changes}\nparse()\n"
    more = "".join(
        f"    group.add_argument('{name}')\n"
        for name in ("--distributed-backend", "--ckpt-format", "--position-embedding-type")
    )
    script = checkout(tmp_path, PARSER.replace("    return", f"{more}    return", 1), program)
    script.write_text(f"torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 {option}\n")
    assert [rule for rule, _, _ in findings(script)] == ["option-value-not-a-choice"] * is_refused


def test_options_of_a_fork_are_left_alone_beside_others_of_their_word(tmp_path: Path) -> None:
    launch = f"torchrun --nproc-per-node 8 pretrain_gpt.py {SIZES} --lr 1 --min-lr 0 --bf16 --swiglu --wandb_entity me"
    (tmp_path / "one.sh").write_text(launch)
    (tmp_path / "other.sh").write_text(f"{launch} --wandb_gadget")
    found = [read(str(tmp_path / name)) for name in ("one.sh", "other.sh")]
    assert [bool(document and document.findings) for document in found] == [True, False]


@pytest.mark.parametrize(
    ("word", "value", "count"),
    [("", True, 0), ("yes", True, 0), ("False", False, 0), ("0", False, 0), ("tre", "tre", 1), ("$X", None, 0)],
)
def test_a_word_after_a_switch_of_ms_swift_says_whether_it_is_on(
    tmp_path: Path, word: str, value: bool | str | None, count: int
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 megatron sft --model x --sequence_parallel {word} --micro_batch_size 1 --bf16 true\n")
    document = read(str(script))
    assert document is not None
    (configuration,) = document.configurations
    found = configuration.settings["sequence_parallel"].value
    assert (None if isinstance(found, Unknown) else found) == value
    assert [each.rule for each in document.findings] == ["option-value-not-a-choice"] * count


@pytest.mark.parametrize(("words", "count"), [("--micro_batch_size x16", 1), ("--micro_batch_size 16 --loss_scale hermes", 0)])
def test_ms_swift_takes_no_word_for_an_integer(tmp_path: Path, words: str, count: int) -> None:
    (tmp_path / "sft.sh").write_text(f"NPROC_PER_NODE=8 megatron sft --tensor_model_parallel_size 4 {words}\n")
    document = read(str(tmp_path / "sft.sh"))
    assert document is not None
    assert [finding.rule for finding in document.findings] == ["option-value-not-a-number"] * count


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--kl-los-coef", "--kl-loss-coef"),
        ("--evaltop-p", "--eval-top-p"),
        ("--rollout-mx-response-len", "--rollout-max-response-len"),
        ("--es-clip", "--eps-clip"),
        ("--ep-clip", ""),
        ("--coloate", "--colocate"),
        ("--top-loss-coef", ""),
        ("--eval-top-k", ""),
        ("--kl-loss-coefs", "--kl-loss-coef"),
        ("--rollout-maxs-response-len", ""),
    ],
)
def test_a_word_that_no_option_has_is_a_slip_of_a_letter(written: str, meant: str, tmp_path: Path) -> None:
    """The source of the program names its own options, and not those of the frameworks that it imports."""
    names = ("--kl-loss-coef", "--eval-top-p", "--rollout-max-response-len", "--eps-clip", "--colocate")
    own = "".join(f"    parser.add_argument('{each}')\n" for each in names)
    program = f"{OPEN}def own(parser):\n{own}    return parser\nparse(own)\n"
    script = checkout(tmp_path, program=program)
    script.write_text(f"python pretrain_mine.py --tensor-model-parallel-size 2 {SIZES} --eval-top-p 1 {written} 1\n")
    (tmp_path / "pretrain_mine.py").write_text(program)
    assert [help for _, _, help in findings(script)] == [f"did you mean `{meant}`?"] * bool(meant)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--trian_iters", "--train_iters"),
        ("--no_loadrng", "--no_load_rng"),
        ("--train-iters", ""),
        ("--train_item", ""),
        ("--num_iter", ""),
    ],
)
def test_ms_swift_has_no_option_with_a_word_of_none(written: str, meant: str, tmp_path: Path) -> None:
    script = tmp_path / "sft.sh"
    script.write_text(f"NPROC_PER_NODE=8 megatron sft --tensor_model_parallel_size 4 --micro_batch_size 1 {written} 1\n")
    expected = [("misspelled-option", f"ms-swift has no option `{written}`", f"did you mean `{meant}`?")]
    assert findings(script) == expected * bool(meant)


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--tokenizer-paddding-side", "--tokenizer-padding-side"),
        ("--variable-seq-lnegths", "--variable-seq-lengths"),
        ("--tokenizer-backside-side", ""),
        ("--variable-seq-length", ""),
    ],
)
def test_an_option_of_a_fork_is_meant_where_a_word_is_none(tmp_path: Path, flag: str, meant: str) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun --nproc-per-node 8 train_ours.py --tensor-model-parallel-size 2 {SIZES} {flag}\n")
    expected = [("misspelled-option", f"Megatron has no option `{flag}`", f"did you mean `{meant}`?")] if meant else []
    assert findings(script) == expected


def test_what_a_misspelled_option_means_is_not_missing_too(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    sizes = SIZES.replace("--hidden-size", "--global-batch-size 8 --hiden-size")
    script.write_text(f"torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 {sizes}\n")
    rules, path = load_rules(), str(script)
    report, _ = check(Candidates((path,), frozenset({path})), rules, rules, Project(tmp_path))
    assert [(each.rule, each.help) for each in report.findings] == [("misspelled-option", "did you mean `--hidden-size`?")]


def test_an_option_with_the_words_of_one_of_the_source_in_another_order_is_that(tmp_path: Path) -> None:
    script = checkout(tmp_path, program=COMPUTED + 'def also(p): p.add_argument("--hf-checkpoint")\n')
    script.write_text(f"torchrun pretrain_gpt.py {SIZES} --checkpoint-hf a\n")
    assert [help for _, _, help in findings(script)] == ["did you mean `--hf-checkpoint`?"]


@pytest.mark.parametrize(("words", "is_read"), [("--seq_length 8", True), ("", False)])
def test_a_launch_with_underscores_alone_is_megatrons_by_several_sizes(words: str, is_read: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    sizes = "--max_position_embeddings 8" if words else ""
    path.write_text(f"python pretrain.py --micro_batch_size 4 --num_attention_heads 2 {sizes} {words}\n")
    document = read(str(path))
    assert (document is not None and bool(document.configurations)) == is_read
