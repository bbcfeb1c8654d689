"""Options without their value, words that belong to none, and options that a command loses."""

from __future__ import annotations

import pytest

from tvlint.readers.read import read

LAUNCH = "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-attention-heads 8 "


def rules(script: str) -> list[tuple[str, int, int]]:
    document = read("run.sh", script.encode())
    assert document is not None
    return [(each.rule, each.location.line or 0, each.location.column or 0) for each in document.findings]


@pytest.mark.parametrize(
    ("script", "rule", "line", "column"),
    [
        (LAUNCH + "--lr --min-lr 1e-5\n", "option-without-value", 1, len(LAUNCH) + 1),
        (LAUNCH + "\\\n  --lr \\\n  --min-lr 1e-5\n", "option-without-value", 2, 3),
        ("A=(\n  --num-attention-heads 8\n  --lr\n)\n" + LAUNCH + '"${A[@]}"\n', "option-without-value", 3, 3),
        ('A="\n  --num-attention-heads 8 \\\n  --lr\n"\n' + LAUNCH + "$A --bf16\n", "option-without-value", 3, 3),
        ('A="--num-attention-heads 8 --lr"\n' + LAUNCH + "$A\n", "option-without-value", 1, 28),
        (LAUNCH + "--option-of-ours --lr --min-lr 1e-5\n", "option-without-value", 1, len(LAUNCH) + 18),
        (LAUNCH + "--bf16 true\n", "value-after-complete-option", 1, len(LAUNCH) + 8),
        (LAUNCH + "--lr 1e-4 5\n", "value-after-complete-option", 1, len(LAUNCH) + 11),
        (LAUNCH + "--bf16 \\\nset +x\n", "value-after-complete-option", 2, 1),
        (LAUNCH + "--bf16 \\ \n  --lr 1e-4\n", "space-after-backslash", 1, len(LAUNCH) + 8),
    ],
)
def test_a_word_too_few_or_too_many_is_found_at_its_place(script: str, rule: str, line: int, column: int) -> None:
    assert rules(script) == [(rule, line, column)]


@pytest.mark.parametrize(
    "rest",
    [
        "--lr $LR --min-lr 1e-5",
        "--lr ${LR:-} --bf16",
        '--lr "" --bf16',
        "--bf16 $EXTRA",
        '--bf16 "$@"',
        "--bf16 2>&1 | tee log.txt",
        "--data-path 0.5 one 0.5 two",
        "--option-of-ours --bf16 true",
        "--bf16 \\ \necho done",
        "--save <PATH TO CHECKPOINTS> --bf16",
    ],
)
def test_what_may_be_right_is_left_alone(rest: str) -> None:
    assert [
        rule for rule, _, _ in rules(LAUNCH + rest + "\n") if rule.startswith(("option-without", "value-after", "space-"))
    ] == []


def test_a_list_for_another_script_may_end_before_a_value() -> None:
    assert rules('A="--num-attention-heads 8 --num-layers 2 --hidden-size 64 --save"\n') == []


@pytest.mark.parametrize(
    "script",
    ['A=\n@ "${A[@]}"\n', 'A=\nA+=("")\n@ "${A[@]}"\n', 'unset A\n@ "${A[@]}" "${A[0]}"\n', 'A=\n@ --bf16 "${A[0]}"\n'],
)
def test_an_empty_word_is_none_too_many(script: str) -> None:
    assert rules(script.replace("@", LAUNCH)) == []


@pytest.mark.parametrize(
    ("value", "is_blank"), [("PATH TO THE CHECKPOINT", True), ("TENSORBOARD DIRECTORY", True), ("my run", False)]
)
def test_a_value_that_is_to_be_filled_in_may_have_blanks(value: str, is_blank: bool) -> None:
    found = rules(f'DIR="{value}"\n{LAUNCH} --load $DIR\n')
    assert found == ([] if is_blank else [("value-after-complete-option", 1, 9)])


@pytest.mark.parametrize(
    ("script", "quoted"),
    [
        ('A=(\n  --lr-decay-style "cosine slow"\n)\n' + LAUNCH + "${A[@]}\n", True),
        ("STYLE='cosine slow'\n" + LAUNCH + "--lr-decay-style $STYLE\n", True),
        ('A="--lr-decay-style cosine slow"\n' + LAUNCH + "$A\n", False),
        (LAUNCH + "--lr-decay-style cosine slow\n", False),
    ],
)
def test_the_help_for_a_value_that_the_shell_splits_is_to_quote_what_expands_to_it(script: str, quoted: bool) -> None:
    document = read("run.sh", script.encode())
    assert document is not None
    (finding,) = (each for each in document.findings if each.rule == "value-after-complete-option")
    assert ("quote what expands to it" in finding.help, bool(finding.fixes)) == (quoted, not quoted)
