"""Options of programs in the tree that make, fill and ask a parser by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.readers.read import read

PROGRAM = """
import argparse
from elsewhere import train
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero_stage", type=int, default=2)
    parser.add_argument("--kind", choices=["gae", "rloo"])
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--sample_rate", type=int)
    args = parser.parse_args()
    train(args)
"""
MODULE = "deepspeed --module cli.train"


def findings(folder: Path, script: str, program: str = PROGRAM) -> list[tuple[str, str]]:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / "cli").mkdir(exist_ok=True)
    (folder / "examples").mkdir(exist_ok=True)
    (folder / "cli" / "train.py").write_text(program)
    path = folder / "examples" / "run.sh"
    path.write_text(script)
    document = read(str(path))
    return [] if document is None else [(each.message, each.help) for each in document.findings]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--zero_stage 3 --kind gae --bf16 --sample_rate 1", []),
        ("--zero_stag 3", []),
        ("--zero_stages 3", [("`train.py` has no option `--zero_stages`", "did you mean `--zero_stage`?")]),
        ("--cows 3", [("`train.py` has no option `--cows`", "remove it, or have the program take it")]),
        ("--zero_stage three", [("`--zero_stage` takes an integer, not `three`", "write an integer")]),
        ("--kind gea", [("`--kind` does not take `gea`", "one of `gae`, `rloo`")]),
        ("--bf16 true", [("`--bf16` takes no value, and `true` stands after it", "remove it")]),
        ("--zero_stage $STAGE --kind ${KIND}", []),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        f"{MODULE} OPTIONS\n",
        "torchrun --nproc_per_node 8 cli/train.py OPTIONS\n",
        "ray job submit --address http://localhost:8265 -- python3 -m cli.train OPTIONS\n",
        "read -r -d '' words <<EOF\ncli.train \\\n   OPTIONS\nEOF\ndeepspeed --module $words\n",
    ],
)
def test_the_parser_of_a_program_in_the_tree_decides(
    options: str, found: list[tuple[str, str]], start: str, tmp_path: Path
) -> None:
    assert findings(tmp_path, start.replace("OPTIONS", options)) == found


@pytest.mark.parametrize(
    "instead",
    [
        ("parser.parse_args()", "parser.parse_known_args()[0]"),
        ("parser.parse_args()", "parse(parser)"),
        ("parser.parse_args()", "parser.parse_args(WORDS)"),
        ("args = parser", "more(parser)\n    args = parser"),
        ("args = parser", "parser.add_subparsers()\n    args = parser"),
        ("args = parser", "for name in NAMES:\n        parser.add_argument(name)\n    args = parser"),
        ("args = parser", "other = parser\n    args = parser"),
        ("ArgumentParser()", "ArgumentParser(parents=[base])"),
        ("ArgumentParser()", "ArgumentParser(*words)"),
        ("argparse.ArgumentParser()", "argparse.ArgumentParser() if one else two()"),
        ("from elsewhere", "import sys\nsys.argv.pop()\nfrom elsewhere"),
        ("import argparse", "import argparse  # ("),
        ("import argparse", "import configargparse as argparse"),
        ("import argparse", "import argparse\nfrom somewhere import argparse"),
    ],
)
def test_a_parser_that_may_get_more_options_elsewhere_is_not_judged(instead: tuple[str, str], tmp_path: Path) -> None:
    changed = PROGRAM.replace(*instead)
    is_judged = bool(findings(tmp_path, f"{MODULE} --cows 3\n", changed))
    assert is_judged == ("# (" in instead[1])


@pytest.mark.parametrize(
    "added",
    [
        "group = parser.add_argument_group('more')\n    group.add_argument('--cows', type=int)\n    ",
        "parser.add_argument('--no-dogs', '--cows')\n    ",
        "parser = deepspeed.add_config_arguments(parser)\n    parser.add_argument('--cows')\n    ",
    ],
)
def test_groups_and_what_deepspeed_adds_count(added: str, tmp_path: Path) -> None:
    program = PROGRAM.replace("args = parser", f"{added}args = parser")
    assert findings(tmp_path, f"{MODULE} --cows 3\n", program) == []
    more = findings(tmp_path, f"{MODULE} --cows 3 --deepspeed_config a.json --dogs 1\n", program)
    assert [message for message, _ in more][-1] == "`train.py` has no option `--dogs`"
    assert len(more) == (1 if "deepspeed" in added else 2)


@pytest.mark.parametrize(
    ("launch", "meant"),
    [
        ("torchrun --nprocs_per_node 8 elsewhere.py --cows 1\n", "--nproc_per_node"),
        ("ray job submit --runtim-env-json '{}' -- python3 elsewhere.py --cows 1\n", "--runtime-env-json"),
        ("ray job submit --runtime-env-json '{}' -- python3 elsewhere.py --cows 1\n", ""),
        ("other job submit --runtim-env-json '{}' -- python3 elsewhere.py --cows 1\n", ""),
        ("torchrun --nproc_per_node 8 elsewhere.py --nprocs_per_node 1\n", ""),
    ],
)
def test_options_of_the_launcher_are_held_to_it_whatever_it_starts(launch: str, meant: str, tmp_path: Path) -> None:
    assert [help for _, help in findings(tmp_path, launch)] == ([f"did you mean `{meant}`?"] if meant else [])


def test_a_program_that_no_launcher_starts_is_judged_where_it_has_options_of_a_training(tmp_path: Path) -> None:
    assert len(findings(tmp_path / "training", "python cli/train.py --cows 3\n")) == 1
    fetching = PROGRAM.replace("--zero_stage", "--folder")
    assert len(findings(tmp_path / "fetching", "python cli/train.py --cows 3\n", fetching)) == 0


def test_a_program_that_several_files_may_be_is_not_judged(tmp_path: Path) -> None:
    assert len(findings(tmp_path, "torchrun train.py --cows 3\n")) == 0
    (tmp_path / "train.py").write_text(PROGRAM)
    assert len(findings(tmp_path, "torchrun train.py --cows 3\n")) == 1
    assert len(findings(tmp_path, "cd $WORK\ntorchrun train.py --cows 3\n")) == 0
    assert len(findings(tmp_path, "torchrun $OTHER/train.py --cows 3\n")) == 0
    assert len(findings(tmp_path, 'srun bash -c "torchrun train.py --cows 3"\n')) == 1
    assert len(findings(tmp_path, 'srun bash -c "cd $WORK; torchrun train.py --cows 3"\n')) == 0
    (tmp_path / "examples" / "train.py").write_text(PROGRAM)
    assert len(findings(tmp_path, "torchrun train.py --cows 3\n")) == 0
