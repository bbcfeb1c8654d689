"""Launches of the branches and loops of a script, each judged for the text that leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvlint.findings import Finding, Severity
from tvlint.ir.configuration import Configuration, Unknown
from tvlint.readers.megatron.launch_script import MOST_CASES, NOT_TRIED
from tvlint.readers.read import read
from tvlint.rulebook.evaluate import evaluate
from tvlint.rulebook.pages import load_rules

LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --num-attention-heads 8 --num-layers 8"
    " --global-batch-size 8"
)
ARGUMENTS = LAUNCH[LAUNCH.index(" --tensor") :].replace("$TP", "3")
CASE = """
MODEL=${1:-small}
case "$MODEL" in
  small) TP=2 ;;
  middle|large) TP=3 ;;
  *) exit 1 ;;
esac
"""
OPTIONS = """
MODEL=small
while getopts "m:" opt; do
  case $opt in
    m) MODEL=$OPTARG ;;
  esac
done
if [ "$MODEL" = large ]; then TP=3; else TP=2; fi
"""


def configurations(script: Path, text: str) -> tuple[Configuration, ...]:
    script.write_text(text)
    document = read(str(script))
    assert document is not None
    return document.configurations


def errors(script: Path, text: str) -> list[str]:
    found = (each for own in configurations(script, text) for each in evaluate(own, load_rules()))
    rule = "heads-not-divisible-by-tp"
    return [
        each.message for each in found if isinstance(each, Finding) and each.rule == rule and each.severity is Severity.ERROR
    ]


WRONG = "8 attention heads do not divide over 3 tensor-parallel ranks"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        (CASE + LAUNCH, " with `MODEL=middle`"),
        (OPTIONS + LAUNCH, " with `MODEL=large`"),
        ('if [ "$WIDE" = yes ]; then TP=3; else TP=2; fi\n' + LAUNCH, " with `WIDE=yes`"),
        ('if [ "$WIDE" != no ]; then TP=3; else TP=2; fi\n' + LAUNCH, " with `WIDE=`"),
        ("case $2 in\n  a) TP=2 ;;\n  b) TP=3 ;;\nesac\n" + LAUNCH, " with `b` as argument 2"),
        (f"for TP in 2 3 4; do\n  {LAUNCH}\ndone\n", " with `TP=3`"),
        (f"TP=3\n{CASE.replace('TP=3', 'TP=4')}TP=3\n{LAUNCH}", ""),
        (f"case $RUN in\n  a) TP=2; {LAUNCH} ;;\n  b) TP=3; {LAUNCH} --bf16 ;;\nesac\n", ""),
        (f'ARGS="{ARGUMENTS}"\nif [ "$RUN" = a ]; then torchrun --nproc-per-node 3 train.py $ARGS; fi\n', ""),
    ],
)
def test_a_launch_that_a_branch_leads_to_is_judged_with_its_condition(text: str, condition: str, tmp_path: Path) -> None:
    assert errors(tmp_path / "train.sh", text) == [WRONG + condition]


@pytest.mark.parametrize(
    "text",
    [
        CASE.replace("TP=3", "TP=4") + LAUNCH,
        CASE.replace("TP=3", "TP=3; exit 1") + LAUNCH,
        f"for TP in 2 3 4; do\n  if [ $TP = 3 ]; then continue; fi\n  {LAUNCH}\ndone\n",
        'MODEL=small\nif [ "$MODEL" = large ]; then TP=3; else TP=2; fi\n' + LAUNCH,
        'if [ "$A" = 1 ]; then TP=2; else TP=4; fi\nif [ "$A" = 1 ] && [ "$TP" = 4 ]; then TP=3; fi\n' + LAUNCH,
        CASE + LAUNCH.replace("--global-batch-size 8", "--load-dir a"),
        f'launch() {{\n  if [ "$1" = 3 ]; then TP=3; else TP=2; fi\n  {LAUNCH}\n}}\nlaunch 2\n',
    ],
)
def test_what_no_text_leads_to_is_not_judged(text: str, tmp_path: Path) -> None:
    assert errors(tmp_path / "train.sh", text) == []


def test_what_depends_on_two_variables_is_left_open(tmp_path: Path) -> None:
    text = "case $A in\n  1) TP=3 ;;\n  2) TP=2 ;;\nesac\ncase $B in\n  1) HEADS=8 ;;\n  2) HEADS=9 ;;\nesac\n"
    (own,) = configurations(tmp_path / "train.sh", text + LAUNCH.replace("heads 8", "heads $HEADS"))
    assert [each.condition for each in own.cases] == [" with `A=1`", " with `A=2`", " with `B=1`", " with `B=2`"]
    sizes = [each.settings["tensor_model_parallel_size"].value for each in own.cases]
    assert sizes[:2] == [3, 2]
    assert all(isinstance(each, Unknown) for each in sizes[2:])


def test_of_too_many_texts_it_is_said_how_many_are_tried(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"for TP in {' '.join(map(str, range(1, 41)))}; do\n  {LAUNCH}\ndone\n")
    document = read(str(script))
    assert document is not None
    (note,) = (each for each in document.findings if each.rule == NOT_TRIED)
    assert f"40 texts of variables, and {MOST_CASES} of them" in note.message
    assert len(document.configurations[0].cases) == MOST_CASES


@pytest.mark.parametrize(("size", "found"), [("four", ["option-value-not-a-number"]), ("4", [])])
def test_options_of_a_branch_are_judged_as_they_are_written(size: str, found: list[str], tmp_path: Path) -> None:
    text = f'if [ "$KIND" = wide ]; then\n  SIZES="--micro-batch-size {size}"\nfi\n{LAUNCH} $SIZES\n'
    script = tmp_path / "train.sh"
    script.write_text(f"TP=2\n{text}")
    document = read(str(script))
    assert document is not None
    assert [(each.rule, each.location.line) for each in document.findings] == [(rule, 3) for rule in found]
